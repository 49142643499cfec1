"""Whether two results agree: the rule of PyTorch's own benchmark harness, with a float64 run as the referee.

Tensors are compared one by one: integers and bools exactly; floats by `allclose(atol=rtol=tolerance)`, else the root
mean square distance to the float64 result may be at most `factor` times that of eager, plus a tenth of the tolerance.
NaNs stand in the same places. factor is 2, 3 for small tensors (fewer than 1000 elements) and half types, more for the
smallest.
"""

import collections.abc
import math

import torch

#: mode -> tolerance, as PyTorch's own harness has it for its TIMM and HuggingFace suites; bfloat16 has 8 bits
TOLERANCE = {"inference": 1e-3, "bfloat16": 2e-2, "training": 1e-2, "optimizer": 1e-2}
DEPTH = 12


def leaves(thing, at="result", seen=None, depth=0):
    """(path, tensor or number) of nested containers and objects; functions, modules and the like are passed over."""
    seen = set() if seen is None else seen
    if isinstance(thing, (torch.Tensor, bool, int, float, complex, str)):
        yield at, thing
    elif depth < DEPTH and id(thing) not in seen:
        seen.add(id(thing))
        if isinstance(thing, collections.abc.Mapping):
            items = [(f"{at}[{key!r:.60}]", value) for key, value in thing.items()]
        elif isinstance(thing, (list, tuple)):
            items = [(f"{at}[{i}]", value) for i, value in enumerate(thing)]
        elif isinstance(thing, torch.nn.Module) or callable(thing):
            items = []
        else:
            items = [(f"{at}.{key}", value) for key, value in getattr(thing, "__dict__", {}).items()]
        for path, value in items:
            yield from leaves(value, path, seen, depth + 1)


def snapshot(result, state):
    """A copy of a result and of the state behind it, as dict path -> leaf."""
    found = dict(leaves(result))
    found.update({path: value for name, thing in state.items() for path, value in leaves(thing, name)})
    return {path: copy_of(value) for path, value in found.items()}


def copy_of(value):
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_nested:
        value = value.to_padded_tensor(0.0)
    return (value.to_dense() if value.layout != torch.strided else value).clone()


def rms(difference):
    return difference.abs().square().mean().sqrt().item() if difference.numel() else 0.0


def factor_of(tensor, tolerance):
    count = tensor.numel()
    if count <= 10:
        return 10.0
    if count <= 500:
        return 8.0
    is_half = tensor.dtype in (torch.float16, torch.bfloat16)
    return 3.0 if count < 1000 or is_half or tolerance >= 2e-2 else 2.0


def tensor_problem(got, want, exact, tolerance):
    """None if the tensors agree, else a text. exact: the float64 result, or None."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
    if torch.equal(got, want):
        return None
    if not (want.is_floating_point() or want.is_complex()):
        count = (got != want).sum().item()
        return f"{count} of {want.numel()} values differ"
    wide = torch.complex128 if want.is_complex() else torch.float64
    got, want = got.to(wide), want.to(wide)
    if torch.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    largest = (got - want).abs().max().item()
    if exact is None or exact.shape != want.shape:
        return f"off by up to {largest:.3g}, eager's norm per element {rms(want):.3g}"
    exact = exact.to(wide)
    got_error, want_error = rms(got - exact), rms(want - exact)
    if math.isfinite(got_error) and got_error <= factor_of(want, tolerance) * want_error + tolerance / 10:
        return None
    return f"off by up to {largest:.3g}; rms error against float64 {got_error:.3g}, eager's {want_error:.3g}"


def problem(got, want, exact, tolerance):
    """None if snapshots agree, else the first place that does not. exact: snapshot of the float64 run, or None."""
    if got.keys() != want.keys():
        return f"other results: {sorted(got.keys() ^ want.keys())[:4]}"
    for path, expected in want.items():
        found = got[path]
        if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
            referee = None if exact is None else exact.get(path)
            text = tensor_problem(found, expected, referee if isinstance(referee, torch.Tensor) else None, tolerance)
        elif isinstance(expected, float) and isinstance(found, float):
            is_near = math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
            text = None if is_near or found != found and expected != expected else f"{found} instead of {expected}"
        else:
            is_same = type(found) is type(expected) and found == expected
            text = None if is_same else f"{found!r:.80} instead of {expected!r:.80}"
        if text:
            return f"{path}: {text}"
    return None


def is_bitwise(got, want):
    """Whether two snapshots are equal to the last bit."""
    from bench.compare import equal_bits

    return got.keys() == want.keys() and all(
        equal_bits(found, want[path]) if isinstance(found, torch.Tensor) else found == want[path]
        for path, found in got.items()
    )
