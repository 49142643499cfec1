// Pooling over windows of two dims: the taps of a window one after the other, in eager's order.
#include <algorithm>
#include <array>
#include <limits>

#include "lower/functions.h"

namespace reprise::lower {

namespace {

// Of a window. More are left to the library: the expression holds each.
constexpr std::int64_t kMaxTaps = 25;
constexpr std::int64_t kMaxPlane = std::int64_t{1} << 30;  // offsets in it are int32

struct Axis {
  std::size_t dim = 0;
  std::int64_t size = 0;   // of the input
  std::int64_t count = 0;  // of windows
  std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;

  // Index of the input that a tap has in the last window; in the first one it is tap * dilation - padding.
  std::int64_t last(std::int64_t tap) const { return (count - 1) * stride + tap * dilation - padding; }
};

using Axes = std::array<Axis, 2>;

// One number for both dims, or one for each; none: `otherwise`, or as it is.
bool read_pair(const Call& call, std::size_t i, std::int64_t Axis::* field, Axes& axes,
               std::int64_t Axis::* otherwise) {
  if (!call.arg(i).is_list()) return false;
  const auto list = call.arg(i).get_list();
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (list.empty()) {
      if (otherwise != nullptr) axes[k].*field = axes[k].*otherwise;
      continue;
    }
    const graph::Arg& number = list[std::min(k, list.size() - 1)];
    if (!number.is_int() || !number.get_int().is_constant()) return false;
    axes[k].*field = number.get_int().get_constant();
  }
  return true;
}

bool read_axes(const Call& call, bool has_dilation, Axes& axes) {
  const Tensor x = call.get(call.tensor(0));
  const Tensor result = call.get(call.out(0));
  if (x.sizes.rank < 3 || !types::is_float(x.dtype)) return false;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    axes[k].dim = x.sizes.rank - 2 + k;
    axes[k].size = x.sizes[axes[k].dim];
    axes[k].count = result.sizes[axes[k].dim];
  }
  return read_pair(call, 1, &Axis::kernel, axes, nullptr) && read_pair(call, 2, &Axis::stride, axes, &Axis::kernel) &&
         read_pair(call, 3, &Axis::padding, axes, nullptr) &&
         (!has_dilation || read_pair(call, 4, &Axis::dilation, axes, nullptr)) &&
         axes[0].kernel * axes[1].kernel <= kMaxTaps;
}

struct Tap {
  Ex value;                 // in the dtype that is computed in
  Ex is_inside;             // not valid: in all windows
  std::int64_t offset = 0;  // in the plane, from the window's first tap
};

// Where a tap of the window is, in the input's dim.
Ex make_index(Call& call, const Axis& axis, std::int64_t tap) {
  const Ex scaled = call.op(ScalarOp::Mul, call.dim(axis.dim), call.constant(DType::Int64, axis.stride));
  return call.op(ScalarOp::Add, scaled, call.constant(DType::Int64, tap * axis.dilation - axis.padding));
}

// `is_inside` is left as it is where the tap is inside of the input for all windows.
void require_inside(Call& call, const Axis& axis, std::int64_t tap, Ex& is_inside) {
  const Ex index = make_index(call, axis, tap);
  if (tap * axis.dilation < axis.padding) {
    is_inside = emit_both(call, is_inside, call.op(ScalarOp::Ge, index, call.constant(DType::Int64, std::int64_t{0})));
  }
  if (axis.last(tap) >= axis.size) {
    is_inside = emit_both(call, is_inside, call.op(ScalarOp::Lt, index, call.constant(DType::Int64, axis.size)));
  }
}

// visit(tap), rows of the window first.
template <typename Visit>
void visit_taps(Call& call, const Axes& axes, Visit&& visit) {
  const TensorId id = call.tensor(0);
  const Tensor x = call.get(id);
  const DType compute = Call::get_compute_dtype(x.dtype);
  for (std::int64_t i = 0; i < axes[0].kernel; ++i) {
    for (std::int64_t j = 0; j < axes[1].kernel; ++j) {
      Tap tap;
      require_inside(call, axes[0], i, tap.is_inside);
      require_inside(call, axes[1], j, tap.is_inside);
      tap.offset = i * axes[0].dilation * axes[1].size + j * axes[1].dilation;
      Access access;
      access.tensor = id;
      access.constant = x.offset;
      for (std::size_t d = 0; d < x.sizes.rank; ++d) access.by_dim[d] = x.strides[d];
      const std::array<std::int64_t, 2> taps = {i, j};
      for (std::size_t k = 0; k < axes.size(); ++k) {
        const Axis& axis = axes[k];
        access.by_dim[axis.dim] *= axis.stride;
        access.constant += (taps[k] * axis.dilation - axis.padding) * x.strides[axis.dim];
      }
      tap.value = call.cast(call.load_at(std::move(access), tap.is_inside), compute);
      visit(tap);
    }
  }
}

}  // namespace

