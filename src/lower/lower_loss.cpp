// Losses of two tensors, element by element, and their mean or sum.
#include <cmath>

#include "lower/rows.h"

namespace reprise::lower {

namespace {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

// out = the loss itself, or its mean or sum over all elements
template <class Loss>
bool finish_loss(Call& call, const Dims& sizes, std::int64_t reduction, DType compute, Loss&& loss) {
  if (reduction == kNone) {
    call.begin(sizes);
    call.finish_pointwise(call.out(0), loss());
    return true;
  }
  Rows rows(call, sizes, static_cast<std::uint8_t>((1u << sizes.rank) - 1));
  const TensorId sum = rows.fold(Combine::Sum, compute, loss);
  rows.finish(call.out(0), sum, [&](Ex x) {
    if (reduction == kSum) return x;
    return call.op(ScalarOp::Div, x, call.constant(compute, static_cast<double>(sizes.count())));
  });
  return true;
}

// What the losses and their backward forms have in common: tensors of one float dtype and one size.
struct Loss {
  Call& call;
  DType compute = DType::Float32;
  Dims sizes;
  std::int64_t reduction = 0;

  Ex number(double value) { return call.constant(compute, value); }
  Ex value(std::size_t i) { return call.value(i, compute); }
  Ex op(ScalarOp op, Ex a) { return call.op(op, a); }
  Ex op(ScalarOp op, Ex a, Ex b) { return call.op(op, a, b); }
  Ex select(Ex condition, Ex a, Ex b) { return call.op(ScalarOp::Select, condition, a, b); }
  Ex log(Ex x) { return call.math(MathFunction::Log, Numerics::Sleef, x); }
};

// Arguments `first` and the one behind it are of one size; `reduction_arg` is the kind of reduction.
std::optional<Loss> make_loss(Call& call, std::size_t first, std::size_t reduction_arg) {
  const auto reduction = call.get_int(reduction_arg);
  if (!reduction || !call.is_plain(first) || !call.is_plain(first + 1)) return std::nullopt;
  const Tensor& a = call.get(call.tensor(first));
  const Tensor& b = call.get(call.tensor(first + 1));
  if (!types::is_float(a.dtype) || a.dtype != b.dtype || a.sizes != b.sizes) return std::nullopt;
  return Loss{call, Call::get_compute_dtype(a.dtype), a.sizes, *reduction};
}

template <class Element>
bool lower_loss(Call& call, std::size_t reduction_arg, Element&& element) {
  auto loss = make_loss(call, 0, reduction_arg);
  if (!loss) return false;
  return finish_loss(call, loss->sizes, loss->reduction, loss->compute, [&] { return element(*loss); });
}

// (grad, self, target, ...): element() is the derivative; divided by the number of elements for the mean, times grad
template <class Element>
bool lower_loss_backward(Call& call, std::size_t reduction_arg, Element&& element) {
  auto loss = make_loss(call, 1, reduction_arg);
  if (!loss || !call.is_plain(0) || call.get(call.out(0)).sizes != loss->sizes) return false;
  call.begin(loss->sizes);
  Ex value = element(*loss);
  if (loss->reduction == kMean)
    value = loss->op(ScalarOp::Div, value, loss->number(static_cast<double>(loss->sizes.count())));
  call.finish_pointwise(call.out(0), loss->op(ScalarOp::Mul, value, loss->value(0)));
  return true;
}

}  // namespace

// (self, target, reduction): (a - b)^2
bool lower_mse_loss(Call& call) {
  return lower_loss(call, 2, [](Loss& loss) {
    const Ex difference = loss.op(ScalarOp::Sub, loss.value(0), loss.value(1));
    return loss.op(ScalarOp::Mul, difference, difference);
  });
}

// (grad, self, target, reduction): 2 * (a - b)
bool lower_mse_loss_backward(Call& call) {
  return lower_loss_backward(call, 3, [](Loss& loss) {
    return loss.op(ScalarOp::Mul, loss.number(2), loss.op(ScalarOp::Sub, loss.value(1), loss.value(2)));
  });
}

// (self, target, reduction, beta), d = |a - b|: d < beta ? d*d/(2 beta) : d - beta/2
bool lower_smooth_l1_loss(Call& call) {
  const auto beta = call.get_number(3);
  if (!beta || *beta == 0) return false;
  return lower_loss(call, 2, [&](Loss& loss) {
    const Ex d = loss.op(ScalarOp::Abs, loss.op(ScalarOp::Sub, loss.value(0), loss.value(1)));
    const Ex inner = loss.op(ScalarOp::Div, loss.op(ScalarOp::Mul, loss.op(ScalarOp::Mul, loss.number(0.5), d), d),
                             loss.number(*beta));
    const Ex outer = loss.op(ScalarOp::Sub, d, loss.op(ScalarOp::Mul, loss.number(0.5), loss.number(*beta)));
    return loss.select(loss.op(ScalarOp::Lt, d, loss.number(*beta)), inner, outer);
  });
}

// (grad, self, target, reduction, beta), d = a - b: d <= -beta ? -1 : d >= beta ? 1 : d/beta
bool lower_smooth_l1_loss_backward(Call& call) {
  const auto beta = call.get_number(4);
  if (!beta || *beta == 0) return false;
  return lower_loss_backward(call, 3, [&](Loss& loss) {
    const Ex d = loss.op(ScalarOp::Sub, loss.value(1), loss.value(2));
    const Ex upper = loss.select(loss.op(ScalarOp::Ge, d, loss.number(*beta)), loss.number(1),
                                 loss.op(ScalarOp::Div, d, loss.number(*beta)));
    return loss.select(loss.op(ScalarOp::Le, d, loss.number(-*beta)), loss.number(-1), upper);
  });
}

// (self, target, reduction, delta), d = |a - b|: d <= delta ? d*d/2 : delta * (d - delta/2)
bool lower_huber_loss(Call& call) {
  const auto delta = call.get_number(3);
  if (!delta) return false;
  return lower_loss(call, 2, [&](Loss& loss) {
    const Ex d = loss.op(ScalarOp::Abs, loss.op(ScalarOp::Sub, loss.value(0), loss.value(1)));
    const Ex inner = loss.op(ScalarOp::Mul, loss.op(ScalarOp::Mul, loss.number(0.5), d), d);
    const Ex outer = loss.op(ScalarOp::Mul, loss.number(*delta), loss.op(ScalarOp::Sub, d, loss.number(0.5 * *delta)));
    return loss.select(loss.op(ScalarOp::Le, d, loss.number(*delta)), inner, outer);
  });
}

// (grad, self, target, reduction, delta), d = a - b: d <= -delta ? -delta : d >= delta ? delta : d
bool lower_huber_loss_backward(Call& call) {
  const auto delta = call.get_number(4);
  if (!delta) return false;
  return lower_loss_backward(call, 3, [&](Loss& loss) {
    const Ex d = loss.op(ScalarOp::Sub, loss.value(1), loss.value(2));
    const Ex upper = loss.select(loss.op(ScalarOp::Ge, d, loss.number(*delta)), loss.number(*delta), d);
    return loss.select(loss.op(ScalarOp::Le, d, loss.number(-*delta)), loss.number(-*delta), upper);
  });
}

// (self, target, weight, reduction): (t - 1) * max(log1p(-x), -100) - t * max(log(x), -100), times weight.
// Values outside of [0, 1] make it fail.
bool lower_binary_cross_entropy(Call& call) {
  if (!call.is_none(2) && !call.is_plain(2)) return false;
  return lower_loss(call, 3, [&](Loss& loss) {
    const Ex x = loss.value(0);
    const Ex t = loss.value(1);
    const auto check = [&](Ex a, const char* text) {
      const Ex is_inside =
          loss.op(ScalarOp::And, loss.op(ScalarOp::Ge, a, loss.number(0)), loss.op(ScalarOp::Le, a, loss.number(1)));
      call.check(loss.op(ScalarOp::Not, is_inside), text, false);
    };
    check(x, "all elements of input should be between 0 and 1");
    check(t, "all elements of target should be between 0 and 1");
    const Ex low = loss.number(-100);
    const Ex rest = call.math(MathFunction::Log1p, Numerics::Sleef, loss.op(ScalarOp::Neg, x));
    const Ex a = loss.op(ScalarOp::Mul, loss.op(ScalarOp::Sub, t, loss.number(1)), loss.op(ScalarOp::Max, rest, low));
    const Ex b = loss.op(ScalarOp::Mul, t, loss.op(ScalarOp::Max, loss.log(x), low));
    const Ex value = loss.op(ScalarOp::Sub, a, b);
    return call.is_none(2) ? value : loss.op(ScalarOp::Mul, value, loss.value(2));
  });
}

// (grad, self, target, weight, reduction): (x - t) / max((1 - x) * x, 1e-12), times weight
bool lower_binary_cross_entropy_backward(Call& call) {
  if (!call.is_none(3) && !call.is_plain(3)) return false;
  return lower_loss_backward(call, 4, [&](Loss& loss) {
    const Ex x = loss.value(1);
    const Ex product = loss.op(ScalarOp::Mul, loss.op(ScalarOp::Sub, loss.number(1), x), x);
    const Ex value = loss.op(ScalarOp::Div, loss.op(ScalarOp::Sub, x, loss.value(2)),
                             loss.op(ScalarOp::Max, product, loss.number(1e-12)));
    return call.is_none(3) ? value : loss.op(ScalarOp::Mul, value, loss.value(3));
  });
}

// (self, target, weight, pos_weight, reduction): (1 - t) * x - min(0, x) + log1p(exp(-|x|)), times weight
bool lower_binary_cross_entropy_with_logits(Call& call) {
  if (!call.is_none(3) || (!call.is_none(2) && !call.is_plain(2))) return false;
  return lower_loss(call, 4, [&](Loss& loss) {
    const Ex x = loss.value(0);
    const Ex e = emit_fused_exp(call, loss.op(ScalarOp::Neg, loss.op(ScalarOp::Abs, x)));
    const Ex log_sigmoid = loss.op(ScalarOp::Sub, loss.op(ScalarOp::Min, x, loss.number(0)),
                                   call.math(MathFunction::Log1p, Numerics::Sleef, e));
    const Ex value = loss.op(
        ScalarOp::Sub, loss.op(ScalarOp::Mul, loss.op(ScalarOp::Sub, loss.number(1), loss.value(1)), x), log_sigmoid);
    return call.is_none(2) ? value : loss.op(ScalarOp::Mul, value, loss.value(2));
  });
}

}  // namespace reprise::lower
