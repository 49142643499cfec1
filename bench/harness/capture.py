"""How much of a program is captured: operators that run inside compiled code, of all that the program runs.

Operators are calls that reach the dispatcher below autograd (a `TorchDispatchMode` sees them). All of them are
counted in an eager call. Captured ones are counted in a call of a twin compiled with a backend that runs each graph
under such a mode: by Reprise and torch.compile alike, so both are counted with the same ruler.
"""

from torch.utils._python_dispatch import TorchDispatchMode

from bench import stats
from bench.harness.programs import make_program
from bench.zoo import rows

#: calls after which a program that still records is said not to settle
MOST_WARM_CALLS = 8


class CountOperators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


class CountingBackend:
    """Runs graphs as they are and counts graphs and operators since `restart`."""

    def __init__(self):
        self.restart()

    def restart(self):
        self.graphs = self.operators = 0

    def __call__(self, graph_module, example_inputs, **options):
        def run(*inputs):
            with CountOperators() as counted:
                result = graph_module(*inputs)
            self.graphs += 1
            self.operators += counted.count
            return result

        return run


def call_with(program, row, seed):
    """One call with the inputs and the random numbers of a seed."""
    args, kwargs = rows.make_inputs(row, seed)
    rows.seed_all(seed)
    return program.call(*args, **kwargs)


def count_all(row, mode):
    program = make_program(row, mode)
    for seed in range(2):
        call_with(program, row, seed)
    args, kwargs = rows.make_inputs(row, 2)
    rows.seed_all(2)
    with CountOperators() as counted:
        program.call(*args, **kwargs)
    return counted.count


def settle(program, row, first_seed=0):
    """Call until a call records nothing new. (calls made, the last call's changes of the counters)."""
    changes = None
    for number in range(MOST_WARM_CALLS):
        before = stats.stats_of(program.compiled)
        call_with(program, row, first_seed + number)
        changes = stats.changes(before, stats.stats_of(program.compiled))
        if number >= 3 and not changes["recordings"]:
            break
    return number + 1, changes


def count_reprise(row, mode):
    """Facts of Reprise's capture in a settled call."""
    backend = CountingBackend()
    program = make_program(row, mode, "reprise", backend=backend, options={"min_region_nodes": 1})
    calls, _ = settle(program, row)
    backend.restart()
    before = stats.stats_of(program.compiled)
    call_with(program, row, calls)
    changes = stats.changes(before, stats.stats_of(program.compiled))
    whole = changes["runs"] and not (changes["exits"] or changes["recordings"] or changes["plain_instructions"])
    return {"captured": backend.operators, "graphs": backend.graphs, "is_whole": bool(whole)}


def count_torch(row, mode):
    """The same facts of TorchDynamo, and its break reasons, the module compiled alone."""
    import torch._dynamo as dynamo

    dynamo.reset()
    dynamo.utils.counters.clear()
    backend = CountingBackend()
    program = make_program(row, mode, "torch-eager", backend=backend)
    for seed in range(4):
        call_with(program, row, seed)
    backend.restart()
    call_with(program, row, 4)
    reasons = dict(dynamo.utils.counters["graph_break"])
    found = {
        "captured": backend.operators,
        "graphs": backend.graphs,
        "unique_graphs": dynamo.utils.counters["stats"].get("unique_graphs", 0),
        "breaks": sum(reasons.values()),
        "reasons": {reason.splitlines()[0][:200]: count for reason, count in reasons.items()},
    }
    dynamo.reset()
    return found


def kernel_facts(compiled):
    """Operations, kernels and library calls of the regions of all entries, read from the report's texts."""
    import re

    report = stats.report_of(compiled)
    found = {"operations": 0, "kernels": 0, "library_calls": 0, "regions": 0, "guards": 0, "items": 0}
    dissolved = []
    for entry in stats.entries_of(report):
        found["guards"] += len(entry["guards"])
        found["items"] += entry.get("items", 0)
        for text in entry["regions"]:
            found["regions"] += 1
            numbers = re.search(r"(\d+) operations? in (\d+) kernels?, (\d+) library calls?", text)
            if numbers:
                for key, number in zip(("operations", "kernels", "library_calls"), numbers.groups()):
                    found[key] += int(number)
            else:
                dissolved.append(text[:200])
    return {**found, "not_native": dissolved[:5], "not_native_count": len(dissolved)}


def failures_of(compiled):
    """Reasons: recordings that failed, exits with their lines."""
    report = stats.report_of(compiled)
    exits = [
        {"place": x["place"], "kind": x["kind"], "reason": x["reason"], "code": x["code"], "count": x["count"]}
        for entry in stats.entries_of(report)
        for x in entry["exits"]
        if x["count"] or x["kind"] == "end"
    ]
    return {"failed": stats.why_not_recorded(compiled), "exits": sorted(exits, key=lambda x: -x["count"])[:20]}
