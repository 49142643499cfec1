// Layer, batch, group and RMS norm, forward and backward.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

std::optional<bool> find_mask(const RuleCall& call, std::size_t list, std::size_t i) {
  if (list >= call.args.size() || !call.args[list].is_list() || i >= call.args[list].get_list().size())
    return std::nullopt;
  const Arg& flag = call.args[list].get_list()[i];
  if (flag.kind() != ArgKind::Bool) return std::nullopt;
  return flag.get_bool();
}

bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

// The dtype of means and deviations: float32 for a half input with parameters of another dtype, and on a GPU.
DType get_statistics_dtype(const TensorMeta& input, const TensorMeta* weight) {
  const bool is_mixed = weight != nullptr && weight->dtype != input.dtype;
  if (is_mixed || (is_half(input.dtype) && input.device.kind == types::DeviceKind::Cuda)) return DType::Float32;
  return input.dtype;
}

// As tensor i if the mask wants it and it is there.
bool add_masked(RuleCall& call, std::size_t mask, std::size_t place, std::size_t i) {
  const std::optional<bool> is_needed = find_mask(call, mask, place);
  if (!is_needed) return false;
  const TensorMeta* tensor = find_tensor(call, i);
  if (!*is_needed || tensor == nullptr) return add_absent(call);
  return add_contiguous(call, Dims(tensor->sizes()), tensor->dtype, tensor->device);
}

}  // namespace

// (input, normalized_shape, weight?, bias?, eps) -> output, mean, rstd
bool infer_layer_norm(RuleCall& call) {
  const TensorMeta* input = find_tensor(call, 0);
  Dims normalized;
  if (input == nullptr || !find_ints(call, 1, normalized) || normalized.size() > input->rank) return false;
  const std::size_t outer = input->rank - normalized.size();
  if (!is_equal(call, input->sizes().subspan(outer), normalized)) return false;
  Dims statistics;
  for (std::size_t i = 0; i < input->rank; ++i) statistics.push_back(i < outer ? input->sizes()[i] : Int(1));
  const DType dtype = get_statistics_dtype(*input, find_tensor(call, 2));
  return add_contiguous(call, Dims(input->sizes()), input->dtype, input->device) &&
         add_contiguous(call, statistics, dtype, input->device) &&
         add_contiguous(call, statistics, dtype, input->device);
}

// (grad, input, normalized_shape, mean, rstd, weight?, bias?, mask) -> gradients of input, weight, bias
bool infer_layer_norm_backward(RuleCall& call) {
  return add_masked(call, 7, 0, 1) && add_masked(call, 7, 1, 5) && add_masked(call, 7, 2, 6);
}

// (input, normalized_shape, weight?, eps?) -> output, rstd
bool infer_rms_norm(RuleCall& call) {
  const TensorMeta* input = find_tensor(call, 0);
  const TensorMeta* weight = find_tensor(call, 2);
  Dims normalized;
  if (input == nullptr || !find_ints(call, 1, normalized) || normalized.size() > input->rank) return false;
  if (!is_contiguous(call, *input) || is_half(input->dtype)) return false;
  if (weight != nullptr && weight->dtype != input->dtype) return false;
  const std::size_t outer = input->rank - normalized.size();
  Dims statistics;
  for (std::size_t i = 0; i < input->rank; ++i) statistics.push_back(i < outer ? input->sizes()[i] : Int(1));
  return add_contiguous(call, Dims(input->sizes()), input->dtype, input->device) &&
         add_contiguous(call, statistics, input->dtype, input->device);
}

// (grad, input, normalized_shape, rstd, weight?, mask) -> gradients of input, weight
bool infer_rms_norm_backward(RuleCall& call) {
  const TensorMeta* input = find_tensor(call, 1);
  if (input == nullptr || !is_contiguous(call, *input) || is_half(input->dtype)) return false;
  return add_masked(call, 5, 0, 1) && add_masked(call, 5, 1, 4);
}

