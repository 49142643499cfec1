"""Plans of one-op and few-op graphs, run by the kernel interpreter, against eager PyTorch.

    python tests/schedule/compare_with_torch.py RUN_PLAN [part of a name ...]

Each row of CASES is an op with its arguments; tensors come in several dtypes, layouts (contiguous, transposed, strided,
broadcast) and lengths. The result has to have eager's bits ("exact": what eager itself computes the same way on
contiguous data), or to be within a few rounding errors of it ("close": functions from another library, sums).
Arguments that eager refuses for their data have to make the program raise an error of the same class.
With REPRISE_NATIVE set to the path of libtorch_cpu.so, kernels run as machine code with eager's own functions.
Prints one line for each op that is not lowered and for each that differs; the exit code is 1 if one differs.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

NAMES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
ALL = FLOATS + INTS + [torch.bool]
SIGNED = FLOATS + INTS[:-1]
SEED = 20261129


class Wrapped:
    """A Python number in the place of a tensor."""

    def __init__(self, number):
        self.number = number


class Like:
    """A dtype argument: the dtype of the first tensor, or this one."""

    def __init__(self, dtype):
        self.dtype = dtype


def make(shape, dtype, generator, low=-4.0, high=4.0, special=True):
    count = 1
    for size in shape:
        count *= size
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        least = 0 if dtype == torch.uint8 else -9
        values = torch.randint(max(least, int(low) if low >= 0 else least), 10, shape, generator=generator)
        return values.to(dtype)
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    flat = values.reshape(-1)
    if special and count > 8:
        flat[0], flat[1], flat[2], flat[3], flat[4] = float("nan"), float("inf"), -float("inf"), 0.0, -0.0
        flat[5], flat[6] = 0.5, 2.5
    return values.to(dtype)


def name_of(dtype):
    return NAMES[dtype]


def meta_text(tensor, storage=None):
    sizes = ", ".join(str(size) for size in tensor.shape)
    strides = ", ".join(str(stride) for stride in tensor.stride())
    text = f"{name_of(tensor.dtype)}[{sizes}; {strides}]" if tensor.dim() else f"{name_of(tensor.dtype)}[]"
    if tensor.storage_offset():
        text += f" @{tensor.storage_offset()}"
    return text


def number_text(number):
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, float):
        if number != number:
            return "nan"
        if number in (float("inf"), -float("inf")):
            return "inf" if number > 0 else "-inf"
        text = repr(number)
        return text
    return str(number)


class Graph:
    """The text of a graph and the inputs it is run on."""

    def __init__(self):
        self.lines = []
        self.inputs = []
        self.count = 0

    def add_input(self, tensor):
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = input : {meta_text(tensor)}")
        self.inputs.append(tensor)
        return name

    def arg_text(self, arg):
        if isinstance(arg, torch.Tensor):
            return self.add_input(arg)
        if isinstance(arg, Wrapped):
            return "wrapped " + number_text(arg.number)
        if arg is None:
            return "none"
        if isinstance(arg, str):
            return f'"{arg}"'
        if isinstance(arg, torch.dtype):
            return name_of(arg)
        if isinstance(arg, (list, tuple)):
            return "[" + ", ".join(self.arg_text(element) for element in arg) + "]"
        return number_text(arg)


def storage_bytes(tensor):
    """The bytes from the start of the storage to the tensor's last element."""
    count = tensor.storage_offset() + 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        count += (size - 1) * stride
    flat = torch.as_strided(tensor, (count,), (1,), 0).clone()
    return flat.view(torch.uint8).numpy().tobytes() if flat.dtype != torch.bool else flat.numpy().tobytes()


def result_bytes(tensor):
    flat = tensor.contiguous().reshape(-1)
    if flat.dtype == torch.bool:
        return flat.numpy().tobytes()
    return flat.view(torch.uint8).numpy().tobytes()


def from_bytes(data, like):
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    flat = flat.bool() if like.dtype == torch.bool else flat.view(like.dtype)
    return flat.reshape(like.shape)


# --- cases ------------------------------------------------------------------------------------------------------------

U = "unary"
SHAPES = [(37,), (3, 5, 8)]


def layouts(shape, dtype, generator, **options):
    """The same kind of tensor in several layouts."""
    yield make(shape, dtype, generator, **options)
    if len(shape) > 1:
        yield make(tuple(reversed(shape)), dtype, generator, **options).permute(*reversed(range(len(shape))))
    wide = make(shape[:-1] + (shape[-1] * 2 + 1,), dtype, generator, **options)
    yield wide[..., 1::2]


def unary(name, dtypes=FLOATS, args=(), exact=True, **options):
    return ("unary", name, dtypes, args, exact, options)


def binary(name, dtypes=ALL, args=(), exact=True, number=None, **options):
    return ("binary", name, dtypes, args, exact, dict(options, number=number))


