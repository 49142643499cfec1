"""Sweep PyTorch's own table of operators: compiled against eager.

    python -m tests.ops.run --backend native              everything
    python -m tests.ops.run --shard 0/8 --resume          an eighth, going on where the last run stopped
    python -m tests.ops.run 'add/*' 'sum/grad/*'          cases by name; -v shows every row
    python -m tests.ops.run --report                      the summary of what was run

A case is op/variant/dtype. Cases run in a process beside this one, so that one that crashes or hangs is a row like
others. Rows are written to build/ops/BACKEND.jsonl.
"""

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 120
MAX_CASES = 400  # of one process


class Worker:
    """A process that checks cases."""

    def __init__(self, backend, sample_count, wait=0.0):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ops.worker", backend, str(sample_count), str(wait)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.done = 0
        if self._read(START_SECONDS) is None:
            raise RuntimeError("the worker did not start:\n" + self.describe_end())

    def check(self, name, timeout):
        """The row of a case; None if the process is gone after it."""
        self.done += 1
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        line = self._read(timeout)
        return None if line is None else json.loads(line)

    def _read(self, timeout):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            return None
        return self.process.stdout.readline() or None

    def describe_end(self):
        """How it ended; it is killed if it has not."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "timeout"
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return f"exit code {code}: " + " | ".join(lines[-12:])[:600]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def run_cases(names, backend, sample_count, timeout, on_row, wait=0.0):
    worker = None
    for name in names:
        if worker is not None and worker.done >= MAX_CASES:
            worker.close()
            worker = None
        if worker is None:
            worker = Worker(backend, sample_count, wait)
        start = time.monotonic()
        try:
            row = worker.check(name, timeout)
        except (BrokenPipeError, json.JSONDecodeError):
            row = None
        if row is None:
            text = worker.describe_end()
            row = {"case": name, "status": "timeout" if text == "timeout" else "crashed", "text": text, "samples": 0}
            row.update(compiled=0, own=0, refused=0, bit_equal=0, reasons=[])
            worker = None
        row["seconds"] = round(time.monotonic() - start, 2)
        on_row(row)
    if worker is not None:
        worker.close()


# --- the summary ------------------------------------------------------------------------------------------------------


def summarise(rows, backend):
    """Lines: counts by dtype and status, failures by op, fallbacks by reason."""
    rows = [row for row in rows if row["samples"] or row["status"] != "ok"]
    statuses = collections.Counter(row["status"] for row in rows)
    columns = ["ok"] + sorted(status for status in statuses if status != "ok")
    lines = [f"{'':24}" + "".join(f"{c:>12}" for c in ["cases", *columns, "compiled", "own code", "bit-equal"])]
    groups = collections.defaultdict(list)
    for row in rows:
        _, variant, dtype = row["case"].rsplit("/", 2)
        key = variant if variant in ("grad", "error") else "forward"
        groups[f"{key} {dtype}"].append(row)
        groups[f"all {variant}"].append(row)
    for key in [*sorted(groups), "all"]:
        lines.append(f"{key:24}" + _line(groups[key] if key != "all" else rows, columns))
    failures = [row for row in rows if row["status"] != "ok"]
    if failures:
        lines += ["", "failures:"]
        lines += [f"  {row['status']:10} {row['case']}: {_one_line(row)}" for row in failures]
    reasons = collections.Counter(reason for row in rows for reason in row["reasons"])
    if reasons:
        lines += ["", "samples not compiled, by reason:"]
    for reason, count in reasons.most_common(40):
        ops = collections.Counter(row["case"].split("/")[0] for row in rows if reason in row["reasons"])
        some = ", ".join(op for op, _ in ops.most_common(6))
        lines.append(f"  {count:6} {reason} ({len(ops)} ops: {some})")
    compiled = sum(map(_is_compiled, rows))
    own = sum(row.get("own", 0) > 0 for row in rows)
    lines += [
        "",
        f"{backend}: {len(rows)} cases, {statuses['ok']} ok ({_percent(statuses['ok'], len(rows))}), "
        f"{len(failures)} not, {compiled} compiled in all samples that eager takes ({_percent(compiled, len(rows))}), "
        f"{own} with kernels of our own",
    ]
    return lines


def _one_line(row):
    return " ".join(row["text"].split())[:260]


def _line(rows, columns):
    statuses = collections.Counter(row["status"] for row in rows)
    compiled = sum(map(_is_compiled, rows))
    own = sum(row.get("own", 0) > 0 for row in rows)
    equal = sum(row["status"] == "ok" and row["bit_equal"] == row["samples"] for row in rows)
    return "".join(f"{n:>12}" for n in [len(rows), *(statuses[c] for c in columns), compiled, own, equal])


def _is_compiled(row):
    return row["compiled"] > 0 and row["compiled"] + row["refused"] == row["samples"]


def _percent(part, whole):
    return f"{100 * part / max(whole, 1):.2f} %"


def read_rows(path):
    """The last row of each case."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row["case"]] = row
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="cases, with * and ?")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th case from the i-th")
    parser.add_argument("--samples", type=int, default=6, help="samples of a case")
    parser.add_argument("--slice", type=float, default=1, help="part of the cases, the same ones every time")
    parser.add_argument("--timeout", type=float, default=90, help="seconds for a case")
    parser.add_argument("--wait", type=float, default=0, help="seconds before two more calls, for the second tier")
    parser.add_argument("--resume", action="store_true", help="leave out what has a row")
    parser.add_argument("--failures", action="store_true", help="only cases whose last row is not ok")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()

    path = ROOT / "build" / "ops" / f"{arguments.backend}.jsonl"
    rows = read_rows(path)
    if not arguments.report:
        from tests.ops.cases import list_cases, pick_slice

        names = [case.name for case in pick_slice(list_cases(), arguments.slice)]
        if arguments.patterns:
            names = [name for name in names if any(fnmatch.fnmatchcase(name, p) for p in arguments.patterns)]
        if arguments.failures:
            names = [name for name in names if rows.get(name, {"status": "ok"})["status"] != "ok"]
        if arguments.resume:
            names = [name for name in names if name not in rows]
        index, count = map(int, arguments.shard.split("/"))
        names = names[index::count]
        path.parent.mkdir(parents=True, exist_ok=True)
        run = {}
        with path.open("a") as file:

            def on_row(row):
                run[row["case"]] = row
                print(json.dumps(row), file=file, flush=True)
                if arguments.verbose or row["status"] != "ok":
                    print(f"{row['status']:10} {row['case']} ({row['seconds']} s): {_one_line(row)}", flush=True)
                    if arguments.verbose and row["reasons"]:
                        print("           " + "; ".join(sorted(set(row["reasons"]))), flush=True)
                elif len(run) % 100 == 0:
                    print(f"... {len(run)} of {len(names)}", file=sys.stderr, flush=True)

            run_cases(names, arguments.backend, arguments.samples, arguments.timeout, on_row, arguments.wait)
        rows = run if not arguments.resume else read_rows(path)
    print("\n".join(summarise(list(rows.values()), arguments.backend)))
    return any(row["status"] != "ok" for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
