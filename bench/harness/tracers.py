"""PyTorch's older ways to capture a program, for the capture table: do they take it, and is what they give right?

Each gets the first call's inputs, if it wants any, and is then called with all five; tensors of the results are
compared in order, so a dataclass that became a dict or a tuple is no difference.
"""

import inspect

import torch

from bench.harness.programs import make_program, surroundings
from bench.harness.referee import TOLERANCE, leaves, problem, snapshot
from bench.zoo import rows


def trace(module, args, kwargs):
    how = {"example_kwarg_inputs": kwargs} if kwargs else {"example_inputs": args}
    return torch.jit.trace(module, strict=False, check_trace=False, **how)


def script(module, args, kwargs):
    return torch.jit.script(module)


def symbolic_trace(module, args, kwargs):
    """Parameters that the call leaves at their defaults are no placeholders, as transformers' own tracer had it."""
    signature = inspect.signature(module.forward)
    given = signature.bind_partial(*args, **kwargs).arguments
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.default is not parameter.empty
    }
    try:
        return torch.fx.symbolic_trace(module, concrete_args=defaults or None)
    except Exception:
        return torch.fx.symbolic_trace(module)


TRACERS = {"trace": trace, "script": script, "fx": symbolic_trace}


def tensors(result):
    """The tensors of a result, by their number."""
    found = [value for _, value in leaves(result) if isinstance(value, torch.Tensor)]
    return snapshot(found, {})


def results_of(call, row, calls):
    found = []
    for seed in range(calls):
        args, kwargs = rows.make_inputs(row, seed)
        rows.seed_all(seed)
        found.append(tensors(call(*args, **kwargs)))
    return found


def measure_tracer(name, row, want):
    from bench.harness.worker import text_of

    try:
        module = make_program(row, "inference").module
        args, kwargs = rows.make_inputs(row, 0)
        rows.seed_all(0)
        with surroundings(row, "inference"):
            traced = TRACERS[name](module, args, kwargs)
            got = results_of(traced, row, len(want))
    except Exception as error:
        return {"status": "raises", "error": text_of(error)}
    for number, (found, expected) in enumerate(zip(got, want), 1):
        if text := problem(found, expected, None, TOLERANCE["inference"]):
            return {"status": "wrong", "error": f"call {number}: {text}"}
    return {"status": "pass", "error": None}


def measure(row, calls):
    """The result of one row: a dict for JSON."""
    from bench.harness.worker import text_of

    result = {"row": row.name, "suite": row.suite, "mode": "tracers", "hard": row.hard, "columns": {}}
    try:
        want = results_of(make_program(row, "inference").call, row, calls)
        again = results_of(make_program(row, "inference").call, row, calls)
    except rows.Missing as error:
        return {**result, "status": "missing", "error": str(error)}
    except Exception as error:
        return {**result, "status": "eager-fails", "error": text_of(error)}
    for found, expected in zip(again, want):
        if text := problem(found, expected, None, TOLERANCE["inference"]):
            return {**result, "status": "eager-varies", "error": text}
    for name in TRACERS:
        result["columns"][name] = measure_tracer(name, row, want)
    return {**result, "status": "ok"}
