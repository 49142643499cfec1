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

// (self, repeats): a box in which a dimension that is repeated is two: which time, and where
bool lower_repeat(Call& call) {
  if (!call.is_plain(0)) return false;
  const Tensor x = call.get(call.tensor(0));
  const Tensor result = call.get(call.out(0));
  if (result.sizes.rank < x.sizes.rank) return false;
  const std::size_t shift = result.sizes.rank - x.sizes.rank;
  Dims box;
  Dims strides;
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  for (std::size_t d = 0; d < result.sizes.rank; ++d) {
    const std::int64_t size = d < shift ? 1 : x.sizes[d - shift];
    const std::int64_t count = result.sizes[d] / size;
    if (box.rank + std::size_t{2} > kMaxRank) return false;
    if (count > 1) {
      box.push(count);
      strides.push(size * result.strides[d]);
    }
    if (size > 1) {
      access.by_dim[box.rank] = x.strides[d - shift];
      box.push(size);
      strides.push(result.strides[d]);
    }
  }
  call.begin(box);
  call.finish_at(call.out(0), strides, call.load_at(std::move(access)));
  return true;
}

// (self, shifts, dims), one dim: index i reads i - shift, or from the other end in front of the shift
bool lower_roll(Call& call) {
  if (!call.is_plain(0) || !call.arg(1).is_list() || !call.arg(2).is_list() || call.arg(1).get_list().size() != 1 ||
      call.arg(2).get_list().size() != 1)
    return false;
  const Tensor x = call.get(call.tensor(0));
  const graph::Arg& shift_arg = call.arg(1).get_list()[0];
  const auto dims = call.get_dims(2, x.sizes.rank);
  if (!dims || x.sizes.rank == 0 || !shift_arg.is_int() || !shift_arg.get_int().is_constant()) return false;
  std::size_t dim = 0;
  while ((*dims >> dim & 1u) == 0) ++dim;
  const std::int64_t size = x.sizes[dim];
  const std::int64_t shift = ((shift_arg.get_int().get_constant() % size) + size) % size;
  call.begin(x.sizes);
  const Ex is_behind = call.op(ScalarOp::Ge, call.dim(dim), call.constant(DType::Int64, shift));
  Access behind = call.make_access(call.tensor(0));
  behind.constant -= shift * x.strides[dim];
  Access front = call.make_access(call.tensor(0));
  front.constant += (size - shift) * x.strides[dim];
  const Ex a = call.load_at(std::move(behind), is_behind);
  const Ex b = call.load_at(std::move(front), call.op(ScalarOp::Not, is_behind));
  call.finish_pointwise(call.out(0), call.op(ScalarOp::Select, is_behind, a, b));
  return true;
}

}  // namespace reprise::lower
