// Many tensors checked in one pass: the parameters and buffers that an entry reaches through stamped paths.
//
// One entry is one cache line; what lies behind it (object, TensorImpl, autograd meta) is prefetched a few entries
// ahead. A tensor has changed if its Python type, its TensorImpl, or anything in TensorMeta is not what it was when it
// was added: so `.data = other` (another dtype, shape, device ...), requires_grad_(), an in-place operation that gave
// it a grad_fn, `__class__ = ...`, resize_, an attribute set on it.
//
// Pointers are borrowed: the caller guarantees that every added object is alive at each check. Guards have that for
// free, as the heap stamps above the array prove that the same dicts still hold the same objects; they check the
// array only after the stamps. Needs the GIL.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise::host {

class TensorArray {
 public:
  /// Adds a live tensor as it is now. False if TensorMeta does not support it: such a tensor can't be guarded at all.
  bool add(PyObject* tensor);
  /// All as they were? About 6 ns a tensor.
  bool check_all() const noexcept { return find_mismatch() == size(); }
  /// Index, in order of add(), of the first that changed; size() if none did.
  size_t find_mismatch() const noexcept;
  size_t size() const noexcept { return entries_.size(); }
  void clear() noexcept;

 private:
  struct alignas(64) Entry {
    PyObject* object;
    PyTypeObject* type;
    const void* impl;       // c10::TensorImpl
    const void* autograd;   // torch::autograd::AutogradMeta as it was: only prefetched, never trusted
    PyObject* const* dict;  // where the object keeps its instance dict; nullptr: it has none
    uint64_t key_set;
    uint64_t header;     // as in TensorMeta
    uint32_t first_dim;  // into dims_: storage offset, sizes, strides
    uint8_t layout;
  };
  std::vector<Entry> entries_;
  std::vector<int64_t> dims_;
};

}  // namespace reprise::host
