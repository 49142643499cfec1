// Arithmetic, comparisons and choices of two and three elements. Operands are cast to their common dtype first, as
// torch's iterator does; half types compute in float32 and are rounded once at the end. A second operand of one element
// beside a half tensor takes part in products with float32's precision, and is rounded to the common dtype in sums and
// comparisons. Integers and a Python float meet in the default dtype, which the result has, or (comparisons) nobody
// says. Where eager's kernels fuse a multiplication into an addition, there is an fma (cpu_codegen report, section 4).
#include <cmath>
#include <limits>

#include "lower/functions.h"

namespace reprise::lower {

namespace {

constexpr double kMaxFloatInt = 1 << 24;  // whole numbers up to there are float32's

bool is_number_arg(const Call& call, std::size_t i) { return !call.is_tensor(i); }

// Argument i, cast to the common dtype and from there to the dtype that is computed in.
Ex get_operand(Call& call, std::size_t i, DType common) {
  const DType compute = Call::get_compute_dtype(common);
  if (is_number_arg(call, i)) return call.value(i, compute);
  return call.cast(call.value(i, common), compute);
}

Ex get_rounded_operand(Call& call, std::size_t i, DType common) {
  return call.cast(call.value(i, common), Call::get_compute_dtype(common));
}

// The second argument of a product or quotient. Eager's kernels of half types read what is one element, a number or a
// tensor of any rank, in the dtype that is computed in.
Ex get_factor_operand(Call& call, DType common) {
  const bool is_one = is_number_arg(call, 1) || call.get(call.tensor(1)).sizes.count() == 1;
  return is_one ? call.value(1, Call::get_compute_dtype(common)) : get_rounded_operand(call, 1, common);
}

bool can_values(const Call& call, std::initializer_list<std::size_t> args) {
  for (const std::size_t i : args) {
    if (!call.can_value(i)) return false;
  }
  return true;
}

// `formula(a, b)` on the common dtype of arguments 0 and 1.
template <class Formula>
bool lower_binary(Call& call, Formula&& formula) {
  if (!can_values(call, {0, 1})) return false;
  const auto common = promote(call, {0, 1});
  if (!common) return false;
  call.begin(call.get(call.single()).sizes);
  // The dtype of the result wins where the promotion of numbers alone is unknown (float64 by default).
  const Ex a = get_operand(call, 0, *common);
  const Ex b = get_operand(call, 1, *common);
  const Ex value = formula(a, b);
  call.finish_pointwise(call.single(), value.dtype == DType::Bool ? value : call.cast(value, *common));
  return true;
}

// Whether integers compare with the numbers among the arguments alike in every float dtype: small ones that each of
// them has. Integers that a float dtype rounds stay larger than these.
bool has_plain_numbers(const Call& call) {
  for (const std::size_t i : {0u, 1u}) {
    if (!is_number_arg(call, i)) {
      if (call.arg(i).is_wrapped()) return false;  // its number is not known
      continue;
    }
    const auto number = call.get_number(i);
    if (!number || !(std::fabs(*number) <= 64) || *number * 2 != std::floor(*number * 2)) return false;
  }
  return !is_number_arg(call, 0) || !is_number_arg(call, 1);
}

bool lower_comparison(Call& call, ScalarOp op) {
  if (!can_values(call, {0, 1})) return false;
  auto common = promote(call, {0, 1});
  if (!common && has_plain_numbers(call)) common = DType::Float32;
  if (!common) return false;
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_rounded_operand(call, 0, *common);
  const Ex b = get_rounded_operand(call, 1, *common);
  call.finish_pointwise(call.single(), call.op(op, a, b));
  return true;
}

bool lower_logical(Call& call, ScalarOp op) {
  if (!can_values(call, {0, 1})) return false;
  call.begin(call.get(call.single()).sizes);
  const auto get_truth = [&](std::size_t i) {
    const DType dtype = call.is_tensor(i) ? Call::get_compute_dtype(call.dtype(i)) : DType::Float64;
    return call.cast(call.value(i, dtype), DType::Bool);
  };
  const Ex a = get_truth(0);
  const Ex b = get_truth(1);
  call.finish_pointwise(call.single(), call.op(op, a, b));
  return true;
}

bool lower_bits(Call& call, ScalarOp op) {
  const auto common = promote(call, {0, 1});
  if (!common || types::is_float(*common)) return false;
  return lower_binary(call, [&](Ex a, Ex b) { return call.op(op, a, b); });
}

// A shift by Python's number or a tensor; bool is no shift.
bool lower_shift(Call& call, ScalarOp op) {
  const auto common = promote(call, {0, 1});
  if (!common || types::is_float(*common) || *common == DType::Bool) return false;
  return lower_binary(call, [&](Ex a, Ex b) { return call.op(op, a, b); });
}

// Division and remainder of integers raise for a zero divisor, so only constants that are not zero are ours.
bool has_safe_divisor(const Call& call) {
  const auto divisor = call.get_int(1);
  return divisor && *divisor != 0;
}

bool lower_integer_division(Call& call, ScalarOp op) {
  const auto common = promote(call, {0, 1});
  if (!common || types::is_float(*common) || *common == DType::Bool || !has_safe_divisor(call)) return false;
  return lower_binary(call, [&](Ex a, Ex b) { return call.op(op, a, b); });
}

// The number `alpha` of add and sub, which eager has in the common dtype; nothing if it is 1.
std::optional<Ex> get_factor(Call& call, std::size_t i, DType common) {
  if (i >= call.count() || call.is_none(i)) return std::nullopt;
  if (const auto number = call.get_number(i); number && *number == 1) return std::nullopt;
  return get_rounded_operand(call, i, common);
}

// a + alpha*b or a - alpha*b: fma(b, alpha, a) for floats
bool lower_scaled_sum(Call& call, std::size_t first, std::size_t second, bool subtract) {
  if (!can_values(call, {0, 1}) || (!call.is_none(2) && !call.can_value(2))) return false;
  const auto common = promote(call, {0, 1});
  if (!common) return false;
  const DType compute = Call::get_compute_dtype(*common);
  if (compute == DType::Bool && (subtract || (call.get_number(2) && *call.get_number(2) != 1))) return false;
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_rounded_operand(call, first, *common);
  const Ex b = get_rounded_operand(call, second, *common);
  Ex value;
  if (compute == DType::Bool) {
    value = call.op(ScalarOp::Or, a, b);
  } else if (const auto factor = get_factor(call, 2, *common); factor && types::is_float(compute)) {
    // a - alpha*b is computed as a + (-alpha)*b
    value = call.op(ScalarOp::Fma, b, subtract ? call.op(ScalarOp::Neg, *factor) : *factor, a);
  } else {
    const Ex product = factor ? call.op(ScalarOp::Mul, *factor, b) : b;
    value = call.op(subtract ? ScalarOp::Sub : ScalarOp::Add, a, product);
  }
  call.finish_pointwise(call.single(), call.cast(value, *common));
  return true;
}

// c > x ? c : x and its mirror: what eager's max instruction with the bound as its first operand does: NaN passes.
Ex emit_clamp_low(Call& call, Ex x, Ex low) { return call.op(ScalarOp::Select, call.op(ScalarOp::Gt, low, x), low, x); }
Ex emit_clamp_high(Call& call, Ex x, Ex high) {
  return call.op(ScalarOp::Select, call.op(ScalarOp::Lt, high, x), high, x);
}

// Bounds in arguments `low` and `high` (or 0: none); NaN bounds fill everything with NaN in eager: not ours.
bool lower_clamp_between(Call& call, std::size_t low, std::size_t high) {
  const bool has_low = low != 0 && !call.is_none(low);
  const bool has_high = high != 0 && !call.is_none(high);
  for (const std::size_t i : {low, high}) {
    if (i == 0 || call.is_none(i)) continue;
    const auto bound = call.get_number(i);
    if (!bound || std::isnan(*bound)) return false;
  }
  if (!call.is_plain(0)) return false;
  const DType dtype = call.get(call.single()).dtype;
  if (dtype == DType::Bool) return false;
  call.begin(call.get(call.single()).sizes);
  Ex x = get_rounded_operand(call, 0, dtype);
  if (has_low) x = emit_clamp_low(call, x, get_rounded_operand(call, low, dtype));
  if (has_high) x = emit_clamp_high(call, x, get_rounded_operand(call, high, dtype));
  call.finish_pointwise(call.single(), x);
  return true;
}

bool lower_extreme(Call& call, ScalarOp op, ScalarOp for_bool) {
  return lower_binary(call, [&](Ex a, Ex b) { return call.op(a.dtype == DType::Bool ? for_bool : op, a, b); });
}

}  // namespace

bool lower_add_tensors(Call& call) { return lower_scaled_sum(call, 0, 1, false); }
bool lower_sub_tensors(Call& call) { return lower_scaled_sum(call, 0, 1, true); }
bool lower_rsub(Call& call) { return lower_scaled_sum(call, 1, 0, true); }

bool lower_mul(Call& call) {
  if (!can_values(call, {0, 1})) return false;
  const auto common = promote(call, {0, 1});
  if (!common) return false;
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_rounded_operand(call, 0, *common);
  const Ex b = get_factor_operand(call, *common);
  const Ex value = call.op(a.dtype == DType::Bool ? ScalarOp::And : ScalarOp::Mul, a, b);
  call.finish_pointwise(call.single(), call.cast(value, *common));
  return true;
}

bool lower_div(Call& call) {
  if (!can_values(call, {0, 1})) return false;
  auto common = promote(call, {0, 1});
  if (!common) return false;
  if (!types::is_float(*common)) common = DType::Float32;
  const DType result = call.get(call.single()).dtype;
  if (!types::is_float(result)) return false;
  if (types::is_integral(*promote(call, {0, 1}))) common = result;  // the default dtype
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_rounded_operand(call, 0, *common);
  const Ex b = get_factor_operand(call, *common);
  call.finish_pointwise(call.single(), call.cast(call.op(ScalarOp::Div, a, b), *common));
  return true;
}

// (self, other, rounding_mode): true division, "trunc" or "floor"
bool lower_div_mode(Call& call) {
  if (call.is_none(2)) return lower_div(call);
  const bool is_trunc = call.get_string(2) == "trunc";
  const auto common = promote(call, {0, 1});
  if (!common) return false;
  if (!types::is_float(*common))
    return lower_integer_division(call, is_trunc ? ScalarOp::DivTrunc : ScalarOp::DivFloor);
  if (!is_trunc) return false;  // eager's floor division of floats goes through fmod
  return lower_binary(call, [&](Ex a, Ex b) {
    return call.op(ScalarOp::Trunc, emit_rounded(call, call.op(ScalarOp::Div, a, b), *common));
  });
}

bool lower_floor_divide(Call& call) { return lower_integer_division(call, ScalarOp::DivFloor); }
bool lower_remainder(Call& call) { return lower_integer_division(call, ScalarOp::RemFloor); }
bool lower_fmod(Call& call) { return lower_integer_division(call, ScalarOp::RemTrunc); }

// x^0 -> 1, x^1 -> x, x^2 -> x*x, x^3 -> x*x*x, x^-2 -> 1/(x*x), x^0.5 -> sqrt, x^-0.5 -> 1/sqrt, else pow
bool lower_pow_scalar(Call& call) {
  const auto exponent = call.get_number(1);
  if (!exponent || !call.is_plain(0)) return lower_pow(call);
  const DType result = call.get(call.single()).dtype;
  const DType compute = Call::get_compute_dtype(result);
  const bool is_float = types::is_float(result);
  if (compute == DType::Bool) return false;
  if (!is_float && *exponent != 0 && *exponent != 1 && *exponent != 2 && *exponent != 3) return false;
  // Whether it is odd decides about signs, and eager rounds it in whole vectors only.
  if (is_float && result != DType::Float64 && std::fabs(*exponent) > kMaxFloatInt && std::isfinite(*exponent))
    return false;
  call.begin(call.get(call.single()).sizes);
  const Ex x = call.cast(call.value(0, result), compute);
  const Ex one = call.constant(compute, std::int64_t{1});
  // Eager rounds bfloat16 (not float16) after every product.
  const auto round = [&](Ex a) { return result == DType::BFloat16 ? emit_rounded(call, a, result) : a; };
  Ex value;
  if (*exponent == 0) {
    value = one;
  } else if (*exponent == 1) {
    value = x;
  } else if (*exponent == 2) {
    value = call.op(ScalarOp::Mul, x, x);
  } else if (*exponent == 3) {
    value = call.op(ScalarOp::Mul, round(call.op(ScalarOp::Mul, x, x)), x);
  } else if (*exponent == -2) {
    value = call.op(ScalarOp::Div, one, round(call.op(ScalarOp::Mul, x, x)));
  } else if (*exponent == -1) {
    value = call.op(ScalarOp::Div, one, x);
  } else if (*exponent == 0.5 && result != DType::Float16) {
    value = result == DType::Float32 || result == DType::Float64 ? call.math(MathFunction::VmlSqrt, Numerics::Mkl, x)
                                                                 : call.op(ScalarOp::Sqrt, x);
  } else if (*exponent == -0.5 && result != DType::Float16) {
    value = call.op(ScalarOp::Div, one, call.op(ScalarOp::Sqrt, x));
  } else {
    value = call.math(MathFunction::Pow, Numerics::Sleef, x, call.constant(compute, *exponent));
  }
  call.finish_pointwise(call.single(), value);
  return true;
}

bool lower_pow(Call& call) {
  const auto common = promote(call, {0, 1});
  if (!common || !types::is_float(*common)) return false;
  return lower_binary(call, [&](Ex a, Ex b) { return call.math(MathFunction::Pow, Numerics::Sleef, a, b); });
}

bool lower_maximum(Call& call) { return lower_extreme(call, ScalarOp::Max, ScalarOp::Or); }
bool lower_minimum(Call& call) { return lower_extreme(call, ScalarOp::Min, ScalarOp::And); }

// The other one where one is NaN. `chooses_b`: how a compares with b where b is the result.
bool lower_number_extreme(Call& call, ScalarOp chooses_b, bool (*lower_others)(Call&)) {
  const auto common = promote(call, {0, 1});
  if (!common || !types::is_float(*common)) return lower_others(call);
  return lower_binary(call, [&](Ex a, Ex b) {
    const Ex chosen = call.op(ScalarOp::Select, call.op(chooses_b, a, b), b, a);
    return call.op(ScalarOp::Select, call.op(ScalarOp::Ne, a, a), b, chosen);
  });
}

bool lower_fmax(Call& call) { return lower_number_extreme(call, ScalarOp::Lt, lower_maximum); }
bool lower_fmin(Call& call) { return lower_number_extreme(call, ScalarOp::Gt, lower_minimum); }

bool lower_copysign(Call& call) {
  const auto common = promote(call, {0, 1});
  if (!common || !types::is_float(*common)) return false;
  return lower_binary(call, [&](Ex a, Ex b) { return call.op(ScalarOp::CopySign, a, b); });
}

// NaN if b is NaN, 0 if a is 0, a * log(b)
bool lower_xlogy(Call& call) {
  const auto common = promote(call, {0, 1});
  if (!common || !types::is_float(*common)) return false;
  return lower_binary(call, [&](Ex a, Ex b) {
    const Ex product = call.op(ScalarOp::Mul, a, call.math(MathFunction::Log, Numerics::Libm, b));
    const Ex zero = emit_constant(call, a, 0);
    const Ex value = call.op(ScalarOp::Select, call.op(ScalarOp::Eq, a, zero), zero, product);
    return call.op(ScalarOp::Select, call.op(ScalarOp::Ne, b, b), emit_constant(call, a, NAN), value);
  });
}

bool lower_bitwise_and(Call& call) { return lower_bits(call, ScalarOp::And); }
bool lower_bitwise_or(Call& call) { return lower_bits(call, ScalarOp::Or); }
bool lower_bitwise_xor(Call& call) { return lower_bits(call, ScalarOp::Xor); }
bool lower_left_shift(Call& call) { return lower_shift(call, ScalarOp::Shl); }
bool lower_right_shift(Call& call) { return lower_shift(call, ScalarOp::Shr); }

bool lower_eq(Call& call) { return lower_comparison(call, ScalarOp::Eq); }
bool lower_ne(Call& call) { return lower_comparison(call, ScalarOp::Ne); }
bool lower_lt(Call& call) { return lower_comparison(call, ScalarOp::Lt); }
bool lower_le(Call& call) { return lower_comparison(call, ScalarOp::Le); }
bool lower_gt(Call& call) { return lower_comparison(call, ScalarOp::Gt); }
bool lower_ge(Call& call) { return lower_comparison(call, ScalarOp::Ge); }
bool lower_logical_and(Call& call) { return lower_logical(call, ScalarOp::And); }
bool lower_logical_or(Call& call) { return lower_logical(call, ScalarOp::Or); }
bool lower_logical_xor(Call& call) { return lower_logical(call, ScalarOp::Xor); }

// (condition, self, other); a condition of uint8 is torch's old bool
bool lower_where(Call& call) {
  if (!call.is_plain(0) || call.dtype(0) != DType::Bool || !can_values(call, {1, 2})) return false;
  const DType dtype = call.get(call.single()).dtype;
  call.begin(call.get(call.single()).sizes);
  const Ex condition = call.value(0, DType::Bool);
  const Ex a = call.value(1, dtype);
  const Ex b = call.value(2, dtype);
  call.finish_pointwise(call.single(), call.op(ScalarOp::Select, condition, a, b));
  return true;
}

// (self, tensor1, tensor2, value): fma(value*b, c, a)
bool lower_addcmul(Call& call) {
  if (!can_values(call, {0, 1, 2, 3})) return false;
  const auto common = promote(call, {0, 1, 2});
  if (!common || *common == DType::Bool) return false;
  const DType compute = Call::get_compute_dtype(*common);
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_operand(call, 0, *common);
  Ex b = get_operand(call, 1, *common);
  const Ex c = get_operand(call, 2, *common);
  if (const auto factor = get_factor(call, 3, compute)) b = call.op(ScalarOp::Mul, *factor, b);
  const Ex value = types::is_float(compute) ? call.op(ScalarOp::Fma, b, c, a)
                                            : call.op(ScalarOp::Add, a, call.op(ScalarOp::Mul, b, c));
  call.finish_pointwise(call.single(), call.cast(value, *common));
  return true;
}

// (self, tensor1, tensor2, value): a + value*b/c
bool lower_addcdiv(Call& call) {
  if (!can_values(call, {0, 1, 2, 3})) return false;
  const auto common = promote(call, {0, 1, 2});
  if (!common || !types::is_float(*common)) return false;
  const DType compute = Call::get_compute_dtype(*common);
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_operand(call, 0, *common);
  Ex b = get_operand(call, 1, *common);
  const Ex c = get_operand(call, 2, *common);
  if (const auto factor = get_factor(call, 3, compute)) b = call.op(ScalarOp::Mul, *factor, b);
  const Ex value = call.op(ScalarOp::Add, a, call.op(ScalarOp::Div, b, c));
  call.finish_pointwise(call.single(), call.cast(value, *common));
  return true;
}

// (self, end, weight): |w| < 0.5 ? fma(w, b-a, a) : fma(w-1, b-a, b)
bool lower_lerp(Call& call) {
  if (!can_values(call, {0, 1, 2})) return false;
  const DType dtype = call.get(call.single()).dtype;
  if (!types::is_float(dtype)) return false;
  call.begin(call.get(call.single()).sizes);
  const Ex a = get_operand(call, 0, dtype);
  const Ex b = get_operand(call, 1, dtype);
  const Ex w = get_operand(call, 2, dtype);
  const Ex is_low = call.op(ScalarOp::Lt, call.op(ScalarOp::Abs, w), emit_constant(call, w, 0.5));
  const Ex factor = call.op(ScalarOp::Select, is_low, w, call.op(ScalarOp::Sub, w, emit_constant(call, w, 1)));
  const Ex base = call.op(ScalarOp::Select, is_low, a, b);
  call.finish_pointwise(call.single(), call.op(ScalarOp::Fma, factor, call.op(ScalarOp::Sub, b, a), base));
  return true;
}

bool lower_clamp(Call& call) { return lower_clamp_between(call, 1, 2); }
bool lower_clamp_min(Call& call) { return lower_clamp_between(call, 1, 0); }
bool lower_clamp_max(Call& call) { return lower_clamp_between(call, 0, 1); }
bool lower_hardtanh(Call& call) { return lower_clamp_between(call, 1, 2); }

bool lower_clamp_tensor(Call& call) {
  const bool has_low = !call.is_none(1);
  const bool has_high = !call.is_none(2);
  if (!call.is_plain(0) || (has_low && !call.is_plain(1)) || (has_high && !call.is_plain(2))) return false;
  const DType dtype = call.get(call.single()).dtype;
  if (dtype == DType::Bool) return false;
  call.begin(call.get(call.single()).sizes);
  Ex x = get_rounded_operand(call, 0, dtype);
  if (has_low) x = call.op(ScalarOp::Max, x, get_rounded_operand(call, 1, dtype));
  if (has_high) x = call.op(ScalarOp::Min, x, get_rounded_operand(call, 2, dtype));
  call.finish_pointwise(call.single(), x);
  return true;
}

// (self, mask, value)
bool lower_masked_fill(Call& call) {
  if (!call.is_plain(0) || !call.is_plain(1) || call.dtype(1) != DType::Bool || !call.can_value(2)) return false;
  const DType dtype = call.get(call.single()).dtype;
  if (dtype != call.dtype(0)) return false;
  call.begin(call.get(call.single()).sizes);
  const Ex mask = call.value(1, DType::Bool);
  const Ex value = call.value(2, dtype);
  call.finish_pointwise(call.single(), call.op(ScalarOp::Select, mask, value, call.value(0, dtype)));
  return true;
}

}  // namespace reprise::lower
