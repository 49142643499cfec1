"""What a compiler does when one size of the inputs changes from call to call: 16 batch sizes, 64 lengths.

The program settles at the first size; then each size comes once, and then each once more. Counted are recompiles:
recordings of Reprise, graphs that torch.compile gives to its backend (`backend="eager"`: they are those of every
backend). Every result is compared with eager's at that size. Sizes that eager refuses are left out; where it takes
fewer than half, the program is said to be made for its own.
"""

import dataclasses
import time

from bench import stats
from bench.harness.programs import make_program
from bench.harness.referee import TOLERANCE, problem, snapshot
from bench.zoo import rows

WARM_CALLS = 4
#: columns whose compiles can be counted
COUNTED = ("reprise", "torch-eager")
#: question -> for each call, the size as a function of the row's own
CHANGES = {
    "batches": [lambda own, n=n: n for n in range(2, 33, 2)],
    "lengths": [lambda own, n=n: max(8, own // 2) + n for n in range(64)],
}


def rows_of(row, what):
    """The row at each size."""
    return [dataclasses.replace(row, resize=(rows.SIZES[what], change)) for change in CHANGES[what]]


def call_at(program, row, seed):
    """(snapshot, seconds) of one call."""
    args, kwargs = rows.make_inputs(row, seed)
    rows.seed_all(seed)
    start = time.perf_counter()
    result = program.call(*args, **kwargs)
    return snapshot(result, {}), time.perf_counter() - start


def eager_calls(row, what):
    """[(row at a size, snapshot, seconds)] of the sizes that eager takes, and why it refuses the first that it does."""
    program, found, refused = make_program(row, "inference"), [], None
    for seed, at_size in enumerate(rows_of(row, what)):
        try:
            found.append((at_size, seed, *call_at(program, at_size, seed)))
        except Exception as error:
            refused = refused or f"{type(error).__name__}: {str(error)[:200]}"
    return found, refused


class CountReprise:
    def __init__(self, program):
        self.program = program

    def count(self):
        return stats.stats_of(self.program.compiled)["recordings"]


class CountTorch:
    """A backend that counts the graphs that it gets."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph_module, example_inputs, **options):
        self.graphs += 1
        return graph_module.forward

    def count(self):
        return self.graphs


def make_counted(row, column):
    """(program, its counter)."""
    if column == "reprise":
        program = make_program(row, "inference", column)
        return program, CountReprise(program)
    import torch._dynamo

    torch._dynamo.reset()
    counter = CountTorch()
    return make_program(row, "inference", "torch-eager", backend=counter), counter


def measure_column(row, column, calls):
    """Facts of one compiler. calls: see `eager_calls`."""
    facts = {"status": "pass", "error": None}
    program, counter = make_counted(row, column)
    for seed in range(WARM_CALLS):
        call_at(program, calls[0][0], 1000 + seed)
    facts["compiles"] = counter.count()
    for sweep in ("recompiles", "recompiles_again"):
        before, seconds, changed = counter.count(), 0.0, []
        for number, (at_size, seed, want, eager_s) in enumerate(calls):
            seen = counter.count()
            got, ours_s = call_at(program, at_size, seed)
            seconds += max(ours_s - eager_s, 0)
            if counter.count() != seen:
                changed.append(number)
            text = problem(got, want, None, TOLERANCE["inference"])
            if text and facts["status"] == "pass":
                facts.update(status="wrong", error=f"size {number + 1}: {text}")
        facts[sweep] = counter.count() - before
        facts[f"{sweep}_at"] = changed
        facts[f"{sweep}_s"] = seconds
    if column == "reprise":
        counters = stats.report_of(program.compiled)["counters"]
        facts["counters"] = {name: count for name, count in counters.items() if count}
    return facts


def measure(row, what, columns):
    """The result of one row: a dict for JSON."""
    from bench.harness.worker import text_of

    result = {"row": row.name, "suite": row.suite, "mode": what, "hard": row.hard, "columns": {}}
    try:
        calls, refused = eager_calls(row, what)
    except rows.Missing as error:
        return {**result, "status": "missing", "error": str(error)}
    except Exception as error:
        return {**result, "status": "eager-fails", "error": text_of(error)}
    result["sizes"] = len(calls)
    if len(calls) < len(CHANGES[what]) // 2:
        return {**result, "status": "fixed", "error": refused}
    again = make_program(row, "inference")
    for at_size, seed, want, _ in calls:
        text = problem(call_at(again, at_size, seed)[0], want, None, TOLERANCE["inference"])
        if text:
            return {**result, "status": "eager-varies", "error": text}
    for column in (column for column in columns if column in COUNTED):
        try:
            result["columns"][column] = measure_column(row, column, calls)
        except Exception as error:
            result["columns"][column] = {"status": "raises", "error": text_of(error)}
    return {**result, "status": "ok"}
