// Losses that look up a class, and indirect reads. An index out of range makes the node fail (a check); what is read
// there is the nearest element, so nothing outside of the tensor is touched whatever the indexes are.
#include <algorithm>

#include "lower/rows.h"

namespace reprise::lower {

namespace {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The element of [0, size) that is nearest to `index`.
Ex emit_safe_index(Call& call, Ex index, std::int64_t size) {
  const Ex low = call.op(ScalarOp::Max, index, call.constant(DType::Int64, std::int64_t{0}));
  return call.op(ScalarOp::Min, low, call.constant(DType::Int64, size - 1));
}

// The same for an index that has to be in range.
Ex emit_checked_index(Call& call, Ex index, std::int64_t size, std::string text, bool is_index_error = true) {
  const Ex safe = emit_safe_index(call, index, size);
  call.check(call.op(ScalarOp::Ne, index, safe), std::move(text), is_index_error);
  return safe;
}

std::string make_bounds_text(std::size_t dim, std::int64_t size) {
  return "index is out of bounds for dimension " + std::to_string(dim) + " with size " + std::to_string(size);
}

// The element at `access` plus stride * index.
Ex load_indirect(Call& call, Access access, Ex index, std::int64_t stride) {
  access.indirect.push_back({stride, index.id});
  return call.load_at(std::move(access));
}

bool is_float_tensor(const Call& call, std::size_t i) { return call.is_plain(i) && types::is_float(call.dtype(i)); }
bool is_index(const Tensor& tensor) {
  return tensor.is_plain && (tensor.dtype == DType::Int64 || tensor.dtype == DType::Int32);
}
bool is_index_tensor(const Call& call, std::size_t i) {
  return call.is_tensor(i) && is_index(call.get(call.tensor(i)));
}

}  // namespace

// (self, target, weight, reduction, ignore_index) -> output, total_weight; self is [N, C]
bool lower_nll_loss(Call& call) {
  const auto reduction = call.get_int(3);
  const auto ignored = call.get_int(4);
  if (!reduction || *reduction == kNone || !ignored || !is_float_tensor(call, 0) || !is_index_tensor(call, 1))
    return false;
  if (!call.is_none(2) && !is_float_tensor(call, 2)) return false;
  const Tensor x = call.get(call.tensor(0));
  if (x.sizes.rank != 2 || call.get(call.tensor(1)).sizes.rank != 1 || !call.has_out(1)) return false;
  Dims sizes;
  sizes.push(x.sizes[0]);
  const DType compute = Call::get_compute_dtype(x.dtype);
  const auto load_target = [&] { return call.cast(call.load(call.tensor(1)), DType::Int64); };
  const auto is_counted = [&](Ex target) {
    return call.op(ScalarOp::Ne, target, call.constant(DType::Int64, *ignored));
  };
  // A target that does not count may be anything; the nearest one stands in for it.
  const auto load_weight = [&](Ex target) {
    if (call.is_none(2)) return call.constant(compute, 1.0);
    const Tensor& weight = call.get(call.tensor(2));
    Access access;
    access.tensor = call.tensor(2);
    access.constant = weight.offset;
    const Ex index = emit_safe_index(call, target, x.sizes[1]);
    return call.cast(load_indirect(call, std::move(access), index, weight.strides[0]), compute);
  };
  Rows rows(call, sizes, 1);
  if (rows.count() == 1) return false;
  const TensorId weights = rows.fold(Combine::Sum, compute, [&] {
    const Ex target = load_target();
    return call.op(ScalarOp::Select, is_counted(target), load_weight(target), call.constant(compute, 0.0));
  });
  const TensorId sum = rows.fold(Combine::Sum, compute, [&] {
    const Ex target = load_target();
    Access access;
    access.tensor = call.tensor(0);
    access.constant = x.offset;
    access.by_dim[0] = x.strides[0];
    const Ex index = emit_safe_index(call, target, x.sizes[1]);
    call.check(call.op(ScalarOp::And, call.op(ScalarOp::Ne, target, index), is_counted(target)),
               "Target is out of bounds.");
    const Ex value = call.cast(load_indirect(call, std::move(access), index, x.strides[1]), compute);
    const Ex loss = call.op(ScalarOp::Mul, call.op(ScalarOp::Neg, value), load_weight(target));
    return call.op(ScalarOp::Select, is_counted(target), loss, call.constant(compute, 0.0));
  });
  const TensorId loss = rows.map(compute, [&] {
    return *reduction == kSum ? call.load(sum) : call.op(ScalarOp::Div, call.load(sum), call.load(weights));
  });
  rows.finish(call.out(0), loss);
  rows.finish(call.out(1), weights);
  return true;
}

// (grad, self, target, weight, reduction, ignore_index, total_weight): -weight * grad (/ total_weight) at the target
bool lower_nll_loss_backward(Call& call) {
  const auto reduction = call.get_int(4);
  const auto ignored = call.get_int(5);
  if (!reduction || !ignored || !is_float_tensor(call, 0) || !is_float_tensor(call, 1) || !is_index_tensor(call, 2) ||
      !is_float_tensor(call, 6))
    return false;
  if (!call.is_none(3) && !is_float_tensor(call, 3)) return false;
  const Tensor x = call.get(call.tensor(1));
  const std::size_t grad_rank = call.get(call.tensor(0)).sizes.rank;
  if (x.sizes.rank != 2 || call.get(call.tensor(2)).sizes.rank != 1 || grad_rank != (*reduction == kNone ? 1u : 0u))
    return false;
  const DType compute = Call::get_compute_dtype(x.dtype);
  call.begin(x.sizes);
  const auto load_of_row = [&](std::size_t i) {
    Access access;
    access.tensor = call.tensor(i);
    const Tensor& tensor = call.get(access.tensor);
    access.constant = tensor.offset;
    if (tensor.sizes.rank > 0) access.by_dim[0] = tensor.strides[0];
    return call.load_at(std::move(access));
  };
  const Ex target = call.cast(load_of_row(2), DType::Int64);
  if (*reduction != kNone) {  // eager's loop without a reduction checks nothing; here it writes nothing
    const Ex is_outside = call.op(ScalarOp::Ne, target, emit_safe_index(call, target, x.sizes[1]));
    const Ex is_counted = call.op(ScalarOp::Ne, target, call.constant(DType::Int64, *ignored));
    call.check(call.op(ScalarOp::And, is_outside, is_counted), "Target is out of bounds.");
  }
  const Ex is_target = call.op(ScalarOp::And, call.op(ScalarOp::Eq, target, call.dim(1)),
                               call.op(ScalarOp::Ne, target, call.constant(DType::Int64, *ignored)));
  Ex value = call.cast(load_of_row(0), compute);
  if (*reduction == kMean) value = call.op(ScalarOp::Div, value, call.cast(load_of_row(6), compute));
  if (!call.is_none(3)) {
    Access access;
    access.tensor = call.tensor(3);
    access.constant = call.get(access.tensor).offset;
    access.by_dim[1] = call.get(access.tensor).strides[0];  // the class is the target where it counts
    value = call.op(ScalarOp::Mul, value, call.cast(call.load_at(std::move(access)), compute));
  }
  call.finish_pointwise(
      call.out(0), call.op(ScalarOp::Select, is_target, call.op(ScalarOp::Neg, value), call.constant(compute, 0.0)));
  return true;
}

// (weight, indices, padding_idx, scale_grad_by_freq, sparse): row `index` of the weight
bool lower_embedding(Call& call) {
  if (!call.is_plain(0) || !is_index_tensor(call, 1)) return false;
  const Tensor weight = call.get(call.tensor(0));
  const Tensor indices = call.get(call.tensor(1));
  const Tensor result = call.get(call.out(0));
  if (weight.sizes.rank != 2 || result.sizes.rank != indices.sizes.rank + 1) return false;
  call.begin(result.sizes);
  Access access;
  access.tensor = call.tensor(1);
  access.constant = indices.offset;
  for (std::size_t d = 0; d < indices.sizes.rank; ++d) access.by_dim[d] = indices.strides[d];
  const Ex index = emit_checked_index(call, call.cast(call.load_at(std::move(access)), DType::Int64), weight.sizes[0],
                                      "index out of range in self");
  Access row;
  row.tensor = call.tensor(0);
  row.constant = weight.offset;
  row.by_dim[indices.sizes.rank] = weight.strides[1];
  call.finish_pointwise(call.out(0), load_indirect(call, std::move(row), index, weight.strides[0]));
  return true;
}

// (self, dim, index): index along one dim
bool lower_index_select(Call& call) {
  if (!call.is_plain(0) || !is_index_tensor(call, 2)) return false;
  const Tensor x = call.get(call.tensor(0));
  const auto dim = call.get_dim(1, x.sizes.rank);
  const Tensor indices = call.get(call.tensor(2));
  if (!dim || x.sizes.rank == 0 || indices.sizes.rank > 1) return false;
  call.begin(call.get(call.out(0)).sizes);
  Access place;
  place.tensor = call.tensor(2);
  place.constant = indices.offset;
  if (indices.sizes.rank == 1) place.by_dim[*dim] = indices.strides[0];
  const Ex index = emit_checked_index(call, call.cast(call.load_at(std::move(place)), DType::Int64), x.sizes[*dim],
                                      "index out of range in self");
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = d == *dim ? 0 : x.strides[d];
  call.finish_pointwise(call.out(0), load_indirect(call, std::move(access), index, x.strides[*dim]));
  return true;
}

// (self, dim, index, sparse_grad): self[i][index[i][j][k]][k]
bool lower_gather(Call& call) {
  if (!call.is_plain(0) || !is_index_tensor(call, 2)) return false;
  const Tensor x = call.get(call.tensor(0));
  const auto dim = call.get_dim(1, x.sizes.rank);
  if (!dim || x.sizes.rank == 0 || call.get(call.tensor(2)).sizes.rank != x.sizes.rank) return false;
  call.begin(call.get(call.out(0)).sizes);
  const Ex index = emit_checked_index(call, call.cast(call.load(call.tensor(2)), DType::Int64), x.sizes[*dim],
                                      make_bounds_text(*dim, x.sizes[*dim]), false);
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = d == *dim ? 0 : x.strides[d];
  call.finish_pointwise(call.out(0), load_indirect(call, std::move(access), index, x.strides[*dim]));
  return true;
}

// (self, indices): x[:, i, j], i and j broadcast; their dims stand where they are, or in front if they are apart. What
// is negative counts from the end. Masks (bool, uint8) have results of unknown sizes: not ours.
bool lower_index(Call& call) {
  if (!call.is_plain(0) || call.count() < 2 || !call.arg(1).is_list()) return false;
  const Tensor x = call.get(call.tensor(0));
  const Tensor result = call.get(call.out(0));
  const auto list = call.arg(1).get_list();
  if (list.size() > x.sizes.rank) return false;
  std::array<TensorId, kMaxRank> indices{};  // by dim of x
  std::size_t rank = 0;                      // of all of them, broadcast
  std::size_t first = x.sizes.rank;
  std::size_t last = 0;
  std::size_t count = 0;
  for (std::size_t d = 0; d < list.size(); ++d) {
    if (list[d].is_none()) continue;
    if (!list[d].is_value()) return false;
    indices[d] = get_tensor(list[d].get_value());
    const Tensor& index = call.get(indices[d]);
    if (!index.is_tensor || !is_index(index)) return false;
    rank = std::max<std::size_t>(rank, index.sizes.rank);
    first = std::min(first, d);
    last = d;
    ++count;
  }
  if (count == 0 || result.sizes.rank != x.sizes.rank - count + rank) return false;
  const std::size_t start = last - first + 1 == count ? first : 0;  // of the indexes' dims in the result
  call.begin(result.sizes);
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  std::size_t next = start == 0 ? rank : 0;  // dim of the result
  for (std::size_t d = 0; d < x.sizes.rank; ++d) {
    if (next == start && start != 0) next += rank;
    if (!indices[d].is_valid()) {
      access.by_dim[next++] = x.strides[d];
      continue;
    }
    const Tensor index = call.get(indices[d]);
    Access place;
    place.tensor = indices[d];
    place.constant = index.offset;
    for (std::size_t k = 0; k < index.sizes.rank; ++k) {
      if (index.sizes[k] != 1) place.by_dim[start + rank - index.sizes.rank + k] = index.strides[k];
    }
    const Ex signed_index = call.cast(call.load_at(std::move(place)), DType::Int64);
    const Ex is_negative = call.op(ScalarOp::Lt, signed_index, call.constant(DType::Int64, std::int64_t{0}));
    const Ex from_end = call.op(ScalarOp::Add, signed_index, call.constant(DType::Int64, x.sizes[d]));
    const Ex at = emit_checked_index(call, call.op(ScalarOp::Select, is_negative, from_end, signed_index), x.sizes[d],
                                     make_bounds_text(d, x.sizes[d]));
    access.indirect.push_back({x.strides[d], at.id});
  }
  call.finish_pointwise(call.out(0), call.load_at(std::move(access)));
  return true;
}

}  // namespace reprise::lower
