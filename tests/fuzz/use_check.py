"""Runs a program of use_programs.py in eager and compiled: all that is logged must be the same.

Where eager says that a saved tensor was written to and compiled code does not, the rest is not compared: a region may
have saved other tensors. The other way is a difference.
"""

import contextlib
import warnings

import torch
from use_programs import HEADER, source_of

CALLS = 4
#: What eager says where compiled code may go on.
LENIENT = ("modified by an inplace", "a second time", "is a view and", "Freed buffers")


def make_arguments(kinds, call):
    torch.manual_seed(100 + call)
    leaves, arguments = [], []
    for kind in kinds:
        leaf = torch.randn(3, 3, dtype=torch.float64, requires_grad=kind != "plain")
        leaves.append(leaf)
        arguments.append(leaf * 1 if kind == "made" else (leaf * 1).t() if kind == "view" else leaf)
    return leaves, arguments


def use(program, space, f, call):
    """A list of (what, value); ends with what a program cannot go on behind."""
    log = []
    leaves, a = make_arguments(program["inputs"], call)
    torch.manual_seed(call)

    def write(tensor):
        with torch.no_grad():
            tensor.mul_(1.5)

    def leaves_of(tensor):
        return [
            leaf for leaf, argument in zip(leaves, a, strict=True) if argument is tensor and leaf.requires_grad
        ] or [leaf for leaf in leaves if leaf.requires_grad]

    def clear(_):
        for leaf in leaves:
            leaf.grad = None

    def grads():
        return [leaf.grad for leaf in leaves] + [p.grad for p in space["LINEAR"].parameters()]

    def again():
        r[:] = f(*a)

    def drop(tensor):
        r[:] = [None if t is tensor else t for t in r]

    clear(None)
    for parameter in space["LINEAR"].parameters():
        parameter.grad = None
    names = dict(
        torch=torch, a=a, LOG=log, write=write, leaves=leaves_of, clear=clear, grads=grads, again=again, drop=drop
    )
    try:
        r = names["r"] = list(f(*a))
    except Exception as e:
        return [("call", e)]
    log.extend(("result", t.detach().clone()) for t in r)
    for text in program["uses"]:
        try:
            log.append((text, freeze(eval(text, names))))
        except Exception as e:
            log.append((text, e))
            if any(text in str(e) for text in LENIENT):
                log.append(("stop", None))
                return log
    log.append(("end", freeze(grads() + [t for t in r if t is not None])))
    return log


def freeze(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [freeze(v) for v in value]
    return value


def find_difference_of(got, want):
    if isinstance(want, tuple) and len(want) == 2 and isinstance(want[0], str):
        if not isinstance(got, tuple) or got[0] != want[0]:
            return f"{got} for {want}"
        found = find_difference_of(got[1], want[1])
        return f"{want[0]}: {found}" if found else None
    if isinstance(want, Exception) or isinstance(got, Exception):
        return None if type(got) is type(want) else f"{got!r} for {want!r}"
    if isinstance(want, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
            return f"{got} for {want}"
        return None if torch.allclose(got, want, rtol=1e-6, atol=1e-9, equal_nan=True) else f"{got} for {want}"
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"{got} for {want}"
        return next((found for g, w in zip(got, want, strict=True) if (found := find_difference_of(g, w))), None)
    return None if got == want else f"{got} for {want}"


def find_difference(program, backend, options):
    import reprise

    with warnings.catch_warnings(), contextlib.suppress(SyntaxError):
        warnings.simplefilter("ignore")
        spaces = []
        for _ in range(2):
            space = {}
            exec(HEADER + source_of(program), space)
            spaces.append(space)
        compiled = reprise.compile(spaces[1]["f"], backend=backend, options=options)
        for call in range(CALLS):
            want = use(program, spaces[0], spaces[0]["f"], call)
            got = use(program, spaces[1], compiled, call)
            if want and want[-1] == ("stop", None):
                want = want[:-2]
                got = got[: len(want)]
            found = find_difference_of(got, want)
            if found:
                return "value", f"call {call}: {found}"
    return None


def run_eager(program):
    space = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(HEADER + source_of(program), space)
        use(program, space, space["f"], 0)
