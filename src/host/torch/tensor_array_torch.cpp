#include "host/torch/tensor_array.h"

#include "host/torch/tensor_fields_impl.h"

namespace reprise::host {

namespace {

// Far enough that a line from the second-level cache has arrived, near enough that it has not left again.
constexpr size_t kPrefetchDistance = 4;

constexpr uint8_t kStrided = static_cast<uint8_t>(c10::Layout::Strided);

}  // namespace

bool TensorArray::add(PyObject* tensor) {
  const TensorMetaRef meta = make_tensor_meta(tensor);
  if (!meta->is_supported) return false;
  const c10::TensorImpl* const impl = impl_of(tensor);
  entries_.push_back({.object = tensor,
                      .type = Py_TYPE(tensor),
                      .impl = impl,
                      .autograd = autograd_of(impl),
                      .dict = _PyObject_GetDictPtr(tensor),
                      .key_set = meta->key_set,
                      .header = meta->header,
                      .first_dim = static_cast<uint32_t>(dims_.size()),
                      .layout = meta->layout});
  dims_.push_back(meta->storage_offset);
  dims_.insert(dims_.end(), meta->sizes().begin(), meta->sizes().end());
  dims_.insert(dims_.end(), meta->strides().begin(), meta->strides().end());
  return true;
}

void TensorArray::clear() noexcept {
  entries_.clear();
  dims_.clear();
}

size_t TensorArray::find_mismatch() const noexcept {
  const size_t count = entries_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) {
      const Entry& ahead = entries_[i + kPrefetchDistance];
      __builtin_prefetch(ahead.object);
      // The lines that are read; the hardware fetches lines in pairs.
      for (const int offset : {0, 128}) {
        __builtin_prefetch(static_cast<const char*>(ahead.impl) + offset);
        __builtin_prefetch(static_cast<const char*>(ahead.autograd) + offset);
      }
    }
    const Entry& entry = entries_[i];
    if (Py_TYPE(entry.object) != entry.type) return i;
    const c10::TensorImpl* const impl = impl_of(entry.object);
    if (impl != entry.impl || impl->key_set().raw_repr() != entry.key_set) return i;
    if (impl->has_symbolic_sizes_strides()) return i;
    uint32_t flags = read_autograd_flags(autograd_of(impl));
    if (has_attributes(entry.dict)) flags |= TensorMeta::kHasAttributes;
    if (read_header(impl, flags) != entry.header) return i;
    const int64_t* dims = dims_.data() + entry.first_dim;
    if (impl->storage_offset() != *dims++) return i;
    const auto sizes = impl->sizes();
    if (!is_equal(sizes.data(), dims, sizes.size())) return i;
    if (entry.layout == kStrided) {
      if (!is_equal(impl->strides().data(), dims + sizes.size(), sizes.size())) return i;
    } else if (static_cast<uint8_t>(impl->layout()) != entry.layout) {
      return i;
    }
  }
  return count;
}

}  // namespace reprise::host
