// softmax and log_softmax with their backward forms: float32 inside, Sleef's exp, rounded once.
#include "lower/rows.h"

namespace reprise::lower {

namespace {

std::optional<Rows> make_rows(Call& call, std::size_t dim_arg) {
  const Dims sizes = call.get(call.tensor(0)).sizes;
  const auto dim = call.get_dim(dim_arg, sizes.rank);
  if (!dim || sizes.rank == 0) return std::nullopt;
  return Rows(call, sizes, static_cast<std::uint8_t>(1u << *dim));
}

// (self, dim, half_to_float)
bool lower_normalised(Call& call, bool is_log) {
  if (!call.is_plain(0) || !types::is_float(call.dtype(0))) return false;
  auto rows = make_rows(call, 1);
  if (!rows) return false;
  const TensorId x = call.tensor(0);
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  const TensorId most = rows->fold(Combine::Max, compute, [&] { return call.load(x); });
  // exp(x - max) is an op of its own: later passes take it from where the first one left it.
  const TensorId shifted = call.make_tensor(compute, rows->sizes());
  call.begin(rows->sizes());
  const Ex difference = call.op(ScalarOp::Sub, call.cast(call.load(x), compute), call.load(most));
  call.finish_pointwise(shifted, is_log ? difference : emit_fused_exp(call, difference));
  const TensorId sum = rows->fold(
      Combine::Sum, compute, [&] { return is_log ? emit_fused_exp(call, call.load(shifted)) : call.load(shifted); });
  const TensorId scale = rows->map(
      compute, [&] { return is_log ? call.math(MathFunction::Log, Numerics::Sleef, call.load(sum)) : call.load(sum); });
  call.begin(rows->sizes());
  call.finish_pointwise(call.out(0),
                        call.op(is_log ? ScalarOp::Sub : ScalarOp::Div, call.load(shifted), call.load(scale)));
  return true;
}

// (grad, output, dim, input_dtype): (grad - sum(grad*y)) * y, or grad - exp(y) * sum(grad)
bool lower_normalised_backward(Call& call, bool is_log) {
  if (!call.is_plain(0) || !call.is_plain(1) || !types::is_float(call.dtype(0))) return false;
  if (call.dtype(0) != call.dtype(1)) return false;
  auto rows = make_rows(call, 2);
  if (!rows) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  const auto load = [&](std::size_t i) { return call.cast(call.load(call.tensor(i)), compute); };
  const TensorId sum =
      rows->fold(Combine::Sum, compute, [&] { return is_log ? load(0) : call.op(ScalarOp::Mul, load(0), load(1)); });
  call.begin(rows->sizes());
  Ex value;
  if (is_log) {
    value = call.op(ScalarOp::Sub, load(0), call.op(ScalarOp::Mul, emit_fused_exp(call, load(1)), call.load(sum)));
  } else {
    value = call.op(ScalarOp::Mul, call.op(ScalarOp::Sub, load(0), call.load(sum)), load(1));
  }
  call.finish_pointwise(call.out(0), value);
  return true;
}

}  // namespace

bool lower_softmax(Call& call) { return lower_normalised(call, false); }
bool lower_log_softmax(Call& call) { return lower_normalised(call, true); }
bool lower_softmax_backward(Call& call) { return lower_normalised_backward(call, false); }
bool lower_log_softmax_backward(Call& call) { return lower_normalised_backward(call, true); }

}  // namespace reprise::lower
