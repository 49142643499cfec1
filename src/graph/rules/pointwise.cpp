// Pointwise ops: shape by broadcasting, strides by TensorIterator, dtype by promotion.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

enum class ResultType { Promoted, Float, Bool };

std::optional<DType> find_result_dtype(RuleCall& call, DType common, ResultType type) {
  if (type == ResultType::Bool) return DType::Bool;
  if (type == ResultType::Float && types::is_integral(common)) return call.default_dtype;
  return common;
}

// The first `count` arguments from `first` on take part in shape and type; none is skipped.
bool infer_promoted(RuleCall& call, std::size_t first, std::size_t count, ResultType type) {
  if (call.args.size() < first + count) return false;
  Promotion promotion(call);
  for (std::size_t i = first; i < first + count; ++i) {
    if (!promotion.add(call.args[i])) return false;
  }
  const std::optional<DType> common = promotion.finish();
  if (!common) return false;
  const std::optional<DType> dtype = find_result_dtype(call, *common, type);
  const DType computed = type == ResultType::Float ? *dtype : *common;
  Operands operands;
  for (std::size_t i = first; i < first + count; ++i) {
    if (!call.args[i].is_none() && !operands.add(call, call.args[i], computed)) return false;
  }
  return operands.add_result(call, *dtype);
}

// The dtype of argument 0; `others` more arguments take part in the shape.
bool infer_like_first(RuleCall& call, std::size_t others) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || call.args.size() < 1 + others) return false;
  Operands operands;
  for (std::size_t i = 0; i <= others; ++i) {
    if (!operands.add(call, call.args[i])) return false;
  }
  return operands.add_result(call, self->dtype);
}

}  // namespace

bool infer_unary(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || types::is_complex(self->dtype)) return false;
  return infer_promoted(call, 0, 1, ResultType::Promoted);
}

bool infer_unary_float(RuleCall& call) { return infer_promoted(call, 0, 1, ResultType::Float); }
bool infer_unary_bool(RuleCall& call) { return infer_promoted(call, 0, 1, ResultType::Bool); }
bool infer_to_real(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || types::is_complex(self->dtype)) return false;
  return infer_promoted(call, 0, 1, ResultType::Float);
}
bool infer_binary(RuleCall& call) { return infer_promoted(call, 0, 2, ResultType::Promoted); }
bool infer_binary_float(RuleCall& call) { return infer_promoted(call, 0, 2, ResultType::Float); }
bool infer_binary_bool(RuleCall& call) { return infer_promoted(call, 0, 2, ResultType::Bool); }
bool infer_ternary(RuleCall& call) { return infer_promoted(call, 0, 3, ResultType::Promoted); }
bool infer_lerp_scalar(RuleCall& call) { return infer_like_first(call, 1); }

// (grad, self, ...): eager's iterator has self first, which decides between layouts.
bool infer_swapped_binary(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  const TensorMeta* self = find_tensor(call, 1);
  Operands operands;
  return grad != nullptr && self != nullptr && grad->dtype == self->dtype && operands.add(call, *self) &&
         operands.add(call, *grad) && operands.add_result(call, self->dtype);
}

// pow with a number, which takes part in the type only; a number as the base makes a plain new tensor.
bool infer_pow_scalar(RuleCall& call) {
  const TensorMeta* tensor = find_tensor(call, call.op == OpId::pow_Scalar ? 1 : 0);
  Promotion promotion(call);
  if (tensor == nullptr || call.args.size() < 2 || !promotion.add(call.args[0]) || !promotion.add(call.args[1]))
    return false;
  const std::optional<DType> dtype = promotion.finish();
  if (!dtype) return false;
  if (call.op == OpId::pow_Scalar) return add_contiguous(call, Dims(tensor->sizes()), *dtype, tensor->device);
  Operands operands;
  return operands.add(call, *tensor, *dtype) && operands.add_result(call, *dtype);
}

// (self, min?, max?) or (self, bound): numbers take part in the type only
bool infer_clamp(RuleCall& call) {
  Promotion promotion(call);
  for (const Arg& arg : call.args) {
    if (!promotion.add(arg)) return false;
  }
  const std::optional<DType> dtype = promotion.finish();
  if (!dtype) return false;
  Operands operands;
  for (const Arg& arg : call.args) {
    if (find_tensor(call, arg) != nullptr && !operands.add(call, arg, dtype)) return false;
  }
  return operands.add_result(call, *dtype);
}

// (self, other, rounding_mode)
bool infer_div_mode(RuleCall& call) {
  return infer_promoted(call, 0, 2, is_none(call, 2) ? ResultType::Float : ResultType::Promoted);
}

// (condition, self, other)
bool infer_where(RuleCall& call) {
  const TensorMeta* condition = find_tensor(call, 0);
  Promotion promotion(call);
  if (condition == nullptr || call.args.size() < 3 || !promotion.add(call.args[1]) || !promotion.add(call.args[2]))
    return false;
  const std::optional<DType> dtype = promotion.finish();
  Operands operands;
  return dtype && operands.add(call, call.args[0]) && operands.add(call, call.args[1], dtype) &&
         operands.add(call, call.args[2], dtype) && operands.add_result(call, *dtype);
}

// (self, mask, value): a contiguous copy of the broadcast self, filled
bool infer_masked_fill(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* mask = find_tensor(call, 1);
  Operands operands;
  if (self == nullptr || mask == nullptr || !operands.add(call, *self) || !operands.add(call, *mask)) return false;
  Dims sizes, strides;
  return operands.compute(call, sizes, strides) && add_contiguous(call, sizes, self->dtype, self->device);
}

// (self, value): empty_like, filled
bool infer_fill(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr) return false;
  const std::optional<Dims> strides = make_like_strides(call, *self, MemoryFormat::Preserve);
  return strides && add_tensor(call, Dims(self->sizes()), *strides, self->dtype, self->device);
}

// (self, other..., reduction) with the reduction in argument 2: a pointwise loss, or its mean or sum
bool infer_reducible_loss(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const TensorMeta* target = find_tensor(call, 1);
  const std::optional<std::int64_t> reduction = find_constant(call, 2);
  if (self == nullptr || target == nullptr || !reduction || self->dtype != target->dtype) return false;
  if (*reduction == 0) return infer_binary(call);
  return add_contiguous(call, {}, self->dtype, self->device);
}

// (grad, alpha, scale, input_scale, is_result, self)
bool infer_elu_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  const TensorMeta* self = find_tensor(call, 5);
  Operands operands;
  return grad != nullptr && self != nullptr && grad->dtype == self->dtype && operands.add(call, *grad) &&
         operands.add(call, *self) && operands.add_result(call, grad->dtype);
}

// -> output, buffer; the buffer is the CPU's alone
bool infer_log_sigmoid(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || self->device != types::Device{} || !is_contiguous(call, *self)) return false;
  const Dims sizes(self->sizes());
  return add_contiguous(call, sizes, self->dtype, self->device) &&
         add_contiguous(call, sizes, self->dtype, self->device);
}

// In place: the result is argument 0. Broadcasting into it is checked by eager.
bool infer_in_place(RuleCall& call) { return add_argument(call, 0); }

// -> nothing
bool infer_nothing(RuleCall&) { return true; }

}  // namespace reprise::graph
