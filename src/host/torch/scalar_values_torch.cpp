#include "host/torch/scalar_values_impl.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>

#include <algorithm>
#include <cmath>

namespace reprise::host {

namespace {

// ---- Python's arithmetic on numbers

double as_double(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  return value.isInt() ? static_cast<double>(value.toInt()) : static_cast<double>(value.toBool());
}
int64_t as_int(const c10::IValue& value) {
  return value.isInt() ? value.toInt() : static_cast<int64_t>(value.toBool());
}

int64_t floor_divide(int64_t a, int64_t b) {
  TORCH_CHECK(b != 0, "integer division or modulo by zero");
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
double floor_divide(double a, double b) {
  TORCH_CHECK(b != 0, "float floor division by zero");
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}
double python_mod(double a, double b) {
  TORCH_CHECK(b != 0, "float modulo");
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}
c10::IValue int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return {std::pow(static_cast<double>(base), static_cast<double>(exponent))};
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return {result};
}

c10::IValue compute_number(ScalarOp op, const c10::IValue& a, const c10::IValue& b) {
  const bool is_int = !a.isDouble() && !b.isDouble();
  const double x = as_double(a), y = b.isNone() ? 0 : as_double(b);
  const int64_t i = is_int ? as_int(a) : 0, j = is_int && !b.isNone() ? as_int(b) : 0;
  switch (op) {
    case ScalarOp::Add:
      return is_int ? c10::IValue(i + j) : c10::IValue(x + y);
    case ScalarOp::Sub:
      return is_int ? c10::IValue(i - j) : c10::IValue(x - y);
    case ScalarOp::Mul:
      return is_int ? c10::IValue(i * j) : c10::IValue(x * y);
    case ScalarOp::TrueDiv:
      TORCH_CHECK(y != 0, "division by zero");
      return {x / y};
    case ScalarOp::Pow:
      return is_int ? int_power(i, j) : c10::IValue(std::pow(x, y));
    case ScalarOp::FloatPow:
      return {std::pow(x, y)};
    case ScalarOp::FloorDiv:
      return is_int ? c10::IValue(floor_divide(i, j)) : c10::IValue(floor_divide(x, y));
    case ScalarOp::Mod:
      return is_int ? c10::IValue(i - floor_divide(i, j) * j) : c10::IValue(python_mod(x, y));
    case ScalarOp::Eq:
      return {is_int ? i == j : x == y};
    case ScalarOp::Ne:
      return {is_int ? i != j : x != y};
    case ScalarOp::Lt:
      return {is_int ? i < j : x < y};
    case ScalarOp::Le:
      return {is_int ? i <= j : x <= y};
    case ScalarOp::Gt:
      return {is_int ? i > j : x > y};
    case ScalarOp::Ge:
      return {is_int ? i >= j : x >= y};
    case ScalarOp::Min:
      return is_int ? c10::IValue(std::min(i, j)) : c10::IValue(y < x ? y : x);
    case ScalarOp::Max:
      return is_int ? c10::IValue(std::max(i, j)) : c10::IValue(y > x ? y : x);
    case ScalarOp::And:
      return {x != 0 && y != 0};
    case ScalarOp::Or:
      return {x != 0 || y != 0};
    case ScalarOp::Not:
      return {x == 0};
    case ScalarOp::Neg:
      return is_int ? c10::IValue(-i) : c10::IValue(-x);
    case ScalarOp::Floor:
      return {static_cast<int64_t>(std::floor(x))};
    case ScalarOp::Ceil:
      return {static_cast<int64_t>(std::ceil(x))};
    case ScalarOp::ToFloat:
      return {x};
    case ScalarOp::Assert:
      TORCH_CHECK(x != 0, "a condition that the region relies on does not hold");
      return {};
    case ScalarOp::Item:
    case ScalarOp::RngGet:
    case ScalarOp::RngSet:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "no arithmetic");
}

}  // namespace

c10::IValue as_wrapped(const c10::IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue number_of(const at::Tensor& tensor, TraceValueKind kind) {
  const c10::Scalar value = tensor.item();
  switch (kind) {
    case TraceValueKind::Float:
      return {value.toDouble()};
    case TraceValueKind::Int:
      return {value.toLong()};
    case TraceValueKind::Bool:
      return {value.toBool()};
    default:
      return tensor;
  }
}

at::Tensor get_rng_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

c10::IValue run_scalar_op(ScalarOp op, std::span<const c10::IValue> args) {
  if (op == ScalarOp::Item) {
    const c10::Scalar value = args[0].toTensor().item();
    if (value.isFloatingPoint()) return {value.toDouble()};
    return value.isBoolean() ? c10::IValue(value.toBool()) : c10::IValue(value.toLong());
  }
  if (op == ScalarOp::RngGet) return get_rng_state();
  if (op == ScalarOp::RngSet) {
    set_rng_state(args[0].toTensor());
    return {};
  }
  return compute_number(op, args[0], args.size() > 1 ? args[1] : c10::IValue());
}

}  // namespace reprise::host
