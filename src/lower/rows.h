// Rows: what reductions, softmax and norms are made of: a box of sizes, some of its dims reduced ("columns"), and
// tensors with one element a row (the same rank, size 1 in the reduced dims, so that they broadcast back).
// A helper for lower functions; lives while a node is lowered.
#pragma once

#include "lower/functions.h"

namespace reprise::lower {

class Rows {
 public:
  Rows(Call& call, const Dims& sizes, std::uint8_t reduced) : call_(call), sizes_(sizes), reduced_(reduced) {
    row_sizes_ = sizes;
    for (std::size_t d = 0; d < sizes.rank; ++d) {
      if ((reduced >> d & 1) == 0) continue;
      row_sizes_[d] = 1;
      count_ *= sizes[d];
    }
  }

  const Dims& sizes() const { return sizes_; }
  const Dims& row_sizes() const { return row_sizes_; }
  std::uint8_t reduced() const { return reduced_; }
  std::int64_t count() const { return count_; }  // elements of a row

  TensorId make_row(DType dtype) { return call_.make_tensor(dtype, row_sizes_); }

  // row = combine of value() over the columns
  template <class Value>
  TensorId fold(Combine combine, DType dtype, Value&& value) {
    if (const std::uint8_t first = get_first_dims(); first != 0) return fold_twice(first, combine, dtype, value);
    const TensorId row = make_row(dtype);
    call_.begin(sizes_);
    call_.finish_reduction(combine, reduced_, row, call_.cast(value(), dtype));
    return row;
  }

  // row = value(), one element a row; loads of rows and of tensors with the row's sizes
  template <class Value>
  TensorId map(DType dtype, Value&& value) {
    const TensorId row = make_row(dtype);
    call_.begin(row_sizes_);
    call_.finish_pointwise(row, value());
    return row;
  }

  // The element of a row at the index of an op over the sizes of `result`, which has the kept dims only or all of them.
  Ex load_for(TensorId row, TensorId result) {
    const Tensor& from = call_.get(row);
    const Tensor& to = call_.get(result);
    if (from.sizes.rank == to.sizes.rank) return call_.load(row);
    Access access;
    access.tensor = row;
    std::size_t next = 0;
    for (std::size_t d = 0; d < sizes_.rank; ++d) {
      if ((reduced_ >> d & 1) != 0) continue;
      access.by_dim[next++] = from.strides[d];
    }
    return call_.load_at(std::move(access));
  }

  // result = value(element of the row)
  template <class Value>
  void finish(TensorId result, TensorId row, Value&& value) {
    call_.begin(call_.get(result).sizes);
    call_.finish_pointwise(result, value(load_for(row, result)));
  }
  void finish(TensorId result, TensorId row) {
    finish(result, row, [](Ex x) { return x; });
  }

  // row / elements of a row
  TensorId divide_by_count(DType dtype, TensorId sum) {
    return map(dtype, [&] {
      return call_.op(ScalarOp::Div, call_.load(sum), call_.constant(dtype, static_cast<double>(count_)));
    });
  }

  // mean and sum of squared differences, both rows of `dtype`; `load()` is the element
  template <class Load>
  std::pair<TensorId, TensorId> fold_moments(DType dtype, Load&& load) {
    const TensorId mean = divide_by_count(dtype, fold(Combine::Sum, dtype, load));
    const TensorId squares = fold(Combine::Sum, dtype, [&] {
      const Ex difference = call_.op(ScalarOp::Sub, call_.cast(load(), dtype), call_.load(mean));
      return call_.op(ScalarOp::Mul, difference, difference);
    });
    return {mean, squares};
  }

 private:
  // One row of many elements would be the work of one thread: some of the outer dims, to be folded in a second step;
  // 0: fold at once.
  std::uint8_t get_first_dims() const {
    if (count_ < kLongRow || row_sizes_.count() != 1) return 0;
    std::uint8_t first = 0;
    std::int64_t parts = 1;
    for (std::size_t d = 0; d + 1 < sizes_.rank && parts < kLeastParts; ++d) {
      first |= static_cast<std::uint8_t>(1u << d);
      parts *= sizes_[d];
    }
    return parts >= 2 && count_ / parts >= kLeastPart ? first : 0;
  }

  template <class Value>
  TensorId fold_twice(std::uint8_t first, Combine combine, DType dtype, Value&& value) {
    Rows inner(call_, sizes_, static_cast<std::uint8_t>(reduced_ & ~first));
    const TensorId parts = inner.fold(combine, dtype, value);
    const TensorId row = make_row(dtype);
    call_.begin(inner.row_sizes());
    call_.finish_reduction(combine, first, row, call_.load(parts));
    return row;
  }

  static constexpr std::int64_t kLongRow = 65536;
  static constexpr std::int64_t kLeastParts = 64;
  static constexpr std::int64_t kLeastPart = 256;

  Call& call_;
  Dims sizes_;
  Dims row_sizes_;
  std::uint8_t reduced_;
  std::int64_t count_ = 1;
};

}  // namespace reprise::lower
