// Activations and their backward forms: the formulas of eager's kernels, with Sleef's functions inside (eager's fused
// kernels use those), in the order of operations of their vector code.
#include <cmath>

#include "lower/functions.h"

namespace reprise::lower {

namespace {

// Names for the formulas.
struct Formula {
  Call& call;

  Ex number(Ex like, double value) { return emit_constant(call, like, value); }
  Ex add(Ex a, Ex b) { return call.op(ScalarOp::Add, a, b); }
  Ex sub(Ex a, Ex b) { return call.op(ScalarOp::Sub, a, b); }
  Ex mul(Ex a, Ex b) { return call.op(ScalarOp::Mul, a, b); }
  Ex div(Ex a, Ex b) { return call.op(ScalarOp::Div, a, b); }
  Ex fma(Ex a, Ex b, Ex c) { return call.op(ScalarOp::Fma, a, b, c); }
  Ex neg(Ex a) { return call.op(ScalarOp::Neg, a); }
  Ex max(Ex a, Ex b) { return call.op(ScalarOp::Max, a, b); }
  Ex min(Ex a, Ex b) { return call.op(ScalarOp::Min, a, b); }
  Ex select(Ex condition, Ex a, Ex b) { return call.op(ScalarOp::Select, condition, a, b); }
  Ex math(MathFunction function, Ex a) { return call.math(function, Numerics::Sleef, a); }
};

// All of `args` are float tensors of the result's dtype (integers have no activations but relu and its kin).
template <class Body>
bool lower_float(Call& call, std::initializer_list<std::size_t> args, Body&& body) {
  const DType dtype = call.get(call.single()).dtype;
  if (!types::is_float(dtype)) return false;
  for (const std::size_t i : args) {
    if (!call.is_plain(i) || call.dtype(i) != dtype) return false;
  }
  call.begin(call.get(call.single()).sizes);
  Formula f{call};
  std::array<Ex, 3> values;
  std::size_t count = 0;
  for (const std::size_t i : args) values[count++] = call.value(i, Call::get_compute_dtype(dtype));
  call.finish_pointwise(call.single(), body(f, values[0], values[1], values[2]));
  return true;
}

constexpr double kSqrt2 = 1.41421356237309504880;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kGeluBeta = kSqrt2 * kTwoOverSqrtPi * 0.5;
constexpr double kGeluKappa = 0.044715;

}  // namespace

// 0 > x ? 0 : x: NaN and -0.0 pass
bool lower_relu(Call& call) {
  if (!call.is_plain(0)) return false;
  const DType dtype = call.get(call.single()).dtype;
  if (dtype == DType::Bool) return false;
  call.begin(call.get(call.single()).sizes);
  const Ex x = call.value(0, Call::get_compute_dtype(dtype));
  const Ex zero = call.constant(x.dtype, std::int64_t{0});
  call.finish_pointwise(call.single(), call.op(ScalarOp::Select, call.op(ScalarOp::Gt, zero, x), zero, x));
  return true;
}

// (self, negative_slope): x * (x > 0 ? 1 : slope)
bool lower_leaky_relu(Call& call) {
  const auto slope = call.get_number(1);
  if (!slope) return false;
  return lower_float(call, {0}, [&](Formula& f, Ex x, Ex, Ex) {
    const Ex is_positive = f.call.op(ScalarOp::Gt, x, f.number(x, 0));
    return f.mul(x, f.select(is_positive, f.number(x, 1), f.number(x, *slope)));
  });
}

// (self, threshold, value): x <= threshold ? value : x
bool lower_threshold(Call& call) {
  const auto threshold = call.get_number(1);
  const auto value = call.get_number(2);
  if (!threshold || !value) return false;
  return lower_float(call, {0}, [&](Formula& f, Ex x, Ex, Ex) {
    return f.select(f.call.op(ScalarOp::Le, x, f.number(x, *threshold)), f.number(x, *value), x);
  });
}

// (self, alpha, scale, input_scale): x < 0 ? expm1(x*input_scale) * (alpha*scale) : x*scale
bool lower_elu(Call& call) {
  const auto alpha = call.get_number(1);
  const auto scale = call.get_number(2);
  const auto input_scale = call.get_number(3);
  if (!alpha || !scale || !input_scale) return false;
  return lower_float(call, {0}, [&](Formula& f, Ex x, Ex, Ex) {
    const Ex negative = f.mul(f.math(MathFunction::Expm1, f.mul(x, f.number(x, *input_scale))),
                              f.mul(f.number(x, *alpha), f.number(x, *scale)));
    return f.select(f.call.op(ScalarOp::Lt, x, f.number(x, 0)), negative, f.mul(x, f.number(x, *scale)));
  });
}

// x * min(max(x + 3, 0), 6) / 6
bool lower_hardswish(Call& call) {
  return lower_float(call, {0}, [](Formula& f, Ex x, Ex, Ex) {
    const Ex inner = f.min(f.max(f.add(x, f.number(x, 3)), f.number(x, 0)), f.number(x, 6));
    return f.div(f.mul(x, inner), f.number(x, 6));
  });
}

bool lower_hardsigmoid(Call& call) {
  return lower_float(call, {0}, [](Formula& f, Ex x, Ex, Ex) {
    return f.div(f.min(f.max(f.add(x, f.number(x, 3)), f.number(x, 0)), f.number(x, 6)), f.number(x, 6));
  });
}

bool lower_sigmoid(Call& call) {
  if (!call.is_plain(0) || !types::is_float(call.get(call.single()).dtype)) return false;
  const DType dtype = call.get(call.single()).dtype;
  call.begin(call.get(call.single()).sizes);
  call.finish_pointwise(call.single(), emit_sigmoid(call, call.value(0, Call::get_compute_dtype(dtype))));
  return true;
}

// x / (1 + exp(-x))
bool lower_silu(Call& call) {
  return lower_float(call, {0}, [](Formula& f, Ex x, Ex, Ex) {
    return f.div(x, f.add(f.number(x, 1), emit_fused_exp(f.call, f.neg(x))));
  });
}

// (self, approximate): x/2 * (1 + erf(x/sqrt 2)), or x/2 * (1 + tanh(beta * fma(kappa, x^3, x)))
bool lower_gelu(Call& call) {
  const bool is_tanh = call.get_string(1) == "tanh";
  return lower_float(call, {0}, [&](Formula& f, Ex x, Ex, Ex) {
    const Ex half = f.number(x, 0.5);
    const Ex one = f.number(x, 1);
    if (!is_tanh) return f.mul(f.mul(x, half), f.add(one, emit_erf(f.call, f.mul(x, f.number(x, 1 / kSqrt2)))));
    const Ex cube = f.mul(f.mul(x, x), x);
    const Ex inner = f.mul(f.number(x, kGeluBeta), f.fma(f.number(x, kGeluKappa), cube, x));
    return f.mul(f.mul(half, x), f.add(one, f.math(MathFunction::Tanh, inner)));
  });
}

// (self, beta, threshold): x*beta > threshold ? x : log1p(exp(x*beta)) / beta
bool lower_softplus(Call& call) {
  const auto beta = call.get_number(1);
  const auto threshold = call.get_number(2);
  if (!beta || !threshold) return false;
  return lower_float(call, {0}, [&](Formula& f, Ex x, Ex, Ex) {
    const Ex scaled = f.mul(x, f.number(x, *beta));
    const Ex soft = f.div(f.math(MathFunction::Log1p, emit_fused_exp(f.call, scaled)), f.number(x, *beta));
    return f.select(f.call.op(ScalarOp::Gt, scaled, f.number(x, *threshold)), x, soft);
  });
}

// x * tanh(log1p(exp(x)))
bool lower_mish(Call& call) {
  return lower_float(call, {0}, [](Formula& f, Ex x, Ex, Ex) {
    return f.mul(x, f.math(MathFunction::Tanh, f.math(MathFunction::Log1p, emit_fused_exp(f.call, x))));
  });
}

// --- backward

// (grad, output): grad * (1 - y) * y; eager rounds float16 (not bfloat16) after every step
bool lower_sigmoid_backward(Call& call) {
  const DType dtype = call.get(call.single()).dtype;
  const DType step = dtype == DType::Float16 ? dtype : Call::get_compute_dtype(dtype);
  return lower_float(call, {0, 1}, [&](Formula& f, Ex grad, Ex y, Ex) {
    const Ex rest = emit_rounded(f.call, f.sub(f.number(y, 1), y), step);
    return f.mul(emit_rounded(f.call, f.mul(grad, rest), step), y);
  });
}

// (grad, output): grad * fma(-y, y, 1)
bool lower_tanh_backward(Call& call) {
  return lower_float(call, {0, 1},
                     [](Formula& f, Ex grad, Ex y, Ex) { return f.mul(grad, f.fma(f.neg(y), y, f.number(y, 1))); });
}

// (grad, self, threshold): x <= threshold ? 0 : grad
bool lower_threshold_backward(Call& call) {
  const auto threshold = call.get_number(2);
  if (!threshold) return false;
  return lower_float(call, {0, 1}, [&](Formula& f, Ex grad, Ex x, Ex) {
    return f.select(f.call.op(ScalarOp::Le, x, f.number(x, *threshold)), f.number(x, 0), grad);
  });
}

// (grad, self, min, max): min < x < max ? grad : 0
bool lower_hardtanh_backward(Call& call) {
  const auto low = call.get_number(2);
  const auto high = call.get_number(3);
  if (!low || !high) return false;
  return lower_float(call, {0, 1}, [&](Formula& f, Ex grad, Ex x, Ex) {
    const Ex is_in = f.call.op(ScalarOp::And, f.call.op(ScalarOp::Gt, x, f.number(x, *low)),
                               f.call.op(ScalarOp::Lt, x, f.number(x, *high)));
    return f.select(is_in, grad, f.number(x, 0));
  });
}

// (grad, self, slope, self_is_result): x > 0 ? grad : grad * slope
bool lower_leaky_relu_backward(Call& call) {
  const auto slope = call.get_number(2);
  if (!slope) return false;
  return lower_float(call, {0, 1}, [&](Formula& f, Ex grad, Ex x, Ex) {
    const Ex is_positive = f.call.op(ScalarOp::Gt, x, f.number(x, 0));
    return f.mul(grad, f.select(is_positive, f.number(x, 1), f.number(x, *slope)));
  });
}

// (grad, self): x <= -3 ? 0 : x < 3 ? grad * (x/3 + 1/2) : grad
bool lower_hardswish_backward(Call& call) {
  return lower_float(call, {0, 1}, [](Formula& f, Ex grad, Ex x, Ex) {
    const Ex middle = f.mul(grad, f.add(f.div(x, f.number(x, 3)), f.number(x, 0.5)));
    const Ex upper = f.select(f.call.op(ScalarOp::Lt, x, f.number(x, 3)), middle, grad);
    return f.select(f.call.op(ScalarOp::Le, x, f.number(x, -3)), f.number(x, 0), upper);
  });
}

// (grad, self): -3 < x < 3 ? grad/6 : 0
bool lower_hardsigmoid_backward(Call& call) {
  return lower_float(call, {0, 1}, [](Formula& f, Ex grad, Ex x, Ex) {
    const Ex is_in = f.call.op(ScalarOp::And, f.call.op(ScalarOp::Gt, x, f.number(x, -3)),
                               f.call.op(ScalarOp::Lt, x, f.number(x, 3)));
    return f.select(is_in, f.mul(grad, f.number(x, 1.0f / 6.0f)), f.number(x, 0));
  });
}

// (grad, self, beta, threshold): x*beta > threshold ? grad : grad * z / (z + 1), z = exp(x*beta)
bool lower_softplus_backward(Call& call) {
  const auto beta = call.get_number(2);
  const auto threshold = call.get_number(3);
  if (!beta || !threshold) return false;
  return lower_float(call, {0, 1}, [&](Formula& f, Ex grad, Ex x, Ex) {
    const Ex scaled = f.mul(x, f.number(x, *beta));
    const Ex z = emit_fused_exp(f.call, scaled);
    const Ex soft = f.div(f.mul(grad, z), f.add(z, f.number(x, 1)));
    return f.select(f.call.op(ScalarOp::Gt, scaled, f.number(x, *threshold)), grad, soft);
  });
}

// (grad, alpha, scale, input_scale, is_result, self_or_result)
bool lower_elu_backward(Call& call) {
  const auto alpha = call.get_number(1);
  const auto scale = call.get_number(2);
  const auto input_scale = call.get_number(3);
  const auto is_result = call.get_bool(4);
  if (!alpha || !scale || !input_scale || !is_result) return false;
  return lower_float(call, {0, 5}, [&](Formula& f, Ex grad, Ex x, Ex) {
    const Ex negative_factor = f.mul(f.number(x, *alpha), f.number(x, *scale));
    const Ex inner = f.number(x, *input_scale);
    Ex negative;
    if (*is_result) {
      negative = f.mul(f.mul(grad, inner), f.add(x, negative_factor));
    } else {
      negative = f.mul(f.mul(f.mul(grad, inner), negative_factor), emit_fused_exp(f.call, f.mul(x, inner)));
    }
    return f.select(f.call.op(ScalarOp::Le, x, f.number(x, 0)), negative, f.mul(grad, f.number(x, *scale)));
  });
}

// (grad, self): grad * s * fma(x, 1 - s, 1), s = 1 / (1 + exp(-x))
bool lower_silu_backward(Call& call) {
  return lower_float(call, {0, 1}, [](Formula& f, Ex grad, Ex x, Ex) {
    const Ex one = f.number(x, 1);
    const Ex s = f.div(one, f.add(one, emit_fused_exp(f.call, f.neg(x))));
    return f.mul(f.mul(grad, s), f.fma(x, f.sub(one, s), one));
  });
}

// (grad, self, approximate)
bool lower_gelu_backward(Call& call) {
  const bool is_tanh = call.get_string(2) == "tanh";
  return lower_float(call, {0, 1}, [&](Formula& f, Ex grad, Ex x, Ex) {
    const Ex half = f.number(x, 0.5);
    const Ex one = f.number(x, 1);
    if (!is_tanh) {
      const Ex cdf = f.mul(half, f.add(one, emit_erf(f.call, f.mul(x, f.number(x, 1 / kSqrt2)))));
      const Ex pdf = f.mul(f.number(x, kTwoOverSqrtPi / kSqrt2 * 0.5),
                           emit_fused_exp(f.call, f.mul(f.mul(x, x), f.number(x, -0.5))));
      return f.mul(grad, f.fma(x, pdf, cdf));
    }
    const Ex beta = f.number(x, kGeluBeta);
    const Ex square = f.mul(x, x);
    const Ex cube = f.mul(square, x);
    const Ex inner = f.math(MathFunction::Tanh, f.mul(beta, f.fma(f.number(x, kGeluKappa), cube, x)));
    const Ex left = f.mul(half, x);
    const Ex right = f.add(one, inner);
    const Ex tanh_derivative = f.fma(f.neg(inner), inner, one);
    const Ex triple = f.mul(f.number(x, 3), f.number(x, kGeluKappa));
    const Ex inner_derivative = f.mul(beta, f.fma(triple, square, one));
    return f.mul(grad, f.fma(half, right, f.mul(f.mul(left, tanh_derivative), inner_derivative)));
  });
}

// self -> min(0, x) - log1p(z), z = exp(-|x|)
bool lower_log_sigmoid(Call& call) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0)) || !call.has_out(1)) return false;
  const TensorId x = call.tensor(0);
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  Formula f{call};
  const auto emit_z = [&] { return emit_fused_exp(call, f.neg(call.op(ScalarOp::Abs, call.value(0, compute)))); };
  call.begin(call.get(x).sizes);
  const Ex value = call.value(0, compute);
  call.finish_pointwise(call.out(0), f.sub(f.min(value, f.number(value, 0)), f.math(MathFunction::Log1p, emit_z())));
  if (!call.get(call.out(1)).is_plain) return true;  // nobody needs it
  if (call.get(call.out(1)).sizes != call.get(x).sizes) return false;
  call.begin(call.get(x).sizes);
  call.finish_pointwise(call.out(1), emit_z());
  return true;
}