// (self, kernel, stride, padding, dilation, ceil_mode) -> values, indices. Eager takes the first of equal elements, and
// a NaN over everything in front of it.
bool lower_max_pool2d(Call& call) {
  Axes axes;
  if (!call.is_plain(0) || !read_axes(call, true, axes)) return false;
  // Where nothing is greater than -inf the index is that of the window's first element inside: for dilated windows
  // left to the library.
  const bool has_indices = call.has_out(1);
  const std::int64_t plane = axes[0].size * axes[1].size;
  if (has_indices && (axes[0].dilation != 1 || axes[1].dilation != 1 || plane > kMaxPlane)) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  const auto in_plane = [&](Ex row, Ex column) {
    return call.op(ScalarOp::Add, call.op(ScalarOp::Mul, row, call.constant(DType::Int64, axes[1].size)), column);
  };
  for (const bool is_index : {false, true}) {
    if (is_index && !has_indices) continue;
    call.begin(call.get(call.out(0)).sizes);
    Ex greatest = call.constant(compute, -std::numeric_limits<double>::infinity());
    // Offsets from the window's first tap are constants, and int32 has the width of most values.
    Ex begin, offset;
    if (is_index) {
      const Ex row = make_index(call, axes[0], 0), column = make_index(call, axes[1], 0);
      const Ex zero = call.constant(DType::Int64, std::int64_t{0});
      begin = in_plane(row, column);
      const Ex first = in_plane(call.op(ScalarOp::Max, zero, row), call.op(ScalarOp::Max, zero, column));
      offset = call.cast(call.op(ScalarOp::Sub, first, begin), DType::Int32);
    }
    visit_taps(call, axes, [&](const Tap& tap) {
      Ex is_greater = call.op(ScalarOp::Or, call.op(ScalarOp::Gt, tap.value, greatest),
                              call.op(ScalarOp::Ne, tap.value, tap.value));
      is_greater = emit_both(call, tap.is_inside, is_greater);
      greatest = call.op(ScalarOp::Select, is_greater, tap.value, greatest);
      if (is_index) {
        offset = call.op(ScalarOp::Select, is_greater, call.constant(DType::Int32, tap.offset), offset);
      }
    });
    if (is_index) {
      call.finish_pointwise(call.out(1), call.op(ScalarOp::Add, begin, call.cast(offset, DType::Int64)));
    } else {
      call.finish_pointwise(call.out(0), greatest);
    }
  }
  return true;
}

// (self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override), where all windows are divided by the
// same number
bool lower_avg_pool2d(Call& call) {
  Axes axes;
  if (!call.is_plain(0) || !read_axes(call, false, axes)) return false;
  const std::optional<bool> counts_padding = call.get_bool(5);
  std::optional<std::int64_t> divisor = axes[0].kernel * axes[1].kernel;
  if (!call.is_none(6)) {
    divisor = call.get_int(6);
  } else {
    for (const Axis& axis : axes) {
      const std::int64_t margin = counts_padding == true ? axis.padding : 0;
      if (axis.padding > margin || axis.last(axis.kernel - 1) >= axis.size + margin) return false;
    }
  }
  if (!counts_padding || !divisor || *divisor == 0) return false;
  const DType compute = Call::get_compute_dtype(call.dtype(0));
  call.begin(call.get(call.out(0)).sizes);
  const Ex zero = call.constant(compute, 0.0);
  Ex sum = zero;
  visit_taps(call, axes, [&](const Tap& tap) {
    const Ex value =
        tap.is_inside.id.is_valid() ? call.op(ScalarOp::Select, tap.is_inside, tap.value, zero) : tap.value;
    sum = call.op(ScalarOp::Add, sum, value);
  });
  call.finish_pointwise(call.out(0),
                        call.op(ScalarOp::Div, sum, call.constant(compute, static_cast<double>(*divisor))));
  return true;
}

}  // namespace reprise::lower