POSITIVE = {"low": 0.01, "high": 5.0}
CASES = [
    unary("neg", SIGNED),
    unary("abs", SIGNED),
    unary("sign", ALL),
    unary("square", SIGNED),
    unary("floor", SIGNED),
    unary("ceil", SIGNED),
    unary("round", SIGNED),
    unary("trunc", SIGNED),
    unary("frac"),
    unary("bitwise_not", INTS),
    unary("logical_not", ALL),
    unary("isnan", ALL),
    unary("isinf", ALL),
    unary("signbit", SIGNED),
    unary("isposinf", ALL),
    unary("isneginf", ALL),
    unary("isfinite", ALL),
    unary("nan_to_num", FLOATS, (None, None, None)),
    unary("nan_to_num", FLOATS, (1.5, 2.0, -2.0)),
    unary("exp", ALL, exact=False),
    unary("exp2", ALL, exact=False),
    unary("expm1", ALL, exact=False),
    unary("log", ALL, exact=False),
    unary("log2", ALL, exact=False),
    unary("log10", ALL, exact=False),
    unary("log1p", ALL, exact=False),
    unary("sqrt", ALL, exact=False),
    unary("rsqrt", FLOATS[:2] + INTS),
    unary("rsqrt", FLOATS[2:], exact=False),
    unary("reciprocal", ALL),
    unary("sin", ALL, exact=False),
    unary("cos", ALL, exact=False),
    unary("tan", ALL, exact=False),
    unary("asin", ALL, exact=False),
    unary("acos", ALL, exact=False),
    unary("atan", ALL, exact=False),
    unary("sinh", ALL, exact=False),
    unary("cosh", ALL, exact=False),
    unary("tanh", ALL, exact=False),
    unary("asinh", ALL, exact=False),
    unary("acosh", ALL, exact=False),
    unary("atanh", ALL, exact=False),
    unary("erf", ALL, exact=False),
    unary("erfc", ALL, exact=False),
    unary("lgamma", ALL, exact=False),
    unary("deg2rad"),
    unary("rad2deg"),
    unary("relu", SIGNED),
    unary("sigmoid", ALL, exact=False),
    unary("silu", exact=False),
    unary("gelu", args=("none",), exact=False),
    unary("gelu", args=("tanh",), exact=False),
    unary("hardtanh", args=(-1.0, 1.5)),
    unary("leaky_relu", args=(0.01,)),
    unary("threshold", args=(0.5, 0.25)),
    unary("elu", args=(1.2, 1.1, 0.9), exact=False),
    unary("hardswish"),
    unary("hardsigmoid"),
    unary("softplus", args=(1.5, 3.0), exact=False),
    unary("mish", exact=False),
    unary("clamp", SIGNED, (-2, 3)),
    unary("clamp", FLOATS, (None, 0.3)),
    unary("clamp_min", SIGNED, (1,)),
    unary("clamp_max", SIGNED, (1,)),
    unary("clone", ALL, ({"memory_format": None},)),
    unary("pow.Tensor_Scalar", FLOATS, (2,)),
    unary("pow.Tensor_Scalar", FLOATS, (3.0,)),
    unary("pow.Tensor_Scalar", FLOATS, (0.5,), exact=False),
    unary("pow.Tensor_Scalar", FLOATS, (-0.5,), exact=False),
    unary("pow.Tensor_Scalar", FLOATS, (-1.0,)),
    unary("pow.Tensor_Scalar", FLOATS, (-2.0,)),
    unary("pow.Tensor_Scalar", FLOATS, (0.0,)),
    unary("pow.Tensor_Scalar", FLOATS, (1.0,)),
    unary("pow.Tensor_Scalar", FLOATS, (2.7,), exact=False),
    unary("pow.Tensor_Scalar", INTS, (3,)),
    unary("tril", ALL, (0,), shapes=[(5, 7), (3, 4, 4)]),
    unary("triu", ALL, (-1,), shapes=[(5, 7)]),
    unary("flip", ALL, ([0],)),
    unary("flip", ALL, ([0, -1],), shapes=[(3, 5, 8)]),
    binary("add.Tensor", ALL, (1,)),
    binary("add.Tensor", SIGNED, (2,)),
    binary("add.Tensor", FLOATS, (0.3,)),
    binary("sub.Tensor", SIGNED, (1,)),
    binary("sub.Tensor", FLOATS, (0.3,)),
    binary("rsub.Tensor", SIGNED, (1,)),
    binary("mul.Tensor"),
    binary("div.Tensor"),
    binary("maximum"),
    binary("minimum"),
    binary("fmax", exact=False),
    binary("fmin", exact=False),
    binary("add.Tensor", ALL, (1,), number=2),
    binary("add.Tensor", FLOATS + INTS, (1,), number=0.1),
    binary("mul.Tensor", ALL, number=0.1),
    binary("div.Tensor", ALL, number=3),
    binary("div.Tensor", ALL, number=0.7),
    binary("sub.Tensor", SIGNED, (1,), number=0.1),
    binary("rsub.Scalar", SIGNED, (1,), scalar=0.1),
    binary("mul.Scalar", SIGNED, scalar=0.1),
    binary("mul.Tensor", INTS, number=3),
    binary("floor_divide", INTS, number=3),
    binary("floor_divide", INTS[:-1], number=-3),
    binary("remainder.Scalar", INTS, scalar=3),
    binary("remainder.Scalar", INTS[:-1], scalar=-4),
    binary("fmod.Scalar", INTS, scalar=3),
    binary("div.Tensor_mode", INTS, ({"rounding_mode": "floor"},), number=3),
    binary("div.Tensor_mode", INTS, ({"rounding_mode": "trunc"},), number=3),
    binary("div.Tensor_mode", FLOATS, ({"rounding_mode": "trunc"},)),
    binary("copysign.Tensor", FLOATS),
    binary("pow.Tensor_Tensor", FLOATS, exact=False),
    binary("xlogy.Tensor", FLOATS, exact=False),
    binary("bitwise_and.Tensor", INTS + [torch.bool]),
    binary("bitwise_or.Tensor", INTS + [torch.bool]),
    binary("bitwise_xor.Tensor", INTS + [torch.bool]),
    binary("bitwise_and.Scalar", INTS, scalar=6),
    binary("bitwise_left_shift.Tensor", INTS),
    binary("bitwise_right_shift.Tensor", INTS),
    binary("eq.Tensor"),
    binary("ne.Tensor"),
    binary("lt.Tensor"),
    binary("le.Tensor"),
    binary("gt.Tensor"),
    binary("ge.Tensor"),
    binary("eq.Scalar", ALL, scalar=0.1),
    binary("lt.Scalar", ALL, scalar=0.1),
    binary("ge.Scalar", ALL, scalar=2),
    binary("gt.Scalar", ALL, scalar=2.5),
    binary("logical_and"),
    binary("logical_or"),
    binary("logical_xor"),
    binary("sigmoid_backward", FLOATS),
    binary("tanh_backward", FLOATS),
    binary("threshold_backward", FLOATS, (0,)),
    binary("hardtanh_backward", FLOATS, (-1.0, 1.0), special=False),
    binary("leaky_relu_backward", FLOATS, (0.1, False)),
    binary("hardswish_backward", FLOATS),
    binary("hardsigmoid_backward", FLOATS),
    binary("softplus_backward", FLOATS, (1.5, 3.0), exact=False),
    binary("silu_backward", FLOATS, exact=False),
    binary("gelu_backward", FLOATS, ({"approximate": "none"},), exact=False),
    binary("gelu_backward", FLOATS, ({"approximate": "tanh"},), exact=False),
    ("elu_backward", "elu_backward", FLOATS, (), False, {}),
    ("ternary", "addcmul", FLOATS + INTS, ({"value": 1},), True, {}),
    ("ternary", "addcmul", FLOATS, ({"value": 0.3},), True, {}),
    ("ternary", "addcdiv", FLOATS, ({"value": 0.3},), True, {}),
    ("ternary", "addcdiv", FLOATS, ({"value": 1},), True, {}),
    ("ternary", "lerp.Tensor", FLOATS, (), True, {}),
    ("ternary", "clamp.Tensor", FLOATS + INTS, (), True, {}),
    binary("lerp.Scalar", FLOATS, (0.3,)),
    binary("lerp.Scalar", FLOATS, (0.8,)),
    ("where", "where.self", ALL, (), True, {}),
    ("masked_fill", "masked_fill.Scalar", ALL, (), True, {}),
]