// (grad, self, buffer): grad * (x < 0 ? 1 - z/(1 + z) : z/(1 + z)), z = exp(-|x|)
bool lower_log_sigmoid_backward(Call& call) {
  return lower_float(call, {0, 1}, [](Formula& f, Ex grad, Ex x, Ex) {
    const Ex one = f.number(x, 1);
    const Ex z = emit_fused_exp(f.call, f.neg(f.call.op(ScalarOp::Abs, x)));
    const Ex ratio = f.div(z, f.add(one, z));
    return f.mul(grad, f.select(f.call.op(ScalarOp::Lt, x, f.number(x, 0)), f.sub(one, ratio), ratio));
  });
}

namespace {

// Element `half` (0 or 1) of a tensor whose dimension `dim` is taken apart in two halves; over a box with a dimension
// of size 2 in front of it if `has_halves`, else over the box of one half.
Ex load_half(Call& call, TensorId tensor, std::size_t dim, std::int64_t half, std::int64_t size, bool has_halves) {
  const Tensor& row = call.get(tensor);
  Access access;
  access.tensor = tensor;
  access.constant = row.offset + half * size * row.strides[dim];
  for (std::size_t d = 0; d < row.sizes.rank; ++d) access.by_dim[d + (has_halves && d >= dim)] = row.strides[d];
  return call.cast(call.load_at(std::move(access)), Call::get_compute_dtype(row.dtype));
}

}  // namespace

