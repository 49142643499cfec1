// Pointwise ops and scalar ops of the reference evaluator.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "graph/evaluate_impl.h"

namespace reprise::graph {

bool infer_scalar_bool(RuleCall& call);

namespace {

// Wraps as two's complement.
std::int64_t wrap(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }

double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }
double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b); }

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap(0 - bits(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  std::uint64_t result = 1, factor = bits(base);
  for (; exponent > 0; exponent >>= 1, factor *= factor) {
    if (exponent & 1) result *= factor;
  }
  return wrap(result);
}

double remainder_of(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0 && (result < 0) != (b < 0)) result += b;
  return result;
}

std::optional<Element> evaluate_real_unary(OpId op, double a) {
  switch (op) {
    case OpId::exp:
      return make_real(std::exp(a));
    case OpId::log:
      return make_real(std::log(a));
    case OpId::log1p:
      return make_real(std::log1p(a));
    case OpId::expm1:
      return make_real(std::expm1(a));
    case OpId::sqrt:
      return make_real(std::sqrt(a));
    case OpId::rsqrt:
      return make_real(1 / std::sqrt(a));
    case OpId::reciprocal:
      return make_real(1 / a);
    case OpId::sin:
      return make_real(std::sin(a));
    case OpId::cos:
      return make_real(std::cos(a));
    case OpId::tanh:
      return make_real(std::tanh(a));
    case OpId::sigmoid:
      return make_real(1 / (1 + std::exp(-a)));
    case OpId::erf:
      return make_real(std::erf(a));
    case OpId::silu:
      return make_real(a / (1 + std::exp(-a)));
    case OpId::gelu:
      return make_real(0.5 * a * (1 + std::erf(a / std::sqrt(2.0))));
    case OpId::floor:
      return make_real(std::floor(a));
    case OpId::ceil:
      return make_real(std::ceil(a));
    case OpId::trunc:
      return make_real(std::trunc(a));
    case OpId::round:
      return make_real(std::nearbyint(a));
    default:
      return std::nullopt;
  }
}

template <class Number>
std::optional<Element> compare_numbers(OpId op, Number a, Number b) {
  switch (op) {
    case OpId::eq_Tensor:
    case OpId::eq_Scalar:
      return make_integer(a == b);
    case OpId::ne_Tensor:
    case OpId::ne_Scalar:
      return make_integer(a != b);
    case OpId::lt_Tensor:
    case OpId::lt_Scalar:
      return make_integer(a < b);
    case OpId::le_Tensor:
    case OpId::le_Scalar:
      return make_integer(a <= b);
    case OpId::gt_Tensor:
    case OpId::gt_Scalar:
      return make_integer(a > b);
    case OpId::ge_Tensor:
    case OpId::ge_Scalar:
      return make_integer(a >= b);
    default:
      return std::nullopt;
  }
}

