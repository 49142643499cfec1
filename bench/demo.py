"""`python -m bench.demo`: every model of bench/models.py, inference and one training step, against eager.

Each row makes two equal twins, runs five calls with changing inputs on both and compares everything the calls left
behind: outputs with their caches; for training the loss, gradients, parameters, buffers and optimizer state. Native
code may differ by rounding errors (`modes.TOLERANCES`, docs/numerics.md), replay (`--mode reprise-eager`) by nothing.
Where a row differs by more, a float64 run of the same calls decides whether the error is larger than eager's own
(`judge.py`). Then it times both, interleaved. The exit code is 1 if any row is wrong, or fails.

Columns: `error` (bit-equal or the largest absolute difference; behind it, where float64 had to decide, the median
tensor's error against it over eager's), `entries`, `exits` and `opaque` calls counted by
Reprise over the five calls, what the `first` call cost beyond eager's first, medians and minima in ms, and ratios
Reprise / eager.
"""

import argparse
import faulthandler
import gc
import json
import subprocess
import sys
import tempfile
import time
import traceback

from bench import modes, stats
from bench.compare import difference
from bench.progress import Progress
from bench.table import text_table, write_csv
from bench.timing import interleaved_ns, median, once_ns
from bench.twins import make_twin, seeded

CHECKED_CALLS = 5
PHASES = ("inference", "training")
COLUMNS = {
    "model": "model",
    "shape": "input",
    "phase": "phase",
    "error": "error",
    "entries": "entries",
    "exits": "exits",
    "opaque": "opaque",
    "first_ms": "first +ms",
    "eager_ms": "eager ms",
    "tested_ms": "{mode} ms",
    "ratio": "ratio",
    "eager_min_ms": "eager min",
    "tested_min_ms": "{mode} min",
    "ratio_min": "ratio min",
}


def warm_up(name, phase):
    """Pay torch's one-time costs (library start, thread pool) on a tiny eager copy, outside all measurements."""
    from bench.models import make_inputs

    make_twin(name, phase, True, modes.compiler("eager")).call(
        **make_inputs(name, tiny=True, labels=phase == "training")
    )


def measure(name, phase, mode, quick, rounds, note):
    """One row of the table: dict with the keys of COLUMNS, `is_right` and `detail`."""
    from bench.models import MODELS, make_inputs

    row = {"model": name, "phase": phase, "mode": mode, "shape": "tiny" if quick else MODELS[name].shape}
    modes.forget(mode)
    note("making twins")
    wrapped = []

    def wrap(program):
        wrapped.append(modes.compiler(mode)(program))
        return wrapped[-1]

    eager = make_twin(name, phase, quick, modes.compiler("eager"))
    tested = make_twin(name, phase, quick, wrap)
    inputs = [make_inputs(name, tiny=quick, seed=i, labels=phase == "training") for i in range(CHECKED_CALLS)]

    note("warming up")
    warm_up(name, phase)
    found, found_bits, first_ns = None, None, None
    tolerance = modes.TOLERANCES.get(mode, 0)
    for i, kwargs in enumerate(inputs):
        note(f"checking call {i + 1} of {CHECKED_CALLS}")
        want, eager_ns = once_ns(lambda i=i, kwargs=kwargs: seeded(i, eager.call, **kwargs))
        got, tested_ns = once_ns(lambda i=i, kwargs=kwargs: seeded(i, tested.call, **kwargs))
        first_ns = tested_ns - eager_ns if first_ns is None else first_ns
        pairs = [(got, want, f"call {i}")]
        if phase == "training" or i == CHECKED_CALLS - 1:
            pairs.append((tested.state(), eager.state(), f"state after call {i}"))
        for pair in pairs:
            bits = difference(*pair)
            found_bits = larger(found_bits, bits)
            if bits is not None and found is None:
                found = difference(*pair, tolerance) if tolerance else bits
        del got, want, pairs, pair
    counts = stats.stats_of(wrapped[0])
    row["error"] = "bit-equal" if found_bits is None else f"{found_bits.max_abs:.3g}"
    row["detail"] = "" if found is None else str(found)
    if found is not None and tolerance:
        from bench.judge import judge

        note("float64 decides")
        verdict = judge(name, phase, mode, quick, inputs)
        row["detail"] = verdict.problem or ""
        row["error_ratio"] = verdict.error_ratio
        row["error"] += f" ({verdict.error_ratio:.2f} x eager's)"
    row["is_right"] = not row["detail"]
    if counts is not None:
        row.update(entries=counts["entries"], exits=counts["exits"], opaque=counts["opaque_calls"])
        row.update(recordings=counts["recordings"], runs=counts["runs"])

    note("timing")
    turn = {"eager": 0, "tested": 0}

    def timed(which, twin):
        def call():
            turn[which] += 1
            twin.call(**inputs[turn[which] % CHECKED_CALLS])

        return call

    times = interleaved_ns({"eager": timed("eager", eager), "tested": timed("tested", tested)}, rounds)
    for which in times:
        row[f"{which}_ms"] = median(times[which]) / 1e6
        row[f"{which}_min_ms"] = min(times[which]) / 1e6
    row["ratio"] = row["tested_ms"] / row["eager_ms"]
    row["ratio_min"] = row["tested_min_ms"] / row["eager_min_ms"]
    row["first_ms"] = first_ns / 1e6
    return row


