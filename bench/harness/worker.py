"""`python -m bench.harness.worker ROW MODE ...`: measure one model in one mode, in this process.

The last line of stdout is one JSON object behind `RESULT `. `status` of a column:

- `pass`; `wrong` (with the place), `raises` (with the error);
- the driver adds `crash` and `timeout` where this process died.

`status` of the row: `ok`, `eager-fails`, `eager-varies` (two eager runs differ), `missing`, `fixed` (sizes.py). A
column may be `missing`, too: its package is.
"""

import argparse
import dataclasses
import faulthandler
import json
import os
import sys
import time
import traceback
import warnings

CHECKED_CALLS = 5
MOST_ROUNDS_S = 10.0
MOST_ROUNDS = 400


def text_of(error):
    """Type, message and the innermost line of this repository's user code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.split('site-packages/')[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {str(error)[:600]}{where}"


def snapshots(program, row, mode, calls):
    """One snapshot a call, each with its own inputs and random numbers, and behind the last one the state that is left;
    nanoseconds of each call."""
    from bench.harness.capture import rows
    from bench.harness.programs import state_of
    from bench.harness.referee import snapshot

    found, times = [], []
    for seed in range(calls):
        args, kwargs = rows.make_inputs(row, seed)
        rows.seed_all(seed)
        start = time.perf_counter_ns()
        result = program.call(*args, **kwargs)
        times.append(time.perf_counter_ns() - start)
        found.append(snapshot(result, state_of(program) if seed == calls - 1 else {}))
        del result
    return found, times


def exact_snapshots(row, mode, calls):
    """The same calls in float64, or None where the model can't."""
    import torch
    from torch.utils import _pytree

    from bench.harness.capture import rows
    from bench.harness.programs import make_program, state_of
    from bench.harness.referee import snapshot

    def widen(value):
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    try:
        program, found = make_program(row, mode, double=True), []
        for seed in range(calls):
            args, kwargs = _pytree.tree_map(widen, rows.make_inputs(row, seed))
            rows.seed_all(seed)
            result = program.call(*args, **kwargs)
            found.append(snapshot(result, state_of(program) if seed == calls - 1 else {}))
        return found
    except Exception:
        return None


def check(got, want, exact, mode):
    """First problem of any call, or None."""
    from bench.harness.referee import TOLERANCE, problem

    for number, (found, expected) in enumerate(zip(got, want)):
        text = problem(found, expected, None if exact is None else exact[number], TOLERANCE[mode])
        if text:
            return f"call {number + 1}: {text}"
    return None


def measure_column(row, mode, column, want, exact_maker, eager_ns):
    """(facts, program) of one compiler: status, first calls, counts."""
    from bench import stats
    from bench.harness import capture
    from bench.harness.columns import is_reprise
    from bench.harness.programs import make_program
    from bench.harness.referee import is_bitwise

    facts, program = {}, None
    try:
        start = time.perf_counter_ns()
        program = make_program(row, mode, column)
        facts["make_ms"] = (time.perf_counter_ns() - start) / 1e6
        got, times = snapshots(program, row, mode, len(want))
    except Exception as error:
        facts.update(status="raises", error=text_of(error), traceback=traceback.format_exc()[-3000:])
        return facts, program
    facts["calls_ms"] = [t / 1e6 for t in times]
    facts["cold_s"] = sum(max(t - eager_ns, 0) for t in times[:3]) / 1e9
    problem = check(got, want, None, mode)
    if problem:
        problem = check(got, want, exact_maker(), mode)
    facts["status"], facts["error"] = ("wrong", problem) if problem else ("pass", None)
    facts["bitwise"] = all(is_bitwise(g, w) for g, w in zip(got, want))
    del got
    if is_reprise(column):
        _, changes = capture.settle(program, row, len(want))
        facts["steady"] = changes
        facts["total"] = stats.stats_of(program.compiled)
        facts.update(capture.kernel_facts(program.compiled), reasons=capture.failures_of(program.compiled))
        report = stats.report_of(program.compiled)
        counters = report["counters"]
        facts["phases"] = {phase: seconds for phase, seconds in report["seconds"].items() if seconds > 0}
        facts["counters"] = {name: count for name, count in counters.items() if count}
        facts["planned_mb"] = counters["planned_bytes"] / 2**20
    return facts, program