std::optional<Element> evaluate_real(OpId op, std::span<const Element> x, std::span<const bool> present) {
  const double a = x[0].as_real();
  const double b = x.size() > 1 ? x[1].as_real() : 0;
  const double c = x.size() > 2 ? x[2].as_real() : 0;
  const double d = x.size() > 3 ? x[3].as_real() : 0;
  switch (op) {
    case OpId::add_Tensor:
    case OpId::add_Scalar:
      return make_real(c == 1 ? a + b : a + c * b);
    case OpId::sub_Tensor:
    case OpId::sub_Scalar:
      return make_real(c == 1 ? a - b : a - c * b);
    case OpId::rsub_Tensor:
    case OpId::rsub_Scalar:
      return make_real(c == 1 ? b - a : b - c * a);
    case OpId::mul_Tensor:
    case OpId::mul_Scalar:
      return make_real(a * b);
    case OpId::div_Tensor:
    case OpId::div_Scalar:
      return make_real(a / b);
    case OpId::maximum:
      return make_real(maximum(a, b));
    case OpId::minimum:
      return make_real(minimum(a, b));
    case OpId::pow_Tensor_Scalar:
    case OpId::pow_Tensor_Tensor:
    case OpId::pow_Scalar:
      return make_real(std::pow(a, b));
    case OpId::remainder_Tensor:
    case OpId::remainder_Scalar:
      return make_real(remainder_of(a, b));
    case OpId::fmod_Tensor:
    case OpId::fmod_Scalar:
      return make_real(std::fmod(a, b));
    case OpId::neg:
      return make_real(-a);
    case OpId::abs:
      return make_real(std::fabs(a));
    case OpId::sign:
      return make_real(std::isnan(a) ? a : (a > 0) - (a < 0));
    case OpId::relu:
      return make_real(std::isnan(a) ? a : std::max(a, 0.0));
    case OpId::clamp:
    case OpId::clamp_Tensor: {
      double result = a;
      if (present[1]) result = maximum(result, b);
      if (present[2]) result = minimum(result, c);
      return make_real(result);
    }
    case OpId::clamp_min:
    case OpId::clamp_min_Tensor:
      return make_real(maximum(a, b));
    case OpId::clamp_max:
    case OpId::clamp_max_Tensor:
      return make_real(minimum(a, b));
    case OpId::addcmul:
      return make_real(a + d * b * c);
    case OpId::addcdiv:
      return make_real(a + d * b / c);
    case OpId::lerp_Scalar:
    case OpId::lerp_Tensor:
      return make_real(c < 0.5 ? a + c * (b - a) : b - (b - a) * (1 - c));
    case OpId::threshold_backward:
      return make_real(b <= c ? 0 : a);
    case OpId::sigmoid_backward:
      return make_real(a * (1 - b) * b);
    case OpId::tanh_backward:
      return make_real(a * (1 - b * b));
    default:
      return evaluate_real_unary(op, a);
  }
}

