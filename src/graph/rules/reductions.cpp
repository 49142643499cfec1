// Reductions, scans, sorts. Results of reductions are contiguous whatever the input is.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// Which dimensions a list names; none and an empty list name all (`empty_is_all`).
bool find_dims(RuleCall& call, std::size_t i, std::size_t rank, std::uint64_t& chosen, bool empty_is_all = true) {
  chosen = ~std::uint64_t{0};
  if (is_none(call, i)) return true;
  Dims dims;
  if (!find_ints(call, i, dims)) return false;
  if (dims.size() == 0 && empty_is_all) return true;
  chosen = 0;
  for (const Int dim : dims) {
    const auto d = dim.is_constant() ? wrap_dim(dim.get_word(), rank) : std::nullopt;
    if (!d) return false;
    chosen |= std::uint64_t{1} << *d;
  }
  return true;
}

Dims reduce_sizes(const TensorMeta& self, std::uint64_t chosen, bool keeps) {
  Dims sizes;
  for (std::size_t i = 0; i < self.rank; ++i) {
    if ((chosen >> i & 1) == 0) {
      sizes.push_back(self.sizes()[i]);
    } else if (keeps) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

bool add_reduced(RuleCall& call, std::uint64_t chosen, bool keeps, DType dtype) {
  const TensorMeta* self = find_tensor(call, 0);
  return add_contiguous(call, reduce_sizes(*self, chosen, keeps), dtype, self->device);
}

DType widen(DType dtype) { return types::is_integral(dtype) ? DType::Int64 : dtype; }

// (self, dims?, keepdim, dtype?) or, with two arguments, (self, dtype?).
bool infer_sum_like(RuleCall& call, DType natural) {
  const TensorMeta* self = find_tensor(call, 0);
  if (call.args.size() == 2) {
    const std::optional<DType> dtype = find_dtype(call, 1, natural);
    return dtype && add_contiguous(call, {}, *dtype, self->device);
  }
  const std::optional<bool> keeps = find_bool(call, 2);
  const std::optional<DType> dtype = find_dtype(call, 3, natural);
  std::uint64_t chosen = 0;
  return keeps && dtype && find_dims(call, 1, self->rank, chosen) && add_reduced(call, chosen, *keeps, *dtype);
}

}  // namespace

bool infer_sum(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && infer_sum_like(call, widen(self->dtype));
}

bool infer_mean(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && !types::is_integral(self->dtype) && infer_sum_like(call, self->dtype);
}

// (self, dims, keepdim)
bool infer_logsumexp(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> keeps = find_bool(call, 2);
  std::uint64_t chosen = 0;
  if (self == nullptr || !keeps || !types::is_float(self->dtype) || !find_dims(call, 1, self->rank, chosen))
    return false;
  return add_reduced(call, chosen, *keeps, self->dtype);
}

// (self, dims, keepdim)
bool infer_amax(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> keeps = find_bool(call, 2);
  std::uint64_t chosen = 0;
  return self != nullptr && keeps && find_dims(call, 1, self->rank, chosen) &&
         add_reduced(call, chosen, *keeps, self->dtype);
}

bool infer_max_all(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && call.args.size() == 1 && add_contiguous(call, {}, self->dtype, self->device);
}

// (self, dim, keepdim) -> values, indices
bool infer_max_dim(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> keeps = find_bool(call, 2);
  std::uint64_t chosen = 0;
  return self != nullptr && keeps && find_dims(call, 1, self->rank, chosen) &&
         add_reduced(call, chosen, *keeps, self->dtype) && add_reduced(call, chosen, *keeps, DType::Int64);
}

// (self, dim?, keepdim)
bool infer_argmax(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> keeps = find_bool(call, 2);
  std::uint64_t chosen = 0;
  return self != nullptr && keeps && find_dims(call, 1, self->rank, chosen) &&
         add_reduced(call, chosen, *keeps, DType::Int64);
}

// (self), (self, dim, keepdim) or (self, dims?, keepdim)
bool infer_any(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const DType dtype = self->dtype == DType::UInt8 ? DType::UInt8 : DType::Bool;
  if (call.args.size() == 1) return add_contiguous(call, {}, dtype, self->device);
  const std::optional<bool> keeps = find_bool(call, 2);
  std::uint64_t chosen = 0;
  return keeps && find_dims(call, 1, self->rank, chosen, false) && add_reduced(call, chosen, *keeps, dtype);
}

// (self, dims?, correction?, keepdim)
bool infer_var(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> keeps = find_bool(call, 3);
  std::uint64_t chosen = 0;
  return self != nullptr && keeps && types::is_float(self->dtype) && find_dims(call, 1, self->rank, chosen) &&
         add_reduced(call, chosen, *keeps, self->dtype);
}

bool infer_var_mean(RuleCall& call) { return infer_var(call) && infer_var(call); }

// linalg_vector_norm(self, ord, dims?, keepdim, dtype?), norm.ScalarOpt_dim(self, p?, dims, keepdim), norm.Scalar(self,
// p)
bool infer_norm(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || !types::is_float(self->dtype)) return false;
  if (call.args.size() == 2) return add_contiguous(call, {}, self->dtype, self->device);
  const std::optional<bool> keeps = find_bool(call, 3);
  const std::optional<DType> dtype = find_dtype(call, 4, self->dtype);
  std::uint64_t chosen = 0;
  return keeps && dtype && find_dims(call, 2, self->rank, chosen) && add_reduced(call, chosen, *keeps, *dtype);
}

// (self, dim, dtype?)
bool infer_cumulative(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const std::optional<DType> dtype = find_dtype(call, 2, widen(self->dtype));
  return dtype && add_contiguous(call, Dims(self->sizes()), *dtype, self->device);
}

bool infer_cumulative_extreme(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const Dims sizes(self->sizes());
  return add_contiguous(call, sizes, self->dtype, self->device) &&
         add_contiguous(call, sizes, DType::Int64, self->device);
}

// -> values, indices
bool infer_sort(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const std::optional<Dims> strides = make_like_strides(call, *self, MemoryFormat::Preserve);
  const Dims sizes(self->sizes());
  return strides && add_tensor(call, sizes, *strides, self->dtype, self->device) &&
         add_tensor(call, sizes, *strides, DType::Int64, self->device);
}

bool infer_argsort(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const std::optional<Dims> strides = make_like_strides(call, *self, MemoryFormat::Preserve);
  return strides && add_tensor(call, Dims(self->sizes()), *strides, DType::Int64, self->device);
}

// (self, k, dim, largest, sorted) -> values, indices
bool infer_topk(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<Int> k = find_int(call, 1);
  if (self == nullptr || !k) return false;
  const auto dim = find_dim(call, 2, self->rank);
  if (!dim) return false;
  Dims sizes(self->sizes());
  if (self->rank > 0) sizes[*dim] = *k;
  return add_contiguous(call, sizes, self->dtype, self->device) &&
         add_contiguous(call, sizes, DType::Int64, self->device);
}

}  // namespace reprise::graph
