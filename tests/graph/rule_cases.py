"""Calls of ops, and the metadata that eager gives for them: the expectations for the rules of src/graph/rules.

    python tests/graph/rule_cases.py           write tests/graph/rule_expectations.txt again
    python tests/graph/rule_cases.py --check   say whether it is up to date

The file is one graph in the text of src/graph/printer.h: inputs with all kinds of layouts, then one node a case. The
C++ test graph_rules_test.cpp asks the rules for every node. A rule may decline a case; the ops that decline all of
their cases are counted there.
"""

import itertools
import math
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).parent
F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, U8, I8, BOOL, C64 = torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool, torch.complex64
OMIT = object()


class T:
    """A tensor argument: sizes, dtype, strides (contiguous if None), offset."""

    def __init__(self, *sizes, dtype=F32, strides=None, offset=0):
        self.sizes, self.dtype, self.offset = sizes, dtype, offset
        self.strides = torch.empty(sizes, device="meta").stride() if strides is None else strides

    def key(self):
        return (tuple(self.sizes), self.dtype, tuple(self.strides), self.offset)

    def make(self):
        span = self.offset + 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True) if n > 0)
        return torch.ones(max(span, 1), dtype=self.dtype).as_strided(self.sizes, self.strides, self.offset)


def channels_last(*sizes, dtype=F32):
    meta = torch.empty(sizes, device="meta").to(memory_format=torch.channels_last)
    return T(*sizes, dtype=dtype, strides=meta.stride())


def permuted(sizes, order, dtype=F32):
    meta = torch.empty(sizes, device="meta").permute(order)
    return T(*meta.shape, dtype=dtype, strides=meta.stride())


CASES = []


def case(name, *args, **kwargs):
    CASES.append((name, args, kwargs))


