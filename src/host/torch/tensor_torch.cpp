#include "host/torch/tensor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "host/torch/tensor_fields_impl.h"

namespace reprise::host {

namespace {

constexpr uint8_t kStrided = static_cast<uint8_t>(c10::Layout::Strided);
static_assert(kStrided == 0, "TensorMeta::strides() takes 0 for strided");
static_assert(static_cast<size_t>(c10::ScalarType::NumOptions) <= 256);

bool has_plain_metadata(const c10::TensorImpl* impl) noexcept {
  return is_plain(impl->key_set()) && !impl->has_symbolic_sizes_strides() && impl->dtype().isScalarType();
}

bool is_same_header(const TensorMeta& meta, PyObject* tensor, const c10::TensorImpl* impl) noexcept {
  // Equal key sets first: they say that the live tensor is as plain as the recorded one.
  if (impl->key_set().raw_repr() != meta.key_set || !meta.is_supported) return false;
  if (impl->has_symbolic_sizes_strides()) return false;
  uint32_t flags = read_autograd_flags(autograd_of(impl));
  if (has_attributes(_PyObject_GetDictPtr(tensor))) flags |= TensorMeta::kHasAttributes;
  if (read_header(impl, flags) != meta.header) return false;
  return meta.layout == kStrided || static_cast<uint8_t>(impl->layout()) == meta.layout;
}

// First and one-past-last byte that the elements can touch, relative to the start of the storage.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

ByteRange element_range(const c10::TensorImpl* impl) noexcept {
  int64_t low = impl->storage_offset();
  int64_t high = low;
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return {};
    const int64_t reach = (sizes[i] - 1) * strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto item = static_cast<int64_t>(impl->itemsize());
  return {low * item, (high + 1) * item};
}

const char* dtype_word(int code) {
  switch (static_cast<c10::ScalarType>(code)) {
    case c10::ScalarType::Byte:
      return "u8";
    case c10::ScalarType::Char:
      return "i8";
    case c10::ScalarType::Short:
      return "i16";
    case c10::ScalarType::Int:
      return "i32";
    case c10::ScalarType::Long:
      return "i64";
    case c10::ScalarType::Half:
      return "f16";
    case c10::ScalarType::Float:
      return "f32";
    case c10::ScalarType::Double:
      return "f64";
    case c10::ScalarType::ComplexHalf:
      return "c32";
    case c10::ScalarType::ComplexFloat:
      return "c64";
    case c10::ScalarType::ComplexDouble:
      return "c128";
    case c10::ScalarType::Bool:
      return "bool";
    case c10::ScalarType::BFloat16:
      return "bf16";
    case c10::ScalarType::UInt16:
      return "u16";
    case c10::ScalarType::UInt32:
      return "u32";
    case c10::ScalarType::UInt64:
      return "u64";
    default:
      return c10::toString(static_cast<c10::ScalarType>(code));  // torch's list grows; ours names the usual
  }
}

std::string layout_word(uint8_t layout) {
  switch (static_cast<c10::Layout>(layout)) {
    case c10::Layout::Strided:
      return "strided";
    case c10::Layout::Sparse:
      return "sparse";
    case c10::Layout::SparseCsr:
      return "sparse_csr";
    case c10::Layout::SparseCsc:
      return "sparse_csc";
    case c10::Layout::SparseBsr:
      return "sparse_bsr";
    case c10::Layout::SparseBsc:
      return "sparse_bsc";
    case c10::Layout::Mkldnn:
      return "mkldnn";
    case c10::Layout::Jagged:
      return "jagged";
    default:
      return "layout " + std::to_string(layout);
  }
}

std::string device_word(const TensorMeta& meta) {
  return c10::Device(static_cast<c10::DeviceType>(meta.device_type()),
                     static_cast<c10::DeviceIndex>(meta.device_index()))
      .str();
}

std::string list_word(std::span<const int64_t> numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i != 0) text += ',';
    text += std::to_string(numbers[i]);
  }
  return text + "]";
}

std::string dtype_text(const TensorMeta& meta) { return dtype_word(meta.dtype()); }

