// Layer, RMS, group and batch norm: two passes for mean and variance, float32 inside for half types.
#include "lower/rows.h"

namespace reprise::lower {

namespace {

// A result that may be None or of no elements (batch norm in evaluation mode).
bool has_result(const Call& call, std::size_t i) { return call.has_out(i) && call.get(call.out(i)).is_plain; }

Ex load_as(Call& call, TensorId tensor, DType dtype) { return call.cast(call.load(tensor), dtype); }

// 1 / sqrt(variance + eps), from a row that holds count * variance
Ex emit_inverse_deviation(Call& call, Ex squares, double count, double eps) {
  const Ex variance = call.op(ScalarOp::Div, squares, emit_constant(call, squares, count));
  return call.op(ScalarOp::Div, emit_constant(call, squares, 1),
                 call.op(ScalarOp::Sqrt, call.op(ScalarOp::Add, variance, emit_constant(call, squares, eps))));
}

// The last dims, as many as the list in argument `i` has.
std::optional<std::uint8_t> get_last_dims(const Call& call, std::size_t i, std::size_t rank) {
  if (!call.arg(i).is_list()) return std::nullopt;
  const std::size_t count = call.arg(i).get_list().size();
  if (count > rank || count == 0) return std::nullopt;
  return static_cast<std::uint8_t>(((1u << count) - 1) << (rank - count));
}

bool is_usable(const Call& call, std::size_t i) {
  return call.is_none(i) || (call.is_plain(i) && types::is_float(call.dtype(i)));
}

// A parameter with one element a channel, dim 1 of the op.
Ex load_channel(Call& call, TensorId tensor, DType dtype) {
  Access access;
  access.tensor = tensor;
  access.constant = call.get(tensor).offset;
  access.by_dim[1] = call.get(tensor).strides[0];
  return call.cast(call.load_at(std::move(access)), dtype);
}

bool is_contiguous(const Tensor& tensor) {
  const Dims strides = make_contiguous_strides(tensor.sizes);
  for (std::size_t d = 0; d < strides.rank; ++d) {
    if (tensor.sizes[d] != 1 && tensor.strides[d] != strides[d]) return false;
  }
  return true;
}

}  // namespace

// (input, normalized_shape, weight, bias, eps) -> out, mean, rstd
bool lower_layer_norm(Call& call) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0)) || !is_usable(call, 2) || !is_usable(call, 3)) return false;
  const TensorId x = call.tensor(0);
  const Dims sizes = call.get(x).sizes;
  const auto dims = get_last_dims(call, 1, sizes.rank);
  const auto eps = call.get_number(4);
  if (!dims || !eps) return false;
  Rows rows(call, sizes, *dims);
  if (rows.count() == 1) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  const auto [mean, squares] = rows.fold_moments(compute, [&] { return load_as(call, x, compute); });
  const TensorId sums = squares;
  const TensorId rstd = rows.map(
      compute, [&] { return emit_inverse_deviation(call, call.load(sums), static_cast<double>(rows.count()), *eps); });
  call.begin(sizes);
  Ex value =
      call.op(ScalarOp::Mul, call.op(ScalarOp::Sub, load_as(call, x, compute), call.load(mean)), call.load(rstd));
  if (!call.is_none(2)) value = call.op(ScalarOp::Mul, value, load_as(call, call.tensor(2), compute));
  if (!call.is_none(3)) value = call.op(ScalarOp::Add, value, load_as(call, call.tensor(3), compute));
  call.finish_pointwise(call.out(0), value);
  if (has_result(call, 1)) rows.finish(call.out(1), mean);
  if (has_result(call, 2)) rows.finish(call.out(2), rstd);
  return true;
}

