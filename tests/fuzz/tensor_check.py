"""Runs one program over tensors in eager and compiled, and says what differs.

`find_difference(program, backend)` gives None, or (kind, text). Whole numbers, sharing, strides and what Python sees
are to be equal; floats as well with backend="eager". Native code may differ by rounding: where floats differ, both
runs are made again in double, and what differs as much there is no rounding.
"""

import contextlib
import io
import warnings

import reprise
import torch
from inputs import make
from reprise import _callables, _native
from tensor_programs import source

TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 2e-4, torch.complex64: 2e-4}
ROUNDING = 1e-7
#: where floats differ by more than this it is no rounding, whatever the run in double says
COARSE = 0.05
DOUBLE = [
    ("dtype=torch.bfloat16)", "dtype=torch.bfloat16, enabled=False)"),
    ("torch.float32", "torch.float64"),
    ("torch.float16", "torch.float64"),
    ("torch.complex64", "torch.complex128"),
    ("= torch.bfloat16", "= torch.float64"),
    (".float()", ".double()"),
    (".half()", ".double()"),
    (".bfloat16()", ".double()"),
]
COUNTED = ["failed_checks"]


def facts_of(t, numbers):
    """What is to be equal of a tensor, without values. `numbers`: storage -> number, in the order of first sight."""
    if t.layout != torch.strided:
        return (str(t.dtype), tuple(t.shape), str(t.layout))
    key = t.untyped_storage()._cdata if t.untyped_storage().nbytes() else -1
    storage = numbers.setdefault(key, len(numbers))
    return {
        "dtype": str(t.dtype),
        "shape": tuple(t.shape),
        "stride": [step for size, step in zip(t.shape, t.stride()) if size > 1] if t.numel() else "none",
        # where a view of what died begins is nobody's business
        "offset": t.storage_offset() if storage in numbers.get("arguments", ()) else "any",
        "storage": storage if t.untyped_storage().nbytes() else "none",
        "requires_grad": "any" if "inference" in numbers else t.requires_grad,
        "is_leaf": "any" if "inference" in numbers else t.is_leaf,
        "conj": t.is_conj(),
        "neg": t.is_neg(),
        "inference": t.is_inference(),
    }


def describe(value, numbers, objects, kept):
    """A tree of facts and tensors (detached copies of values) of what a program gives."""
    if isinstance(value, torch.Tensor):
        kept.append(value)
        if value.layout == torch.strided:
            kept.append(value.untyped_storage())  # x.data = y lets go of it
        try:
            with torch.no_grad():
                copied = value.detach().clone().resolve_conj().resolve_neg()
        except RuntimeError as e:
            return ("tensor", str(e)[:60])
        number = objects.setdefault(id(value), len(objects)) if value.numel() else "any"
        return ("tensor", number, facts_of(value, numbers), copied)
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, [describe(v, numbers, objects, kept) for v in value])
    if isinstance(value, dict):
        return ("dict", [(k, describe(v, numbers, objects, kept)) for k, v in value.items()])
    return ("value", type(value).__name__, value)


def version_of(value):
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def first_line(text):
    return text.split("\n")[0][:200]


def run(program, compiled, wide, backend, options):
    """Outcomes of all calls, and the counters."""
    text = source(program)
    if wide:
        for old, new in DOUBLE:
            text = text.replace(old, new)
    scope = {}
    exec(compile(text, "<fuzz>", "exec"), scope)
    f = scope["f"]
    modules = [scope["LINEAR"], scope["NORM"], scope["DROP"]]
    if wide:
        for m in modules:
            m.double()
    if compiled:
        f = reprise.compile(f, backend=backend, options=options, **program["options"])
    outcomes = []
    kept = []
    resizes = False
    for k, (spec, grad) in enumerate(program["calls"]):
        args = make(spec, wide)
        torch.manual_seed(k)
        scope["SEEN"].clear()
        numbers, objects = {}, {}
        if grad == "inference":
            numbers["inference"] = ()
        describe(args, numbers, objects, kept)
        numbers["arguments"] = [number for number in numbers.values() if isinstance(number, int)]
        versions = [version_of(a) for a in args]
        before = [a.detach().clone() if isinstance(a, torch.Tensor) else None for a in args]
        value, error = None, None
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with torch.inference_mode() if grad == "inference" else torch.set_grad_enabled(grad):
                    value = f(*args)
            except Exception as e:
                lines, tb = [], e.__traceback__
                while tb is not None:
                    if tb.tb_frame.f_code.co_filename == "<fuzz>":
                        lines.append(tb.tb_lineno)
                    tb = tb.tb_next
                error = (type(e).__name__, first_line(str(e)), lines)
                del e
        state = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled())
        resizes |= any("resized since" in str(w.message) for w in caught)
        outcome = {"error": error, "state": state, "random": ("value", "", float(torch.rand(())))}
        outcome["value"] = describe(value, numbers, objects, kept)
        outcome["arguments"] = describe(args, numbers, objects, kept)
        outcome["written"] = [
            grad == "inference"
            or version_of(a) != v
            or not isinstance(a, torch.Tensor)
            or relative_error(a.detach(), b) == 0
            for a, v, b in zip(args, versions, before)
        ]
        outcome["seen"] = describe(scope["SEEN"], numbers, objects, kept)
        outcome["grads"] = describe(
            [a.grad if isinstance(a, torch.Tensor) and a.is_leaf else None for a in args], numbers, objects, kept
        )
        if grad is True:  # backward outside
            try:
                leaves = [v for v in value or () if isinstance(v, torch.Tensor) and v.requires_grad and v.numel()]
                total = sum((v.abs() if v.is_complex() else v).double().mul(i + 1).sum() for i, v in enumerate(leaves))
                if leaves:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        total.backward()
            except Exception as e:
                outcome["backward error"] = (type(e).__name__, first_line(str(e)))
            outcome["grads behind"] = describe(
                [a.grad if isinstance(a, torch.Tensor) and a.is_leaf else None for a in args], {}, {}, kept
            )
            outcome["grads inside"] = describe(
                [
                    v.grad if isinstance(v, torch.Tensor) and (v.is_leaf or v.retains_grad) else None
                    for v in value or ()
                ],
                {},
                {},
                kept,
            )
            outcome["module grads"] = describe([p.grad for m in modules for p in m.parameters()], {}, {}, kept)
        outcome["modules"] = describe([v for m in modules for v in m.state_dict().values()], {}, {}, kept)
        for m in modules:
            m.zero_grad()
        outcomes.append(outcome)
        kept.clear()
    counters = {"resizes": resizes}
    if compiled:
        counters = _native.C.report(_callables.find_compiled(f))["counters"]
        if backend == "native":
            reprise.reset()
    return outcomes, counters


