// Losses that look up a class, and indirect reads. Indexes that eager would refuse read nothing and give NaN (for
// floats; other dtypes are left to the library), so a wrong index shows and never touches foreign memory.
#include <cmath>

#include "lower/rows.h"

namespace reprise::lower {

namespace {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

Ex emit_in_range(Call& call, Ex index, std::int64_t size) {
  return call.op(ScalarOp::And, call.op(ScalarOp::Ge, index, call.constant(DType::Int64, std::int64_t{0})),
                 call.op(ScalarOp::Lt, index, call.constant(DType::Int64, size)));
}

// The element at `access` plus stride * index; NaN where the index is not in [0, size).
Ex load_indirect(Call& call, Access access, Ex index, std::int64_t stride, std::int64_t size) {
  const Ex is_in_range = emit_in_range(call, index, size);
  const DType dtype = call.get(access.tensor).dtype;
  access.indirect.push_back({stride, index.id});
  const Ex value = call.load_at(std::move(access), is_in_range);
  return call.op(ScalarOp::Select, is_in_range, value, call.constant(dtype, static_cast<double>(NAN)));
}

bool is_float_tensor(const Call& call, std::size_t i) { return call.is_plain(i) && types::is_float(call.dtype(i)); }
bool is_index_tensor(const Call& call, std::size_t i) {
  return call.is_plain(i) && (call.dtype(i) == DType::Int64 || call.dtype(i) == DType::Int32);
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
  const auto load_weight = [&](Ex target) {
    if (call.is_none(2)) return call.constant(compute, 1.0);
    const Tensor& weight = call.get(call.tensor(2));
    Access access;
    access.tensor = call.tensor(2);
    access.constant = weight.offset;
    return call.cast(load_indirect(call, std::move(access), target, weight.strides[0], x.sizes[1]), compute);
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
    const Ex value = call.cast(load_indirect(call, std::move(access), target, x.strides[1], x.sizes[1]), compute);
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
  if (!is_float_tensor(call, 0) || !is_index_tensor(call, 1)) return false;
  const Tensor weight = call.get(call.tensor(0));
  const Tensor indices = call.get(call.tensor(1));
  const Tensor result = call.get(call.out(0));
  if (weight.sizes.rank != 2 || result.sizes.rank != indices.sizes.rank + 1) return false;
  call.begin(result.sizes);
  Access access;
  access.tensor = call.tensor(1);
  access.constant = indices.offset;
  for (std::size_t d = 0; d < indices.sizes.rank; ++d) access.by_dim[d] = indices.strides[d];
  const Ex index = call.cast(call.load_at(std::move(access)), DType::Int64);
  Access row;
  row.tensor = call.tensor(0);
  row.constant = weight.offset;
  row.by_dim[indices.sizes.rank] = weight.strides[1];
  call.finish_pointwise(call.out(0), load_indirect(call, std::move(row), index, weight.strides[0], weight.sizes[0]));
  return true;
}

// (self, dim, index): index along one dim
bool lower_index_select(Call& call) {
  if (!is_float_tensor(call, 0) || !is_index_tensor(call, 2)) return false;
  const Tensor x = call.get(call.tensor(0));
  const auto dim = call.get_dim(1, x.sizes.rank);
  if (!dim || x.sizes.rank == 0 || call.get(call.tensor(2)).sizes.rank != 1) return false;
  call.begin(call.get(call.out(0)).sizes);
  Access place;
  place.tensor = call.tensor(2);
  place.constant = call.get(place.tensor).offset;
  place.by_dim[*dim] = call.get(place.tensor).strides[0];
  const Ex index = call.cast(call.load_at(std::move(place)), DType::Int64);
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = d == *dim ? 0 : x.strides[d];
  call.finish_pointwise(call.out(0), load_indirect(call, std::move(access), index, x.strides[*dim], x.sizes[*dim]));
  return true;
}

// (self, dim, index, sparse_grad): self[i][index[i][j][k]][k]
bool lower_gather(Call& call) {
  if (!is_float_tensor(call, 0) || !is_index_tensor(call, 2)) return false;
  const Tensor x = call.get(call.tensor(0));
  const auto dim = call.get_dim(1, x.sizes.rank);
  if (!dim || x.sizes.rank == 0) return false;
  call.begin(call.get(call.out(0)).sizes);
  const Ex index = call.cast(call.load(call.tensor(2)), DType::Int64);
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = d == *dim ? 0 : x.strides[d];
  call.finish_pointwise(call.out(0), load_indirect(call, std::move(access), index, x.strides[*dim], x.sizes[*dim]));
  return true;
}

}  // namespace reprise::lower
