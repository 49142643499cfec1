// Functions of one element. Integers are identities under rounding; results of integers under the functions are
// float32 (the result's dtype says so).
#include <cmath>
#include <limits>

#include "lower/functions.h"

namespace reprise::lower {

namespace {

bool is_float_like(DType dtype) { return types::is_float(dtype); }

// The argument in the compute dtype of the result, the formula on it, and the cast to the result.
template <class Formula>
bool lower_unary(Call& call, Formula&& formula) {
  if (!call.is_plain(0)) return false;
  const Tensor result = call.get(call.single());
  call.begin(result.sizes);
  const DType dtype = result.dtype;
  // Integers turn into the dtype of the result first (a half type cannot come of them but by a cast of its own).
  const Ex x =
      call.cast(call.value(0, types::is_float(call.dtype(0)) ? call.dtype(0) : dtype), Call::get_compute_dtype(dtype));
  call.finish_pointwise(call.single(), formula(x));
  return true;
}

template <class Formula>
bool lower_test(Call& call, Formula&& formula) {
  if (!call.is_plain(0)) return false;
  call.begin(call.get(call.single()).sizes);
  call.finish_pointwise(call.single(), formula(call.value(0, Call::get_compute_dtype(call.dtype(0)))));
  return true;
}

bool lower_math(Call& call, MathFunction function) {
  const DType result = call.get(call.single()).dtype;
  if (!is_float_like(result)) return false;
  return lower_unary(call, [&](Ex x) { return call.math(function, choose_numerics(function, result), x); });
}

// Rounding: the identity for integers.
bool lower_rounding(Call& call, ScalarOp op) {
  return lower_unary(call, [&](Ex x) { return types::is_float(x.dtype) ? call.op(op, x) : x; });
}

}  // namespace

Numerics choose_numerics(MathFunction function, DType result) {
  if (function == MathFunction::Asinh || function == MathFunction::Acosh) return Numerics::Libm;
  if (result != DType::Float32 && result != DType::Float64) return Numerics::Sleef;
  return kernel::get_row(function).mkl.empty() ? Numerics::Sleef : Numerics::Mkl;
}

Ex emit_both(Call& call, Ex a, Ex b) {
  if (!a.id.is_valid() || !b.id.is_valid()) return a.id.is_valid() ? a : b;
  return call.op(ScalarOp::And, a, b);
}

Ex emit_constant(Call& call, Ex like, double number) { return call.constant(like.dtype, number); }

Ex emit_rounded(Call& call, Ex x, DType dtype) { return call.cast(call.cast(x, dtype), x.dtype); }

Ex emit_fused_exp(Call& call, Ex x) { return call.math(MathFunction::Exp, Numerics::Sleef, x); }

// 1 / (1 + exp(0 - x))
Ex emit_sigmoid(Call& call, Ex x) {
  const Ex one = emit_constant(call, x, 1);
  const Ex e = emit_fused_exp(call, call.op(ScalarOp::Sub, emit_constant(call, x, 0), x));
  return call.op(ScalarOp::Div, one, call.op(ScalarOp::Add, one, e));
}

// Abramowitz and Stegun 7.1.26 with a fused multiply-add at each step, as ATen's vectors of float32 do it:
//   sign(x) * (1 - (p1 t + p2 t^2 + p3 t^3 + p4 t^4 + p5 t^5) exp(-x^2)),  t = 1 / (1 + p |x|)
Ex emit_erf(Call& call, Ex x) {
  if (x.dtype == DType::Float64) return call.math(MathFunction::Erf, Numerics::Sleef, x);
  const auto number = [&](double value) { return emit_constant(call, x, value); };
  const auto fma = [&](Ex a, Ex b, Ex c) { return call.op(ScalarOp::Fma, a, b, c); };
  const Ex one = number(1);
  const Ex t = call.op(ScalarOp::Div, one, fma(number(0.3275911f), call.op(ScalarOp::Abs, x), one));
  Ex r = fma(number(1.061405429f), t, number(-1.453152027f));
  r = fma(r, t, number(1.421413741f));
  r = fma(r, t, number(-0.284496736f));
  r = fma(r, t, number(0.254829592f));
  const Ex e = emit_fused_exp(call, call.op(ScalarOp::Neg, call.op(ScalarOp::Mul, x, x)));
  const Ex magnitude = fma(call.op(ScalarOp::Mul, call.op(ScalarOp::Neg, e), t), r, one);
  // The sign of x is exclusive-ored in, so a negative magnitude (rounding near 0) turns around.
  const Ex sign = call.op(ScalarOp::CopySign, one, x);
  return call.op(ScalarOp::Mul, magnitude, sign);
}

bool lower_neg(Call& call) {
  if (call.get(call.single()).dtype == DType::Bool) return false;
  return lower_unary(call, [&](Ex x) { return call.op(ScalarOp::Neg, x); });
}

bool lower_abs(Call& call) {
  return lower_unary(call, [&](Ex x) { return x.dtype == DType::Bool ? x : call.op(ScalarOp::Abs, x); });
}

// (0 < x) - (x < 0)
bool lower_sign(Call& call) {
  return lower_unary(call, [&](Ex x) {
    if (x.dtype == DType::Bool) return x;
    const Ex zero = call.constant(x.dtype, std::int64_t{0});
    return call.op(ScalarOp::Sub, call.cast(call.op(ScalarOp::Lt, zero, x), x.dtype),
                   call.cast(call.op(ScalarOp::Lt, x, zero), x.dtype));
  });
}

bool lower_square(Call& call) {
  if (call.get(call.single()).dtype == DType::Bool) return false;
  return lower_unary(call, [&](Ex x) { return call.op(ScalarOp::Mul, x, x); });
}

bool lower_floor(Call& call) { return lower_rounding(call, ScalarOp::Floor); }
bool lower_ceil(Call& call) { return lower_rounding(call, ScalarOp::Ceil); }
bool lower_round(Call& call) { return lower_rounding(call, ScalarOp::RoundEven); }
bool lower_trunc(Call& call) { return lower_rounding(call, ScalarOp::Trunc); }

bool lower_frac(Call& call) {
  if (!is_float_like(call.get(call.single()).dtype)) return false;
  return lower_unary(call, [&](Ex x) { return call.op(ScalarOp::Sub, x, call.op(ScalarOp::Trunc, x)); });
}

bool lower_bitwise_not(Call& call) {
  if (is_float_like(call.get(call.single()).dtype)) return false;
  return lower_unary(call, [&](Ex x) { return call.op(ScalarOp::Not, x); });
}

bool lower_logical_not(Call& call) {
  return lower_test(call, [&](Ex x) { return call.op(ScalarOp::Not, call.cast(x, DType::Bool)); });
}

bool lower_isnan(Call& call) {
  return lower_test(call, [&](Ex x) {
    return is_float_like(x.dtype) ? call.op(ScalarOp::Ne, x, x) : call.constant(DType::Bool, std::int64_t{0});
  });
}

bool lower_isinf(Call& call) {
  return lower_test(call, [&](Ex x) {
    if (!is_float_like(x.dtype)) return call.constant(DType::Bool, std::int64_t{0});
    return call.op(ScalarOp::Eq, call.op(ScalarOp::Abs, x), emit_constant(call, x, INFINITY));
  });
}

bool lower_isfinite(Call& call) {
  return lower_test(call, [&](Ex x) {
    if (!is_float_like(x.dtype)) return call.constant(DType::Bool, std::int64_t{1});
    return call.op(ScalarOp::Lt, call.op(ScalarOp::Abs, x), emit_constant(call, x, INFINITY));
  });
}

bool lower_isposinf(Call& call) {
  return lower_test(call, [&](Ex x) {
    if (!is_float_like(x.dtype)) return call.constant(DType::Bool, std::int64_t{0});
    return call.op(ScalarOp::Eq, x, emit_constant(call, x, INFINITY));
  });
}

bool lower_isneginf(Call& call) {
  return lower_test(call, [&](Ex x) {
    if (!is_float_like(x.dtype)) return call.constant(DType::Bool, std::int64_t{0});
    return call.op(ScalarOp::Eq, x, emit_constant(call, x, -INFINITY));
  });
}

bool lower_signbit(Call& call) {
  return lower_test(call, [&](Ex x) {
    if (x.dtype == DType::Bool) return call.constant(DType::Bool, std::int64_t{0});
    const Ex zero = call.constant(x.dtype, std::int64_t{0});
    if (!is_float_like(x.dtype)) return call.op(ScalarOp::Lt, x, zero);
    return call.op(ScalarOp::Lt, call.op(ScalarOp::CopySign, emit_constant(call, x, 1), x), zero);
  });
}

// (self, nan, posinf, neginf): None is 0, the greatest and the least number of the dtype
bool lower_nan_to_num(Call& call) {
  const DType dtype = call.get(call.single()).dtype;
  if (!is_float_like(dtype)) return lower_copy(call);
  double most = std::numeric_limits<double>::max();
  if (dtype == DType::Float32) most = std::numeric_limits<float>::max();
  if (dtype == DType::Float16) most = 65504;
  if (dtype == DType::BFloat16) most = 0x1.FEp127;
  const auto get_value = [&](std::size_t i, double otherwise) {
    return call.is_none(i) ? std::optional(otherwise) : call.get_number(i);
  };
  const auto nan = get_value(1, 0);
  const auto high = get_value(2, most);
  const auto low = get_value(3, -most);
  if (!nan || !high || !low) return false;
  return lower_unary(call, [&](Ex x) {
    const auto choose = [&](Ex condition, double number, Ex otherwise) {
      return call.op(ScalarOp::Select, condition, emit_constant(call, x, number), otherwise);
    };
    Ex y = choose(call.op(ScalarOp::Eq, x, emit_constant(call, x, -INFINITY)), *low, x);
    y = choose(call.op(ScalarOp::Eq, x, emit_constant(call, x, INFINITY)), *high, y);
    return choose(call.op(ScalarOp::Ne, x, x), *nan, y);
  });
}

bool lower_exp(Call& call) { return lower_math(call, MathFunction::Exp); }
bool lower_exp2(Call& call) { return lower_math(call, MathFunction::Exp2); }
bool lower_expm1(Call& call) { return lower_math(call, MathFunction::Expm1); }
bool lower_log(Call& call) { return lower_math(call, MathFunction::Log); }
bool lower_log2(Call& call) { return lower_math(call, MathFunction::Log2); }
bool lower_log10(Call& call) { return lower_math(call, MathFunction::Log10); }
bool lower_log1p(Call& call) { return lower_math(call, MathFunction::Log1p); }
bool lower_sin(Call& call) { return lower_math(call, MathFunction::Sin); }
bool lower_cos(Call& call) { return lower_math(call, MathFunction::Cos); }
bool lower_tan(Call& call) { return lower_math(call, MathFunction::Tan); }
bool lower_asin(Call& call) { return lower_math(call, MathFunction::Asin); }
bool lower_acos(Call& call) { return lower_math(call, MathFunction::Acos); }
bool lower_atan(Call& call) { return lower_math(call, MathFunction::Atan); }
bool lower_sinh(Call& call) { return lower_math(call, MathFunction::Sinh); }
bool lower_cosh(Call& call) { return lower_math(call, MathFunction::Cosh); }
bool lower_tanh(Call& call) { return lower_math(call, MathFunction::Tanh); }
bool lower_asinh(Call& call) { return lower_math(call, MathFunction::Asinh); }
bool lower_acosh(Call& call) { return lower_math(call, MathFunction::Acosh); }
bool lower_atanh(Call& call) { return lower_math(call, MathFunction::Atanh); }
bool lower_erf(Call& call) { return lower_math(call, MathFunction::Erf); }
bool lower_erfc(Call& call) { return lower_math(call, MathFunction::Erfc); }
bool lower_lgamma(Call& call) { return lower_math(call, MathFunction::Lgamma); }

// MKL's for float32 and float64 (not correctly rounded everywhere), the instruction for half types.
bool lower_sqrt(Call& call) {
  const DType result = call.get(call.single()).dtype;
  if (result == DType::Float32 || result == DType::Float64) return lower_math(call, MathFunction::VmlSqrt);
  return lower_unary(call, [&](Ex x) { return call.op(ScalarOp::Sqrt, x); });
}

bool lower_rsqrt(Call& call) {
  return lower_unary(
      call, [&](Ex x) { return call.op(ScalarOp::Div, emit_constant(call, x, 1), call.op(ScalarOp::Sqrt, x)); });
}

bool lower_reciprocal(Call& call) {
  return lower_unary(call, [&](Ex x) { return call.op(ScalarOp::Div, emit_constant(call, x, 1), x); });
}

bool lower_deg2rad(Call& call) {
  if (!is_float_like(call.dtype(0))) return false;
  return lower_unary(call, [&](Ex x) {
    return call.op(ScalarOp::Mul, x, emit_constant(call, x, 0.017453292519943295769236907684886));
  });
}

bool lower_rad2deg(Call& call) {
  if (!is_float_like(call.dtype(0))) return false;
  return lower_unary(
      call, [&](Ex x) { return call.op(ScalarOp::Mul, x, emit_constant(call, x, 57.295779513082320876798154814105)); });
}

}  // namespace reprise::lower
