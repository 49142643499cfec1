// Tensors as guards and the recorder see them: what is one, what a trace may know about it, and is that still so.
//
// No function here runs Python code (torch's own THPVariable_Check does: isinstance, __class__), so all may be called
// between two bytecodes, with an exception pending, or while guards run. They need the GIL. PyObject arguments are
// borrowed; a TensorMeta owns no tensor. Implemented twice: tensor_torch.cpp, and tensor_absent.cpp for builds without
// torch, where nothing is a tensor.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace reprise::host {

/// torch.Tensor and torch.nn.Parameter; borrowed. nullptr without torch or before it is imported.
PyTypeObject* tensor_type();
PyTypeObject* parameter_type();

/// Is the object a torch tensor, whatever its `__class__` or metaclass says: its type derives from torch's base type.
bool is_tensor(PyObject* object) noexcept;
/// Exactly torch.Tensor or torch.nn.Parameter: no subclass, so no `__torch_function__` of the user's.
bool is_plain_tensor(PyObject* object) noexcept;
bool is_plain_tensor_type(const PyTypeObject* type) noexcept;

/// torch.Size.
bool is_size_type(PyObject* object) noexcept;

// The following take only tensors (is_tensor).

/// Address of the c10::TensorImpl: the identity of a tensor below its Python objects.
void* tensor_impl(PyObject* tensor) noexcept;
/// Address of the c10::StorageImpl, nullptr if the tensor has none (sparse, nested ...).
void* tensor_storage(PyObject* tensor) noexcept;
/// False only if no byte of memory can be reached through both: other devices, or ranges from the lowest to the
/// highest element that do not meet (also across storages that were made over the same memory).
bool may_share_memory(PyObject* a, PyObject* b) noexcept;

/// Everything about a tensor that a trace may fold to a constant. Immutable; made by make_tensor_meta().
/// Not in it, because they are heap state or run-time values: data, .grad, grad_fn's identity, _version, hooks,
/// retains_grad, whether it is a view, pinned memory, the Python type (guards compare that apart).
struct TensorMeta {
  static constexpr uint32_t kRequiresGrad = 1u << 0;
  static constexpr uint32_t kIsLeaf = 1u << 1;
  static constexpr uint32_t kHasForwardGrad = 1u << 2;   // carries a forward-mode tangent
  static constexpr uint32_t kIsWrappedNumber = 1u << 3;  // takes part in type promotion like a Python number
  static constexpr uint32_t kHasAttributes = 1u << 4;    // its instance __dict__ is not empty: guard that dict too
  static constexpr int kInlineDims = 4;

  uint64_t key_set = 0;        // c10::DispatchKeySet: backend, layout family, autograd, conj and neg bits, inference
  uint64_t header = 0;         // dtype, device, flags, number of dimensions; see the accessors
  int64_t storage_offset = 0;  // elements
  uint8_t layout = 0;          // c10::Layout
  bool is_supported =
      false;  // false (subclass with __torch_dispatch__, nested, symbolic, ...): never equal to a tensor
  int64_t inline_dims[2 * kInlineDims] = {};
  std::unique_ptr<int64_t[]> more_dims;  // in place of inline_dims if there are more of them

  int dtype() const { return static_cast<int>(header & 0xff); }                    // c10::ScalarType
  int device_type() const { return static_cast<int>((header >> 8) & 0xff); }       // c10::DeviceType
  int device_index() const { return static_cast<int8_t>((header >> 16) & 0xff); }  // -1: none
  uint32_t flags() const { return static_cast<uint32_t>((header >> 24) & 0xff); }
  size_t dim_count() const { return static_cast<size_t>(header >> 32); }
  bool requires_grad() const { return flags() & kRequiresGrad; }
  bool is_leaf() const { return flags() & kIsLeaf; }
  bool has_attributes() const { return flags() & kHasAttributes; }
  std::span<const int64_t> sizes() const { return {dims(), dim_count()}; }
  /// Elements; empty unless the layout is strided.
  std::span<const int64_t> strides() const { return {dims() + dim_count(), layout == 0 ? dim_count() : 0}; }

  bool operator==(const TensorMeta& other) const;
  uint64_t hash() const;

 private:
  const int64_t* dims() const { return more_dims ? more_dims.get() : inline_dims; }
};
using TensorMetaRef = std::shared_ptr<const TensorMeta>;

TensorMetaRef make_tensor_meta(PyObject* tensor);
/// The guard: is the object a tensor with this metadata? Any object is allowed. About 10 ns.
bool check_tensor_meta(const TensorMeta& meta, PyObject* object) noexcept;
/// The same without sizes, strides and storage offset: what is left when sizes are symbolic.
bool check_tensor_header(const TensorMeta& meta, PyObject* object) noexcept;

/// Sizes and strides of a live tensor, borrowed until its metadata changes; empty where they are not plain numbers.
std::span<const int64_t> tensor_sizes(PyObject* tensor) noexcept;
std::span<const int64_t> tensor_strides(PyObject* tensor) noexcept;

/// Without dimensions, of a type of integers; also behind the wrappers of torch.func.
bool is_whole_number(PyObject* tensor) noexcept;

/// What Python can ask of a tensor's sizes.
enum class SizeRead : uint8_t { Size, Stride, ElementCount, StorageOffset, IsContiguous };
constexpr int32_t make_size_read(SizeRead what, int32_t dimension = 0) {
  return static_cast<int32_t>(what) | dimension << 8;
}
/// An int, or a bool for IsContiguous: a new reference. nullptr with TypeError set if the tensor has no such dimension
/// or is not strided.
PyObject* read_tensor_size(PyObject* tensor, int32_t read);

/// "f32[2,3] cpu strided requires_grad"; strides and offset are named where they are not those of a fresh tensor.
std::string describe_tensor_meta(const TensorMeta& meta);
/// The first difference in words: "size at dim 0: 2 recorded, 4 now". Empty if there is none.
std::string describe_meta_mismatch(const TensorMeta& meta, PyObject* object);

}  // namespace reprise::host
