// Reading one tensor's fields in a few loads, for tensor_torch.cpp and tensor_array_torch.cpp.
//
// read_header() packs what TensorMeta::header holds. It may be asked only about tensors whose key set is_plain():
// for those no field is computed by a virtual function, so nothing here can throw or reach Python.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "host/torch/tensor.h"
#include "host/torch/version_torch.h"

namespace reprise::host {

REPRISE_EXPOSE(TensorImplAutogradMeta, c10::TensorImpl, autograd_meta_);

inline const c10::TensorImpl* impl_of(PyObject* tensor) noexcept {
  return THPVariable_Unpack(tensor).unsafeGetTensorImpl();
}

// torch.Tensor and Parameter first; types that are not on the heap can't derive from them.
inline bool is_tensor_type(PyTypeObject* type) noexcept {
  auto* const tensor = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  if (type == tensor) return true;
  if (type == reinterpret_cast<PyTypeObject*>(ParameterClass)) return type != nullptr;
  if (tensor == nullptr) return false;
  PyTypeObject* const base = tensor->tp_base;
  return type == base || (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && PyType_IsSubtype(type, base));
}

inline const torch::autograd::AutogradMeta* autograd_of(const c10::TensorImpl* impl) noexcept {
  return static_cast<const torch::autograd::AutogradMeta*>((impl->*expose(TensorImplAutogradMeta{})).get());
}

// Keys of tensors whose metadata is not what it seems: wrappers, Python-defined, symbolic, quantised, nested.
inline bool is_plain(c10::DispatchKeySet keys) noexcept {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kOther{
      DispatchKey::Fake,
      DispatchKey::Python,
      DispatchKey::PythonTLSSnapshot,
      DispatchKey::Functionalize,
      DispatchKey::ZeroTensor,
      DispatchKey::FuncTorchBatched,
      DispatchKey::BatchedNestedTensor,
      DispatchKey::Batched,
      DispatchKey::VmapMode,
      DispatchKey::FuncTorchVmapMode,
      DispatchKey::FuncTorchGradWrapper,
#if REPRISE_TORCH_HAS_NAMED_TENSORS
      DispatchKey::Named,
#endif
  };
  // Per-backend functionalities: any backend's bit will do to name them.
  constexpr c10::DispatchKeySet kOtherFunctionality =
      c10::DispatchKeySet(DispatchKey::Quantized) | c10::DispatchKeySet(DispatchKey::NestedTensor);
  return !keys.has_any(kOther | kOtherFunctionality);
}

inline bool has_attributes(PyObject* const* dict) noexcept {
  return dict != nullptr && *dict != nullptr && PyDict_GET_SIZE(*dict) != 0;
}

inline uint32_t read_autograd_flags(const torch::autograd::AutogradMeta* meta) noexcept {
  if (meta == nullptr) return TensorMeta::kIsLeaf;
  const bool has_grad_fn = static_cast<bool>(meta->grad_fn_);
  uint32_t flags = has_grad_fn ? 0 : TensorMeta::kIsLeaf;
  if (meta->requires_grad_ || has_grad_fn) {
    flags |= TensorMeta::kRequiresGrad;
  } else if (meta->is_view_ && meta->requires_grad()) {  // through its base
    flags |= TensorMeta::kRequiresGrad;
  }
  if (meta->fw_grad_ && !meta->fw_grad_->empty()) flags |= TensorMeta::kHasForwardGrad;
  return flags;
}

inline uint64_t read_header(const c10::TensorImpl* impl, uint32_t flags) noexcept {
  if (impl->is_wrapped_number()) flags |= TensorMeta::kIsWrappedNumber;
  const c10::Device device = impl->device();
  return static_cast<uint64_t>(static_cast<uint8_t>(c10::typeMetaToScalarType(impl->dtype()))) |
         static_cast<uint64_t>(static_cast<uint8_t>(device.type())) << 8 |
         static_cast<uint64_t>(static_cast<uint8_t>(device.index())) << 16 | static_cast<uint64_t>(flags) << 24 |
         static_cast<uint64_t>(impl->sizes().size()) << 32;
}

inline bool is_equal(const int64_t* a, const int64_t* b, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

}  // namespace reprise::host
