// Softmax and losses, forward and backward.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

// (self, dim, half_to_float)
bool infer_softmax(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> widens = find_bool(call, 2);
  if (self == nullptr || !widens) return false;
  return add_contiguous(call, Dims(self->sizes()), *widens ? DType::Float32 : self->dtype, self->device);
}

// (self, dim, dtype?)
bool infer_safe_softmax(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && is_none(call, 2) && is_contiguous(call, *self) &&
         add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// (grad, output, dim, input_dtype)
bool infer_softmax_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  if (grad == nullptr) return false;
  const std::optional<DType> dtype = find_dtype(call, 3, grad->dtype);
  return dtype && add_contiguous(call, Dims(grad->sizes()), *dtype, grad->device);
}

// (self, dim): both halves as operands
bool infer_glu(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->rank == 0) return false;
  const auto dim = find_dim(call, 1, self->rank);
  if (!dim) return false;
  Dims sizes(self->sizes());
  sizes[*dim] = call.symbols.floor_divide(sizes[*dim], 2);
  Operands operands;
  operands.add_operand(sizes, self->strides());
  operands.add_operand(sizes, self->strides());
  Dims result, strides;
  return operands.compute(call, result, strides) && add_tensor(call, result, strides, self->dtype, self->device);
}

// (grad, self, dim)
bool infer_glu_backward(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 1);
  return self != nullptr && is_contiguous(call, *self) &&
         add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// (self, target, weight?, reduction, ignore_index) -> output, total_weight
bool infer_nll_loss(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<std::int64_t> reduction = find_constant(call, 3);
  if (self == nullptr || !reduction) return false;
  const bool is_reduced = *reduction != 0 || self->rank == 1;
  return (is_reduced ? add_contiguous(call, {}, self->dtype, self->device)
                     : add_contiguous(call, {self->sizes()[0]}, self->dtype, self->device)) &&
         add_contiguous(call, {}, self->dtype, self->device);
}

bool infer_nll_loss2d(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* target = find_tensor(call, 1);
  const std::optional<std::int64_t> reduction = find_constant(call, 3);
  if (self == nullptr || target == nullptr || !reduction || self->rank != 4) return false;
  return (*reduction != 0 ? add_contiguous(call, {}, self->dtype, self->device)
                          : add_contiguous(call, Dims(target->sizes()), self->dtype, self->device)) &&
         add_contiguous(call, {}, self->dtype, self->device);
}

// (grad, self, ...): a plain new tensor of self's sizes
bool infer_plain_like_1(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 1);
  return self != nullptr && add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// (self, target, weight?, reduction)
bool infer_reduced_loss(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<std::int64_t> reduction = find_constant(call, 3);
  if (self == nullptr || !reduction || !is_contiguous(call, *self)) return false;
  return *reduction != 0 ? add_contiguous(call, {}, self->dtype, self->device)
                         : add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// (self, target, weight?, pos_weight?, reduction)
bool infer_bce_logits(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* target = find_tensor(call, 1);
  const std::optional<std::int64_t> reduction = find_constant(call, 4);
  if (self == nullptr || target == nullptr || !reduction || self->dtype != target->dtype) return false;
  if (*reduction != 0) return add_contiguous(call, {}, self->dtype, self->device);
  return is_contiguous(call, *self) && is_contiguous(call, *target) &&
         add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// (grad, self, target, ...): contiguous, as self
bool infer_loss_backward(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 1);
  const TensorMeta* target = find_tensor(call, 2);
  return self != nullptr && target != nullptr && self->dtype == target->dtype && is_contiguous(call, *self) &&
         is_equal(call, self->sizes(), target->sizes()) &&
         add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

}  // namespace reprise::graph