def add_pointwise():
    layouts = [
        T(2, 3),
        T(2, 3, strides=(1, 2)),
        T(2, 3, strides=(6, 2)),
        T(2, 3, strides=(0, 1)),
        T(),
        T(0, 3),
        T(2, 1, 3),
        T(2, 3, 4, 5),
        channels_last(2, 3, 4, 5),
        permuted((2, 3, 4), (2, 0, 1)),
        T(4, 1, 1, 1),
        T(1, 3, 1, 1, strides=(3, 1, 3, 3)),
    ]
    for layout in layouts:
        for name in ["neg", "relu", "exp", "sigmoid", "gelu", "silu", "logical_not", "abs", "clone", "zeros_like"]:
            case(name, layout)
        case("add.Tensor", layout, layout)
        case("mul.Scalar", layout, 2.0)
        case("pow.Tensor_Scalar", layout, 2.0)
        case("_to_copy", layout, dtype=BF16)
        case("clamp", layout, 0.0, None)
        case("masked_fill.Scalar", layout, T(*layout.sizes, dtype=BOOL), 1.0)
        case("gt.Scalar", layout, 0.5)
        case("where.self", T(*layout.sizes, dtype=BOOL), layout, T())
    pairs = [
        (T(2, 3), T(3)),
        (T(2, 3), T(2, 1)),
        (T(2, 3, strides=(1, 2)), T(2, 3)),
        (T(2, 3, strides=(1, 2)), T(3)),
        (T(2, 3, strides=(1, 2)), T(2, 3, strides=(1, 2))),
        (channels_last(2, 3, 4, 5), T(1, 3, 1, 1)),
        (channels_last(2, 3, 4, 5), T(2, 3, 4, 5)),
        (channels_last(2, 3, 4, 5), channels_last(2, 3, 4, 5)),
        (T(1, 3, 1, 1), channels_last(2, 3, 4, 5)),
        (permuted((2, 3, 4), (2, 0, 1)), T(2, 1)),
        (T(2, 1, 4), permuted((4, 5), (1, 0))),
        (T(), T(2, 3, strides=(1, 2))),
        (T(2, 3), T()),
        (T(0, 3), T(3)),
        (T(0, 3, strides=(1, 0)), T(1, 3)),
        (T(3, 4, strides=(8, 2)), T(3, 4, strides=(0, 1))),
        (T(3, 4, dtype=F16, strides=(8, 2)), T(3, 4)),
        (T(3, 4, dtype=F16, strides=(1, 6)), T(4)),
    ]
    for a, b in pairs:
        for name in ["add.Tensor", "mul.Tensor", "div.Tensor", "eq.Tensor", "maximum", "sub.Tensor"]:
            case(name, a, b)
        case("where.self", T(*b.sizes, dtype=BOOL), a, b)
        case("addcmul", a, b, a)
    dtypes = [F32, F64, F16, BF16, I64, I32, U8, I8, BOOL]
    for a, b in itertools.product(dtypes, dtypes):
        case("add.Tensor", T(2, dtype=a), T(2, dtype=b))
    for a, b in itertools.product([F32, F16, I64, I32, BOOL, C64], [F64, F16, I64, BOOL]):
        case("mul.Tensor", T(2, dtype=a), T(dtype=b))
        case("div.Tensor", T(2, dtype=a), T(dtype=b))
    for dtype, number in itertools.product([F32, F16, BF16, I64, U8, BOOL, C64], [2, 0.5, True]):
        case("mul.Scalar", T(2, dtype=dtype), number)
        case("add.Scalar", T(2, dtype=dtype), number) if dtype != BOOL or number is not True else None
        case("div.Scalar", T(2, dtype=dtype), number)
        case("pow.Tensor_Scalar", T(2, dtype=dtype), number) if dtype != BOOL else None
        case("eq.Scalar", T(2, dtype=dtype), number)
    for dtype in [I64, I32, BOOL, F16, BF16, F64]:
        for name in ["exp", "sqrt", "sigmoid", "tanh", "reciprocal", "rsqrt", "sin", "log", "erf"]:
            case(name, T(2, dtype=dtype))
    for name in ["sign", "silu", "hardtanh", "leaky_relu", "threshold", "elu", "hardswish", "hardsigmoid", "softplus",
                 "mish", "floor", "ceil", "round", "trunc", "frac", "sgn", "exp2", "expm1", "log2", "log10", "log1p",
                 "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erfc",
                 "erfinv", "lgamma", "digamma", "rsqrt", "isnan", "signbit", "angle", "nan_to_num", "logit",
                 "log_sigmoid_forward"]:  # fmt: skip
        extra = {"threshold": [0.0, 0.0]}.get(name, [])
        case(name, T(2, 3, strides=(1, 2)), *extra)
        case(name, T(2, 3), *extra)
    case("bitwise_not", T(2, dtype=I64))
    for name in ["maximum", "minimum", "fmax", "fmin", "fmod.Tensor", "remainder.Tensor", "floor_divide",
                 "pow.Tensor_Tensor", "hypot", "copysign.Tensor", "logaddexp", "atan2", "xlogy.Tensor", "ne.Tensor",
                 "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "logical_and", "logical_or", "logical_xor",
                 "sigmoid_backward", "tanh_backward", "gelu_backward", "silu_backward", "mish_backward",
                 "hardswish_backward", "hardsigmoid_backward", "nextafter"]:  # fmt: skip
        case(name, T(2, 3, strides=(1, 2)), T(2, 3))
        case(name, T(2, 3), T(2, 3))
    case("threshold_backward", T(2, 3), T(2, 3), 0)
    case("hardtanh_backward", T(2, 3), T(2, 3), -1.0, 1.0)
    case("leaky_relu_backward", T(2, 3), T(2, 3), 0.1, False)
    case("softplus_backward", T(2, 3), T(2, 3), 1.0, 20.0)
    last, repeated = channels_last(2, 3, 4, 5), T(2, 3, 4, 5, strides=(3, 1, 0, 0))
    other = permuted((3, 2, 5, 4), (1, 0, 3, 2))
    for a, b in [(last, repeated), (repeated, last), (last, other), (other, last), (T(2, 3, 4, 5), last)]:
        for name in ["sigmoid_backward", "tanh_backward", "gelu_backward", "silu_backward", "mish_backward",
                     "hardswish_backward", "hardsigmoid_backward", "add.Tensor", "mul.Tensor"]:  # fmt: skip
            case(name, a, b)
        case("threshold_backward", a, b, 0)
        case("hardtanh_backward", a, b, -1.0, 1.0)
        case("leaky_relu_backward", a, b, 0.1, False)
        case("softplus_backward", a, b, 1.0, 20.0)
        case("elu_backward", a, 1.0, 1.0, 1.0, False, b)
    case("elu_backward", T(2, 3), 1.0, 1.0, 1.0, False, T(2, 3))
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
        case(name + ".Tensor", T(2, dtype=I64), T(2, dtype=BOOL))
        case(name + ".Scalar", T(2, dtype=I32), 3)
    case("rsub.Scalar", T(2, 3), 1.0)
    case("remainder.Scalar", T(2, 3, dtype=I64), 2)
    case("remainder.Scalar_Tensor", 2, T(2, 3, dtype=I64))
    case("pow.Scalar", 2.0, T(2, 3, strides=(1, 2)))
    case("pow.Scalar", 2, T(2, 3, dtype=F16))
    for mode in [None, "floor", "trunc"]:
        case("div.Tensor_mode", T(2, dtype=I64), T(2, dtype=I64), rounding_mode=mode)
    for name in ["lerp.Scalar", "lerp.Tensor"]:
        case(name, T(2, 3), T(3), 0.5 if name == "lerp.Scalar" else T(2, 1))
    case("addcdiv", T(2, 3), T(2, 1), T(3), value=0.5)
    case("clamp", T(3, dtype=I64), 0.5, 1.0)
    case("clamp", T(3, dtype=F16), None, 1)
    case("clamp.Tensor", T(2, 3), T(3), None)
    case("clamp_min", T(3, dtype=I64), 1)
    case("clamp_max", T(3), 1)
    case("fill.Scalar", T(2, 3, strides=(1, 2)), 1.0)
    for name in ["mse_loss", "smooth_l1_loss", "huber_loss"]:
        for reduction in [0, 1, 2]:
            case(name, T(2, 3), T(2, 3), reduction)
    for name in ["mse_loss_backward"]:
        case(name, T(), T(2, 3), T(2, 3), 1)
    case("smooth_l1_loss_backward", T(), T(2, 3), T(2, 3), 1, 1.0)
    case("huber_loss_backward", T(), T(2, 3), T(2, 3), 1, 1.0)
    for name in ["add_.Tensor", "sub_.Tensor", "mul_.Tensor", "div_.Tensor", "copy_"]:
        case(name, T(2, 3), T(3))
    for name in ["add_.Scalar", "mul_.Scalar", "fill_.Scalar"]:
        case(name, T(2, 3), 2.0)
    for name in ["relu_", "zero_", "exp_", "sqrt_", "neg_", "sigmoid_", "tanh_"]:
        case(name, T(2, 3))
    case("addcmul_", T(2, 3), T(2, 3), T(2, 3), value=0.1)
    case("addcdiv_", T(2, 3), T(2, 3), T(2, 3), value=0.1)
    case("lerp_.Scalar", T(2, 3), T(2, 3), 0.1)
    case("masked_fill_.Scalar", T(2, 3), T(2, 3, dtype=BOOL), 0.0)
    case("_prelu_kernel", T(2, 3), T(1, 3))


