// Tensors from no data, random ones included.
#include <cmath>

#include "graph/rules/rule_impl.h"

namespace reprise::graph {

namespace {

// dtype?, layout?, device?, pin_memory? from argument `first` on.
struct Options {
  DType dtype;
  types::Device device;
};

std::optional<Options> find_options(RuleCall& call, std::size_t first, DType dtype, types::Device device = {}) {
  const std::optional<DType> found = find_dtype(call, first, dtype);
  if (!found) return std::nullopt;
  if (!is_none(call, first + 1) &&
      (call.args[first + 1].kind() != ArgKind::Layout || call.args[first + 1].get_layout() != Layout::Strided))
    return std::nullopt;
  if (!is_none(call, first + 2)) {
    if (call.args[first + 2].kind() != ArgKind::Device) return std::nullopt;
    device = call.args[first + 2].get_device();
  }
  return Options{*found, device};
}

std::optional<DType> find_number_dtype(RuleCall& call, std::size_t i) {
  if (i >= call.args.size()) return std::nullopt;
  Promotion promotion(call);
  if (find_tensor(call, i) != nullptr || !promotion.add(call.args[i])) return std::nullopt;
  return promotion.finish();
}

}  // namespace

// (sizes, dtype?, layout?, device?, pin_memory?, memory_format?)
bool infer_factory(RuleCall& call) {
  Dims sizes;
  if (!find_ints(call, 0, sizes)) return false;
  const auto options = find_options(call, 1, call.default_dtype);
  const auto format = find_format(call, 5, MemoryFormat::Contiguous);
  if (!options || !format) return false;
  const std::optional<Dims> strides = make_strides(call, sizes, *format);
  return strides && add_tensor(call, sizes, *strides, options->dtype, options->device);
}

// (sizes, value, dtype?, ...)
bool infer_full(RuleCall& call) {
  Dims sizes;
  const std::optional<DType> natural = find_number_dtype(call, 1);
  if (!natural || !find_ints(call, 0, sizes)) return false;
  const auto options = find_options(call, 2, *natural);
  return options && add_contiguous(call, sizes, options->dtype, options->device);
}

// (sizes, strides, dtype?, ...)
bool infer_empty_strided(RuleCall& call) {
  Dims sizes, strides;
  if (!find_ints(call, 0, sizes) || !find_ints(call, 1, strides) || sizes.size() != strides.size()) return false;
  const auto options = find_options(call, 2, call.default_dtype);
  return options && add_tensor(call, sizes, strides, options->dtype, options->device);
}

// (sizes, order, dtype?, ...): order lists the dimensions, outermost first
bool infer_empty_permuted(RuleCall& call) {
  Dims sizes, order;
  if (!find_ints(call, 0, sizes) || !find_ints(call, 1, order) || sizes.size() != order.size()) return false;
  const auto options = find_options(call, 2, call.default_dtype);
  if (!options) return false;
  Dims packed;
  for (const Int dim : order) {
    if (!dim.is_constant() || dim.get_word() < 0 || dim.get_word() >= static_cast<std::int64_t>(sizes.size()))
      return false;
    packed.push_back(sizes[static_cast<std::size_t>(dim.get_word())]);
  }
  const Dims packed_strides = make_contiguous_strides(call, packed);
  Dims strides(sizes);
  for (std::size_t i = 0; i < order.size(); ++i)
    strides[static_cast<std::size_t>(order[i].get_word())] = packed_strides[i];
  return add_tensor(call, sizes, strides, options->dtype, options->device);
}

// (self, numbers..., dtype?, layout?, device?, pin_memory?, memory_format?)
bool infer_like(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || call.args.size() < 6) return false;
  const std::size_t first = call.args.size() - 5;
  const auto options = find_options(call, first, self->dtype, self->device);
  const auto format = find_format(call, first + 4, MemoryFormat::Preserve);
  if (!options || !format) return false;
  const std::optional<Dims> strides = make_like_strides(call, *self, *format);
  return strides && add_tensor(call, Dims(self->sizes()), *strides, options->dtype, options->device);
}

// (self, sizes, value?, dtype?, layout?, device?, pin_memory?)
bool infer_new(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes;
  if (self == nullptr || call.args.size() < 6 || !find_ints(call, 1, sizes)) return false;
  const auto options = find_options(call, call.args.size() - 4, self->dtype, self->device);
  return options && add_contiguous(call, sizes, options->dtype, options->device);
}

