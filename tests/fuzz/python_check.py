"""Runs one program of python_programs.py in eager and compiled, and says what differs: results, what was logged (also
when objects died), printed text, exceptions with what they came from and the lines they went through."""

import contextlib
import gc
import io
import warnings

import reprise
import torch
from python_programs import source
from tensor_check import compare


def describe(value, seen, depth=0):
    if isinstance(value, torch.Tensor):
        number = seen.setdefault(id(value), len(seen))
        return ("tensor", number, tuple(value.shape), str(value.dtype), value.requires_grad, value.detach().clone())
    if isinstance(value, (int, float, str, bytes, type(None))):
        return (type(value).__name__, value)
    if depth > 6:
        return "deep"
    if isinstance(value, tuple):  # equal ones may be one object
        return (type(value).__name__, [describe(v, seen, depth + 1) for v in value])
    is_known = id(value) in seen
    number = seen.setdefault(id(value), len(seen))
    if is_known:
        return ("seen", number)
    if isinstance(value, dict):
        items = [(describe(k, seen, depth + 1), describe(v, seen, depth + 1)) for k, v in value.items()]
        return (type(value).__name__, number, items)
    if isinstance(value, list):
        return (type(value).__name__, number, [describe(v, seen, depth + 1) for v in value])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(map(repr, value)))
    if isinstance(value, type) or callable(value) and hasattr(value, "__qualname__"):
        return ("named", value.__qualname__)
    if hasattr(type(value), "scale"):
        return (type(value).__name__, number, describe(dict(value.__dict__), seen, depth + 1))
    return (type(value).__name__,)


def chain(error):
    facts, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        lines, tb = [], error.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == "<fuzz>":
                lines.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        text = str(error) if "0x" not in str(error) else ""
        facts.append((type(error).__name__, text, lines, error.__suppress_context__))
        error = error.__cause__ or error.__context__
    return facts


def run(program, is_compiled, backend, options):
    scope = {"__name__": "fuzz"}
    exec(compile(source(program), "<fuzz>", "exec"), scope)
    plain = scope["f"]
    if is_compiled:
        options = dict(options or {})
        if program["plain"]:
            options["keep_plain_entries"] = True
        plain = reprise.compile(plain, backend=backend, options=options)
    outcomes = []
    for k, (seed, number, between) in enumerate(program["calls"]):
        torch.manual_seed(k)
        for text in between:
            with contextlib.suppress(Exception):
                exec(text, scope)
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed))
        scope["LOG"].clear()
        value, error, printed = None, None, io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                value = plain(x, number)
            except Exception as e:
                error = chain(e)
                del e
        seen = {}
        outcome = {"error": error, "printed": printed.getvalue(), "value": describe(value, seen)}
        outcome["log"] = describe(list(scope["LOG"]), seen)
        outcome["state"] = describe([scope["STATE"], scope["OBJECT"], scope["LIMIT"], scope["Thing"].made], seen)
        outcome["grad"] = torch.is_grad_enabled()
        outcome["x"] = describe(x, seen)
        scope["LOG"].clear()
        value = None
        outcome["dead"] = list(scope["LOG"])
        gc.collect(0)
        outcomes.append(outcome)
    return outcomes


def find_difference(program, backend, options=None):
    """None, or (kind, text)."""
    want = run(program, False, None, None)
    again = run(program, False, None, None)
    if list(compare(again, want, "call", False)):
        return None
    if any(o["error"] and o["error"][0][0] in ("NameError", "SyntaxError") for o in want):
        return None
    got = run(program, True, backend, options)
    found = list(compare(got, want, "call", backend != "eager"))
    if found:
        return "facts", "\n".join(text for text, _ in found[:6])
    return None
