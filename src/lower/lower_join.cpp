// Padding and writes of a part: loads with a mask.
#include <bit>
#include <utility>

#include "lower/functions.h"

namespace reprise::lower {

namespace {

constexpr std::size_t kMaxParts = 4;

// An int64 over a constant, and whether nothing is left.
std::pair<Ex, Ex> divide(Call& call, Ex number, std::int64_t by) {
  const auto constant = [&](std::int64_t n) { return call.constant(DType::Int64, n); };
  const bool is_power = std::has_single_bit(static_cast<std::uint64_t>(by));
  const Ex rest =
      is_power ? call.op(ScalarOp::And, number, constant(by - 1)) : call.op(ScalarOp::RemFloor, number, constant(by));
  const Ex quotient = is_power
                          ? call.op(ScalarOp::Shr, number, constant(std::countr_zero(static_cast<std::uint64_t>(by))))
                          : call.op(ScalarOp::DivFloor, number, constant(by));
  return {quotient, call.op(ScalarOp::Eq, rest, constant(0))};
}

}  // namespace

// (self, pad, value): pad holds (before, after) from the last dim on
bool lower_pad(Call& call) {
  if (!call.is_plain(0) || !call.arg(1).is_list() || !call.can_value(2)) return false;
  const Tensor x = call.get(call.tensor(0));
  const Tensor result = call.get(call.out(0));
  const auto pads = call.arg(1).get_list();
  if (pads.size() % 2 != 0 || pads.size() / 2 > x.sizes.rank) return false;
  call.begin(result.sizes);
  Access access;
  access.tensor = call.tensor(0);
  access.constant = x.offset;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = x.strides[d];
  Ex mask;
  const auto require = [&](Ex condition) { mask = emit_both(call, mask, condition); };
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    const std::size_t d = x.sizes.rank - 1 - i;
    if (!pads[2 * i].is_int() || !pads[2 * i].get_int().is_constant()) return false;
    const std::int64_t before = pads[2 * i].get_int().get_constant();
    access.constant -= before * x.strides[d];
    if (before > 0) require(call.op(ScalarOp::Ge, call.dim(d), call.constant(DType::Int64, before)));
    if (result.sizes[d] > before + x.sizes[d])
      require(call.op(ScalarOp::Lt, call.dim(d), call.constant(DType::Int64, before + x.sizes[d])));
  }
  const Ex value = call.load_at(std::move(access), mask);
  call.finish_pointwise(
      call.out(0), mask.id.is_valid() ? call.op(ScalarOp::Select, mask, value, call.value(2, result.dtype)) : value);
  return true;
}

// (tensors, dim): for each element the part that it is in; many parts are left to the library, which copies
bool lower_cat(Call& call) {
  if (!call.arg(0).is_list()) return false;
  const auto parts = call.arg(0).get_list();
  const Tensor result = call.get(call.out(0));
  const auto dim = call.get_dim(1, result.sizes.rank);
  if (!dim || parts.empty() || parts.size() > kMaxParts) return false;
  for (const graph::Arg& part : parts) {
    if (!part.is_value() || call.get(get_tensor(part.get_value())).sizes.rank != result.sizes.rank) return false;
  }
  call.begin(result.sizes);
  const Ex index = call.dim(*dim);
  std::int64_t end = result.sizes[*dim];
  Ex value;
  for (std::size_t i = parts.size(); i-- > 0;) {
    const Tensor part = call.get(get_tensor(parts[i].get_value()));
    const std::int64_t start = end - part.sizes[*dim];
    Access access;
    access.tensor = get_tensor(parts[i].get_value());
    access.constant = part.offset - start * part.strides[*dim];
    for (std::size_t d = 0; d < part.sizes.rank; ++d) access.by_dim[d] = part.strides[d];
    Ex mask;
    if (start > 0) mask = call.op(ScalarOp::Ge, index, call.constant(DType::Int64, start));
    const Ex is_below = call.op(ScalarOp::Lt, index, call.constant(DType::Int64, end));
    if (i + 1 < parts.size()) mask = emit_both(call, mask, is_below);
    const Ex element = call.cast(call.load_at(std::move(access), mask), result.dtype);
    value = value.id.is_valid() ? call.op(ScalarOp::Select, is_below, element, value) : element;
    end = start;
  }
  if (end != 0) return false;
  call.finish_pointwise(call.out(0), value);
  return true;
}

