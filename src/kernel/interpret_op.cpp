#include "kernel/interpret_op.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "kernel/numbers.h"

namespace reprise::kernel {
namespace {

[[noreturn]] void fail(ScalarOp op, DType dtype) {
  REPRISE_UNREACHABLE(std::string(get_row(op).text) + " of " + std::string(types::get_dtype_name(dtype)));
}

template <class T>
T evaluate_float(ScalarOp op, T a, T b, T c) {
  switch (op) {
    case ScalarOp::Add:
      return a + b;
    case ScalarOp::Sub:
      return a - b;
    case ScalarOp::Mul:
      return a * b;
    case ScalarOp::Div:
      return a / b;
    case ScalarOp::Fma:
      return std::fma(a, b, c);
    case ScalarOp::Neg:
      return -a;
    case ScalarOp::Abs:
      return std::fabs(a);
    case ScalarOp::Max:
      return a != a ? a : (a > b ? a : b);
    case ScalarOp::Min:
      return a != a ? a : (a < b ? a : b);
    case ScalarOp::Sqrt:
      return std::sqrt(a);
    case ScalarOp::Floor:
      return std::floor(a);
    case ScalarOp::Ceil:
      return std::ceil(a);
    case ScalarOp::Trunc:
      return std::trunc(a);
    case ScalarOp::RoundEven:
      return std::nearbyint(a);
    case ScalarOp::CopySign:
      return std::copysign(a, b);
    default:
      fail(op, DType::Float64);
  }
}

template <class T>
bool compare(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::Eq:
      return a == b;
    case ScalarOp::Ne:
      return a != b;
    case ScalarOp::Lt:
      return a < b;
    case ScalarOp::Le:
      return a <= b;
    case ScalarOp::Gt:
      return a > b;
    case ScalarOp::Ge:
      return a >= b;
    default:
      fail(op, DType::Bool);
  }
}

// Division by 0 gives 0; the least value by -1 wraps to itself.
std::int64_t divide_signed(ScalarOp op, DType dtype, std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) {
    const bool is_division = op == ScalarOp::DivTrunc || op == ScalarOp::DivFloor;
    return is_division ? static_cast<std::int64_t>(wrap_integer(dtype, 0 - static_cast<std::uint64_t>(a))) : 0;
  }
  const bool is_inexact_and_negative = a % b != 0 && (a < 0) != (b < 0);
  switch (op) {
    case ScalarOp::DivTrunc:
      return a / b;
    case ScalarOp::DivFloor:
      return a / b - is_inexact_and_negative;
    case ScalarOp::RemTrunc:
      return a % b;
    case ScalarOp::RemFloor:
      return a % b + (is_inexact_and_negative ? b : 0);
    default:
      fail(op, dtype);
  }
}

std::uint64_t divide_unsigned(ScalarOp op, std::uint64_t a, std::uint64_t b) {
  if (b == 0) return 0;
  return op == ScalarOp::DivTrunc || op == ScalarOp::DivFloor ? a / b : a % b;
}

std::uint64_t shift_left(DType dtype, std::uint64_t a, std::uint64_t b) {
  return b >= static_cast<std::uint64_t>(count_bits(dtype)) ? 0 : a << b;
}

std::uint64_t shift_right(DType dtype, std::uint64_t a, std::uint64_t b) {
  const auto bits = static_cast<std::uint64_t>(count_bits(dtype));
  if (!is_signed(dtype)) return b >= bits ? 0 : a >> b;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(a) >> (b >= bits ? 63 : b));
}

std::uint64_t evaluate_integer(ScalarOp op, DType dtype, std::uint64_t a, std::uint64_t b) {
  const auto sa = static_cast<std::int64_t>(a);
  const auto sb = static_cast<std::int64_t>(b);
  const bool is_less = is_signed(dtype) ? sa < sb : a < b;
  switch (op) {
    case ScalarOp::Add:
      return a + b;
    case ScalarOp::Sub:
      return a - b;
    case ScalarOp::Mul:
      return a * b;
    case ScalarOp::DivTrunc:
    case ScalarOp::DivFloor:
    case ScalarOp::RemTrunc:
    case ScalarOp::RemFloor:
      return is_signed(dtype) ? static_cast<std::uint64_t>(divide_signed(op, dtype, sa, sb))
                              : divide_unsigned(op, a, b);
    case ScalarOp::Neg:
      return 0 - a;
    case ScalarOp::Abs:
      return is_signed(dtype) && sa < 0 ? 0 - a : a;
    case ScalarOp::Max:
      return is_less ? b : a;
    case ScalarOp::Min:
      return is_less ? a : b;
    case ScalarOp::And:
      return a & b;
    case ScalarOp::Or:
      return a | b;
    case ScalarOp::Xor:
      return a ^ b;
    case ScalarOp::Not:
      return ~a;
    case ScalarOp::Shl:
      return shift_left(dtype, a, b);
    case ScalarOp::Shr:
      return shift_right(dtype, a, b);
    default:
      fail(op, dtype);
  }
}

