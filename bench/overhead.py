"""`python -m bench.overhead`: what a call costs around its kernels, per probe and contestant, as CSV.

Contestants run in interleaved blocks in one process: eager, the tested mode and, with --peers, torch.compile (default
and backend="eager"). The number to read is the minimum over the blocks; medians stand beside it. Each row also holds
the first call's time beyond eager, the guards' time where the engine tells it, and entries, recordings and exits.

The peak of live tensor bytes is measured in processes of their own (bench/memory.py; `--no-memory` leaves it out).
"""

import argparse
import faulthandler
import sys

from bench import modes, stats
from bench.compare import difference
from bench.probes import PROBES, Turns, call_of
from bench.progress import Progress
from bench.table import text_table, write_csv
from bench.timing import calls_for, interleaved_ns, median, once_ns

GUARD_CHECKS = 10_000
COLUMNS = {
    "probe": "probe",
    "mode": "mode",
    "error": "error",
    "min_us": "min us",
    "median_us": "median us",
    "ratio": "x eager",
    "over_us": "+us",
    "first_ms": "first ms",
    "first_extra_ms": "first +ms",
    "guards_us": "guards us",
    "entries": "entries",
    "recordings": "recordings",
    "exits": "exits",
    "calls": "calls/block",
}


def measure(probe, contestants, blocks, note):
    """One row per contestant: dicts with the keys of COLUMNS."""
    import torch

    made = {}
    for mode in contestants:  # equal twins
        torch.manual_seed(0)
        program, args, kwargs = probe.make()
        made[mode] = (modes.compiler(mode)(program), args, kwargs)
    calls = {mode: call_of(*parts) for mode, parts in made.items()}
    rounds_of_turns = max([len(v.values) for v in made["eager"][2].values() if isinstance(v, Turns)], default=1)

    rows = {}
    with torch.no_grad():
        for _ in range(3 * rounds_of_turns):
            want = calls["eager"]()
        eager_ns = min(once_ns(calls["eager"])[1] for _ in range(3 * rounds_of_turns))
        for mode in contestants:
            note(f"first call of {mode}")
            _, first_ns = once_ns(calls[mode])
            for _ in range(4 * rounds_of_turns - 1):
                got = calls[mode]()
            found = difference(got, want)
            is_right = not found or not difference(got, want, tolerance=modes.TOLERANCES.get(mode, 0))
            error = "bit-equal" if not found else f"{found.max_abs:.3g}" if is_right else str(found)
            rows[mode] = {"probe": probe.name, "mode": mode, "error": error, "is_right": is_right}
            rows[mode].update(first_ms=first_ns / 1e6, first_extra_ms=(first_ns - eager_ns) / 1e6)
        count = probe.calls or calls_for(calls["eager"], probe.block_ns, 10_000)
        note("timing")
        times = interleaved_ns(calls, blocks, count)
    for mode, row in rows.items():
        row["min_us"] = min(times[mode]) / 1e3
        row["median_us"] = median(times[mode]) / 1e3
        row["ratio"] = min(times[mode]) / min(times["eager"])
        row["over_us"] = row["min_us"] - min(times["eager"]) / 1e3
        row["calls"] = count
        row["blocks"] = blocks
        if modes.is_reprise(mode):
            counts = stats.stats_of(made[mode][0])
            if counts is not None:
                row.update({name: counts[name] for name in ("entries", "recordings", "exits")})
            checked = [t.take() if isinstance(t, Turns) else t for t in made[mode][2].values()]
            with torch.no_grad():
                kwargs = dict(zip(made[mode][2], checked))
                guards_ns = stats.guard_check_ns(made[mode][0], made[mode][1], kwargs, GUARD_CHECKS)
            row["guards_us"] = None if guards_ns is None else guards_ns / 1e3
    for mode in contestants:
        modes.forget(mode)
    return list(rows.values())


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.split("\n\n")[0])
    parser.add_argument("--mode", default="reprise", choices=list(modes.MODES), help="what is compared with eager")
    parser.add_argument("--probes", help=f"comma-separated, of {', '.join(PROBES)} (default: all)")
    parser.add_argument("--blocks", type=int, default=50, help="timed blocks of each contestant")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads (default 1: tiny tensors)")
    parser.add_argument("--peers", action="store_true", help="add torch.compile, default and backend=eager")
    parser.add_argument("--csv", help="also write the rows to this file")
    parser.add_argument("--small", action="store_true", help="a minute: 10 blocks, no memory")
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak of live tensor bytes")
    options = parser.parse_args(arguments)
    if options.small:
        options.blocks, options.no_memory = min(options.blocks, 10), True
    return options


def main(arguments=None):
    options = parse(arguments)
    faulthandler.enable()
    modes.set_threads(options.threads)
    names = modes.chosen(options.probes, PROBES, "probe")
    contestants = list(dict.fromkeys(["eager", options.mode] + ["torch", "torch-eager"] * options.peers))

    rows, memory_rows = [], []
    with Progress(len(names) + (not options.no_memory)) as bar:
        for name in names:
            bar.begin(PROBES[name].what)
            found = measure(PROBES[name], contestants, options.blocks, bar.note)
            rows += found
            bar.end(", ".join(f"{row['mode']} {row['min_us']:.1f} us" for row in found))
        if not options.no_memory:
            from bench import memory

            bar.begin("peak of live tensor bytes")
            memory_rows = memory.measure(contestants)
            bar.end()

    print(text_table(rows, COLUMNS))
    if memory_rows:
        print("\npeak of live tensor bytes, 40 ReLUs of 16 MB\n" + text_table(memory_rows, memory.COLUMNS))
    if options.csv:
        write_csv(options.csv, rows + memory_rows)
    wrong = [row for row in rows if not row["is_right"] and modes.is_reprise(row["mode"])]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