// (self, src, dim, start, end, step): self with src in the place of a slice
bool lower_slice_scatter(Call& call) {
  if (!call.is_plain(0) || !call.is_plain(1) || call.dtype(0) != call.dtype(1)) return false;
  const Tensor x = call.get(call.tensor(0));
  const Tensor source = call.get(call.tensor(1));
  const auto dim = call.get_dim(2, x.sizes.rank);
  const auto step = call.get_int(5);
  std::optional<std::int64_t> start = 0;
  if (!call.is_none(3)) start = call.get_int(3);
  if (!dim || !start || !step || *step < 1 || x.sizes.rank == 0) return false;
  std::int64_t first = *start < 0 ? *start + x.sizes[*dim] : *start;
  first = first < 0 ? 0 : first > x.sizes[*dim] ? x.sizes[*dim] : first;
  const std::int64_t last = first + source.sizes[*dim] * *step;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) {
    if (d != *dim && x.sizes[d] != source.sizes[d]) return false;
  }
  call.begin(x.sizes);
  Access access;
  access.tensor = call.tensor(1);
  access.constant = source.offset;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = source.strides[d];
  const Ex index = call.dim(*dim);
  Ex is_inside = call.op(ScalarOp::And, call.op(ScalarOp::Ge, index, call.constant(DType::Int64, first)),
                         call.op(ScalarOp::Lt, index, call.constant(DType::Int64, last)));
  if (*step == 1) {
    access.constant -= first * source.strides[*dim];
  } else {
    const Ex distance = call.op(ScalarOp::Sub, index, call.constant(DType::Int64, first));
    const auto [quotient, is_multiple] = divide(call, distance, *step);
    is_inside = call.op(ScalarOp::And, is_inside, is_multiple);
    access.by_dim[*dim] = 0;
    access.indirect.push_back({source.strides[*dim], quotient.id});
  }
  const Ex value = call.load_at(std::move(access), is_inside);
  call.finish_pointwise(call.out(0), call.op(ScalarOp::Select, is_inside, value, call.load(call.tensor(0))));
  return true;
}

// (self, src, dim, index): self with src in the place of one index
bool lower_select_scatter(Call& call) {
  if (!call.is_plain(0) || !call.is_plain(1) || call.dtype(0) != call.dtype(1)) return false;
  const Tensor x = call.get(call.tensor(0));
  const Tensor source = call.get(call.tensor(1));
  const auto dim = call.get_dim(2, x.sizes.rank);
  const auto place = call.get_int(3);
  if (!dim || !place || x.sizes.rank == 0 || source.sizes.rank + 1 != x.sizes.rank) return false;
  call.begin(x.sizes);
  Access access;
  access.tensor = call.tensor(1);
  access.constant = source.offset;
  std::size_t next = 0;
  for (std::size_t d = 0; d < x.sizes.rank; ++d) {
    if (d == *dim) continue;
    if (source.sizes[next] != x.sizes[d]) return false;
    access.by_dim[d] = source.strides[next++];
  }
  const std::int64_t index = *place < 0 ? *place + x.sizes[*dim] : *place;
  const Ex is_there = call.op(ScalarOp::Eq, call.dim(*dim), call.constant(DType::Int64, index));
  const Ex value = call.load_at(std::move(access), is_there);
  call.finish_pointwise(call.out(0), call.op(ScalarOp::Select, is_there, value, call.load(call.tensor(0))));
  return true;
}

}  // namespace reprise::lower