def reductions():
    shapes = [(37,), (6, 50), (50, 6), (3, 5, 8), (2, 3, 4, 5)]
    for name in ("sum.dim_IntList", "mean.dim"):
        for keep in (False, True):
            for shape in shapes:
                for dims in ([0], [-1], list(range(len(shape))), [0, -1] if len(shape) > 1 else [0]):
                    yield name, shape, (dims, keep), FLOATS + (INTS + [torch.bool] if name[0] == "s" else [])
    for name in ("amax", "amin"):
        for shape in shapes:
            for dims in ([0], [-1], []):
                yield name, shape, (dims, False), ALL
    for name in ("argmax", "argmin"):
        for shape in shapes:
            yield name, shape, (None, False), SIGNED
            yield name, shape, (0, False), SIGNED
            yield name, shape, (-1, True), SIGNED
    for name in ("max.dim", "min.dim"):
        for shape in shapes:
            yield name, shape, (0, False), SIGNED
            yield name, shape, (-1, True), SIGNED
    for name in ("any", "all", "max", "min"):
        for shape in shapes:
            yield name, shape, (), ALL
    for name in ("any.dim", "all.dim"):
        for shape in shapes:
            yield name, shape, (0, False), ALL
    for name in ("sum", "prod"):
        for shape in shapes:
            yield name, shape, (), FLOATS + INTS + [torch.bool]
    for shape in shapes:
        yield "prod.dim_int", shape, (-1, False), FLOATS + INTS
        for correction in (0, 1):
            for dims in ([0], [-1], None):
                yield "var.correction", shape, (dims, {"correction": correction, "keepdim": True}), FLOATS
                yield "std.correction", shape, (dims, {"correction": correction}), FLOATS
                yield "var_mean.correction", shape, (dims, {"correction": correction, "keepdim": True}), FLOATS
        for power in (1, 2, float("inf"), 0):
            yield "linalg_vector_norm", shape, (power, [-1], False), FLOATS
            yield "linalg_vector_norm", shape, (power, None, False), FLOATS
        yield "logsumexp", shape, ([-1], False), FLOATS
        yield "logsumexp", shape, ([0], True), FLOATS
        for dim in (0, -1):
            yield "_softmax", shape, (dim, False), FLOATS
            yield "_log_softmax", shape, (dim, False), FLOATS
        yield "cumsum", shape, (-1,), FLOATS + INTS
        yield "cumsum", shape, (0,), FLOATS + INTS


