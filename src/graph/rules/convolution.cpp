// Convolutions, pooling, upsampling. Results are channels-last if an argument suggests it.
#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// A list of one number stands for all dimensions.
Int get_spatial(const Dims& numbers, std::size_t i) { return numbers.size() == 1 ? numbers[0] : numbers[i]; }

std::optional<bool> find_flag(const RuleCall& call, std::size_t list, std::size_t i) {
  if (list >= call.args.size() || !call.args[list].is_list() || i >= call.args[list].get_list().size())
    return std::nullopt;
  const Arg& flag = call.args[list].get_list()[i];
  if (flag.kind() != ArgKind::Bool) return std::nullopt;
  return flag.get_bool();
}

// Layouts were checked against eager on the CPU; elsewhere only contiguous tensors are sure.
bool is_checked(RuleCall& call, const TensorMeta& meta) {
  return meta.device == types::Device{} || is_contiguous(call, meta);
}

// The format of a convolution's results: channels-last if the input or the weight is.
std::optional<MemoryFormat> find_convolution_format(RuleCall& call, const TensorMeta& input, const TensorMeta& weight) {
  const auto a = suggest_format(call, input);
  const auto b = suggest_format(call, weight);
  if (!a || !b) return std::nullopt;
  if (!is_checked(call, input) || !is_checked(call, weight)) return std::nullopt;
  return *a != MemoryFormat::Contiguous ? *a : *b;
}

// (size + 2*padding - dilation*(kernel - 1) - 1 (+ stride - 1)) / stride + 1, less one if the last window starts
// behind the padded input.
std::optional<Int> get_pooled_size(RuleCall& call, Int size, Int kernel, Int stride, Int padding, Int dilation,
                                   bool rounds_up) {
  sym::Context& symbols = call.symbols;
  const Int covered = symbols.add(symbols.multiply(dilation, symbols.subtract(kernel, 1)), 1);
  Int free = symbols.subtract(symbols.add(size, symbols.multiply(2, padding)), covered);
  if (rounds_up) free = symbols.add(free, symbols.subtract(stride, 1));
  Int result = symbols.add(symbols.floor_divide(free, stride), 1);
  if (rounds_up) {
    const std::optional<bool> is_inside =
        ask_less(call, symbols.multiply(symbols.subtract(result, 1), stride), symbols.add(size, padding));
    if (!is_inside) return std::nullopt;
    if (!*is_inside) result = symbols.subtract(result, 1);
  }
  return result;
}

// (self, kernel, stride, padding, dilation) with an empty stride meaning the kernel: sizes of the result.
bool find_pooled_sizes(RuleCall& call, const TensorMeta& self, bool has_dilation, bool rounds_up, Dims& sizes) {
  Dims kernel, stride, padding, dilation;
  if (!find_ints(call, 1, kernel) || !find_ints(call, 2, stride) || !find_ints(call, 3, padding)) return false;
  if (has_dilation && !find_ints(call, 4, dilation)) return false;
  if (!has_dilation) dilation = Dims{1};
  if (stride.size() == 0) stride = kernel;
  sizes = Dims(self.sizes());
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t d = self.rank - 2u + i;
    const std::optional<Int> size = get_pooled_size(call, sizes[d], get_spatial(kernel, i), get_spatial(stride, i),
                                                    get_spatial(padding, i), get_spatial(dilation, i), rounds_up);
    if (!size) return false;
    sizes[d] = *size;
  }
  return true;
}

bool add_suggested(RuleCall& call, const TensorMeta& like, const Dims& sizes, DType dtype) {
  const auto format = suggest_format(call, like);
  if (!format || !is_checked(call, like)) return false;
  const std::optional<Dims> strides = make_strides(call, sizes, *format);
  return strides && add_tensor(call, sizes, *strides, dtype, like.device);
}

}  // namespace