def add_views():
    x = T(2, 3, 4)
    for layout in [T(2, 3), T(3), T(), T(2, 3, strides=(1, 2), offset=2)]:
        case("t", layout)
        case("alias", layout)
        case("detach", layout)
        case("unsqueeze", layout, 0)
        case("unsqueeze", layout, -1)
        case("squeeze", layout)
    case("transpose.int", x, 0, -1)
    case("permute", x, [2, 0, 1])
    for layout, sizes in [
        (x, [6, 4]), (x, [-1]), (x, [2, 3, 2, 2]), (x, [2, -1, 1, 4]), (T(2, 3, strides=(1, 2)), [2, 3, 1]),
        (permuted((2, 3, 4), (1, 2, 0)), [12, 2]), (T(), [1, 1]), (T(0, 3), [3, 0]), (T(0, 3), [0, 3]), (T(1, 4), [4]),
        (T(2, 3, 4, strides=(24, 8, 2)), [2, 12]), (T(4, 1, 6, strides=(12, 5, 2)), [4, 6]), (x, [1, 2, 1, 12, 1]),
    ]:  # fmt: skip
        case("view", layout, sizes)
        case("_unsafe_view", layout, sizes)
    case("_reshape_alias", x, [6, 4], [4, 1])
    case("as_strided", x, [2, 2], [1, 2], 3)
    case("as_strided", x, [2, 2], [1, 2])
    for layout, sizes in [(T(3), [2, 3]), (T(2, 1), [2, 4]), (T(2, 1), [5, -1, 4]), (T(), [2]), (T(1, 3), [2, 3]),
                          (T(2, 3, strides=(1, 2)), [2, 2, 3]), (T(1), [1, 1, 1])]:  # fmt: skip
        case("expand", layout, sizes)
    for args in [(0, 0, 1), (1, 1, 3), (2, -3, -1), (2, 0, 2**63 - 1, 2), (1, 5, 9), (0, None, None), (2, 3, 1)]:
        case("slice.Tensor", T(2, 3, 4, offset=5), *args)
    case("select.int", T(2, 3, 4, offset=5), 1, -1)
    case("select.int", x, 0, 1)
    case("squeeze", T(1, 2, 1, 3))
    case("squeeze.dim", T(1, 2, 1, 3), 2)
    case("squeeze.dim", T(1, 2, 1, 3), 1)
    case("squeeze.dims", T(1, 2, 1, 3), [0, 1, 2])
    case("split.Tensor", T(2, 7), 3, 1)
    case("split.Tensor", T(0, 7), 3, 0)
    case("split_with_sizes", T(2, 7), [3, 4], 1)
    case("unbind.int", x, 1)
    case("diagonal", T(3, 4))
    case("diagonal", T(2, 3, 4), -1, 1, 2)
    case("diagonal", T(2, 3, 4), 2, 0, -1)
    case("unfold", T(2, 7), 1, 3, 2)
    case("view_as_real", T(2, 3, dtype=C64))
    case("view_as_complex", T(3, 2))
    case("view.dtype", T(3, 2), I32)
    case("_conj", T(3, dtype=C64))
    case("_neg_view", T(3))
    case("lift_fresh", T(3))
    case("t_", T(2, 3))
    case("transpose_", T(2, 3), 0, 1)
    case("squeeze_", T(1, 3))
    case("squeeze_.dim", T(1, 3), 0)
    case("unsqueeze_", T(3), 0)
    case("as_strided_", T(4), [2, 2], [1, 2], None)