def make_others(generator):
    """(name, args, dtype) of norms, losses, indirect reads, copies and factories."""

    def new(shape, dtype, **options):
        return make(shape, dtype, generator, special=False, **options)

    for dtype in FLOATS:
        for shape, count in (((6, 40), 1), ((3, 5, 8), 2), ((4, 3, 16), 1)):
            x = new(shape, dtype)
            normal = list(shape[-count:])
            w, b = new(normal, dtype), new(normal, dtype)
            yield "native_layer_norm", (x, normal, w, b, 1e-5)
            yield "native_layer_norm", (x, normal, None, None, 1e-5)
            out, mean, rstd = torch.native_layer_norm(x, normal, w, b, 1e-5)
            yield "native_layer_norm_backward", (new(shape, dtype), x, normal, mean, rstd, w, b, [True, True, True])
            yield "_fused_rms_norm", (x, normal, w, 1e-5)
            yield "_fused_rms_norm", (x, normal, None, None)
        x = new((2, 6, 5, 4), dtype)
        w, b = new((6,), dtype), new((6,), dtype)
        yield "native_group_norm", (x, w, b, 2, 6, 20, 3, 1e-5)
        mean, var = new((6,), dtype), new((6,), dtype).abs() + 0.1
        if dtype in (torch.float32, torch.float64):
            yield "_native_batch_norm_legit_functional", (x, w, b, mean, var, True, 0.1, 1e-5)
            yield "_native_batch_norm_legit.no_stats", (x, w, b, True, 0.1, 1e-5)
            out, save_mean, save_inverse = torch.ops.aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)
            yield (
                "native_batch_norm_backward",
                (new((2, 6, 5, 4), dtype), x, w, mean, var, save_mean, save_inverse, True, 1e-5, [True, True, True]),
            )
        for dim in (0, 1):
            y = torch.softmax(new((7, 9), dtype), dim)
            yield "_softmax_backward_data", (new((7, 9), dtype), y, dim, dtype)
            yield "_log_softmax_backward_data", (new((7, 9), dtype), y.log(), dim, dtype)
        for reduction in (0, 1, 2):
            yield "mse_loss", (new((5, 7), dtype), new((5, 7), dtype), reduction)
            grad = new((5, 7), dtype) if reduction == 0 else new((), dtype)
            yield "mse_loss_backward", (grad, new((5, 7), dtype), new((5, 7), dtype), reduction)
        for reduction in (0, 1, 2):
            grad = new((5, 7), dtype) if reduction == 0 else new((), dtype)
            a, b = new((5, 7), dtype), new((5, 7), dtype)
            yield "smooth_l1_loss", (a, b, reduction, 0.7)
            yield "smooth_l1_loss_backward", (grad, a, b, reduction, 0.7)
            yield "huber_loss", (a, b, reduction, 0.7)
            yield "huber_loss_backward", (grad, a, b, reduction, 0.7)
            p, q = new((5, 7), dtype, low=0.1, high=0.9), new((5, 7), dtype, low=0.0, high=1.0)
            for weight in (None, q):
                yield "binary_cross_entropy", (p, q, weight, reduction)
                yield "binary_cross_entropy_backward", (grad, p, q, weight, reduction)
            yield "binary_cross_entropy_with_logits", (a, q, None, None, reduction)
        yield "log_sigmoid_forward", (new((5, 8), dtype),)
        x = new((5, 8), dtype)
        yield "log_sigmoid_backward", (new((5, 8), dtype), x, torch.ops.aten.log_sigmoid_forward(x)[1])
        yield "glu", (new((3, 8, 5), dtype), 1)
        yield "glu_backward", (new((3, 4, 5), dtype), new((3, 8, 5), dtype), 1)
        yield "repeat", (new((3, 4), dtype), [2, 1, 3])
        yield "roll", (new((3, 7), dtype), [2], [1])
        yield "roll", (new((3, 7), dtype), [-1, 2], [1, 0])
        target = torch.randint(0, 9, (8,), generator=generator)
        target[3] = -100
        for reduction in (1, 2):
            for weight in (None, new((9,), dtype, low=0.1)):
                yield "nll_loss_forward", (new((8, 9), dtype), target, weight, reduction, -100)
                yield (
                    "nll_loss_backward",
                    (
                        new((), dtype),
                        new((8, 9), dtype),
                        target,
                        weight,
                        reduction,
                        -100,
                        torch.tensor(7.0, dtype=dtype),
                    ),
                )
        plane = new((2, 3, 9, 8), dtype).round()  # with equal elements in many windows
        plane[0, 0, 2:4, 3:5], plane[0, 1, 1, 1:3], plane[0, 2] = -0.0, float("nan"), -float("inf")
        plane[0, 0, 3, 3] = plane[1, 2, 8, 7] = 0.0
        for x in (plane, plane.to(memory_format=torch.channels_last), plane[1], plane[..., 1::2]):
            yield "max_pool2d_with_indices", (x, [3, 3], [2, 2], [1, 1], [1, 1], False)
            yield "max_pool2d_with_indices", (x, [2, 3], [], [0, 1], [1], True)
            yield "avg_pool2d", (x, [3, 3], [2, 1], [1, 1], False, True, None)
            yield "avg_pool2d", (x, [2], [2], [0], False, False, None)
            yield "avg_pool2d", (x, [2, 3], [], [1, 0], True, False, 5)
        yield "constant_pad_nd", (new((3, 4), dtype), [1, 2, 0, -1], 0.5)
        yield "slice_scatter", (new((3, 6), dtype), new((3, 2), dtype), 1, 2, 4, 1)
        yield "slice_scatter", (new((7, 6), dtype), new((3, 6), dtype), 0, 1, 1 << 62, 2)
        yield "slice_scatter", (new((3, 70), dtype), new((3, 21), dtype), 1, 3, -5, 3)
        yield "select_scatter", (new((3, 6), dtype), new((6,), dtype), 0, -1)
        yield "cat", ([new((3, 4), dtype), new((3, 2), dtype), new((3, 5), dtype)], 1)
        yield "cat", ([new((3, 4), dtype), new((1, 4), dtype)], 0)
        yield "_to_copy", (new((3, 6), dtype), {"dtype": torch.float64})
        yield "_to_copy", (new((3, 6), dtype), {"dtype": torch.int32})
        yield "_to_copy", (new((3, 6), torch.int64), {"dtype": dtype})
        yield "full", ([3, 4], 1.5, {"dtype": dtype})
        yield "copy", (new((3, 4), dtype), new((4,), torch.float32), False)
    for dtype in INTS:
        yield "_to_copy", (new((3, 6), torch.float32), {"dtype": dtype})
        yield "_to_copy", (new((3, 6), torch.int64), {"dtype": dtype})
        yield "arange.start_step", (3, 20, 4, {"dtype": dtype})
    for dtype in FLOATS[:2]:
        xs, ys, zs = ([new((3, 5), dtype, low=0.1), new((7,), dtype, low=0.1)] for _ in range(3))
        yield "_foreach_add.Scalar", (xs, 0.3)
        yield "_foreach_add.List", (xs, ys, {"alpha": 0.3})
        yield "_foreach_mul.ScalarList", (xs, [0.3, 0.7])
        yield "_foreach_sqrt", (xs,)
        yield "_foreach_addcmul.Scalar", (xs, ys, zs, 0.1)
        yield "_foreach_addcdiv.ScalarList", (xs, ys, zs, [0.1, 0.2])
        yield "_foreach_lerp.Scalar", (xs, ys, 0.1)
        yield "_foreach_maximum.Scalar", (xs, 1.5)
        yield "_foreach_pow.Scalar", (xs, 2.0)
    yield "arange", (7, {"dtype": torch.float32})
    yield "eye", (4, {"dtype": torch.float32})