def larger(a, b):
    """The Difference (or None) that tells more."""
    if a is None or b is None:
        return a or b
    return b if b.max_abs > a.max_abs else a


def measure_safely(*args):
    """As `measure`, but an exception becomes a failed row."""
    try:
        return measure(*args)
    except Exception as error:  # a broken row must not take the table with it
        traceback.print_exc()
        detail = f"{type(error).__name__}: {error}"
        return {
            "model": args[0],
            "phase": args[1],
            "mode": args[2],
            "error": "failed",
            "is_right": False,
            "detail": detail,
        }


def measure_isolated(name, phase, options, note):
    """As `measure`, in a process of its own, so that a crash costs one row."""
    note("in a process of its own")
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, "-m", "bench.demo", "--models", name, "--phases", phase, "--json", out.name]
        command += ["--mode", options.mode, "--threads", str(options.threads), "--rounds", str(options.rounds)]
        done = subprocess.run(command + ["--quick"] * options.quick, capture_output=True, text=True)
        text = out.read()
    if text:
        return json.loads(text)[0]
    sys.stderr.write(done.stderr[-4000:])
    detail = f"process ended with {done.returncode}"
    return {
        "model": name,
        "phase": phase,
        "mode": options.mode,
        "error": "crashed",
        "is_right": False,
        "detail": detail,
    }


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", help="comma-separated names (default: all)")
    parser.add_argument("--phases", default=",".join(PHASES), help="inference, training or both (default)")
    parser.add_argument("--mode", default="reprise", choices=list(modes.MODES), help="what is compared with eager")
    parser.add_argument("--quick", action="store_true", help="tiny models of the same structure")
    parser.add_argument("--threads", type=int, default=modes.cpu_count(), help="OpenMP threads (default: CPUs)")
    parser.add_argument("--rounds", type=int, default=7, help="timed calls of each contestant")
    parser.add_argument("--isolate", action="store_true", help="one process a row: a crash costs one row")
    parser.add_argument("--csv", help="write the rows to this file")
    parser.add_argument("--json", help="write the rows to this file")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    faulthandler.enable()
    modes.set_threads(options.threads)
    from bench.models import MODELS

    names = modes.chosen(options.models, MODELS, "model")
    phases = modes.chosen(options.phases, PHASES, "phase")

    rows = []
    start = time.monotonic()
    with Progress(len(names) * len(phases)) as bar:
        for name in names:
            for phase in phases:
                bar.begin(f"{name} {phase}")
                if options.isolate:
                    row = measure_isolated(name, phase, options, bar.note)
                else:
                    row = measure_safely(name, phase, options.mode, options.quick, options.rounds, bar.note)
                rows.append(row)
                ratio = f"{row['ratio']:.2f} x eager" if "ratio" in row else row["detail"]
                bar.end(f"{row['error']}, {ratio}")
                gc.collect()
    if options.csv:
        write_csv(options.csv, rows)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out)

    print(text_table(rows, {key: head.format(mode=options.mode) for key, head in COLUMNS.items()}))
    print(
        f"\n{options.threads} threads, {options.rounds} interleaved rounds, {time.monotonic() - start:.0f} s; "
        f"ratio = {options.mode} / eager"
    )
    wrong = [row for row in rows if not row["is_right"]]
    for row in wrong:
        print(f"WRONG {row['model']} {row['phase']}: {row['detail']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
