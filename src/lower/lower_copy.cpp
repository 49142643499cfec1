// Copies, casts, fills and factories.
#include <cmath>

#include "lower/functions.h"

namespace reprise::lower {

namespace {

// Every element is argument `i`.
bool lower_filled(Call& call, std::size_t i) {
  if (!call.can_value(i)) return false;
  const Tensor result = call.get(call.single());
  call.begin(result.sizes);
  call.finish_pointwise(call.single(), call.value(i, result.dtype));
  return true;
}

bool lower_number(Call& call, std::int64_t number) {
  const Tensor result = call.get(call.single());
  call.begin(result.sizes);
  call.finish_pointwise(call.single(), call.constant(result.dtype, number));
  return true;
}

// (self, diagonal): elements with column - row on the right side of the diagonal stay, the others are 0
bool lower_triangle(Call& call, ScalarOp keeps) {
  const auto diagonal = call.get_int(1);
  const Tensor result = call.get(call.single());
  if (!diagonal || !call.is_plain(0) || result.sizes.rank < 2) return false;
  call.begin(result.sizes);
  const Ex row = call.dim(result.sizes.rank - 2);
  const Ex column = call.dim(result.sizes.rank - 1);
  const Ex keep = call.op(keeps, column, call.op(ScalarOp::Add, row, call.constant(DType::Int64, *diagonal)));
  const Ex zero = call.constant(result.dtype, std::int64_t{0});
  call.finish_pointwise(call.single(), call.op(ScalarOp::Select, keep, call.load(call.tensor(0)), zero));
  return true;
}

}  // namespace

bool lower_copy(Call& call) {
  if (!call.is_plain(0)) return false;
  const Tensor result = call.get(call.single());
  if (result.sizes.count() != call.get(call.tensor(0)).sizes.count()) return false;
  call.begin(result.sizes);
  call.finish_pointwise(call.single(), call.value(0, result.dtype));
  return true;
}

// (self, src): src, broadcast and cast
bool lower_copy_from(Call& call) { return lower_filled(call, 1); }
bool lower_fill(Call& call) { return lower_filled(call, 1); }
bool lower_new_full(Call& call) { return lower_filled(call, 2); }
bool lower_scalar_tensor(Call& call) { return lower_filled(call, 0); }
bool lower_zeros(Call& call) { return lower_number(call, 0); }
bool lower_ones(Call& call) { return lower_number(call, 1); }

bool lower_tril(Call& call) { return lower_triangle(call, ScalarOp::Le); }
bool lower_triu(Call& call) { return lower_triangle(call, ScalarOp::Ge); }

// (self, dims): index i of a flipped dimension reads size - 1 - i
bool lower_flip(Call& call) {
  if (!call.is_plain(0)) return false;
  const Tensor input = call.get(call.tensor(0));
  if (!call.arg(1).is_list() || call.arg(1).get_list().empty()) return lower_copy(call);
  const auto dims = call.get_dims(1, input.sizes.rank);
  if (!dims) return false;
  call.begin(input.sizes);
  Access access = call.make_access(call.tensor(0));
  for (std::size_t d = 0; d < input.sizes.rank; ++d) {
    if ((*dims >> d & 1) == 0 || input.sizes[d] <= 1) continue;
    access.constant += (input.sizes[d] - 1) * access.by_dim[d];
    access.by_dim[d] = -access.by_dim[d];
  }
  call.finish_pointwise(call.single(), call.load_at(std::move(access)));
  return true;
}

// (end), (start, end), (start, end, step): only where every element is a whole number that is exact, because eager's
// float sequence depends on the lanes of its vectors
bool lower_arange(Call& call) {
  std::size_t number_count = 0;
  while (number_count < 3 && number_count < call.count() && call.arg(number_count).is_number()) ++number_count;
  std::optional<double> start = 0;
  std::optional<double> step = 1;
  if (call.node.op == graph::OpId::arange_start || call.node.op == graph::OpId::arange_start_step)
    start = call.get_number(0);
  if (call.node.op == graph::OpId::arange_start_step && number_count == 3) step = call.get_number(2);
  if (!start || !step || std::trunc(*start) != *start || std::trunc(*step) != *step) return false;
  const Tensor result = call.get(call.single());
  if (result.sizes.rank != 1 || Call::get_compute_dtype(result.dtype) != result.dtype) return false;
  const double most = std::abs(*start) + std::abs(*step) * static_cast<double>(result.sizes[0]);
  const double exact = types::is_float(result.dtype) ? (result.dtype == DType::Float64 ? 0x1p53 : 0x1p24) : 0x1p53;
  if (most > exact) return false;
  call.begin(result.sizes);
  const Ex index = call.dim(0);
  const Ex value =
      call.op(ScalarOp::Add, call.constant(DType::Int64, static_cast<std::int64_t>(*start)),
              call.op(ScalarOp::Mul, index, call.constant(DType::Int64, static_cast<std::int64_t>(*step))));
  call.finish_pointwise(call.single(), value);
  return true;
}

bool lower_eye(Call& call) {
  const Tensor result = call.get(call.single());
  if (result.sizes.rank != 2) return false;
  call.begin(result.sizes);
  call.finish_pointwise(call.single(), call.op(ScalarOp::Eq, call.dim(0), call.dim(1)));
  return true;
}

}  // namespace reprise::lower