def make_indirect(generator):
    """(name, args, other args that eager refuses) of indirect reads."""
    for dtype in ALL:

        def new(shape, dtype=dtype):
            return make(shape, dtype, generator, special=False)

        def spoil(places, at, index):
            spoilt = places.clone()
            spoilt.view(-1)[at] = index
            return spoilt

        places = torch.randint(0, 11, (4, 3), generator=generator)
        column, wide, few = torch.randint(0, 11, (5, 1), generator=generator), new((3, 11, 40)), places[0]
        for bad in (11, -1, 1 << 40):
            if bad != 1 << 40:  # int32 has no such index
                x, spoilt = new((11, 6)), spoil(places, 5, bad).int()
                yield "embedding", (x, places.int(), -1, False, False), (x, spoilt, -1, False, False)
            x, y, z = new((11, 6)), new((5, 11, 3)), new((11, 3))
            yield "embedding", (x, places, -1, False, False), (x, spoil(places, 7, bad), -1, False, False)
            yield "index_select", (y, 1, few), (y, 1, spoil(few, 2, bad))
            yield "index_select", (x, 0, few), (x, 0, spoil(few, 0, bad))
            yield "gather", (z, 0, places, False), (z, 0, spoil(places, 11, bad), False)
            yield "gather", (wide, 1, places[None], False), (wide, 1, spoil(places, 2, bad)[None], False)
        for bad in (11, -12, -(1 << 40)):
            x, y = new((11, 6)), new((11, 3, 11))
            signed = places - 11 * (places % 2)
            yield "index.Tensor", (x, [signed]), (x, [spoil(signed, 4, bad)])
            yield "index.Tensor", (y, [None, None, signed]), (y, [None, None, spoil(signed, 0, bad)])
            yield "index.Tensor", (y, [signed, None, few - 11]), (y, [signed, None, spoil(few, 1, bad)])
            yield "index.Tensor", (wide, [None, column, few + 20]), (wide, [None, spoil(column, 4, bad), few])
            turned = y.transpose(0, 1)
            yield "index.Tensor", (turned, [None, column, few]), (turned, [None, column, few + 40])
    for dtype in FLOATS:
        target = torch.randint(0, 9, (50,), generator=generator)
        target[3] = -100
        for bad in (9, -1):
            spoilt = target.clone()
            spoilt[45] = bad
            for weight in (None, make((9,), dtype, generator, low=0.1, special=False)):
                x = make((50, 9), dtype, generator, special=False)
                for reduction in (1, 2):
                    yield "nll_loss_forward", (x, target, weight, reduction, -100), (x, spoilt, weight, reduction, -100)
                    grad, total = torch.tensor(1.5, dtype=dtype), torch.tensor(7.0, dtype=dtype)
                    good = (grad, x, target, weight, reduction, -100, total)
                    yield "nll_loss_backward", good, (grad, x, spoilt, *good[3:])
                    x = x.t().contiguous().t()
        x, y = (make((5, 7), dtype, generator, low=0.1, high=0.9, special=False) for _ in range(2))
        for bad in (1.1, -0.1, float("nan")):
            spoilt = x.clone()
            spoilt[3, 3] = bad
            for reduction in (0, 1, 2):
                yield "binary_cross_entropy", (x, y, None, reduction), (spoilt, y, None, reduction)
                yield "binary_cross_entropy", (x, y, None, reduction), (x, spoilt, None, reduction)