def compare(a, b, at, loose):
    """Yields (what, how much) of differences; how much: None for what is to be equal, else the relative error."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**b, **a}:
            if key not in b:
                yield f"{at}.{key} {a[key]} is new", None
                continue
            if key not in a:
                yield f"{at}.{key} missing", None
                continue
            yield from compare(a[key], b[key], f"{at}.{key}", loose)
        return
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) != len(b):
            yield f"{at}: {a} for {b}"[:300], None
            return
        for i, (x, y) in enumerate(zip(a, b)):
            yield from compare(x, y, f"{at}[{i}]" if not isinstance(x, dict) else at, loose)
        return
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return  # told already
        error = relative_error(a, b)
        if error != 0 and (not loose or error > TOLERANCE.get(b.dtype, 1e-9)):
            yield f"{at}: {a.flatten()[:8].tolist()} for {b.flatten()[:8].tolist()} {b.dtype} error {error:.3g}", error
        return
    if isinstance(a, float) and isinstance(b, float):
        if a != b and not (a != a and b != b):
            error = abs(a - b) / max(abs(b), 1e-3)
            if not loose or not error < 1e-3:
                yield f"{at}: {a} for {b}", error
        return
    if type(a) is not type(b) or a != b:
        yield f"{at}: {a!r} for {b!r}"[:300], None


def relative_error(a, b):
    if a.numel() == 0 or a.shape != b.shape:
        return 0
    if not (b.is_floating_point() or b.is_complex()):
        return 0 if torch.equal(a, b) else 1e9
    wide = torch.complex128 if b.is_complex() else torch.float64
    a, b = a.to(wide).flatten(), b.to(wide).flatten()
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    if bool(same.all()):
        return 0
    finite = torch.isfinite(b)
    if b.is_complex() and bool((torch.isfinite(a) == finite).all()):
        same |= ~finite
    if not bool((torch.isfinite(a) == finite)[~same].all()) or not bool(finite[~same].all()):
        return 1e9
    a, b = a[finite], b[finite]
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3))


def find_difference(program, backend, options=None):
    """None, or (kind, text)."""
    options = dict(options or {})
    want, counters = run(program, False, False, None, None)
    if counters["resizes"]:
        return None  # out= of other sizes: eager warns that it will be refused
    again, _ = run(program, False, False, None, None)
    if list(compare(again, want, "call", False)):
        return None  # eager differs from itself
    if any(o["error"] and o["error"][0] in ("NameError", "UnboundLocalError") for o in want):
        return None  # made smaller by too much
    texts = [str(o["error"]) + str(o.get("backward error")) for o in want]
    if any("inplace operation" in text or "a second time" in text for text in texts):
        return None  # a region has copies where it needs them, and frees as a whole: it does not refuse
    got, counters = run(program, True, False, backend, options)
    loose = backend != "eager"
    found = list(compare(got, want, "call", loose))
    if any(error is None for _, error in found):
        return "facts", "\n".join(text for text, _ in found[:8])
    if found and loose:
        try:
            want, _ = run(program, False, True, None, None)
            got, _ = run(program, True, True, backend, options)
        except Exception as e:
            return "floats", f"(no run in double: {e}) " + "\n".join(text for text, _ in found[:6])
        wide = list(compare(got, want, "call", True))
        if wide:
            return "floats", "\n".join(text for text, _ in found[:6])
        if any(error > COARSE and "float16" not in text for text, error in found):
            return "coarse", "\n".join(text for text, _ in found[:6])
        return None
    if found:
        return "floats", "\n".join(text for text, _ in found[:6])
    for name in COUNTED:
        if counters.get(name):
            return name, f"{name} = {counters[name]}"
    return None