// (input, weight?, bias?, running_mean?, running_var?, training, momentum, eps) -> output, mean, invstd
bool infer_batch_norm(RuleCall& call) {
  const TensorMeta* input = find_tensor(call, 0);
  const TensorMeta* weight = find_tensor(call, 1);
  const std::optional<bool> trains = find_bool(call, 5);
  if (input == nullptr || !trains || input->rank < 2 || input->device != types::Device{}) return false;
  const auto format = suggest_format(call, *input);
  if (!format || (*format == MemoryFormat::Contiguous && !is_contiguous(call, *input))) return false;
  if (is_half(input->dtype) && weight == nullptr) return false;
  const DType dtype = get_statistics_dtype(*input, weight);
  const Int channels = *trains ? input->sizes()[1] : Int(0);
  return add_tensor(call, Dims(input->sizes()), *make_strides(call, input->sizes(), *format), input->dtype,
                    input->device) &&
         add_contiguous(call, {channels}, dtype, input->device) &&
         add_contiguous(call, {channels}, dtype, input->device);
}

// (grad, input, weight?, running_mean?, running_var?, mean?, invstd?, train, eps, mask)
bool infer_batch_norm_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  const TensorMeta* input = find_tensor(call, 1);
  const TensorMeta* weight = find_tensor(call, 2);
  if (grad == nullptr || input == nullptr || input->rank < 2 || input->device != types::Device{}) return false;
  const auto format = suggest_format(call, *input);
  if (!format || suggest_format(call, *grad) != format) return false;
  if (*format == MemoryFormat::Contiguous && (!is_contiguous(call, *input) || !is_contiguous(call, *grad)))
    return false;
  const DType dtype = weight != nullptr ? weight->dtype : input->dtype;
  const std::optional<bool> is_input_needed = find_mask(call, 9, 0);
  if (!is_input_needed) return false;
  if (!(*is_input_needed ? add_tensor(call, Dims(input->sizes()), *make_strides(call, input->sizes(), *format),
                                      input->dtype, input->device)
                         : add_absent(call)))
    return false;
  for (std::size_t i = 1; i < 3; ++i) {
    const std::optional<bool> is_needed = find_mask(call, 9, i);
    if (!is_needed) return false;
    if (!(*is_needed ? add_contiguous(call, {input->sizes()[1]}, dtype, input->device) : add_absent(call)))
      return false;
  }
  return true;
}

// (input, weight?, bias?, N, C, HxW, groups, eps) -> output, mean, rstd
bool infer_group_norm(RuleCall& call) {
  const TensorMeta* input = find_tensor(call, 0);
  const std::optional<Int> batch = find_int(call, 3);
  const std::optional<Int> groups = find_int(call, 6);
  if (input == nullptr || !batch || !groups || !is_contiguous(call, *input)) return false;
  if (is_half(input->dtype) && input->device != types::Device{}) return false;
  const DType dtype = get_statistics_dtype(*input, find_tensor(call, 1));
  return add_contiguous(call, Dims(input->sizes()), input->dtype, input->device) &&
         add_contiguous(call, {*batch, *groups}, dtype, input->device) &&
         add_contiguous(call, {*batch, *groups}, dtype, input->device);
}

// (grad, input, mean, rstd, weight?, N, C, HxW, groups, mask)
bool infer_group_norm_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  const TensorMeta* input = find_tensor(call, 1);
  const TensorMeta* weight = find_tensor(call, 4);
  const std::optional<Int> channels = find_int(call, 6);
  if (grad == nullptr || input == nullptr || !channels || !is_contiguous(call, *input) || !is_contiguous(call, *grad))
    return false;
  const DType dtype = weight != nullptr ? weight->dtype : input->dtype;
  if (!add_masked(call, 9, 0, 1)) return false;
  for (std::size_t i = 1; i < 3; ++i) {
    const std::optional<bool> is_needed = find_mask(call, 9, i);
    if (!is_needed) return false;
    if (!(*is_needed ? add_contiguous(call, {*channels}, dtype, input->device) : add_absent(call))) return false;
  }
  return true;
}

}  // namespace reprise::graph