std::optional<Element> evaluate_integer(OpId op, std::span<const Element> x, std::span<const bool> present) {
  const std::int64_t a = x[0].integer;
  const std::int64_t b = x.size() > 1 ? x[1].as_integer() : 0;
  const std::int64_t c = x.size() > 2 ? x[2].as_integer() : 0;
  switch (op) {
    case OpId::add_Tensor:
    case OpId::add_Scalar:
      return make_integer(wrap(bits(a) + bits(c) * bits(b)));
    case OpId::sub_Tensor:
    case OpId::sub_Scalar:
      return make_integer(wrap(bits(a) - bits(c) * bits(b)));
    case OpId::rsub_Tensor:
    case OpId::rsub_Scalar:
      return make_integer(wrap(bits(b) - bits(c) * bits(a)));
    case OpId::mul_Tensor:
    case OpId::mul_Scalar:
      return make_integer(wrap(bits(a) * bits(b)));
    case OpId::maximum:
      return make_integer(std::max(a, b));
    case OpId::minimum:
      return make_integer(std::min(a, b));
    case OpId::pow_Tensor_Scalar:
    case OpId::pow_Tensor_Tensor:
      return make_integer(power(a, b));
    case OpId::floor_divide:
    case OpId::floor_divide_Scalar:
      return make_integer(floor_divide(a, b));
    case OpId::remainder_Tensor:
    case OpId::remainder_Scalar:
      return make_integer(wrap(bits(a) - bits(floor_divide(a, b)) * bits(b)));
    case OpId::neg:
      return make_integer(wrap(0 - bits(a)));
    case OpId::abs:
      return make_integer(a < 0 ? wrap(0 - bits(a)) : a);
    case OpId::sign:
      return make_integer((a > 0) - (a < 0));
    case OpId::relu:
      return make_integer(std::max<std::int64_t>(a, 0));
    case OpId::bitwise_and_Tensor:
    case OpId::bitwise_and_Scalar:
      return make_integer(a & b);
    case OpId::bitwise_or_Tensor:
    case OpId::bitwise_or_Scalar:
      return make_integer(a | b);
    case OpId::bitwise_xor_Tensor:
    case OpId::bitwise_xor_Scalar:
      return make_integer(a ^ b);
    case OpId::clamp:
    case OpId::clamp_Tensor: {
      std::int64_t result = a;
      if (present[1]) result = std::max(result, b);
      if (present[2]) result = std::min(result, c);
      return make_integer(result);
    }
    case OpId::clamp_min:
    case OpId::clamp_min_Tensor:
      return make_integer(std::max(a, b));
    case OpId::clamp_max:
    case OpId::clamp_max_Tensor:
      return make_integer(std::min(a, b));
    case OpId::addcmul:
      return make_integer(wrap(bits(a) + bits(x[3].as_integer()) * bits(b) * bits(c)));
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Element> evaluate_pointwise(OpId op, std::span<const Element> x, std::span<const bool> present,
                                          bool is_float) {
  switch (op) {
    case OpId::where_self:
      return x[0].as_bool() ? x[1] : x[2];
    case OpId::masked_fill_Scalar:
    case OpId::masked_fill_Tensor:
      return x[1].as_bool() ? x[2] : x[0];
    case OpId::fill_Scalar:
    case OpId::fill_Tensor:
      return x[1];
    case OpId::logical_not:
      return make_integer(!x[0].as_bool());
    case OpId::logical_and:
      return make_integer(x[0].as_bool() && x[1].as_bool());
    case OpId::logical_or:
      return make_integer(x[0].as_bool() || x[1].as_bool());
    case OpId::logical_xor:
      return make_integer(x[0].as_bool() != x[1].as_bool());
    case OpId::isnan:
      return make_integer(std::isnan(x[0].as_real()));
    case OpId::bitwise_not:
      return make_integer(~x[0].integer);
    default:
      break;
  }
  if (x.size() > 1) {
    const bool on_reals = x[0].is_float || x[1].is_float;
    const auto compared = on_reals ? compare_numbers(op, x[0].as_real(), x[1].as_real())
                                   : compare_numbers(op, x[0].integer, x[1].integer);
    if (compared) return compared;
  }
  return is_float ? evaluate_real(op, x, present) : evaluate_integer(op, x, present);
}

std::optional<Element> evaluate_scalar(OpId op, std::span<const Element> x) {
  const bool on_reals = x[0].is_float || (x.size() > 1 && x[1].is_float);
  const double a = x[0].as_real();
  const double b = x.size() > 1 ? x[1].as_real() : 0;
  const std::int64_t i = x[0].integer;
  const std::int64_t k = x.size() > 1 ? x[1].integer : 0;
  switch (op) {
    case OpId::scalar_add:
      return on_reals ? make_real(a + b) : make_integer(wrap(bits(i) + bits(k)));
    case OpId::scalar_sub:
      return on_reals ? make_real(a - b) : make_integer(wrap(bits(i) - bits(k)));
    case OpId::scalar_mul:
      return on_reals ? make_real(a * b) : make_integer(wrap(bits(i) * bits(k)));
    case OpId::scalar_truediv:
      return make_real(a / b);
    case OpId::scalar_floordiv:
      return on_reals ? make_real(std::floor(a / b)) : make_integer(floor_divide(i, k));
    case OpId::scalar_mod:
      return on_reals ? make_real(remainder_of(a, b))
                      : make_integer(wrap(bits(i) - bits(floor_divide(i, k)) * bits(k)));
    case OpId::scalar_pow:
      return on_reals ? make_real(std::pow(a, b)) : make_integer(power(i, k));
    case OpId::scalar_float_pow:
      return make_real(std::pow(a, b));
    case OpId::scalar_neg:
      return on_reals ? make_real(-a) : make_integer(wrap(0 - bits(i)));
    case OpId::scalar_min:
      return on_reals ? make_real(std::min(a, b)) : make_integer(std::min(i, k));
    case OpId::scalar_max:
      return on_reals ? make_real(std::max(a, b)) : make_integer(std::max(i, k));
    case OpId::scalar_sqrt:
      return make_real(std::sqrt(a));
    case OpId::scalar_floor:
      return make_integer(static_cast<std::int64_t>(std::floor(a)));
    case OpId::scalar_ceil:
      return make_integer(static_cast<std::int64_t>(std::ceil(a)));
    case OpId::scalar_to_float:
      return make_real(a);
    case OpId::scalar_to_int:
      return make_integer(x[0].as_integer());
    case OpId::scalar_eq:
      return make_integer(on_reals ? a == b : i == k);
    case OpId::scalar_ne:
      return make_integer(on_reals ? a != b : i != k);
    case OpId::scalar_lt:
      return make_integer(on_reals ? a < b : i < k);
    case OpId::scalar_le:
      return make_integer(on_reals ? a <= b : i <= k);
    case OpId::scalar_gt:
      return make_integer(on_reals ? a > b : i > k);
    case OpId::scalar_ge:
      return make_integer(on_reals ? a >= b : i >= k);
    case OpId::scalar_and:
      return make_integer(x[0].as_bool() && x[1].as_bool());
    case OpId::scalar_or:
      return make_integer(x[0].as_bool() || x[1].as_bool());
    case OpId::scalar_not:
      return make_integer(!x[0].as_bool());
    default:
      return std::nullopt;
  }
}

std::optional<Arg> fold_scalar(OpId op, std::span<const Arg> args) {
  if (!is_known(op) || get_op_info(op).family != OpFamily::Scalar || args.empty() || args.size() > 2)
    return std::nullopt;
  std::array<Element, 2> operands;
  for (std::size_t i = 0; i < args.size(); ++i) {
    switch (args[i].kind()) {
      case ArgKind::Int:
        if (!args[i].get_int().is_constant()) return std::nullopt;
        operands[i] = make_integer(args[i].get_int().get_word());
        break;
      case ArgKind::Float:
        operands[i] = make_real(args[i].get_float());
        break;
      case ArgKind::Bool:
        operands[i] = make_integer(args[i].get_bool());
        break;
      default:
        return std::nullopt;
    }
  }
  const bool on_reals = operands[0].is_float || (args.size() > 1 && operands[1].is_float);
  const std::int64_t i = operands[0].integer, k = operands[1].integer;
  std::int64_t probe = 0;
  // Python's integers do not wrap, and some operations raise.
  switch (op) {
    case OpId::scalar_add:
      if (!on_reals && __builtin_add_overflow(i, k, &probe)) return std::nullopt;
      break;
    case OpId::scalar_sub:
      if (!on_reals && __builtin_sub_overflow(i, k, &probe)) return std::nullopt;
      break;
    case OpId::scalar_mul:
      if (!on_reals && __builtin_mul_overflow(i, k, &probe)) return std::nullopt;
      break;
    case OpId::scalar_neg:
      if (!on_reals && i == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
      break;
    case OpId::scalar_truediv:
      // Integers beyond 2^53 are divided exactly by Python.
      if (operands[1].as_real() == 0 || !on_reals) return std::nullopt;
      break;
    case OpId::scalar_eq:
    case OpId::scalar_ne:
    case OpId::scalar_lt:
    case OpId::scalar_le:
    case OpId::scalar_gt:
    case OpId::scalar_ge:
      if (operands[0].is_float != operands[1].is_float) return std::nullopt;
      break;
    case OpId::scalar_and:
    case OpId::scalar_or:
    case OpId::scalar_not:
    case OpId::scalar_to_float:
      break;
    default:
      return std::nullopt;
  }
  const std::optional<Element> result = evaluate_scalar(op, std::span<const Element>(operands.data(), args.size()));
  if (!result) return std::nullopt;
  if (get_op_info(op).rule == &infer_scalar_bool) return Arg::make_bool(result->integer != 0);
  if (result->is_float) return Arg::make_float(result->real);
  return Arg::make_int64(result->integer);
}

}  // namespace reprise::graph