// (self, dim): first half * sigmoid(second half)
bool lower_glu(Call& call) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0))) return false;
  const TensorId x = call.tensor(0);
  const auto dim = call.get_dim(1, call.get(x).sizes.rank);
  if (!dim || call.get(x).sizes.rank == 0) return false;
  const std::int64_t size = call.get(x).sizes[*dim] / 2;
  call.begin(call.get(call.out(0)).sizes);
  const Ex a = load_half(call, x, *dim, 0, size, false);
  const Ex b = load_half(call, x, *dim, 1, size, false);
  call.finish_pointwise(call.out(0), call.op(ScalarOp::Mul, a, emit_sigmoid(call, b)));
  return true;
}

// (grad, self, dim): grad * s for the first half, grad * a * s * (1 - s) for the second, s = sigmoid(b)
bool lower_glu_backward(Call& call) {
  if (!call.is_plain(0) || !call.is_plain(1) || !types::is_float(call.dtype(1)) || call.dtype(0) != call.dtype(1))
    return false;
  const TensorId x = call.tensor(1);
  const Dims sizes = call.get(x).sizes;
  const auto dim = call.get_dim(2, sizes.rank);
  if (!dim || sizes.rank == 0 || sizes.rank >= kMaxRank) return false;
  const std::int64_t size = sizes[*dim] / 2;
  const Tensor result = call.get(call.out(0));
  Dims box;
  Dims strides;
  for (std::size_t d = 0; d < sizes.rank; ++d) {
    if (d == *dim) {
      box.push(2);
      strides.push(size * result.strides[d]);
    }
    box.push(d == *dim ? size : sizes[d]);
    strides.push(result.strides[d]);
  }
  call.begin(box);
  const Ex grad = load_half(call, call.tensor(0), *dim, 0, 0, true);
  const Ex a = load_half(call, x, *dim, 0, size, true);
  const Ex s = emit_sigmoid(call, load_half(call, x, *dim, 1, size, true));
  const Ex scaled = call.op(ScalarOp::Mul, grad, s);
  const Ex second =
      call.op(ScalarOp::Mul, call.op(ScalarOp::Mul, scaled, a), call.op(ScalarOp::Sub, emit_constant(call, s, 1), s));
  const Ex is_first = call.op(ScalarOp::Eq, call.dim(*dim), call.constant(DType::Int64, std::int64_t{0}));
  call.finish_at(call.out(0), strides, call.op(ScalarOp::Select, is_first, scaled, second));
  return true;
}

}  // namespace reprise::lower