bool is_contiguous(const TensorMeta& meta) {
  int64_t expected = 1;
  const auto sizes = meta.sizes();
  const auto strides = meta.strides();
  for (size_t i = strides.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}

std::string flag_mismatch(const TensorMeta& recorded, const TensorMeta& now) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {
      {TensorMeta::kRequiresGrad, "requires_grad"},        {TensorMeta::kIsLeaf, "is_leaf"},
      {TensorMeta::kHasForwardGrad, "forward gradient"},   {TensorMeta::kIsWrappedNumber, "wrapped number"},
      {TensorMeta::kHasAttributes, "instance attributes"},
  };
  for (const auto& [flag, name] : kNames) {
    if ((recorded.flags() ^ now.flags()) & flag) {
      return std::string(name) + ((recorded.flags() & flag) ? ": yes recorded, no now" : ": no recorded, yes now");
    }
  }
  return {};
}

std::string key_mismatch(uint64_t recorded, uint64_t now) {
  const c10::DispatchKeySet a(c10::DispatchKeySet::RAW, recorded);
  const c10::DispatchKeySet b(c10::DispatchKeySet::RAW, now);
  return "dispatch keys: " + c10::toString(a) + " recorded, " + c10::toString(b) + " now";
}

std::string pair_mismatch(const std::string& what, const std::string& recorded, const std::string& now) {
  return what + ": " + recorded + " recorded, " + now + " now";
}

}  // namespace

PyTypeObject* tensor_type() { return reinterpret_cast<PyTypeObject*>(THPVariableClass); }
PyTypeObject* parameter_type() { return reinterpret_cast<PyTypeObject*>(ParameterClass); }

bool is_tensor(PyObject* object) noexcept { return is_tensor_type(Py_TYPE(object)); }

bool is_plain_tensor(PyObject* object) noexcept { return is_plain_tensor_type(Py_TYPE(object)); }

bool is_plain_tensor_type(const PyTypeObject* type) noexcept {
  return type == tensor_type() || type == parameter_type();
}

void* tensor_impl(PyObject* tensor) noexcept { return THPVariable_Unpack(tensor).unsafeGetTensorImpl(); }