// (grad, input, normalized_shape, mean, rstd, weight, bias, mask) -> grad_input, grad_weight, grad_bias
//   n = (x - mean) * rstd, g = grad * weight
//   grad_input = rstd * (g - mean(g) - n * mean(g * n)); grad_weight = sum of grad * n, grad_bias = sum of grad
bool lower_layer_norm_backward(Call& call) {
  for (const std::size_t i : {0, 1, 3, 4}) {
    if (!call.is_plain(i) || !types::is_float(call.dtype(i))) return false;
  }
  if (!is_usable(call, 5)) return false;
  const Dims sizes = call.get(call.tensor(1)).sizes;
  const auto dims = get_last_dims(call, 2, sizes.rank);
  if (!dims) return false;
  Rows rows(call, sizes, *dims);
  if (rows.count() == 1 || call.get(call.tensor(3)).sizes != rows.row_sizes()) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(1));
  const auto load = [&](std::size_t i) { return load_as(call, call.tensor(i), compute); };
  const auto load_normal = [&] { return call.op(ScalarOp::Mul, call.op(ScalarOp::Sub, load(1), load(3)), load(4)); };
  const auto load_scaled = [&] { return call.is_none(5) ? load(0) : call.op(ScalarOp::Mul, load(0), load(5)); };
  if (call.has_out(0)) {
    const TensorId sum = rows.fold(Combine::Sum, compute, load_scaled);
    const TensorId product =
        rows.fold(Combine::Sum, compute, [&] { return call.op(ScalarOp::Mul, load_scaled(), load_normal()); });
    const TensorId mean_sum = rows.divide_by_count(compute, sum);
    const TensorId mean_product = rows.divide_by_count(compute, product);
    call.begin(sizes);
    const Ex rest =
        call.op(ScalarOp::Add, call.load(mean_sum), call.op(ScalarOp::Mul, load_normal(), call.load(mean_product)));
    call.finish_pointwise(call.out(0), call.op(ScalarOp::Mul, load(4), call.op(ScalarOp::Sub, load_scaled(), rest)));
  }
  const auto all = static_cast<std::uint8_t>((1u << sizes.rank) - 1);
  Rows columns(call, sizes, static_cast<std::uint8_t>(all & ~*dims));
  if (call.has_out(1)) {
    columns.finish(call.out(1),
                   columns.fold(Combine::Sum, compute, [&] { return call.op(ScalarOp::Mul, load(0), load_normal()); }));
  }
  if (call.has_out(2)) columns.finish(call.out(2), columns.fold(Combine::Sum, compute, [&] { return load(0); }));
  return true;
}

// (input, normalized_shape, weight, eps) -> out, rstd
bool lower_rms_norm(Call& call) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0)) || !is_usable(call, 2)) return false;
  const TensorId x = call.tensor(0);
  const Dims sizes = call.get(x).sizes;
  const auto dims = get_last_dims(call, 1, sizes.rank);
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  std::optional<double> eps = compute == DType::Float64 ? 0x1p-52 : 0x1p-23;
  if (!call.is_none(3)) eps = call.get_number(3);
  if (!dims || !eps) return false;
  Rows rows(call, sizes, *dims);
  const TensorId squares = rows.fold(Combine::Sum, compute, [&] {
    const Ex value = load_as(call, x, compute);
    return call.op(ScalarOp::Mul, value, value);
  });
  const TensorId rstd = rows.map(compute, [&] {
    return emit_inverse_deviation(call, call.load(squares), static_cast<double>(rows.count()), *eps);
  });
  call.begin(sizes);
  Ex value = call.op(ScalarOp::Mul, load_as(call, x, compute), call.load(rstd));
  if (!call.is_none(2)) value = call.op(ScalarOp::Mul, value, load_as(call, call.tensor(2), compute));
  call.finish_pointwise(call.out(0), value);
  if (has_result(call, 1)) rows.finish(call.out(1), rstd);
  return true;
}

