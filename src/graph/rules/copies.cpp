// New tensors with the elements of argument 0, and joins.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

// (self, memory_format?)
bool infer_clone(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const auto format = find_format(call, 1, MemoryFormat::Preserve);
  if (!format) return false;
  const std::optional<Dims> strides = make_like_strides(call, *self, *format);
  return strides && add_tensor(call, Dims(self->sizes()), *strides, self->dtype, self->device);
}

// (self, dtype?, layout?, device?, pin_memory?, non_blocking, memory_format?)
bool infer_to_copy(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const std::optional<DType> dtype = find_dtype(call, 1, self->dtype);
  const auto format = find_format(call, 6, MemoryFormat::Preserve);
  const bool is_strided =
      is_none(call, 2) || (call.args[2].kind() == ArgKind::Layout && call.args[2].get_layout() == Layout::Strided);
  if (!dtype || !format || !is_strided) return false;
  if (!is_none(call, 3) && call.args[3].kind() != ArgKind::Device) return false;
  const types::Device device = is_none(call, 3) ? self->device : call.args[3].get_device();
  const std::optional<Dims> strides = make_like_strides(call, *self, *format);
  return strides && add_tensor(call, Dims(self->sizes()), *strides, *dtype, device);
}

// slice_scatter and its kin: a copy that keeps strides and offset, then written through a view
bool infer_select_scatter(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->offset != Int(0) || !is_dense(call, *self)) return false;
  return add_tensor(call, Dims(self->sizes()), Dims(self->strides()), self->dtype, self->device);
}

// (self, repeats)
bool infer_repeat(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes;
  if (self == nullptr || !find_ints(call, 1, sizes) || sizes.size() < self->rank) return false;
  const std::size_t added = sizes.size() - self->rank;
  for (std::size_t i = 0; i < self->rank; ++i)
    sizes[added + i] = call.symbols.multiply(sizes[added + i], self->sizes()[i]);
  return add_contiguous(call, sizes, self->dtype, self->device);
}

// A plain new tensor of argument 0's sizes and dtype.
bool infer_like_argument_0(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// clone() of argument 0, then changed in place
bool infer_clone_of_0(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const std::optional<Dims> strides = make_like_strides(call, *self, MemoryFormat::Preserve);
  return strides && add_tensor(call, Dims(self->sizes()), *strides, self->dtype, self->device);
}

bool infer_flip(RuleCall& call) { return infer_clone_of_0(call); }

// roll: parts joined by cat
bool infer_roll(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && is_contiguous(call, *self) && infer_like_argument_0(call);
}

// (tensors, dim)
bool infer_cat(RuleCall& call) {
  if (call.args.size() < 2 || !call.args[0].is_list() || call.args[0].get_list().empty()) return false;
  Promotion promotion(call);
  const TensorMeta* first = nullptr;
  std::optional<MemoryFormat> format;
  Int total = 0;
  std::optional<std::size_t> dim;
  for (const Arg& element : call.args[0].get_list()) {
    const TensorMeta* tensor = find_tensor(call, element);
    if (tensor == nullptr || !promotion.add(element)) return false;
    // The format is asked of every tensor, the skipped ones included.
    const std::optional<MemoryFormat> suggested = suggest_format(call, *tensor);
    if (!suggested) return false;
    format = !format || *format == *suggested ? *suggested : MemoryFormat::Contiguous;
    // An empty tensor of one dimension goes with every rank.
    if (tensor->rank == 1) {
      const std::optional<bool> is_empty = ask_equal(call, tensor->sizes()[0], 0);
      if (!is_empty) return false;
      if (*is_empty) continue;
    }
    if (first == nullptr) {
      first = tensor;
      dim = find_dim(call, 1, tensor->rank);
    }
    if (!dim || tensor->rank != first->rank || tensor->rank == 0 || tensor->device != first->device) return false;
    for (std::size_t i = 0; i < tensor->rank; ++i) {
      if (i != *dim && !is_equal(call, tensor->sizes()[i], first->sizes()[i])) return false;
    }
    total = call.symbols.add(total, tensor->sizes()[*dim]);
  }
  const std::optional<DType> dtype = promotion.finish();
  if (!dtype) return false;
  if (first == nullptr) return add_contiguous(call, {0}, *dtype, find_tensor(call, call.args[0].get_list()[0])->device);
  Dims sizes(first->sizes());
  sizes[*dim] = total;
  const std::optional<Dims> strides = make_strides(call, sizes, *format);
  return strides && add_tensor(call, sizes, *strides, *dtype, first->device);
}

// (tensors, dim)
bool infer_stack(RuleCall& call) {
  if (call.args.size() < 2 || !call.args[0].is_list() || call.args[0].get_list().empty()) return false;
  const auto tensors = call.args[0].get_list();
  const TensorMeta* first = find_tensor(call, tensors[0]);
  Promotion promotion(call);
  for (const Arg& element : tensors) {
    const TensorMeta* tensor = find_tensor(call, element);
    if (tensor == nullptr || !promotion.add(element) || !is_contiguous(call, *tensor)) return false;
    if (tensor->device != first->device || !is_equal(call, tensor->sizes(), first->sizes())) return false;
  }
  const std::optional<DType> dtype = promotion.finish();
  const auto dim = find_dim(call, 1, first->rank + 1u);
  if (!dtype || !dim) return false;
  Dims sizes(first->sizes());
  sizes.insert(*dim, static_cast<std::int64_t>(tensors.size()));
  return add_contiguous(call, sizes, *dtype, first->device);
}

// (self, pad, value): pairs from the last dimension on
bool infer_pad(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims pad;
  if (self == nullptr || !find_ints(call, 1, pad) || pad.size() % 2 != 0 || pad.size() / 2 > self->rank) return false;
  Dims sizes(self->sizes());
  bool is_larger = false;
  for (std::size_t i = 0; i < pad.size(); i += 2) {
    Int& size = sizes[self->rank - 1 - i / 2];
    size = call.symbols.add(size, call.symbols.add(pad[i], pad[i + 1]));
    const std::optional<bool> before = ask_less(call, 0, pad[i]);
    const std::optional<bool> behind = ask_less(call, 0, pad[i + 1]);
    if (!before || !behind) return false;
    is_larger = is_larger || *before || *behind;
  }
  if (!is_larger) return false;  // a copy of a slice
  const auto format = suggest_format(call, *self);
  if (!format) return false;
  const std::optional<Dims> strides = make_strides(call, sizes, *format);
  return strides && add_tensor(call, sizes, *strides, self->dtype, self->device);
}

// (self, pad): reflection and replication
bool infer_reflection_pad(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || !is_contiguous(call, *self)) return false;
  Dims pad;
  if (!find_ints(call, 1, pad) || pad.size() % 2 != 0 || pad.size() / 2 > self->rank) return false;
  Dims sizes(self->sizes());
  for (std::size_t i = 0; i < pad.size(); i += 2) {
    Int& size = sizes[self->rank - 1 - i / 2];
    size = call.symbols.add(size, call.symbols.add(pad[i], pad[i + 1]));
  }
  return add_contiguous(call, sizes, self->dtype, self->device);
}

}  // namespace reprise::graph