// (self, sizes, strides, dtype?, ...)
bool infer_new_strided(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  Dims sizes, strides;
  if (self == nullptr || !find_ints(call, 1, sizes) || !find_ints(call, 2, strides)) return false;
  const auto options = find_options(call, 3, self->dtype, self->device);
  return options && sizes.size() == strides.size() && add_tensor(call, sizes, strides, options->dtype, options->device);
}

// (end, ...), (start, end, ...) or (start, end, step, ...)
bool infer_arange(RuleCall& call) {
  const std::size_t count = call.op == OpId::arange ? 1 : call.op == OpId::arange_start ? 2 : 3;
  if (call.args.size() < count) return false;
  bool all_ints = true;
  std::array<double, 3> numbers{0, 0, 1};
  std::array<Int, 3> ints{0, 0, 1};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = count == 1 ? 1 : i;
    const Arg& arg = call.args[i];
    if (arg.is_int()) {
      ints[place] = arg.get_int();
      if (ints[place].is_constant()) numbers[place] = static_cast<double>(ints[place].get_word());
    } else if (arg.kind() == ArgKind::Float) {
      all_ints = false;
      numbers[place] = arg.get_float();
    } else {
      return false;
    }
  }
  const auto options = find_options(call, count, all_ints ? DType::Int64 : call.default_dtype);
  if (!options) return false;
  Int length = 0;
  if (all_ints) {
    if (!ints[2].is_constant() || ints[2] == Int(0)) return false;
    length = call.symbols.ceil_divide(call.symbols.subtract(ints[1], ints[0]), ints[2]);
  } else {
    // With int64, eager truncates each number before it counts.
    if (!sym::are_constant(ints) || options->dtype == DType::Int64) return false;
    const double exact = std::ceil((numbers[1] - numbers[0]) / numbers[2]);
    if (!(exact >= 0 && exact < 1e15)) return false;
    length = static_cast<std::int64_t>(exact);
  }
  return add_contiguous(call, {length}, options->dtype, options->device);
}

// (start, end, steps, dtype?, ...)
bool infer_linspace(RuleCall& call) {
  const std::optional<Int> steps = find_int(call, 2);
  const auto options = find_options(call, 3, call.default_dtype);
  return steps && options && add_contiguous(call, {*steps}, options->dtype, options->device);
}

// (n, dtype?, ...) or (n, m, dtype?, ...)
bool infer_eye(RuleCall& call) {
  const std::optional<Int> n = find_int(call, 0);
  const std::optional<Int> m = call.op == OpId::eye ? n : find_int(call, 1);
  const auto options = find_options(call, call.op == OpId::eye ? 1 : 2, call.default_dtype);
  return n && m && options && add_contiguous(call, {*n, *m}, options->dtype, options->device);
}

// (number, dtype?, ...)
bool infer_scalar_tensor(RuleCall& call) {
  const auto options = find_options(call, 1, call.default_dtype);
  return options && add_contiguous(call, {}, options->dtype, options->device);
}

// (high, sizes, dtype?, ...) or (low, high, sizes, dtype?, ...)
bool infer_randint(RuleCall& call) {
  const std::size_t place = call.op == OpId::randint ? 1 : 2;
  Dims sizes;
  if (!find_ints(call, place, sizes)) return false;
  const auto options = find_options(call, place + 1, DType::Int64);
  return options && add_contiguous(call, sizes, options->dtype, options->device);
}

// (n, dtype?, ...)
bool infer_randperm(RuleCall& call) {
  const std::optional<Int> n = find_int(call, 0);
  const auto options = find_options(call, 1, DType::Int64);
  return n && options && add_contiguous(call, {*n}, options->dtype, options->device);
}

// (self, p?, generator?)
bool infer_bernoulli(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  return self != nullptr && add_contiguous(call, Dims(self->sizes()), self->dtype, self->device);
}

// (input, p, train?) -> output, mask
bool infer_native_dropout(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  if (self == nullptr || !is_contiguous(call, *self)) return false;
  const Dims sizes(self->sizes());
  return add_contiguous(call, sizes, self->dtype, self->device) &&
         add_contiguous(call, sizes, DType::Bool, self->device);
}

// (weights, count, replacement, generator?)
bool infer_multinomial(RuleCall& call) {
  const TensorMeta* self = find_tensor(call, 0);
  const std::optional<Int> count = find_int(call, 1);
  if (self == nullptr || !count || self->rank == 0) return false;
  Dims sizes(self->sizes());
  sizes[sizes.size() - 1] = *count;
  return add_contiguous(call, sizes, DType::Int64, self->device);
}

}  // namespace reprise::graph