// (input, weight, bias, N, C, HxW, group, eps) -> out, mean, rstd; over a box [N, groups, channels of one, HxW]
bool lower_group_norm(Call& call) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0)) || !is_usable(call, 1) || !is_usable(call, 2)) return false;
  const TensorId x = call.tensor(0);
  const auto batch = call.get_int(3);
  const auto channels = call.get_int(4);
  const auto extent = call.get_int(5);
  const auto groups = call.get_int(6);
  const auto eps = call.get_number(7);
  if (!batch || !channels || !extent || !groups || !eps || !is_contiguous(call.get(x)) ||
      !is_contiguous(call.get(call.out(0))) || *channels % *groups != 0)
    return false;
  Dims sizes;
  for (const std::int64_t size : {*batch, *groups, *channels / *groups, *extent}) sizes.push(size);
  const Dims strides = make_contiguous_strides(sizes);
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  Rows rows(call, sizes, 0b1100);
  if (rows.count() == 1) return false;
  const auto load_box = [&] {
    Access access;
    access.tensor = x;
    access.constant = call.get(x).offset;
    for (std::size_t d = 0; d < 4; ++d) access.by_dim[d] = strides[d];
    return call.cast(call.load_at(std::move(access)), compute);
  };
  const auto load_parameter = [&](std::size_t i) {
    Access access;
    access.tensor = call.tensor(i);
    const Tensor& tensor = call.get(access.tensor);
    access.constant = tensor.offset;
    access.by_dim[1] = *channels / *groups * tensor.strides[0];
    access.by_dim[2] = tensor.strides[0];
    return call.cast(call.load_at(std::move(access)), compute);
  };
  const auto [mean, squares] = rows.fold_moments(compute, load_box);
  const TensorId sums = squares;
  const TensorId rstd = rows.map(
      compute, [&] { return emit_inverse_deviation(call, call.load(sums), static_cast<double>(rows.count()), *eps); });
  call.begin(sizes);
  Ex value = call.op(ScalarOp::Mul, call.op(ScalarOp::Sub, load_box(), call.load(mean)), call.load(rstd));
  if (!call.is_none(1)) value = call.op(ScalarOp::Mul, value, load_parameter(1));
  if (!call.is_none(2)) value = call.op(ScalarOp::Add, value, load_parameter(2));
  call.finish_at(call.out(0), strides, value);
  if (has_result(call, 1)) rows.finish(call.out(1), mean);
  if (has_result(call, 2)) rows.finish(call.out(2), rstd);
  return true;
}

namespace {

struct BatchNorm {
  std::size_t mean_arg;  // running mean; the variance is behind it
  bool is_training;
  double momentum;
  double eps;
  bool is_functional;  // new statistics are results 3 and 4
};

// -> out, save_mean, save_invstd; in training the new running statistics
bool lower_batch_norm_as(Call& call, const BatchNorm& norm) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0)) || !is_usable(call, 1) || !is_usable(call, 2)) return false;
  const TensorId x = call.tensor(0);
  const Dims sizes = call.get(x).sizes;
  if (sizes.rank < 2) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  const auto load_x = [&] { return load_as(call, x, compute); };
  const bool has_statistics = norm.mean_arg != 0 && !call.is_none(norm.mean_arg);
  if (has_statistics && (!is_usable(call, norm.mean_arg) || !is_usable(call, norm.mean_arg + 1))) return false;
  const auto finish_out = [&](auto&& load_mean, auto&& load_inverse) {
    call.begin(sizes);
    Ex value = call.op(ScalarOp::Mul, call.op(ScalarOp::Sub, load_x(), load_mean()), load_inverse());
    if (!call.is_none(1)) value = call.op(ScalarOp::Mul, value, load_channel(call, call.tensor(1), compute));
    if (!call.is_none(2)) value = call.op(ScalarOp::Add, value, load_channel(call, call.tensor(2), compute));
    call.finish_pointwise(call.out(0), value);
  };
  if (!norm.is_training) {
    if (!has_statistics) return false;
    finish_out([&] { return load_channel(call, call.tensor(norm.mean_arg), compute); },
               [&] {
                 const Ex variance = load_channel(call, call.tensor(norm.mean_arg + 1), compute);
                 return call.op(ScalarOp::Div, emit_constant(call, variance, 1),
                                call.op(ScalarOp::Sqrt,
                                        call.op(ScalarOp::Add, variance, emit_constant(call, variance, norm.eps))));
               });
    return true;
  }
  const auto all = static_cast<std::uint8_t>((1u << sizes.rank) - 1);
  Rows rows(call, sizes, static_cast<std::uint8_t>(all & ~2u));
  if (rows.count() == 1) return false;
  const auto count = static_cast<double>(rows.count());
  const auto [mean, squares] = rows.fold_moments(compute, load_x);
  const TensorId sums = squares;
  const TensorId means = mean;
  const TensorId inverse =
      rows.map(compute, [&] { return emit_inverse_deviation(call, call.load(sums), count, norm.eps); });
  finish_out([&] { return call.load(means); }, [&] { return call.load(inverse); });
  if (has_result(call, 1)) rows.finish(call.out(1), mean);
  if (has_result(call, 2)) rows.finish(call.out(2), inverse);
  if (!has_statistics) return true;
  // new = (1 - momentum) * old + momentum * statistic; the variance without bias
  const auto finish_statistic = [&](TensorId result, std::size_t i, TensorId row, double divisor) {
    call.begin(call.get(result).sizes);
    Ex statistic = rows.load_for(row, result);
    if (divisor != 1) statistic = call.op(ScalarOp::Div, statistic, emit_constant(call, statistic, divisor));
    const Ex old = load_as(call, call.tensor(i), compute);
    call.finish_pointwise(
        result, call.op(ScalarOp::Add, call.op(ScalarOp::Mul, emit_constant(call, statistic, norm.momentum), statistic),
                        call.op(ScalarOp::Mul, emit_constant(call, statistic, 1 - norm.momentum), old)));
  };
  if (norm.is_functional) {
    finish_statistic(call.out(3), norm.mean_arg, mean, 1);
    finish_statistic(call.out(4), norm.mean_arg + 1, squares, count - 1);
    return true;
  }
  if (call.node.new_values.size() != 2) return false;
  finish_statistic(get_tensor(call.node.new_values[0]), norm.mean_arg, mean, 1);
  finish_statistic(get_tensor(call.node.new_values[1]), norm.mean_arg + 1, squares, count - 1);
  return true;
}

}  // namespace