void* tensor_storage(PyObject* tensor) noexcept {
  const c10::TensorImpl* const impl = impl_of(tensor);
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

bool may_share_memory(PyObject* a, PyObject* b) noexcept {
  const c10::TensorImpl* const first = impl_of(a);
  const c10::TensorImpl* const second = impl_of(b);
  if (first == second) return true;
  if (!has_plain_metadata(first) || !has_plain_metadata(second)) return true;
  if (first->device() != second->device()) return false;
  // A sparse tensor's values may be anybody's memory.
  if (!first->has_storage() || !second->has_storage()) return true;
  if (first->layout() != c10::Layout::Strided || second->layout() != c10::Layout::Strided) return true;
  ByteRange left = element_range(first);
  ByteRange right = element_range(second);
  if (left.begin == left.end || right.begin == right.end) return false;
  c10::StorageImpl* const left_storage = first->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* const right_storage = second->unsafe_storage().unsafeGetStorageImpl();
  if (left_storage != right_storage) {
    // Two storages over the same memory (from_numpy twice, dlpack): compare addresses.
    const auto left_data = reinterpret_cast<int64_t>(left_storage->_mutable_data_ptr_no_checks().get());
    const auto right_data = reinterpret_cast<int64_t>(right_storage->_mutable_data_ptr_no_checks().get());
    if (left_data == 0 || right_data == 0) return false;  // meta tensors, and storages not allocated yet
    left.begin += left_data;
    left.end += left_data;
    right.begin += right_data;
    right.end += right_data;
  }
  return left.begin < right.end && right.begin < left.end;
}

bool TensorMeta::operator==(const TensorMeta& other) const {
  return key_set == other.key_set && header == other.header && storage_offset == other.storage_offset &&
         layout == other.layout && is_supported == other.is_supported &&
         is_equal(dims(), other.dims(), dim_count() + strides().size());
}

uint64_t TensorMeta::hash() const {
  const uint64_t words[] = {key_set, header, static_cast<uint64_t>(storage_offset), layout, is_supported};
  return base::hash_bytes(dims(), (dim_count() + strides().size()) * sizeof(int64_t),
                          base::hash_bytes(words, sizeof words));
}

TensorMetaRef make_tensor_meta(PyObject* tensor) {
  const c10::TensorImpl* const impl = impl_of(tensor);
  auto meta = std::make_shared<TensorMeta>();
  meta->key_set = impl->key_set().raw_repr();
  if (!has_plain_metadata(impl)) return meta;
  uint32_t flags = read_autograd_flags(autograd_of(impl));
  if (has_attributes(_PyObject_GetDictPtr(tensor))) flags |= TensorMeta::kHasAttributes;
  meta->is_supported = true;
  meta->header = read_header(impl, flags);
  meta->layout = static_cast<uint8_t>(impl->layout());
  meta->storage_offset = impl->storage_offset();
  const size_t count = meta->dim_count();
  int64_t* dims = meta->inline_dims;
  if (count > TensorMeta::kInlineDims) {
    meta->more_dims = std::make_unique<int64_t[]>(2 * count);
    dims = meta->more_dims.get();
  }
  std::copy_n(impl->sizes().data(), count, dims);
  if (meta->layout == kStrided) std::copy_n(impl->strides().data(), count, dims + count);
  return meta;
}

bool check_tensor_header(const TensorMeta& meta, PyObject* object) noexcept {
  return is_tensor_type(Py_TYPE(object)) && is_same_header(meta, object, impl_of(object));
}

bool check_tensor_meta(const TensorMeta& meta, PyObject* object) noexcept {
  if (!is_tensor_type(Py_TYPE(object))) return false;
  const c10::TensorImpl* const impl = impl_of(object);
  if (!is_same_header(meta, object, impl)) return false;
  const size_t count = meta.dim_count();
  if (impl->storage_offset() != meta.storage_offset) return false;
  if (!is_equal(impl->sizes().data(), meta.sizes().data(), count)) return false;
  return meta.layout != kStrided || is_equal(impl->strides().data(), meta.strides().data(), count);
}

std::span<const int64_t> tensor_sizes(PyObject* tensor) noexcept {
  const c10::TensorImpl* const impl = impl_of(tensor);
  if (!has_plain_metadata(impl)) return {};
  return {impl->sizes().data(), impl->sizes().size()};
}

std::span<const int64_t> tensor_strides(PyObject* tensor) noexcept {
  const c10::TensorImpl* const impl = impl_of(tensor);
  if (!has_plain_metadata(impl) || impl->layout() != c10::Layout::Strided) return {};
  return {impl->strides().data(), impl->strides().size()};
}

bool is_whole_number(PyObject* tensor) noexcept {
  const c10::TensorImpl* const impl = impl_of(tensor);
  return impl->dim() == 0 && c10::isIntegralType(c10::typeMetaToScalarType(impl->dtype()), /*includeBool=*/false);
}

bool is_size_type(PyObject* object) noexcept {
  return PyType_Check(object) && std::strcmp(reinterpret_cast<PyTypeObject*>(object)->tp_name, "torch.Size") == 0 &&
         !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_HEAPTYPE);
}

PyObject* read_tensor_size(PyObject* tensor, int32_t read) {
  if (!is_plain_tensor(tensor) || impl_of(tensor)->has_symbolic_sizes_strides()) {  // trace tensors are fine
    PyErr_SetString(PyExc_TypeError, "sizes of what is no plain tensor");
    return nullptr;
  }
  const c10::TensorImpl* const impl = impl_of(tensor);
  const auto dimension = static_cast<size_t>(read >> 8);
  const auto what = static_cast<SizeRead>(read & 0xff);
  const bool needs_strides = what != SizeRead::Size && what != SizeRead::ElementCount;
  const bool has_dimension = what != SizeRead::Size && what != SizeRead::Stride;
  if ((needs_strides && impl->layout() != c10::Layout::Strided) ||
      (!has_dimension && dimension >= impl->sizes().size())) {
    PyErr_Format(PyExc_TypeError, "a tensor of %zu dimensions is asked for size %zu", impl->sizes().size(), dimension);
    return nullptr;
  }
  switch (what) {
    case SizeRead::Size:
      return PyLong_FromLongLong(impl->sizes()[dimension]);
    case SizeRead::Stride:
      return PyLong_FromLongLong(impl->strides()[dimension]);
    case SizeRead::ElementCount:
      return PyLong_FromLongLong(impl->numel());
    case SizeRead::StorageOffset:
      return PyLong_FromLongLong(impl->storage_offset());
    case SizeRead::IsContiguous:
      return PyBool_FromLong(impl->is_contiguous());
  }
  REPRISE_UNREACHABLE("read of a size " + std::to_string(read));
}