def add_copies():
    layouts = [T(2, 3), T(2, 3, strides=(1, 2)), T(2, 3, strides=(6, 2)), T(2, 3, strides=(0, 1))]
    layouts.append(channels_last(2, 3, 4, 5))
    for layout in layouts:
        for format in [torch.contiguous_format, torch.preserve_format]:
            case("clone", layout, memory_format=format)
            case("empty_like", layout, memory_format=format)
        case("full_like", layout, 1.0)
        case("rand_like", layout)
        case("sort", layout)
        case("tril", layout)
        case("flip", layout, [0])
        case("cumsum", layout, 0)
        case("index_select", layout, 1, T(2, dtype=I64))
        case("sum.dim_IntList", layout, [1])
        case("sum.dim_IntList", layout, [0], True)
        case("mean.dim", layout, [0, 1])
        case("amax", layout, [-1])
        case("argmax", layout, 1)
        case("max.dim", layout, 1)
        case("var.correction", layout, [0], correction=1)
        case("any.dim", layout, 0)
        case("scatter.value", layout, 1, T(*layout.sizes, dtype=I64), 1.0)
        case("gather", layout, 1, T(*layout.sizes, dtype=I64, strides=layout.strides))
        case("index.Tensor", layout, [T(4, dtype=I64)])
        case("index.Tensor", layout, [None, T(4, dtype=I64)])
        case("_softmax", layout, 1, False)
        case("linalg_vector_norm", layout)
    case("clone", T(2, 3, 4, 5), memory_format=torch.channels_last)
    case("_to_copy", T(2, 3, 4, 5), memory_format=torch.channels_last)
    case("_to_copy", T(2, 3, strides=(6, 2)), dtype=F64)
    case("slice_scatter", T(4, 3), T(2, 3), 0, 0, 2)
    case("select_scatter", T(4, 3), T(3), 0, 1)
    case("as_strided_scatter", T(4, 3), T(3), [3], [1], 2)
    case("diagonal_scatter", T(4, 3, strides=(1, 4)), T(3))
    case("repeat", T(2, 3), [2, 1, 2])
    case("triu", T(2, 3), 1)
    case("roll", T(2, 3), [1], [0])
    case("view_copy", T(2, 3), [6])
    case("resize_", T(2, 3), [4])
    case("resize_", T(2, 3), [2, 3])
    for tensors in [
        [T(2, 3), T(2, 3)], [T(2, 3), T(0)], [T(0), T(0)], [T(2, 3, strides=(1, 2)), T(2, 3, strides=(1, 2))],
        [T(2, 3), T(2, 3, dtype=F64)], [T(2, dtype=I64), T(3)], [channels_last(2, 3, 4, 5), channels_last(2, 3, 4, 5)],
        [channels_last(2, 3, 4, 5), T(2, 3, 4, 5)], [T(2, 3)],
    ]:  # fmt: skip
        case("cat", tensors)
    case("cat", [T(2, 3), T(2, 4)], 1)
    case("cat", [T(2, 3), T(2, 4)], -1)
    case("stack", [T(2, 3), T(2, 3)])
    case("stack", [T(2, 3), T(2, 3)], -1)
    case("stack", [T(), T()])
    case("constant_pad_nd", T(2, 3), [1, 0], 0.0)
    case("constant_pad_nd", T(2, 3, 4, 5), [1, 2, -1, 3])
    case("constant_pad_nd", channels_last(2, 3, 4, 5), [1, 2, -1, 3])
    case("reflection_pad2d", T(1, 2, 4, 4), [1, 1, 2, 1])
    case("replication_pad1d", T(1, 2, 4), [1, 1])


def add_reductions():
    for dtype in [F32, BF16, I64, I32, BOOL]:
        case("sum", T(2, 3, dtype=dtype))
        case("sum.dim_IntList", T(2, 3, dtype=dtype), None, True)
        case("prod", T(2, 3, dtype=dtype))
        case("cumsum", T(2, 3, dtype=dtype), 0)
        case("any", T(2, 3, dtype=dtype))
        case("max", T(2, 3, dtype=dtype))
    case("sum", T(2, 3), dtype=F64)
    case("sum.dim_IntList", T(2, 3), [], False)
    case("sum.dim_IntList", T(), [0])
    case("sum.dim_IntList", permuted((2, 3, 4), (2, 0, 1)), [1])
    case("mean", T(2, 3))
    case("mean.dim", T(2, 3), [1], dtype=F64)
    case("prod.dim_int", T(2, 3), 1)
    case("nansum", T(2, 3), [1])
    case("logsumexp", T(2, 3, 4), [1], True)
    case("amin", T(2, 3))
    case("min", T(2, 3))
    case("min.dim", T(2, 3), 0, True)
    case("argmin", T(2, 3))
    case("argmax", T(2, 3), None, True)
    case("all.dim", T(2, 3, dtype=U8), 0)
    case("all", T(2, 3, dtype=U8))
    case("any.dims", T(2, 3, dtype=BOOL), [0, 1])
    case("var.correction", T(2, 3))
    case("std.correction", T(2, 3), [1], correction=0, keepdim=True)
    case("var_mean.correction", T(2, 3, 4), [0, 2], correction=0)
    case("linalg_vector_norm", T(2, 3), 2, [1], True)
    case("linalg_vector_norm", T(2, 3, dtype=BF16), 1, None, False, dtype=F32)
    case("norm.Scalar", T(2, 3), 2)
    case("norm.ScalarOpt_dim", T(2, 3), 2, [0])
    case("cumprod", T(2, 3), 1)
    case("logcumsumexp", T(2, 3), 1)
    case("cummax", T(2, 3), 1)
    case("mode", T(2, 3))
    case("median.dim", T(2, 3), 0)
    case("topk", T(2, 5), 3)
    case("topk", T(2, 5, strides=(1, 2)), 1, 0)
    case("sort.stable", T(2, 3), stable=True, dim=0)
    case("argsort.stable", T(2, 3), stable=True)


