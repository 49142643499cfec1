"""One case of the sweep: every sample eager and compiled, compared after each call."""

import collections
import copy
import re
import time
import warnings

import reprise
import torch
from torch.utils import _pytree as pytree

from tests.ops import compare
from tests.ops.cases import Call, find_callable, list_samples, ops
from tests.ops.known import UNINITIALISED

SEED = 7
RAISES = "eager raises"
EMPTY = {"compiled": 0, "own": 0, "refused": 0, "bit_equal": 0, "reasons": ()}


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and_": "&"}
_SIGNS |= {"or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "matmul": "@"}
_SIGNS |= {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def make_program(op, variant, result_count=None):
    """The function that is compiled, `f(input, args, kwargs)`. With a `result_count`, the call gives a tuple or list of
    so many tensors, and the function takes it apart: a region gives tensors only. Each call makes a new function."""
    target = find_callable(op, variant)
    name = getattr(target, "__name__", "")
    body = "result = target(input, *args, **kwargs)"
    if variant == "operator" and name in _SIGNS:
        body = f"result = input {_SIGNS[name]} args[0]"
    if variant == "operator" and name in ("neg", "inv", "invert"):
        body = f"result = {'-' if name == 'neg' else '~'}input"
    if variant == "inplace_operator" and name.removeprefix("i") in _SIGNS:
        body = f"result = input\n    result {_SIGNS[name.removeprefix('i')]}= args[0]"
    if result_count is not None:
        names = ", ".join(f"x{i}" for i in range(result_count))
        body += f"\n    {names}, = result\n    result = ({names},)"
    scope = {"target": target}
    exec(f"def program(input, args, kwargs):\n    {body}\n    return result", scope)
    return scope["program"]


def count_results(program, call):
    """How many tensors a tuple or list of them has that eager gives; None for other results."""
    value = run(program, copy_call(call), False).value
    is_sequence = isinstance(value, (tuple, list)) and all(isinstance(x, torch.Tensor) for x in value)
    return len(value) if is_sequence and 0 < len(value) <= 16 else None


# --- copies of what is passed -----------------------------------------------------------------------------------------


def copy_call(call, convert=None):
    """A call with tensors of their own, which share memory and have strides as the original's. `convert` (dtype to
    dtype) changes types of tensors."""
    storages, copies = {}, {}

    def change(x):
        return x.to(convert[x.dtype]) if convert and x.dtype in convert else x

    def copy_plain(x):  # no view, as what a program makes itself
        if x.layout != torch.strided:
            return change(x.clone())
        if x.is_conj():
            return copy_plain(x.conj()).conj()
        if x.is_neg():
            return copy_plain(x._neg_view())._neg_view()
        storage = x.untyped_storage()
        key = storage._cdata, x.dtype
        if key not in storages:
            count = storage.nbytes() // x.element_size()
            storages[key] = change(torch.empty(0, dtype=x.dtype).set_(storage, 0, (count,), (1,)).clone())
        flat = storages[key]
        return torch.empty(0, dtype=flat.dtype).set_(flat.untyped_storage(), x.storage_offset(), x.shape, x.stride())

    def copy_tensor(x):
        if id(x) not in copies:
            copies[id(x)] = copy_plain(x.detach()).requires_grad_(x.requires_grad)
        return copies[id(x)]

    def copy_leaf(x):
        if isinstance(x, torch.Tensor):
            return copy_tensor(x)
        if convert and isinstance(x, torch.dtype):
            return convert.get(x, x)
        return copy.deepcopy(x) if isinstance(x, torch.Generator) else x

    return Call(*pytree.tree_map(copy_leaf, (call.input, call.args, call.kwargs)))


# --- running ----------------------------------------------------------------------------------------------------------

Outcome = collections.namedtuple("Outcome", "error value gradients passed random_state")


def run(program, call, with_gradients):
    """Call `program`; the exception, or the result and the gradients; what was passed, as it is afterwards."""
    torch.manual_seed(SEED)
    value = gradients = error = None
    try:
        value = program(call.input, call.args, call.kwargs)
        if with_gradients:
            gradients = differentiate(value, call)
    except Exception as exception:  # noqa: BLE001
        error = exception.with_traceback(None)
    return Outcome(error, value, gradients, call.flatten()[0], torch.get_rng_state())


def seeded_state():
    torch.manual_seed(SEED)
    return torch.get_rng_state()


def differentiate(value, call):
    roots = [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor) and x.requires_grad]
    leaves = [x for x in call.flatten()[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    if not roots or not leaves:
        return []
    generator = torch.Generator().manual_seed(SEED)
    tangents = []
    for root in roots:
        tangent = torch.randn(root.shape, generator=generator, dtype=torch.float64)
        if root.is_complex():
            tangent = torch.complex(tangent, torch.randn(root.shape, generator=generator, dtype=torch.float64))
        tangents.append(tangent.to(root.dtype))
    return list(torch.autograd.grad(roots, leaves, tangents, allow_unused=True))


# --- comparing --------------------------------------------------------------------------------------------------------


def describe_sharing(tensors, passed):
    """For each tensor: which of the passed ones it is, whose memory it is in, and where."""

    def storage(x):
        return x.untyped_storage()._cdata if x.layout == torch.strided else None

    passed = [x for x in passed if isinstance(x, torch.Tensor)]
    rows = []
    for i, x in enumerate(tensors):
        same = next((k for k, y in enumerate(passed) if y is x), None)
        shared = next((k for k, y in enumerate(passed) if storage(y) is not None and storage(y) == storage(x)), None)
        offset = x.storage_offset() if shared is not None else None
        earlier = next((k for k in range(i) if tensors[k] is x), None)
        beside = next((k for k in range(i) if storage(x) is not None and storage(tensors[k]) == storage(x)), None)
        rows.append((same, shared, offset, earlier, beside))
    return rows


def describe_meta(x):
    strides = x.stride() if x.layout == torch.strided else None
    return {
        "dtype": x.dtype,
        "shape": tuple(x.shape),
        "stride": strides,
        "requires_grad": x.requires_grad,
        "layout": x.layout,
        "conj or neg bit": (x.is_conj(), x.is_neg()),
        "type": type(x),
    }


def compare_outcomes(ours, eager, reference, values_matter):
    """(status, text) of what differs, or None. `reference()` gives the Outcome of a wider eager run, or None."""
    if eager.error is not None or ours.error is not None:
        if type(ours.error) is type(eager.error):
            return None
        return "raised", f"{_show_error(ours.error)} for {_show_error(eager.error)}"
    ours_leaves, ours_spec = pytree.tree_flatten((ours.value, ours.gradients))
    eager_leaves, eager_spec = pytree.tree_flatten((eager.value, eager.gradients))
    if ours_spec != eager_spec:
        return "structure", f"{ours_spec} for {eager_spec}"[:300]
    for i, (a, b) in enumerate(zip(ours_leaves, eager_leaves)):
        if type(a) is not type(b):
            return "structure", f"{type(a).__name__} for {type(b).__name__} at {i}"
        if isinstance(a, torch.Tensor):
            one, other = describe_meta(a), describe_meta(b)
            for key, found in one.items():
                if found != other[key]:
                    return key.split()[0], f"{key} {found} for {other[key]} at {i}"
        elif not (a == b or a != a):
            return "value", f"{a!r} for {b!r} at {i}"
    a = describe_sharing([x for x in ours_leaves if isinstance(x, torch.Tensor)], ours.passed)
    b = describe_sharing([x for x in eager_leaves if isinstance(x, torch.Tensor)], eager.passed)
    if a != b:
        return "alias", f"(same, storage, offset, ...) {a} for {b}"
    if not torch.equal(ours.random_state, eager.random_state):
        return "random", "the random state afterwards"

    is_random = not torch.equal(eager.random_state, seeded_state())

    def wide(of):
        def find(i):
            outcome = None if is_random else reference()
            leaves = of(outcome) if outcome is not None and outcome.error is None else None
            found = leaves[i] if leaves is not None and i < len(leaves) else None
            return found if isinstance(found, torch.Tensor) else None

        return find

    # Gradients in which all terms cancel out, such as those of norms, are only as exact as the terms.
    floats = [x.detach() for x in eager.passed if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
    term = max((float(x.abs().max()) for x in floats if x.layout == torch.strided), default=0.0)
    gradient_count = len(eager.gradients or ())
    parts = [("result", ours_leaves, eager_leaves, wide(lambda o: pytree.tree_leaves((o.value, o.gradients))))]
    parts.append(("argument", ours.passed, eager.passed, wide(lambda o: o.passed)))
    for what, ours_parts, eager_parts, find in parts if values_matter else ():
        for i, (x, y) in enumerate(zip(ours_parts, eager_parts)):
            if not isinstance(x, torch.Tensor):
                continue
            if what == "argument" and describe_meta(x) != describe_meta(y):
                return "argument", f"{describe_meta(x)} for {describe_meta(y)} at {i}"
            scale = term if what == "result" and i >= len(eager_parts) - gradient_count else 0.0
            found = compare.describe_difference(x, y, lambda i=i, find=find: find(i), scale)
            if found is not None:
                return "value", f"{what} {i}: {found}"
    return None


def is_bit_equal(ours, eager):
    if eager.error is not None:
        return True
    leaves = zip(
        pytree.tree_leaves((ours.value, ours.gradients, ours.passed)),
        pytree.tree_leaves((eager.value, eager.gradients, eager.passed)),
    )
    return all(compare.is_equal(a, b) for a, b in leaves if isinstance(a, torch.Tensor))


def _show_error(error):
    return "no exception" if error is None else f"{type(error).__name__}: {str(error)[:150]}"


# --- what became of the region ----------------------------------------------------------------------------------------


_REFUSAL = re.compile(
    r"was dissolved: (.*)|planned again without \d+ of them: (.*)"
    r"|(a kernel could not be compiled: .*)|calls: (?!a graph|made by|native)(.*)"
)


def find_fallback(compiled):
    """None if the calls of torch ran in compiled regions, else why not; and how many kernels of our own there are."""
    report = reprise.explain(compiled).report
    regions = [text for entry in report.entries for text in entry["regions"]]
    kernels = sum(int(found.group(1)) for text in regions if (found := re.search(r"in (\d+) kernels", text)))
    refusals = [_REFUSAL.search(text) for text in regions]
    refusals = [next(filter(None, found.groups())) for found in refusals if found]
    if regions and not refusals:
        return None, kernels
    reasons = [f"exit: {exit_['reason']}" for exit_ in report.exits if exit_["kind"] != "error"]
    reasons += [f"not recorded: {place['last_failure']}" for place in report.places if place["last_failure"]]
    return normalise([*refusals, *reasons, "no region"][0]), kernels


def normalise(reason):
    reason = re.sub(r"0x[0-9a-f]+", "?", reason.split("\n")[0])
    return re.sub(r"\d+", "N", reason)[:160]


# --- a case -----------------------------------------------------------------------------------------------------------


def check_case(case, backend, sample_count, wait=0.0):
    """A row: name, status (ok, or what differs first), text; numbers of samples, of those that were compiled, that
    eager refuses, that ran kernels of our own, that are bit-equal; reasons of fallbacks."""
    warnings.simplefilter("ignore")
    op = ops()[case.op]
    row = {"case": case.name, "status": "ok", "text": "", "samples": 0, **EMPTY}
    row["reasons"] = []
    try:
        pairs = list_samples(case, sample_count)
    except Exception as error:  # noqa: BLE001
        return {**row, "status": "no samples", "text": _show_error(error)}
    for number, pair in enumerate(pairs):
        problem, (reason, kernels), is_equal = check_sample(op, case, pair, backend, wait)
        row["samples"] += 1
        row["bit_equal"] += is_equal
        row["own"] += kernels > 0
        if reason is None:
            row["compiled"] += 1
        elif reason == RAISES:
            row["refused"] += 1
        else:
            row["reasons"].append(reason)
        if problem is not None and row["status"] == "ok":
            row["status"], row["text"] = problem[0], f"sample {number}, {problem[1]}"
    return row


def check_sample(op, case, pair, backend, wait=0.0):
    """Three calls, live, replayed, and replayed with other values: a problem, what find_fallback() says, bit-equal.
    With `wait`, two more, so many seconds later: then the second tier of native code runs."""
    result_count = None
    if case.variant not in ("out", "error"):
        result_count = count_results(make_program(op, case.variant), pair[0])
    program = make_program(op, case.variant, result_count)
    with_gradients = case.variant == "grad"
    if case.variant == "out":
        pair = tuple(with_out(program, call) for call in pair)
        if pair[0] is None or pair[1] is None:
            return None, ("out= is not for this sample", 0), True
    # Code that differs is to be seen here, not to be found and left out.
    options = {} if backend == "eager" else {"min_region_nodes": 1, "validate": "off"}
    compiled = reprise.compile(make_program(op, case.variant, result_count), backend=backend, options=options)
    problem, is_equal, has_raised = None, True, False
    calls = (pair[0], pair[0], pair[1], *(pair if wait else ()))
    for number, call in enumerate(calls, 1):
        if number == 4:
            time.sleep(wait)
        eager = run(program, copy_call(call), with_gradients)
        ours = run(compiled, copy_call(call), with_gradients)
        cache = []

        def reference(call=call, cache=cache):
            if not cache:
                cache.append(run(program, copy_call(call, compare.WIDE), with_gradients))
            return cache[0]

        found = compare_outcomes(ours, eager, reference, case.op not in UNINITIALISED)
        if found is not None:
            problem = found[0], f"call {number}: {found[1]}"
            break
        is_equal = is_equal and is_bit_equal(ours, eager)
        has_raised |= eager.error is not None
    return problem, (RAISES, 0) if has_raised else find_fallback(compiled), is_equal


def _is_strided(x):
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def with_out(program, call):
    """The call with out= tensors of the right shapes, filled with something else."""
    outcome = run(program, copy_call(call), False)
    leaves = pytree.tree_leaves(outcome.value)
    if outcome.error is not None or not leaves or not all(_is_strided(x) for x in leaves):
        return None
    made = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).fill_(1) for x in leaves]
    return Call(call.input, call.args, {**call.kwargs, "out": made[0] if len(made) == 1 else tuple(made)})
