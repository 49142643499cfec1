"""Deep comparison of what two runs of one program left behind: bitwise, or with a tolerance for floats.

`difference(got, want)` walks tensors, containers, dataclasses, model outputs, caches and plain objects side by side and
returns None when everything agrees to the last bit, else a Difference that names the first place and the largest
absolute difference found anywhere. Types must be identical. Two NaNs of the same bits are equal; 0.0 and -0.0 are not.
With a `tolerance` t > 0, float tensors of the norm n may differ by a vector of the norm t * e * (n + sqrt(count));
e is the machine epsilon of their dtype, and floats likewise; NaNs and infinities stand in the same places.
"""

import collections.abc
import dataclasses
import enum
import math
import struct
import types

import torch

#: what `equal_bits` may compare through, by item size in bytes
INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
ATOMS = (bool, int, str, bytes, type(None), range, slice, torch.dtype, torch.device, torch.layout, torch.memory_format)
BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType, enum.Enum)


@dataclasses.dataclass
class Difference:
    """The first place that differs, what is wrong there, and max |got - want| over all tensors of equal shape."""

    at: str
    what: str
    max_abs: float = math.nan

    def __str__(self):
        size = "" if math.isnan(self.max_abs) else f" (max abs difference {self.max_abs:.3g})"
        return f"{self.at}: {self.what}{size}"


def equal_bits(a, b):
    """Same dtype, shape and bit pattern; strides are not compared."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.detach(), b.detach()
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    a, b = a.resolve_neg().contiguous().reshape(-1), b.resolve_neg().contiguous().reshape(-1)
    as_int = INTEGER_OF_SIZE.get(a.element_size())
    if as_int is None or a.is_quantized:
        return torch.equal(a, b)
    return torch.equal(a.view(as_int), b.view(as_int))


def max_abs_difference(a, b):
    """max |a - b| as float; nan if the shapes differ or the type has no difference."""
    if a.shape != b.shape or a.numel() == 0:
        return math.nan
    try:
        wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
        return (a.detach().to(wide) - b.detach().to(wide)).abs().max().item()
    except (RuntimeError, TypeError):
        return math.nan


def are_near(got, want, tolerance):
    """Float tensors of one shape and dtype, within the tolerance of the module's docstring."""
    if not (want.is_floating_point() or want.is_complex()):
        return False
    epsilon = torch.finfo(want.dtype).eps
    wide = torch.complex128 if want.is_complex() else torch.float64
    got, want = got.detach().to(wide), want.detach().to(wide)
    is_finite = torch.isfinite(want)
    if not torch.equal(is_finite, torch.isfinite(got)) or not equal_special(got[~is_finite], want[~is_finite]):
        return False
    got, want = got[is_finite], want[is_finite]
    return (got - want).norm().item() <= tolerance * epsilon * (want.norm().item() + want.numel() ** 0.5)


def equal_special(got, want):
    """NaNs in the same places, infinities of the same sign."""
    is_nan = torch.isnan(want)
    return torch.equal(is_nan, torch.isnan(got)) and torch.equal(got[~is_nan], want[~is_nan])


class Walk:
    """One comparison: remembers what was visited (cycles), and the first difference."""

    def __init__(self, tolerance=0):
        self.tolerance = tolerance
        self.first = None
        self.max_abs = math.nan
        self.visited = set()

    def report(self, at, what):
        if self.first is None:
            self.first = Difference(at, what)

    def visit(self, got, want, at):
        if type(got) is not type(want):
            return self.report(at, f"{type(got).__qualname__} instead of {type(want).__qualname__}")
        if got is want or isinstance(want, BY_IDENTITY):
            # Functions and classes of two twins are equal in name only.
            if got is not want and getattr(got, "__qualname__", got) != getattr(want, "__qualname__", want):
                self.report(at, f"{got!r} instead of {want!r}")
            return None
        if isinstance(want, torch.Tensor):
            return self.visit_tensor(got, want, at)
        if isinstance(want, float):
            near = self.tolerance and are_near(torch.tensor([got]), torch.tensor([want]), self.tolerance)
            if struct.pack("d", got) != struct.pack("d", want) and not near:
                self.report(at, f"{got!r} instead of {want!r}")
            return None
        if isinstance(want, ATOMS) or isinstance(want, complex):
            if got != want:
                self.report(at, f"{got!r:.120} instead of {want!r:.120}")
            return None
        if (id(got), id(want)) in self.visited:
            return None
        self.visited.add((id(got), id(want)))
        return self.visit_object(got, want, at)

    def visit_tensor(self, got, want, at):
        for fact in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf"):
            g, w = getattr(got, fact), getattr(want, fact)
            if g != w:
                self.report(at, f"{fact} {g} instead of {w}")
        if want.device.type == "meta" or got.dtype != want.dtype or got.shape != want.shape:
            return
        if want.layout != torch.strided:
            got, want = got.detach().to_dense(), want.detach().to_dense()
        elif got.stride() != want.stride():
            self.report(at, f"strides {got.stride()} instead of {want.stride()}")
        if not equal_bits(got, want) and not (self.tolerance and are_near(got, want, self.tolerance)):
            size = max_abs_difference(got, want)
            self.max_abs = max(size, self.max_abs) if not math.isnan(self.max_abs) else size
            self.report(at, "values differ")
        if want.is_leaf and want.requires_grad:
            self.visit(got.grad, want.grad, f"{at}.grad")
        self.visit(getattr(got, "__dict__", None), getattr(want, "__dict__", None), f"{at}.__dict__")

    def visit_object(self, got, want, at):
        if isinstance(want, collections.abc.Mapping):
            if len(got) != len(want):
                self.report(at, f"keys {list(got)!r:.120} instead of {list(want)!r:.120}")
            for (gk, gv), (wk, wv) in zip(got.items(), want.items()):
                self.visit(gk, wk, f"{at} key")
                self.visit(gv, wv, f"{at}[{wk!r:.40}]")
        elif isinstance(want, (list, tuple, collections.deque)):
            if len(got) != len(want):
                self.report(at, f"{len(got)} items instead of {len(want)}")
            for i, (g, w) in enumerate(zip(got, want)):
                self.visit(g, w, f"{at}[{i}]")
        elif isinstance(want, (set, frozenset)):
            if len(got) != len(want) or (all(isinstance(x, ATOMS) for x in want) and got != want):
                self.report(at, f"{got!r:.120} instead of {want!r:.120}")
        elif isinstance(want, BaseException):
            self.visit(got.args, want.args, f"{at}.args")
        for name, value in fields(want).items():
            if name not in fields(got):
                self.report(f"{at}.{name}", "missing")
            else:
                self.visit(fields(got)[name], value, f"{at}.{name}")
        for name in fields(got):
            if name not in fields(want):
                self.report(f"{at}.{name}", "unexpected attribute")


def fields(thing):
    """Instance attributes: `__dict__` and slots."""
    found = dict(getattr(thing, "__dict__", {}))
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


def difference(got, want, at="result", tolerance=0):
    """None if the two agree, bitwise for a tolerance of 0, else the Difference."""
    walk = Walk(tolerance)
    walk.visit(got, want, at)
    if walk.first is not None:
        walk.first.max_abs = walk.max_abs
    return walk.first