def add_factories():
    for name in ["zeros", "ones", "rand", "randn"]:
        case(name, [2, 3])
        case(name, [2, 3], dtype=F64)
    case("empty.memory_format", [2, 3])
    case("empty.memory_format", [2, 3, 4, 5], memory_format=torch.channels_last)
    for number in [1, 1.5, True]:
        case("full", [2], number)
        case("scalar_tensor", number)
    case("full", [2], 1, dtype=BF16)
    case("empty_strided", [2, 3], [1, 2])
    case("empty_permuted", [2, 3, 4], [2, 0, 1])
    case("ones_like", T(2, 3, dtype=I64), dtype=F32)
    case("randint_like", T(2, 3), 5)
    case("new_zeros", T(2), [3, 4])
    case("new_empty", T(2, dtype=F16), [3, 4])
    case("new_ones", T(2), [3], dtype=I64)
    case("new_full", T(2), [3], 2)
    case("new_empty_strided", T(2), [3, 4], [1, 3])
    case("arange", 5)
    case("arange", 5.5)
    case("arange.start", 1, 6)
    case("arange.start", 1, 6, dtype=F32)
    case("arange.start_step", 1, 10, 3)
    case("arange.start_step", 0.0, 1.0, 0.25)
    case("arange.start_step", 10, 0, -3)
    case("linspace", 0, 1, 5)
    case("eye", 3)
    case("eye.m", 3, 4)
    case("randint", 5, [2, 3])
    case("randint.low", 1, 5, [2, 3])
    case("randperm", 5)
    case("bernoulli", T(2, 3, strides=(1, 2)))
    case("bernoulli.p", T(2, 3), 0.5)
    case("bernoulli_.float", T(2, 3), 0.5)
    case("normal_", T(2, 3))
    case("uniform_", T(2, 3))
    case("random_", T(2, 3, dtype=I64))
    case("native_dropout", T(2, 3), 0.5, True)
    case("multinomial", T(2, 3), 1)
    case("multinomial", T(3), 2, True)


def add_matmuls():
    a, b = T(2, 3), T(3, 4)
    case("mm", a, b)
    case("mm", T(3, 2, strides=(1, 3)), T(2, 3, strides=(1, 2)))
    case("addmm", T(4), a, b)
    case("addmm", T(2, 4), a, b, beta=0.5)
    case("addmm", T(), a, b)
    case("bmm", T(2, 3, 4), T(2, 4, 5))
    case("bmm", permuted((3, 2, 4), (1, 0, 2)), permuted((5, 2, 4), (1, 2, 0)))
    case("baddbmm", T(2, 3, 5), T(2, 3, 4), T(2, 4, 5))
    case("baddbmm", T(5), T(2, 3, 4), T(2, 4, 5))
    case("addbmm", T(3, 5), T(2, 3, 4), T(2, 4, 5))
    case("mv", a, T(3))
    case("addmv", T(2), a, T(3))
    case("dot", T(3), T(3))
    case("addr", T(2, 3), T(2), T(3))
    case("linear", T(2, 3, 4), T(5, 4), T(5))
    q = T(2, 2, 3, 8)
    case("_scaled_dot_product_flash_attention_for_cpu", q, q, q, 0.0, True)
    case("_scaled_dot_product_flash_attention_for_cpu", permuted((2, 3, 2, 8), (0, 2, 1, 3)), q, q)
    out = permuted((2, 3, 2, 8), (0, 2, 1, 3))
    lse = T(2, 2, 3, strides=(6, 1, 2))
    case("_scaled_dot_product_flash_attention_for_cpu_backward", out, q, q, q, out, lse, 0.0, True)


