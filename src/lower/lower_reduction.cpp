// Reductions. Half types are added up in float32 and rounded once; sums of integers are int64.
#include <cmath>

#include "lower/rows.h"

namespace reprise::lower {

namespace {

std::optional<Rows> make_rows(Call& call, std::size_t dims_arg) {
  if (!call.is_plain(0)) return std::nullopt;
  const Tensor& x = call.get(call.tensor(0));
  const auto dims = call.get_dims(dims_arg, x.sizes.rank);
  if (!dims) return std::nullopt;
  return Rows(call, x.sizes, *dims);
}

Ex load_as(Call& call, DType dtype) { return call.cast(call.load(call.tensor(0)), dtype); }

// sum, prod: in the dtype of the result, half types in float32
bool lower_fold(Call& call, Combine combine, std::size_t dims_arg) {
  auto rows = make_rows(call, dims_arg);
  if (!rows) return false;
  const DType result = call.get(call.single()).dtype;
  const DType compute = Call::get_compute_dtype(result);
  if (compute == DType::Bool) return false;
  // Integers that are summed as floats are cast to the result's dtype first.
  const TensorId row = rows->fold(combine, compute, [&] { return call.cast(load_as(call, result), compute); });
  rows->finish(call.single(), row);
  return true;
}

// Greatest or least; bools are or'ed and and'ed.
bool lower_extremum(Call& call, bool is_max, std::size_t dims_arg) {
  auto rows = make_rows(call, dims_arg);
  if (!rows) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  Combine combine = is_max ? Combine::Max : Combine::Min;
  if (compute == DType::Bool) combine = is_max ? Combine::Any : Combine::All;
  rows->finish(call.single(), rows->fold(combine, compute, [&] { return load_as(call, compute); }));
  return true;
}

bool lower_truth(Call& call, Combine combine, std::size_t dims_arg) {
  auto rows = make_rows(call, dims_arg);
  if (!rows) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  const TensorId row = rows->fold(combine, DType::Bool, [&] { return load_as(call, compute); });
  rows->finish(call.single(), row);  // uint8 for uint8
  return true;
}

// The place of the greatest element among the reduced dims, row-major.
Ex emit_place(Call& call, const Rows& rows) {
  Ex place = call.constant(DType::Int64, std::int64_t{0});
  bool is_first = true;
  std::int64_t stride = 1;
  for (std::size_t d = rows.sizes().rank; d-- > 0;) {
    if ((rows.reduced() >> d & 1) == 0) continue;
    if (rows.sizes()[d] == 1) continue;
    Ex part = call.dim(d);
    if (stride != 1) part = call.op(ScalarOp::Mul, part, call.constant(DType::Int64, stride));
    place = is_first ? part : call.op(ScalarOp::Add, place, part);
    is_first = false;
    stride *= rows.sizes()[d];
  }
  return place;
}

bool lower_place(Call& call, Combine combine, std::size_t dims_arg, TensorId values, TensorId places) {
  auto rows = make_rows(call, dims_arg);
  if (!rows || rows->count() == 1) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  if (compute == DType::Bool) return false;
  const TensorId row = rows->make_row(compute);
  const TensorId index = rows->make_row(DType::Int64);
  call.begin(rows->sizes());
  const Ex value = load_as(call, compute);
  call.finish_arg_reduction(combine, rows->reduced(), row, index, value, emit_place(call, *rows));
  if (values.is_valid()) rows->finish(values, row);
  rows->finish(places, index);
  return true;
}

// sum of squared differences / max(0, n - correction)
std::optional<std::pair<TensorId, TensorId>> fold_variance(Call& call, Rows& rows, std::size_t correction_arg) {
  std::optional<double> correction = 1;
  if (!call.is_none(correction_arg)) correction = call.get_number(correction_arg);
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  if (!correction || !types::is_float(compute) || rows.count() == 1) return std::nullopt;
  const auto [mean, squares] = rows.fold_moments(compute, [&] { return load_as(call, compute); });
  const double divisor = std::max(0.0, static_cast<double>(rows.count()) - *correction);
  const TensorId moments = squares;
  const TensorId variance =
      rows.map(compute, [&] { return call.op(ScalarOp::Div, call.load(moments), call.constant(compute, divisor)); });
  return std::pair(mean, variance);
}

bool lower_variance(Call& call, bool is_root, bool has_mean) {
  auto rows = make_rows(call, 1);
  if (!rows) return false;
  const auto moments = fold_variance(call, *rows, 2);
  if (!moments) return false;
  rows->finish(call.out(0), moments->second, [&](Ex x) { return is_root ? call.op(ScalarOp::Sqrt, x) : x; });
  if (has_mean) rows->finish(call.out(1), moments->first);
  return true;
}

}  // namespace

bool lower_sum(Call& call) { return lower_fold(call, Combine::Sum, call.node.op == graph::OpId::sum ? 99 : 1); }
bool lower_prod(Call& call) { return lower_fold(call, Combine::Prod, call.node.op == graph::OpId::prod ? 99 : 1); }

// The sum in float32 for half types, divided, and rounded once.
bool lower_mean(Call& call) {
  auto rows = make_rows(call, call.node.op == graph::OpId::mean ? 99 : 1);
  if (!rows) return false;
  const DType result = call.get(call.single()).dtype;
  const DType compute = Call::get_compute_dtype(result);
  if (!types::is_float(result)) return false;
  const TensorId row = rows->fold(Combine::Sum, compute, [&] { return load_as(call, compute); });
  rows->finish(call.single(), row, [&](Ex x) {
    return call.op(ScalarOp::Div, x, call.constant(compute, static_cast<double>(rows->count())));
  });
  return true;
}

bool lower_amax(Call& call) { return lower_extremum(call, true, 1); }
bool lower_amin(Call& call) { return lower_extremum(call, false, 1); }
bool lower_max(Call& call) { return lower_extremum(call, true, 99); }
bool lower_min(Call& call) { return lower_extremum(call, false, 99); }
bool lower_any(Call& call) { return lower_truth(call, Combine::Any, call.node.op == graph::OpId::any ? 99 : 1); }
bool lower_all(Call& call) { return lower_truth(call, Combine::All, call.node.op == graph::OpId::all ? 99 : 1); }
bool lower_argmax(Call& call) { return lower_place(call, Combine::ArgMax, 1, {}, call.out(0)); }
bool lower_argmin(Call& call) { return lower_place(call, Combine::ArgMin, 1, {}, call.out(0)); }
bool lower_max_dim(Call& call) { return lower_place(call, Combine::ArgMax, 1, call.out(0), call.out(1)); }
bool lower_min_dim(Call& call) { return lower_place(call, Combine::ArgMin, 1, call.out(0), call.out(1)); }
bool lower_var(Call& call) { return lower_variance(call, false, false); }
bool lower_std(Call& call) { return lower_variance(call, true, false); }
bool lower_var_mean(Call& call) { return lower_variance(call, false, true); }
bool lower_std_mean(Call& call) { return lower_variance(call, true, true); }

// (self, ord, dim, keepdim, dtype): 2: sqrt of the sum of squares; 1: sum of magnitudes; inf: the greatest
bool lower_vector_norm(Call& call) {
  const auto order = call.get_number(1);
  auto rows = make_rows(call, 2);
  if (!rows || !order) return false;
  const DType result = call.get(call.single()).dtype;
  const DType compute = Call::get_compute_dtype(result);
  if (!types::is_float(call.dtype(0)) || !types::is_float(result)) return false;
  const auto load = [&] { return load_as(call, compute); };
  if (*order == 2) {
    const TensorId row = rows->fold(Combine::Sum, compute, [&] {
      const Ex x = load();
      return call.op(ScalarOp::Mul, x, x);
    });
    rows->finish(call.single(), row, [&](Ex x) { return call.op(ScalarOp::Sqrt, x); });
    return true;
  }
  if (*order == 1) {
    rows->finish(call.single(), rows->fold(Combine::Sum, compute, [&] { return call.op(ScalarOp::Abs, load()); }));
    return true;
  }
  if (std::isinf(*order)) {
    rows->finish(call.single(), rows->fold(*order > 0 ? Combine::Max : Combine::Min, compute,
                                           [&] { return call.op(ScalarOp::Abs, load()); }));
    return true;
  }
  return false;
}

// m = max, or 0 where that is infinite; log(sum(exp(x - m))) + m
bool lower_logsumexp(Call& call) {
  auto rows = make_rows(call, 1);
  if (!rows) return false;
  const DType result = call.get(call.single()).dtype;
  const DType compute = Call::get_compute_dtype(result);
  if (!types::is_float(result)) return false;
  const auto load = [&] { return load_as(call, compute); };
  const TensorId most = rows->fold(Combine::Max, compute, load);
  const TensorId shift = rows->map(compute, [&] {
    const Ex x = call.load(most);
    const Ex is_infinite = call.op(ScalarOp::Eq, call.op(ScalarOp::Abs, x), emit_constant(call, x, INFINITY));
    return call.op(ScalarOp::Select, is_infinite, emit_constant(call, x, 0), x);
  });
  const TensorId sum = rows->fold(
      Combine::Sum, compute, [&] { return emit_fused_exp(call, call.op(ScalarOp::Sub, load(), call.load(shift))); });
  const TensorId value = rows->map(compute, [&] {
    return call.op(ScalarOp::Add, call.math(MathFunction::Log, Numerics::Sleef, call.load(sum)), call.load(shift));
  });
  rows->finish(call.single(), value);
  return true;
}

}  // namespace reprise::lower