// (input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups)
bool infer_convolution(RuleCall& call) {
  const TensorMeta* input = find_tensor(call, 0);
  const TensorMeta* weight = find_tensor(call, 1);
  Dims stride, padding, dilation, output_padding;
  const std::optional<bool> is_transposed = find_bool(call, 6);
  const std::optional<std::int64_t> groups = find_constant(call, 8);
  if (input == nullptr || weight == nullptr || !is_transposed || !groups || input->rank != weight->rank ||
      input->rank < 3 || input->dtype != weight->dtype || input->device != weight->device)
    return false;
  if (!find_ints(call, 3, stride) || !find_ints(call, 4, padding) || !find_ints(call, 5, dilation) ||
      !find_ints(call, 7, output_padding))
    return false;
  sym::Context& symbols = call.symbols;
  const auto w = weight->sizes();
  Dims sizes{input->sizes()[0], *is_transposed ? symbols.multiply(w[1], *groups) : w[0]};
  for (std::size_t i = 0; i + 2 < input->rank; ++i) {
    const Int size = input->sizes()[i + 2];
    const Int s = get_spatial(stride, i), p = get_spatial(padding, i), d = get_spatial(dilation, i);
    if (!*is_transposed) {
      sizes.push_back(*get_pooled_size(call, size, w[i + 2], s, p, d, false));
      continue;
    }
    // (size - 1)*stride - 2*padding + dilation*(kernel - 1) + output_padding + 1
    Int result = symbols.multiply(symbols.subtract(size, 1), s);
    result = symbols.subtract(result, symbols.multiply(2, p));
    result = symbols.add(result, symbols.multiply(d, symbols.subtract(w[i + 2], 1)));
    sizes.push_back(symbols.add(symbols.add(result, get_spatial(output_padding, i)), 1));
  }
  const auto format = find_convolution_format(call, *input, *weight);
  if (!format) return false;
  const std::optional<Dims> strides = make_strides(call, sizes, *format);
  return strides && add_tensor(call, sizes, *strides, input->dtype, input->device);
}

// (grad, input, weight, bias_sizes?, stride, padding, dilation, transposed, output_padding, groups, mask)
bool infer_convolution_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  const TensorMeta* input = find_tensor(call, 1);
  const TensorMeta* weight = find_tensor(call, 2);
  if (grad == nullptr || input == nullptr || weight == nullptr || grad->rank < 3) return false;
  const auto format = find_convolution_format(call, *input, *weight);
  if (!format) return false;
  const TensorMeta* tensors[] = {input, weight};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::optional<bool> is_needed = find_flag(call, 10, i);
    if (!is_needed) return false;
    if (!*is_needed) {
      add_absent(call);
      continue;
    }
    if (i == 2) {
      if (!add_contiguous(call, {grad->sizes()[1]}, grad->dtype, grad->device)) return false;
      continue;
    }
    const std::optional<Dims> strides = make_strides(call, tensors[i]->sizes(), *format);
    if (!strides || !add_tensor(call, Dims(tensors[i]->sizes()), *strides, tensors[i]->dtype, grad->device))
      return false;
  }
  return true;
}

// (self, kernel, stride, padding, dilation, ceil_mode) -> output, indices
bool infer_max_pool2d(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> rounds_up = find_bool(call, 5);
  Dims sizes;
  return self != nullptr && self->rank >= 3 && rounds_up && find_pooled_sizes(call, *self, true, *rounds_up, sizes) &&
         add_suggested(call, *self, sizes, self->dtype) && add_suggested(call, *self, sizes, DType::Int64);
}

// (self, kernel, stride, padding, ceil_mode, ...)
bool infer_avg_pool2d(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<bool> rounds_up = find_bool(call, 4);
  Dims sizes;
  return self != nullptr && self->rank >= 3 && rounds_up && find_pooled_sizes(call, *self, false, *rounds_up, sizes) &&
         add_suggested(call, *self, sizes, self->dtype);
}

// (grad, self, ...): as self, in the format it suggests
bool infer_like_argument_1(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 1);
  return self != nullptr && add_suggested(call, *self, Dims(self->sizes()), self->dtype);
}

// (self, output_size)
bool infer_adaptive_avg_pool2d(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims pooled;
  if (self == nullptr || self->rank < 3 || !find_ints(call, 1, pooled) || pooled.size() != 2) return false;
  Dims sizes(self->sizes());
  sizes[self->rank - 2u] = pooled[0];
  sizes[self->rank - 1u] = pooled[1];
  return add_suggested(call, *self, sizes, self->dtype);
}

bool infer_adaptive_max_pool2d(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims pooled;
  if (self == nullptr || self->rank < 3 || !find_ints(call, 1, pooled) || pooled.size() != 2) return false;
  Dims sizes(self->sizes());
  sizes[self->rank - 2u] = pooled[0];
  sizes[self->rank - 1u] = pooled[1];
  return add_suggested(call, *self, sizes, self->dtype) && add_suggested(call, *self, sizes, DType::Int64);
}

// (self, output_size, ...)
bool infer_upsample2d(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims output;
  if (self == nullptr || self->rank != 4 || !find_ints(call, 1, output) || output.size() != 2) return false;
  return add_suggested(call, *self, {self->sizes()[0], self->sizes()[1], output[0], output[1]}, self->dtype);
}

// (grad, output_size, input_size, ...)
bool infer_upsample2d_backward(RuleCall& call) {
  const TensorMeta* grad = find_tensor(call, 0);
  Dims sizes;
  return grad != nullptr && find_ints(call, 2, sizes) && sizes.size() == 4 &&
         add_suggested(call, *grad, sizes, grad->dtype);
}

}  // namespace reprise::graph