std::string describe_tensor_meta(const TensorMeta& meta) {
  if (!meta.is_supported) {
    return "unsupported tensor, dispatch keys " +
           c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, meta.key_set));
  }
  const c10::DispatchKeySet keys(c10::DispatchKeySet::RAW, meta.key_set);
  std::string text =
      dtype_text(meta) + list_word(meta.sizes()) + " " + device_word(meta) + " " + layout_word(meta.layout);
  if (!is_contiguous(meta)) text += " strides " + list_word(meta.strides());
  if (meta.storage_offset != 0) text += " offset " + std::to_string(meta.storage_offset);
  if (meta.requires_grad()) text += " requires_grad";
  if (!meta.is_leaf()) text += " non-leaf";
  if (meta.flags() & TensorMeta::kHasForwardGrad) text += " forward_grad";
  if (meta.flags() & TensorMeta::kIsWrappedNumber) text += " wrapped_number";
  if (meta.has_attributes()) text += " attributes";
  if (keys.has(c10::DispatchKey::Conjugate)) text += " conj";
  if (keys.has(c10::DispatchKey::Negative)) text += " neg";
  if (keys.has(c10::DispatchKey::ZeroTensor)) text += " zero";
  if (!keys.has(c10::DispatchKey::ADInplaceOrView)) text += " inference";
  return text;
}

std::string describe_meta_mismatch(const TensorMeta& meta, PyObject* object) {
  if (!is_tensor(object)) return std::string("not a tensor: ") + Py_TYPE(object)->tp_name;
  const TensorMetaRef ref = make_tensor_meta(object);
  const TensorMeta& now = *ref;
  if (!meta.is_supported || !now.is_supported) {
    return pair_mismatch("tensor", describe_tensor_meta(meta), describe_tensor_meta(now));
  }
  if (meta == now) return {};
  if (meta.dtype() != now.dtype()) return pair_mismatch("dtype", dtype_text(meta), dtype_text(now));
  if (device_word(meta) != device_word(now)) return pair_mismatch("device", device_word(meta), device_word(now));
  if (meta.layout != now.layout) return pair_mismatch("layout", layout_word(meta.layout), layout_word(now.layout));
  if (meta.dim_count() != now.dim_count()) {
    return pair_mismatch("dimensions", std::to_string(meta.dim_count()), std::to_string(now.dim_count()));
  }
  for (size_t i = 0; i < meta.dim_count(); ++i) {
    const int64_t recorded = meta.sizes()[i];
    if (recorded != now.sizes()[i]) {
      return pair_mismatch("size at dim " + std::to_string(i), std::to_string(recorded),
                           std::to_string(now.sizes()[i]));
    }
  }
  for (size_t i = 0; i < meta.strides().size(); ++i) {
    const int64_t recorded = meta.strides()[i];
    if (recorded != now.strides()[i]) {
      return pair_mismatch("stride at dim " + std::to_string(i), std::to_string(recorded),
                           std::to_string(now.strides()[i]));
    }
  }
  if (meta.storage_offset != now.storage_offset) {
    return pair_mismatch("storage offset", std::to_string(meta.storage_offset), std::to_string(now.storage_offset));
  }
  std::string flags = flag_mismatch(meta, now);
  return !flags.empty() ? flags : key_mismatch(meta.key_set, now.key_set);
}

}  // namespace reprise::host
