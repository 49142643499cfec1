"""The cases of the sweep: (op, variant, dtype) triples of PyTorch's own table of operators, and their samples.

A case is named "add/function/float32". Variants: function, method, inplace, operator, inplace_operator, out, grad (the
function and its gradients), error (samples that eager refuses).
"""

import dataclasses
import functools
import zlib

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

FORWARD_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
GRAD_DTYPES = (torch.float32, torch.float64)
VARIANTS = ("function", "method", "inplace", "operator", "inplace_operator", "out", "grad", "error")
MAX_NUMBERS = 200_000  # larger samples say nothing more
MAX_LISTED = 400  # some ops have thousands of samples


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    variant: str
    dtype: str

    @property
    def name(self):
        return f"{self.op}/{self.variant}/{self.dtype}"

    @classmethod
    def from_name(cls, name):
        return cls(*name.rsplit("/", 2))


@dataclasses.dataclass
class Call:
    """One call of a program: what is passed, as a tree of tensors and other objects."""

    input: object
    args: tuple
    kwargs: dict

    def flatten(self):
        return pytree.tree_flatten((self.input, self.args, self.kwargs))


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@functools.cache
def ops():
    return {name_of(op): op for op in op_db}


def find_callable(op, variant):
    """What the variant calls, or None where the op has none."""
    if variant in ("function", "grad", "error"):
        return _unwrap(op.op)
    if variant == "out":
        return _unwrap(op.op) if op.supports_out else None
    attribute = {"method": "method_variant", "inplace": "inplace_variant"}.get(variant, f"{variant}_variant")
    return getattr(op, attribute)


def _unwrap(function):
    """Random operators stand in the table as `lambda *args: wrapper_set_seed(torch.bernoulli, *args)`."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    if names[:2] != ("wrapper_set_seed", "torch"):
        return function
    return functools.reduce(getattr, names[2:], torch)


def list_cases():
    """All cases, in the order of the table."""
    cases = []
    for name, op in ops().items():
        for variant in VARIANTS:
            if find_callable(op, variant) is None:
                continue
            if variant == "grad":
                dtypes = [d for d in GRAD_DTYPES if op.supports_autograd and d in op.supported_backward_dtypes("cpu")]
            elif variant == "error":
                dtypes = [torch.float32] if op.error_inputs_func is not None else []
            else:
                dtypes = [d for d in FORWARD_DTYPES if d in op.supported_dtypes("cpu")]
            cases += [Case(name, variant, str(d).removeprefix("torch.")) for d in dtypes]
    return cases


def pick_slice(cases, part):
    """A part (0 < part <= 1) of the cases, the same ones every time: by a hash of their names."""
    return [case for case in cases if zlib.crc32(case.name.encode()) % 10_000 < part * 10_000]


def _size(call):
    return sum(x.numel() for x in call.flatten()[0] if isinstance(x, torch.Tensor) and x.layout == torch.strided)


def _list_calls(op, case, seed):
    torch.manual_seed(seed)
    dtype = getattr(torch, case.dtype)
    samples = []
    if case.variant == "error":
        for error in op.error_inputs("cpu"):
            samples.append(error.sample_input)
    else:
        in_place = case.variant in ("inplace", "inplace_operator")
        for sample in op.sample_inputs("cpu", dtype, requires_grad=case.variant == "grad"):
            if not (in_place and sample.broadcasts_input):
                samples.append(sample)
            if len(samples) >= MAX_LISTED:
                break
    calls = []
    for sample in samples:
        if hasattr(sample, "input"):
            calls.append(Call(sample.input, tuple(sample.args), dict(sample.kwargs)))
    return calls


def _is_alike(one, other):
    """Whether both calls differ in the values of tensors only."""
    leaves, spec = one.flatten()
    other_leaves, other_spec = other.flatten()
    if spec != other_spec:
        return False
    for a, b in zip(leaves, other_leaves):
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            return False
        if isinstance(a, torch.Tensor):
            if a.layout != b.layout or a.dtype != b.dtype or a.shape != b.shape:
                return False
            if a.layout == torch.strided and a.stride() != b.stride():
                return False
        elif type(a) is not type(b) or not (a is b or a == b or a != a):
            return False
    return True


def _space_out(call):
    """The call with tensors that have gaps between their elements (where that makes a difference)."""

    def space(x):
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.numel() < 2:
            return x
        wide = torch.empty(x.numel() * 2, dtype=x.dtype).fill_(0)[::2].view(x.shape)
        return wide.copy_(x.detach()).requires_grad_(x.requires_grad)

    return Call(*pytree.tree_map(space, (call.input, call.args, call.kwargs)))


def list_samples(case, count):
    """Up to `count` pairs of calls, evenly over the op's samples. The calls of a pair differ in values only, or are the
    same where the op's samples do not come twice alike. Every third has tensors with gaps."""
    op = ops()[case.op]
    calls = _list_calls(op, case, 1)
    others = _list_calls(op, case, 2) if case.variant != "error" else calls
    if len(others) != len(calls):
        others = calls
    places = [i for i, call in enumerate(calls) if _size(call) <= MAX_NUMBERS] or list(range(len(calls)))[:1]
    if len(places) > count:
        places = [places[i * (len(places) - 1) // max(count - 1, 1)] for i in range(count)]
    pairs = []
    for n, i in enumerate(places):
        pair = (calls[i], others[i] if _is_alike(calls[i], others[i]) else calls[i])
        is_out = case.variant in ("error", "out")
        pairs.append(tuple(map(_space_out, pair)) if n % 3 == 2 and not is_out else pair)
    return pairs