def rounds_for(one_round_s, rounds, budget_s):
    """`rounds`, or fewer where the budget ends before; quick programs fill half of the budget, 20 rounds of 2 ms are a
    moment of the machine."""
    affordable = int(budget_s / one_round_s)
    return max(5, min(affordable, max(rounds, min(MOST_ROUNDS, affordable // 2))))


def measure_times(row, programs, rounds, budget_s):
    """Interleaved milliseconds a call, dict column -> list; what each recorded meanwhile, None for other compilers."""
    from bench import stats
    from bench.harness.capture import rows
    from bench.timing import interleaved_ns

    args, kwargs = rows.make_inputs(row, 0)
    calls = {column: (lambda p=program: p.call(*args, **kwargs)) for column, program in programs.items()}
    for call in calls.values():
        for _ in range(3):
            call()
    start = time.perf_counter()
    for call in calls.values():
        call()
    one_round = max(time.perf_counter() - start, 1e-6)
    rounds = rounds_for(one_round, rounds, budget_s)
    before = {column: stats.stats_of(program.compiled) for column, program in programs.items()}
    found = interleaved_ns(calls, rounds, 1, before=lambda name: rows.seed_all(0))
    changes = {c: stats.changes(before[c], stats.stats_of(program.compiled)) for c, program in programs.items()}
    times = {column: [t / 1e6 for t in times] for column, times in found.items()}
    return times, {column: changed and changed["recordings"] for column, changed in changes.items()}


def measure(row, mode, columns, rounds, budget_s, with_capture, with_peers_capture):
    """Everything about one row in one mode, as a dict for JSON."""
    from bench import stats
    from bench.harness import capture
    from bench.harness.columns import find_column
    from bench.harness.programs import INFERENCE, make_program, surroundings
    from bench.harness.summary import is_apart
    from bench.memory import peak_live_bytes
    from bench.timing import median, paired_ratio
    from bench.zoo import Missing

    result = {"row": row.name, "suite": row.suite, "mode": mode, "hard": row.hard, "columns": {}}
    try:
        eager = make_program(row, mode)
        want, eager_times = snapshots(eager, row, mode, CHECKED_CALLS)
        again, _ = snapshots(make_program(row, mode), row, mode, CHECKED_CALLS)
        varies = check(again, want, None, mode)
        del again
    except Missing as error:
        return {**result, "status": "missing", "error": str(error)}
    except Exception as error:
        return {**result, "status": "eager-fails", "error": text_of(error)}
    if varies:
        return {**result, "status": "eager-varies", "error": varies}
    result["status"] = "ok"
    result["parameters"] = sum(p.numel() for p in eager.module.parameters())
    result["first_eager_ms"] = eager_times[0] / 1e6
    exact = []

    def exact_maker():
        if not exact:
            exact.append(None if "random" in row.flags else exact_snapshots(row, mode, CHECKED_CALLS))
        return exact[0]

    programs = {"eager": eager}
    del eager
    for column in columns:
        if column == "eager-again":
            programs[column] = make_program(row, mode)
        elif mode not in (find_column(column).modes or (mode,)):
            continue
        elif missing := find_column(column).missing():
            result["columns"][column] = {"status": "missing", "error": f"needs {', '.join(missing)}"}
        elif column != "eager":
            facts, program = measure_column(row, mode, column, want, exact_maker, min(eager_times[1:]))
            result["columns"][column] = facts
            if facts["status"] in ("pass", "wrong"):
                programs[column] = program
    del want
    exact.clear()
    if with_capture and mode == "inference":  # in training, backward runs outside of what a backend gets
        counts = result["capture"] = {}
        if not rounds:
            programs.clear()
        for name, count in (("operators", capture.count_all), ("reprise", capture.count_reprise)):
            if name == "operators" or name in columns:
                try:
                    counts[name] = count(row, mode)
                except Exception as error:
                    counts[name] = {"error": text_of(error)}
        if with_peers_capture:
            try:
                counts["torch"] = capture.count_torch(row, mode)
            except Exception as error:
                counts["torch"] = {"error": text_of(error)}
    if rounds:
        times, recordings = measure_times(row, programs, rounds, budget_s)
        if "eager-again" in times and is_apart(paired_ratio(times["eager"], times["eager-again"])):
            times, recordings = measure_times(row, programs, rounds, budget_s)  # once more; then it is flagged
        args, kwargs = capture.rows.make_inputs(row, 0)
        for column, program in programs.items():
            facts = result["columns"].setdefault(column, {"status": "pass"})
            facts["ms"], facts["min_ms"] = median(times[column]), min(times[column])
            facts["speedups"] = [paired_ratio(times["eager"], times[column])]
            if recordings[column] is not None:  # what another column changes may make ours record again
                facts["timed_recordings"] = recordings[column]
            facts["times_ms"] = [round(t, 4) for t in times[column]]
            facts["peak_mb"] = peak_live_bytes(lambda p=program: p.call(*args, **kwargs), row.device) / 2**20
            if column == "reprise" and mode in INFERENCE:
                with surroundings(row, mode):
                    nanoseconds = stats.guard_check_ns(program.compiled, args, kwargs, 1000)
                facts["guards_us"] = None if nanoseconds is None else nanoseconds / 1e3
    return result


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m bench.harness.worker", description=__doc__.split("\n\n")[0])
    parser.add_argument("row")
    parser.add_argument("mode")
    parser.add_argument("--columns", default="reprise")
    parser.add_argument("--rounds", type=int, default=0, help="timed rounds; 0: none")
    parser.add_argument("--budget", type=float, default=MOST_ROUNDS_S, help="seconds of timing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--cpus", help="comma-separated processors to stay on")
    parser.add_argument("--capture", action="store_true", help="count operators")
    parser.add_argument("--peers-capture", action="store_true", help="count TorchDynamo's, too")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if options.cpus:
        os.sched_setaffinity(0, map(int, options.cpus.split(",")))
    from bench import modes
    from bench.zoo import find_row, rows

    modes.set_threads(options.threads)
    start = time.perf_counter()
    columns = options.columns.split(",")
    if any(column.startswith("torch") for column in columns):
        import torch._inductor.config

        torch._inductor.config.fallback_random = True  # random numbers as eager draws them
    row = dataclasses.replace(find_row(options.row), device=options.device)
    if options.mode == "tracers":
        from bench.harness import tracers

        result = tracers.measure(row, CHECKED_CALLS)
    elif options.mode == "warm":
        from bench.harness import warm

        result = warm.measure(row, columns, ["--threads", str(options.threads), "--device", options.device])
    elif options.mode in rows.SIZES:
        from bench.harness import sizes

        result = sizes.measure(row, options.mode, columns)
    else:
        result = measure(
            row, options.mode, columns, options.rounds, options.budget, options.capture, options.peers_capture
        )
    result["seconds"] = time.perf_counter() - start
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