bool evaluate_compare(ScalarOp op, DType dtype, std::uint64_t a, std::uint64_t b) {
  if (dtype == DType::Float32) return compare(op, as_float(a), as_float(b));
  if (dtype == DType::Float64) return compare(op, as_double(a), as_double(b));
  if (is_signed(dtype)) return compare(op, static_cast<std::int64_t>(a), static_cast<std::int64_t>(b));
  return compare(op, a, b);
}

}  // namespace

std::uint64_t evaluate_op(ScalarOp op, DType operand_dtype, DType dtype, std::uint64_t a, std::uint64_t b,
                          std::uint64_t c) {
  switch (get_row(op).op_class) {
    case OpClass::Any:
      return a != 0 ? b : c;
    case OpClass::Compare:
      return evaluate_compare(op, operand_dtype, a, b);
    case OpClass::Round:
      return op == ScalarOp::RoundBF16 ? to_bits(bfloat16_to_float(float_to_bfloat16(as_float(a))))
                                       : to_bits(float16_to_float(float_to_float16(as_float(a))));
    case OpClass::Convert:
      if (op == ScalarOp::Cast) return convert(operand_dtype, dtype, a);
      if (types::is_float(dtype)) {  // the bits stay; only their extension to 64 bits differs
        return dtype == DType::Float64 ? a : a & ((std::uint64_t{1} << count_bits(dtype)) - 1);
      }
      return wrap_integer(dtype, a);
    default:
      if (dtype == DType::Float32) return to_bits(evaluate_float(op, as_float(a), as_float(b), as_float(c)));
      if (dtype == DType::Float64) return to_bits(evaluate_float(op, as_double(a), as_double(b), as_double(c)));
      return wrap_integer(dtype, evaluate_integer(op, dtype, a, b));
  }
}

std::uint64_t get_least(DType dtype) {
  if (types::is_float(dtype)) return from_double(dtype, -std::numeric_limits<double>::infinity());
  if (!is_signed(dtype)) return 0;
  return wrap_integer(dtype, std::uint64_t{1} << (count_bits(dtype) - 1));
}

std::uint64_t get_greatest(DType dtype) {
  if (types::is_float(dtype)) return from_double(dtype, std::numeric_limits<double>::infinity());
  const int bits = count_bits(dtype) - (is_signed(dtype) ? 1 : 0);
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

Partial get_start(Combine combine, DType dtype) {
  switch (combine) {
    case Combine::Sum:
    case Combine::Any:
      return {0, 0};
    case Combine::Prod:
      return {make_constant_bits(dtype, std::int64_t{1}), 0};
    case Combine::All:
      return {1, 0};
    case Combine::Max:
    case Combine::ArgMax:
      return {get_least(dtype), std::numeric_limits<std::int64_t>::max()};
    case Combine::Min:
    case Combine::ArgMin:
      return {get_greatest(dtype), std::numeric_limits<std::int64_t>::max()};
  }
  REPRISE_UNREACHABLE("combine");
}

Partial combine_partials(Combine combine, DType dtype, Partial a, Partial b) {
  const auto apply = [&](ScalarOp op) { return Partial{evaluate_op(op, dtype, dtype, a.bits, b.bits, 0), 0}; };
  switch (combine) {
    case Combine::Sum:
      return apply(ScalarOp::Add);
    case Combine::Prod:
      return apply(ScalarOp::Mul);
    case Combine::Max:
      return apply(ScalarOp::Max);
    case Combine::Min:
      return apply(ScalarOp::Min);
    case Combine::Any:
      return apply(ScalarOp::Or);
    case Combine::All:
      return apply(ScalarOp::And);
    case Combine::ArgMax:
    case Combine::ArgMin: {
      const ScalarOp better = combine == Combine::ArgMax ? ScalarOp::Gt : ScalarOp::Lt;
      const bool a_is_nan = evaluate_compare(ScalarOp::Ne, dtype, a.bits, a.bits);
      const bool b_is_nan = evaluate_compare(ScalarOp::Ne, dtype, b.bits, b.bits);
      const bool is_equal = (a_is_nan && b_is_nan) || evaluate_compare(ScalarOp::Eq, dtype, a.bits, b.bits);
      const bool is_better = (b_is_nan && !a_is_nan) || evaluate_compare(better, dtype, b.bits, a.bits);
      return is_better || (is_equal && b.index < a.index) ? b : a;
    }
  }
  REPRISE_UNREACHABLE("combine");
}

}  // namespace reprise::kernel