NUMBERS = (0.1, 3, 2.5, True, -7, 16777217, 1e10, 1 << 40, 16777216.0, 16777217.0, 9007199254740992.0)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "xlogy", "copysign")
LOGIC = ("logical_and", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift")
DIVISIONS = ("remainder", "fmod", "floor_divide")


def make_promotions(generator):
    """(name, args) of two operands of all pairs of dtypes: tensors with and without dims, and Python numbers."""

    def new(shape, dtype):
        x = make(shape, dtype, generator, special=False)
        if shape and shape[0] > 12 and dtype in (torch.int64, torch.int32, torch.float32, torch.float64):
            # What a narrower float rounds, neighbours of such, and what float32 makes of 0.1.
            large = [16777216, 16777217, 16777219, -16777217, 2147483647, -2147483648, 2**40 + 1, 2**53 + 1, 2**62 + 3]
            if dtype == torch.int32:
                large = large[:6]
            x.view(-1)[: len(large)] = torch.tensor(large, dtype=torch.int64).to(dtype)
        if not shape and dtype in (torch.int64, torch.float64, torch.float32):
            x = torch.tensor([16777217, 3, 2**53 + 1][torch.randint(0, 3, (), generator=generator)]).to(dtype)
        if shape and shape[0] > 12 and dtype.is_floating_point:
            x.view(-1)[10:13] = torch.tensor([0.1, 2.5, 3.0], dtype=torch.float64).to(dtype)
        return x

    for name in COMPARISONS + ARITHMETIC + LOGIC + DIVISIONS:
        tensor = f"{name}.Tensor" if hasattr(getattr(torch.ops.aten, name), "Tensor") else name
        tensor = "pow.Tensor_Tensor" if name == "pow" else tensor
        scalar = "pow.Tensor_Scalar" if name == "pow" else f"{name}.Scalar"
        has_scalar = name == "pow" or hasattr(getattr(torch.ops.aten, name), "Scalar")
        extra = (1,) if name in ("add", "sub", "rsub") else ()
        for a in ALL:
            x = new((37,), a)
            for b in ALL:
                if name not in DIVISIONS:
                    yield tensor, (x, new((37,), b), *extra)
                    yield tensor, (x, new((), b), *extra)
                    yield tensor, (new((), a), new((37,), b), *extra)
                    yield tensor, (new((), a), new((), b), *extra)
                    yield tensor, (x, new((1,), b), *extra)
                    yield tensor, (new((1,), a), new((37,), b), *extra)
            for number in NUMBERS:
                for y in (x, new((), a)):
                    if has_scalar:
                        yield scalar, (y, number, *extra)
                    if name not in ("rsub", "xlogy", "copysign", "fmax", "fmin", "maximum", "minimum", "pow"):
                        yield tensor, (y, Wrapped(number), *extra)
                        if name in ("add", "sub", "mul", "div"):
                            yield tensor, (Wrapped(number), y, *extra)
    for a in ALL:
        for b in ALL:
            x, y, mask = new((37,), a), new((37,), b), make((37,), torch.bool, generator)
            yield "where.self", (mask, x, y)
            yield "where.self", (mask, x, new((), b))
            yield "where.self", (mask, new((), a), y)
            yield "addcmul", (x, y, new((37,), b), {"value": 1})
            yield "addcmul", (x, new((), b), y, {"value": 1})
            yield "addcdiv", (x, y, new((37,), b), {"value": 1})
            yield "lerp.Tensor", (x, y, new((), b))
        for number in NUMBERS:
            yield "clamp", (new((37,), a), number, None)
            yield "clamp", (new((37,), a), None, number)
            yield "masked_fill.Scalar", (new((37,), a), make((37,), torch.bool, generator), number)
            yield "add.Tensor", (new((37,), a), new((37,), torch.int64), number)


def find_overload(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


class Runner:
    def __init__(self, run_plan):
        self.run_plan = run_plan
        self.batch = []

    def add_refused(self, name, args, label, good_args):
        """Args that eager refuses: the program has to raise an error of the same class."""
        try:
            find_overload(name)(*args)
        except (RuntimeError, IndexError) as error:
            refusal = type(error).__name__
            # Some of eager's ways through index_select raise a RuntimeError.
            refusal = "IndexError" if name == "index_select" else refusal
            count = len(self.batch)
            self.add(name, good_args, None, label, args)
            for i in range(count, len(self.batch)):
                self.batch[i] = (*self.batch[i][:4], refusal)
        else:
            raise AssertionError(f"eager takes {label}")

    def add(self, name, args, exact, label, run_args=None):
        """Args in the order of the schema; dicts are keyword arguments. With `run_args` the program gets these."""
        overload = find_overload(name)
        positional = [a for a in args if not isinstance(a, dict)]
        keywords = {}
        for a in args:
            if isinstance(a, dict):
                keywords.update(a)

        def plain(a):
            if isinstance(a, Wrapped):
                return a.number
            return a

        call_args = []
        for a, argument in zip(positional, overload._schema.arguments):
            if isinstance(a, Wrapped):
                # A wrapped number is a tensor without dimensions that counts as a number in promotion.
                call_args.append(a.number)
            else:
                call_args.append(a)
        try:
            if any(isinstance(a, Wrapped) for a in positional):
                function = getattr(torch, overload._schema.name.split("::")[1])
                extra = self.extra(overload, positional, keywords)
                expected = function(*[plain(a) for a in positional[:2]], **extra)
            else:
                expected = overload(*call_args, **keywords)
        except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
            if "--why" in sys.argv:
                print("eager refuses", label, str(error)[:100])
            return
        graph = Graph()
        texts = []
        positional = positional if run_args is None else run_args
        for i, argument in enumerate(overload._schema.arguments):
            if i < len(positional):
                texts.append(graph.arg_text(positional[i]))
            elif argument.name in keywords:
                texts.append(graph.arg_text(keywords[argument.name]))
            else:
                texts.append(graph.arg_text(argument.default_value if argument.has_default_value() else None))
        outs = expected if isinstance(expected, (tuple, list)) else (expected,)
        names = []
        types = []
        for out in outs:
            names.append(f"%{graph.count}")
            graph.count += 1
            types.append(meta_text(out))
        graph.lines.append(f"  {', '.join(names)} = aten::{name}({', '.join(texts)}) : {', '.join(types)}")
        graph.lines.append(f"  return {', '.join(names)}")
        referees = None
        if exact is not True:
            wide = [a.double() if isinstance(a, torch.Tensor) and a.dtype.is_floating_point else a for a in call_args]
            try:
                referees = overload(*wide, **keywords)
                referees = referees if isinstance(referees, (tuple, list)) else (referees,)
            except (RuntimeError, TypeError):
                referees = None
        self.batch.append((graph, outs, exact, label, referees))

    def extra(self, overload, positional, keywords):
        result = dict(keywords)
        for a, argument in list(zip(positional, overload._schema.arguments))[2:]:
            result[argument.name] = a
        return result

    def run(self):
        with tempfile.TemporaryDirectory(dir=Path(__file__).parent.parent.parent / "build") as folder:
            folder = Path(folder)
            with open(folder / "graphs", "w") as graphs, open(folder / "inputs", "wb") as inputs:
                for graph, *_ in self.batch:
                    graphs.write("graph functional {\n" + "\n".join(graph.lines) + "\n}\n---\n")
                    for tensor in graph.inputs:
                        inputs.write(storage_bytes(tensor))
            subprocess.run([self.run_plan, folder / "graphs", folder / "inputs", folder / "outputs"], check=True)
            data = (folder / "outputs").read_bytes()
        place = 0
        failed = {}
        unlowered = {}
        passed = 0
        for graph, outs, exact, label, referees in self.batch:
            ok = data[place]
            place += 1
            if not ok:
                (length,) = struct.unpack_from("<I", data, place)
                text = data[place + 4 : place + 4 + length].decode()
                place += 4 + length
                if isinstance(referees, str) and text.startswith(referees + ": "):
                    passed += 1
                    continue
                target = unlowered if text.startswith("a library call") else failed
                target.setdefault(label[0], []).append((label, text))
                continue
            problem = None
            if isinstance(referees, str):
                place += sum(len(result_bytes(out)) for out in outs)
                failed.setdefault(label[0], []).append((label, f"eager raises {referees}"))
                continue
            for k, out in enumerate(outs):
                size = len(result_bytes(out))
                found = from_bytes(data[place : place + size], out)
                place += size
                problem = problem or self.compare(found, out, exact, referees[k] if referees else None)
            if problem:
                failed.setdefault(label[0], []).append((label, problem))
            else:
                passed += 1
        for name, entries in sorted(unlowered.items()):
            print(f"not lowered: {name}: {len(entries)} cases, such as {entries[0][0][1:]}")
        for name, entries in sorted(failed.items()):
            print(f"FAILED {name}: {len(entries)} cases, such as")
            for label, problem in entries[:4]:
                print("   ", label[1:], problem)
        print(
            f"{passed} cases agree, {sum(map(len, failed.values()))} differ, "
            f"{sum(map(len, unlowered.values()))} are not lowered"
        )
        return 1 if failed else 0

    @staticmethod
    def compare(found, expected, exact, referee):
        if not expected.dtype.is_floating_point:
            wrong = found != expected
            if wrong.any():
                at = wrong.flatten().nonzero()[0].item()
                return f"element {at}: {found.flatten()[at].item()}, eager {expected.flatten()[at].item()}"
            return None
        a, b = found.double(), expected.double()
        both_nan = a.isnan() & b.isnan()
        same = both_nan | ((a == b) & (a.signbit() == b.signbit()))
        if exact:
            wrong = ~same
        else:
            # As near to the float64 result as eager, but for a few roundings; or near to eager itself.
            near = torch.zeros_like(same)
            if referee is not None and referee.dtype == torch.float64:
                step = torch.finfo(expected.dtype).eps
                size = referee[referee.isfinite()].abs().mean() if referee.isfinite().any() else 1.0
                near = (a - referee).abs() <= 1.1 * (b - referee).abs() + step * (2 * referee.abs() + 16 * size + 200)
            scale = torch.finfo(expected.dtype).eps * (8 if expected.dtype in (torch.float32, torch.float64) else 2)
            floor = 0.1 if exact is None else 0.01
            wrong = ~(near | both_nan | (a == b) | ((a - b).abs() <= scale * (b.abs() + floor)))
        if wrong.any():
            at = wrong.flatten().nonzero()[0].item()
            return (
                f"{int(wrong.sum())} of {wrong.numel()}, element {at}: {a.flatten()[at].item()!r}, "
                f"eager {b.flatten()[at].item()!r}"
            )
        return None


def add_cases(runner, parts):
    generator = torch.Generator().manual_seed(SEED)
    for kind, name, dtypes, args, exact, options in CASES:
        if parts and not any(part in name for part in parts):
            continue
        shapes = options.get("shapes", SHAPES)
        for dtype in dtypes:
            for shape in shapes:
                special = options.get("special", True)
                for i, x in enumerate(layouts(shape, dtype, generator, special=special)):
                    # With --exact, all of float32 on contiguous data has to have eager's bits: what is listed has not.
                    is_exact = exact or ("--exact" in sys.argv and i == 0 and dtype == torch.float32)
                    label = (name, kind, str(dtype), shape, i, args, options)
                    if kind == "unary":
                        runner.add(name, (x, *args), is_exact, label)
                    elif kind == "binary":
                        if options.get("number") is not None:
                            other = Wrapped(options["number"])
                        elif "scalar" in options:
                            other = options["scalar"]
                        else:
                            which = (0, 2, 1)[i] if len(shape) > 1 else i
                            other = list(layouts(shape, dtype, generator, special=special))[which]
                        if name.startswith("bitwise_") and "shift" in name:
                            other = other.abs()
                        runner.add(name, (x, other, *args), is_exact, label)
                        if isinstance(other, torch.Tensor) and i == 0 and len(shape) > 1 and "backward" not in name:
                            runner.add(name, (x, other[0], *args), is_exact, label + ("broadcast",))
                            for mixed in (torch.float32, torch.int64, torch.bfloat16):
                                runner.add(name, (x, other.to(mixed), *args), is_exact, label + ("mixed", str(mixed)))
                    elif kind == "ternary":
                        others = list(layouts(shape, dtype, generator))
                        runner.add(name, (x, others[0], others[-1], *args), is_exact, label)
                    elif kind == "where":
                        runner.add(
                            name,
                            (make(shape, torch.bool, generator), x, make(shape, dtype, generator)),
                            is_exact,
                            label,
                        )
                    elif kind == "masked_fill":
                        runner.add(name, (x, make(shape, torch.bool, generator), 1), is_exact, label)
                    elif kind == "elu_backward":
                        for is_result in (False, True):
                            runner.add(name, (x, 1.2, 1.1, 0.9, is_result, make(shape, dtype, generator)), exact, label)
    for name, shape, args, dtypes in reductions():
        if parts and not any(part in name for part in parts):
            continue
        for dtype in dtypes:
            for i, x in enumerate(layouts(shape, dtype, generator, special=False)):
                runner.add(name, (x, *args), None, (name, "reduction", str(dtype), shape, i, args))

    for name, args in make_others(generator):
        if parts and not any(part in name for part in parts):
            continue
        exact = True if name in ("_to_copy", "cat", "repeat", "roll", "full", "copy") else None
        shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args]
        runner.add(name, args, exact, (name, str(args[0].dtype) if isinstance(args[0], torch.Tensor) else "", shapes))

    if not parts or "promotions" in parts:
        for default in (torch.float32, torch.float64):
            torch.set_default_dtype(default)
            for name, args in make_promotions(generator):
                kinds = [(NAMES[a.dtype], *a.shape) if isinstance(a, torch.Tensor) else a for a in args]
                kinds = [a.number if isinstance(a, Wrapped) else a for a in kinds]
                exact = name not in ("xlogy.Tensor", "pow.Tensor_Tensor", "pow.Tensor_Scalar")
                runner.add(name, args, exact, (f"promotion {name}", kinds, default))
        torch.set_default_dtype(torch.float32)
    for name, args, refused in make_indirect(generator):
        if parts and not any(part in name for part in parts):
            continue
        shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args if not isinstance(a, list)]
        label = (name, str(args[0].dtype), shapes)
        runner.add(name, args, True if "loss" not in name and "cross" not in name else None, label)
        runner.add_refused(name, refused, (*label, "refused"), args)


def run(run_plan, parts):
    """0 if every case of the ops with one of `parts` in their names agrees (all ops for no parts), else 1."""
    torch.manual_seed(SEED)
    uses_mkldnn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # oneDNN's gelu is not eager's own
    try:
        runner = Runner(run_plan)
        add_cases(runner, parts)
        print(f"seed {SEED}, {len(runner.batch)} cases")
        return runner.run()
    finally:
        torch._C._set_mkldnn_enabled(uses_mkldnn)


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    return run(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