// (input, weight, bias, running_mean, running_var, training, momentum, eps)
bool lower_batch_norm(Call& call) {
  const auto is_training = call.get_bool(5);
  const auto momentum = call.get_number(6);
  const auto eps = call.get_number(7);
  if (!is_training || !momentum || !eps) return false;
  return lower_batch_norm_as(
      call, {3, *is_training, *momentum, *eps, call.node.op == graph::OpId::_native_batch_norm_legit_functional});
}

// (input, weight, bias, training, momentum, eps)
bool lower_batch_norm_no_statistics(Call& call) {
  const auto is_training = call.get_bool(3);
  const auto momentum = call.get_number(4);
  const auto eps = call.get_number(5);
  if (!is_training || !momentum || !eps) return false;
  return lower_batch_norm_as(call, {0, *is_training, *momentum, *eps, false});
}

// (grad, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask)
//   n = (x - mean) * inv; training: grad_input = weight * inv * (grad - mean(grad) - n * mean(grad * n))
bool lower_batch_norm_backward(Call& call) {
  for (const std::size_t i : {0, 1}) {
    if (!call.is_plain(i) || !types::is_float(call.dtype(i))) return false;
  }
  const auto is_training = call.get_bool(7);
  if (!is_training || !*is_training || !is_usable(call, 2) || !call.is_plain(5) || !call.is_plain(6)) return false;
  const Dims sizes = call.get(call.tensor(1)).sizes;
  if (sizes.rank < 2 || call.get(call.tensor(0)).sizes != sizes) return false;
  const auto all = static_cast<std::uint8_t>((1u << sizes.rank) - 1);
  Rows rows(call, sizes, static_cast<std::uint8_t>(all & ~2u));
  if (rows.count() == 1) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(1));
  const auto load = [&](std::size_t i) { return load_as(call, call.tensor(i), compute); };
  const auto load_normal = [&] {
    return call.op(ScalarOp::Mul, call.op(ScalarOp::Sub, load(1), load_channel(call, call.tensor(5), compute)),
                   load_channel(call, call.tensor(6), compute));
  };
  const TensorId sum = rows.fold(Combine::Sum, compute, [&] { return load(0); });
  const TensorId product =
      rows.fold(Combine::Sum, compute, [&] { return call.op(ScalarOp::Mul, load(0), load_normal()); });
  if (call.has_out(0)) {
    const TensorId mean_sum = rows.divide_by_count(compute, sum);
    const TensorId mean_product = rows.divide_by_count(compute, product);
    call.begin(sizes);
    const Ex rest =
        call.op(ScalarOp::Add, call.load(mean_sum), call.op(ScalarOp::Mul, load_normal(), call.load(mean_product)));
    Ex scale = load_channel(call, call.tensor(6), compute);
    if (!call.is_none(2)) scale = call.op(ScalarOp::Mul, scale, load_channel(call, call.tensor(2), compute));
    call.finish_pointwise(call.out(0), call.op(ScalarOp::Mul, scale, call.op(ScalarOp::Sub, load(0), rest)));
  }
  if (call.has_out(1)) rows.finish(call.out(1), product);
  if (call.has_out(2)) rows.finish(call.out(2), sum);
  return true;
}

}  // namespace reprise::lower