def add_networks():
    x, w = T(2, 3, 8, 8), T(4, 3, 3, 3)
    plain = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    case("convolution", x, w, None, *plain)
    case("convolution", x, w, T(4), [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
    case("convolution", x, w, None, [2], [1], [2], False, [0], 1)
    case("convolution", channels_last(2, 3, 8, 8), w, None, *plain)
    case("convolution", x, channels_last(4, 3, 3, 3), None, *plain)
    case("convolution", channels_last(2, 3, 8, 8), channels_last(4, 3, 3, 3), None, *plain)
    case("convolution", T(2, 3, 8), T(4, 3, 3), None, [1], [1], [1], False, [0], 1)
    case("convolution", T(2, 4, 8, 8), T(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4)
    case("convolution", T(2, 3, 4, 4), T(3, 5, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1)
    case("convolution", T(1, 3, 4, 4, 4), T(2, 3, 1, 1, 1), None, [1], [0], [1], False, [0], 1)
    last, last_weight = channels_last(2, 3, 8, 8), channels_last(4, 3, 3, 3)
    for layout, weight in [(x, w), (last, w), (last, last_weight)]:
        grad = T(2, 4, 6, 6) if layout is x else channels_last(2, 4, 6, 6)
        for mask in [[True, True, True], [False, True, False]]:
            case("convolution_backward", grad, layout, weight, [4], *plain, mask)
    narrow = ([0], [1], [0], [1], False, [0], 1, [True, True, False])
    case("convolution_backward", T(2, 4, 6), T(2, 3, 8), T(4, 3, 3), *narrow)
    for layout in [x, channels_last(2, 3, 8, 8), T(3, 8, 8)]:
        case("max_pool2d_with_indices", layout, [3, 3], [2, 2], [1, 1])
        case("max_pool2d_with_indices", layout, [3, 3], [2, 2], [1, 1], [1, 1], True)
        case("avg_pool2d", layout, [2, 2])
        case("_adaptive_avg_pool2d", layout, [3, 3])
        case("adaptive_max_pool2d", layout, [3, 3])
    for layout in [x, channels_last(2, 3, 8, 8)]:
        case("upsample_nearest2d", layout, [16, 16])
        case("upsample_bilinear2d", layout, [16, 16], False)
        case("upsample_nearest2d_backward", layout, [8, 8], [2, 3, 4, 4])
    indices = T(2, 3, 4, 4, dtype=I64)
    case("max_pool2d_with_indices_backward", T(2, 3, 4, 4), x, [3, 3], [2, 2], [1, 1], [1, 1], False, indices)
    case("avg_pool2d_backward", T(2, 3, 4, 4), x, [2, 2], [2, 2], [0, 0], False, True, None)
    case("_adaptive_avg_pool2d_backward", T(2, 3, 4, 4), x)
    h = T(2, 5, 6)
    for dtype in [F32, BF16]:
        weight = T(6, dtype=dtype)
        case("native_layer_norm", T(2, 5, 6, dtype=dtype), [6], weight, weight, 1e-5)
    case("native_layer_norm", T(2, 5, 6, dtype=BF16), [6], T(6), T(6), 1e-5)
    case("native_layer_norm", h, [5, 6], None, None, 1e-5)
    case("native_layer_norm", permuted((5, 2, 6), (1, 0, 2)), [6], T(6), T(6), 1e-5)
    s = T(2, 5, 1)
    case("native_layer_norm_backward", h, h, [6], s, s, T(6), T(6), [True, True, True])
    case("native_layer_norm_backward", h, h, [6], s, s, None, None, [True, False, False])
    c = T(3)
    for layout in [x, channels_last(2, 3, 8, 8), T(4, 3)]:
        case("native_batch_norm", layout, c, c, c, c, True, 0.1, 1e-5)
        case("native_batch_norm", layout, c, c, c, c, False, 0.1, 1e-5)
        case("_native_batch_norm_legit", layout, c, c, c, c, True, 0.1, 1e-5)
        case("native_batch_norm_backward", layout, layout, c, c, c, c, c, True, 1e-5, [True, True, True])
    case("native_batch_norm", x, None, None, c, c, True, 0.1, 1e-5)
    case("native_batch_norm", x, c, c, None, None, True, 0.1, 1e-5)
    case("native_group_norm", T(2, 4, 3, 3), T(4), T(4), 2, 4, 9, 2, 1e-5)
    g = T(2, 2)
    case("native_group_norm_backward", T(2, 4, 3, 3), T(2, 4, 3, 3), g, g, T(4), 2, 4, 9, 2, [True, True, True])
    case("_fused_rms_norm", h, [6], T(6), 1e-6)
    case("_fused_rms_norm", h, [6], None, None)
    for dtype in [F32, BF16]:
        for name in ["_softmax", "_log_softmax"]:
            case(name, T(2, 3, dtype=dtype), -1, False)
        case("_softmax_backward_data", T(2, 3, dtype=dtype), T(2, 3, dtype=dtype), 1, dtype)
    case("_log_softmax_backward_data", T(2, 3, strides=(1, 2)), T(2, 3), 1, F32)
    case("_safe_softmax", T(2, 3), -1)
    case("glu", T(2, 4))
    case("glu", T(2, 4, strides=(1, 2)), 0)
    case("glu_backward", T(2, 2), T(2, 4), -1)
    for reduction in [0, 1, 2]:
        case("nll_loss_forward", T(2, 3), T(2, dtype=I64), None, reduction, -100)
        case("nll_loss_forward", T(3), T(dtype=I64), None, reduction, -100)
        case("nll_loss2d_forward", T(2, 3, 2, 2), T(2, 2, 2, dtype=I64), None, reduction, -100)
        case("binary_cross_entropy", T(2, 3), T(2, 3), None, reduction)
        case("binary_cross_entropy_with_logits", T(2, 3), T(2, 3), None, None, reduction)
    case("nll_loss_backward", T(), T(2, 3), T(2, dtype=I64), None, 1, -100, T())
    case("nll_loss2d_backward", T(), T(2, 3, 2, 2), T(2, 2, 2, dtype=I64), None, 1, -100, T())
    case("binary_cross_entropy_backward", T(), T(2, 3), T(2, 3), None, 1)


def add_indexing():
    x = T(2, 3, 4)
    i, j, k = T(5, dtype=I64), T(1, dtype=I64), T(2, 1, dtype=I64)
    for layout in [x, permuted((2, 3, 4), (2, 0, 1)), T(2, 3, 4, strides=(24, 8, 2))]:
        for indices in [[i], [None, i], [None, None, i], [i, j], [None, i, j], [i, None, j], [k, i], [k], [i, i, i]]:
            case("index.Tensor", layout, indices)
    case("_unsafe_index.Tensor", x, [None, i])
    case("embedding", T(7, 4), T(2, 3, dtype=I64))
    case("embedding", T(7, 4), T(dtype=I64))
    case("embedding", T(7, 4), T(2, 3, dtype=I32, strides=(1, 2)))
    case("embedding_dense_backward", T(2, 3, 4), T(2, 3, dtype=I64), 7, -1, False)
    case("index_put", x, [i], T(5, 3, 4))
    case("index_put_", x, [i], T(5, 3, 4))
    case("scatter.src", x, 1, T(2, 3, 4, dtype=I64), x)
    case("scatter_add", T(2, 3, strides=(1, 2)), 1, T(2, 3, dtype=I64), T(2, 3))
    case("scatter_add_", x, 1, T(2, 3, 4, dtype=I64), x)
    case("scatter_reduce.two", x, 1, T(2, 3, 4, dtype=I64), x, "sum")
    case("index_add", x, 1, T(3, dtype=I64), x)
    case("index_copy", x, 1, T(3, dtype=I64), x)
    case("index_fill.int_Scalar", T(2, 3, strides=(1, 2)), 1, T(2, dtype=I64), 0.0)
    case("index_add_", x, 1, T(3, dtype=I64), x)
    case("index_select", x, 2, T(dtype=I64))
    case("take", T(2, 3), T(4, dtype=I64))
    case("select_backward", T(2, 4), [2, 3, 4], 1, 0)
    case("slice_backward", T(2, 2, 4), [2, 3, 4], 1, 0, 2, 1)
    case("bucketize.Tensor", T(2, 3), T(4))
    case("searchsorted.Tensor", T(4), T(2, 3), out_int32=True)


def add_foreach():
    a, b = [T(2, 3), T(4, strides=(2,)), T()], [T(2, 3, strides=(1, 2)), T(4), T()]
    for name in ["add", "sub", "mul", "div", "maximum", "minimum", "pow"]:
        case(f"_foreach_{name}.List", a, b)
        case(f"_foreach_{name}.Scalar", a, 2.0)
    for name in ["add", "mul", "div"]:
        case(f"_foreach_{name}.Tensor", a, T())
        case(f"_foreach_{name}.ScalarList", a, [1.0, 2.0, 3.0])
    for name in ["neg", "sqrt", "reciprocal", "rsqrt", "abs", "sign", "exp", "log", "sigmoid"]:
        case(f"_foreach_{name}", a)
    case("_foreach_sqrt", [T(2, dtype=I64)])
    case("_foreach_add.Scalar", [T(2, dtype=I64), T(2, dtype=F16)], 0.5)
    case("_foreach_lerp.Scalar", a, b, 0.5)
    case("_foreach_lerp.List", a, b, b)
    for name in ["addcmul", "addcdiv"]:
        case(f"_foreach_{name}.Scalar", a, b, b, 0.5)
        case(f"_foreach_{name}.ScalarList", a, b, b, [0.5, 1.0, 2.0])
    case("_foreach_norm.Scalar", a)
    case("_foreach_add_.Scalar", a, 2.0)
    case("_foreach_mul_.Scalar", a, 2.0)
    case("_foreach_addcdiv_.Scalar", a, a, a, 0.5)


def make_cases():
    CASES.clear()
    for add in [add_pointwise, add_views, add_copies, add_reductions, add_factories, add_matmuls, add_networks,
                add_indexing, add_foreach]:  # fmt: skip
        add()
    return CASES


# --- text ---


def name_dtype(dtype):
    return str(dtype).removeprefix("torch.")


def contiguous_strides(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def print_type(sizes, strides, dtype, offset=0, storage=None, conj=False, neg=False):
    text = f"{name_dtype(dtype)}[{', '.join(map(str, sizes))}"
    if tuple(strides) != contiguous_strides(sizes):
        text += f"; {', '.join(map(str, strides))}"
    text += "]"
    if offset:
        text += f" @{offset}"
    if storage is not None:
        text += f" storage {storage}"
    return text + " conj" * conj + " neg" * neg


def print_number(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    return str(value)


class Writer:
    def __init__(self):
        self.inputs, self.lines, self.next = {}, [], 0

    def input_of(self, spec):
        return self.inputs.setdefault(spec.key(), len(self.inputs))

    def print_arg(self, value, made, is_mut=False):
        if isinstance(value, T):
            made.append((value, value.make(), self.input_of(value)))
            return "mut " * is_mut + f"%{made[-1][2]}"
        if isinstance(value, list | tuple):
            return "mut " * is_mut + "[" + ", ".join(self.print_arg(v, made) for v in value) + "]"
        if value is None:
            return "none"
        if isinstance(value, torch.dtype):
            return name_dtype(value)
        if isinstance(value, torch.memory_format | torch.layout):
            return str(value).removeprefix("torch.")
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, str):
            return f'"{value}"'
        return print_number(value)


def bind(schema, args, kwargs):
    """All arguments of the schema in its order, defaults filled in."""
    bound = list(args)
    for argument in schema.arguments[len(args) :]:
        if argument.name in kwargs:
            bound.append(kwargs[argument.name])
        else:
            bound.append(argument.default_value)
    return bound


def fix_types(schema, bound):
    fixed = []
    for argument, value in zip(schema.arguments, bound, strict=True):
        if argument.name == "generator":
            value = None
        if argument.name == "dtype" and isinstance(value, int):
            value = I64  # the only default there is, as torch's number
        fixed.append(value)
    return fixed


def make_real(value, made):
    if isinstance(value, T):
        return next(made)[1]
    if isinstance(value, list | tuple):
        return [make_real(v, made) for v in value]
    return value


def write_case(writer, name, args, kwargs, ids):
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    schema = op._schema
    bound = fix_types(schema, bind(schema, args, kwargs))
    made = []
    texts = []
    for argument, value in zip(schema.arguments, bound, strict=True):
        is_mut = argument.alias_info is not None and argument.alias_info.is_write
        hidden = base in ("native_batch_norm",) and argument.name.startswith("running_") and value is not None
        hidden = hidden and bound[5]
        texts.append(writer.print_arg(value, made, is_mut or hidden))
    before = iter(made)
    real = [make_real(v, before) for v in bound]
    positional = [v for a, v in zip(schema.arguments, real, strict=True) if not a.kwarg_only]
    keywords = {a.name: v for a, v in zip(schema.arguments, real, strict=True) if a.kwarg_only}
    keywords.pop("generator", None)
    result = op(*positional, **keywords)
    returns = [] if result is None else list(result) if isinstance(result, tuple) else [result]
    names, types = [], []

    def add(value):
        if value is None:
            return "_", "_"
        for spec, tensor, number in made:
            if tensor is value and (tuple(value.shape), value.stride()) == (tuple(spec.sizes), tuple(spec.strides)):
                return f"%{number}", "_"
        storage = None
        for _, tensor, number in made:
            if value.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
                storage = number
        ids[0] += 1
        flags = (value.is_conj(), value.is_neg())
        text = print_type(value.shape, value.stride(), value.dtype, value.storage_offset(), storage, *flags)
        return f"%{ids[0]}", text

    for value in returns:
        if isinstance(value, list):
            pairs = [add(v) for v in value]
            names.append("[" + ", ".join(p[0] for p in pairs) + "]")
            types.append("[" + ", ".join(p[1] for p in pairs) + "]")
        else:
            pair = add(value)
            names.append(pair[0])
            types.append(pair[1])
    line = ", ".join(names) + " = " * bool(names) + f"aten::{name}({', '.join(texts)})"
    if any(t.strip("[]_, ") for t in types):
        line += " : " + ", ".join(types)
    writer.lines.append(line)


def make_text():
    torch.manual_seed(0)
    writer, failures, ids = Writer(), [], [999]
    with torch.no_grad():
        for name, args, kwargs in make_cases():
            try:
                write_case(writer, name, args, kwargs, ids)
            except Exception as error:  # the case is wrong: named, and the script fails
                failures.append(f"{name}{[a.key() if isinstance(a, T) else a for a in args]}: {str(error)[:200]}")
    inputs = [
        f"%{number} = input : {print_type(sizes, strides, dtype, offset, number)}"
        for (sizes, dtype, strides, offset), number in writer.inputs.items()
    ]
    lines = ["// Written by tests/graph/rule_cases.py with eager PyTorch on the CPU.", "graph {"]
    lines += ["  " + line for line in inputs + list(dict.fromkeys(writer.lines))]
    return "\n".join(lines) + "\n}\n", failures


def main():
    path = HERE / "rule_expectations.txt"
    text, failures = make_text()
    for failure in failures:
        print(failure)
    if "--check" in sys.argv:
        same = path.read_text() == text
        print("rule expectations: up to date" if same else "rule expectations: differ; run tests/graph/rule_cases.py")
        return not same or bool(failures)
    path.write_text(text)
    print(f"rule expectations: {len(text.splitlines())} lines, {len(failures)} failed cases")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
