"""The tables of the paper as text, from one result file; the summary line for `bench/history.csv`."""

import csv

from bench.harness import summary
from bench.harness.driver import read_results
from bench.table import text_table

#: PyTorch 2 paper, table 1 (fp32 inference, A100): its own figures for TorchDynamo, by its suites
PAPER_CAPTURE = [
    {"suite": "paper: TorchBench", "models": 80, "works": 74, "operators": "91.8 %", "none": 52, "few": 4, "many": 16},
    {"suite": "paper: HuggingFace", "models": 46, "works": 46, "operators": "99.8 %", "none": 41, "few": 1, "many": 4},
    {"suite": "paper: TIMM", "models": 62, "works": 62, "operators": "100 %", "none": 62, "few": 0, "many": 0},
]
CAPTURE_COLUMNS = {
    "suite": "suite", "models": "models", "works": "work", "operators": "operators", "graphs": "graphs/model",
    "none": "0 exits", "few": "1-9", "many": "10+", "breaks": "exits",
    "t_operators": "Dynamo operators", "t_graphs": "graphs/model", "t_none": "0 breaks", "t_few": "1-9",
    "t_many": "10+", "t_breaks": "breaks",
}  # fmt: skip
SPEED_COLUMNS = {
    "suite": "suite", "mode": "mode", "column": "column", "mean": "x eager", "interval": "95 %", "works": "works",
    "models": "of", "noisy": "noisy", "slower": "< 0.95", "penalised": "penalised",
}  # fmt: skip


def percent(value):
    return None if value is None else f"{100 * value:.1f} %"


def capture_rows(rows):
    """Rows of table 1, ours and TorchDynamo's side by side, all suites last."""
    rows = [row for row in rows if row["mode"] == "inference"]
    found = []
    for suite in [*summary.suites_of(rows), None]:
        part = [row for row in rows if suite in (None, row["suite"])]
        ours, theirs = summary.capture_facts(part), summary.capture_facts(part, "torch")
        line = {"suite": suite or "all", **ours, "operators": percent(ours["operators"])}
        if theirs["works"]:
            line.update({f"t_{key}": value for key, value in theirs.items()}, t_operators=percent(theirs["operators"]))
        found.append(line)
    return found


def speed_rows(rows):
    """Rows of table 3: geometric means over models, by suite, mode and column."""
    found = []
    columns = [c for c in ("reprise", "torch", "torch-overhead", "torch-eager") if any(c in r["columns"] for r in rows)]
    for mode in sorted({row["mode"] for row in rows}):
        for suite in [*summary.suites_of(rows), None]:
            part = [row for row in rows if row["mode"] == mode and suite in (None, row["suite"])]
            for column in columns:
                facts = summary.speed_facts(part, column)
                if facts["mean"] is None:
                    continue
                low_high = facts["interval"]
                span = f"{low_high[0]:.2f}-{low_high[1]:.2f}" if low_high else None
                found.append({"suite": suite or "all", "mode": mode, "column": column, **facts, "interval": span})
    return found


def overhead_rows(rows):
    """Rows of table 2: what capture alone costs: guards in microseconds, and torch.compile(backend="eager")."""
    found = []
    for row in rows:
        ours, eager = summary.column_of(row, "reprise"), summary.column_of(row, "eager")
        if row["status"] == "ok" and eager.get("ms") and ours.get("guards_us"):
            theirs = summary.column_of(row, "torch-eager").get("ms")
            found.append({
                "row": row["row"], "eager_ms": eager["ms"], "guards_us": ours["guards_us"],
                "guards": ours.get("guards"), "share": percent(ours["guards_us"] / 1e3 / eager["ms"]),
                "dynamo": percent(theirs / eager["ms"] - 1) if theirs else None,
            })  # fmt: skip
    return found


OVERHEAD_COLUMNS = {
    "row": "model", "eager_ms": "eager ms", "guards": "guards", "guards_us": "guards us", "share": "of eager",
    "dynamo": "Dynamo over eager",
}  # fmt: skip


def row_lines(rows):
    """One line a model and mode."""
    found = []
    for row in rows:
        ours = summary.column_of(row, "reprise")
        status = row["status"] if row["status"] != "ok" else ours.get("status", "ok")
        steady, total = ours.get("steady") or {}, ours.get("total") or {}
        count = summary.operators(row, "reprise")
        found.append({
            "suite": row["suite"], "row": row["row"], "mode": row["mode"], "status": status,
            "entries": total.get("entries"), "exits": steady.get("exits"), "opaque": steady.get("opaque_calls"),
            "operators": f"{count[0]}/{count[1]}" if count else None, "kernels": ours.get("kernels"),
            "library": ours.get("library_calls"), "cold_s": ours.get("cold_s"),
            "eager_ms": summary.column_of(row, "eager").get("ms"), "ours_ms": ours.get("ms"),
            "speedup": summary.speedup(row), "noisy": "noisy" if summary.is_noisy(row) else None,
        })  # fmt: skip
    return found


ROW_COLUMNS = {
    "row": "model", "mode": "mode", "status": "status", "entries": "entries", "exits": "exits", "opaque": "opaque",
    "operators": "operators", "kernels": "kernels", "library": "library", "cold_s": "cold s", "eager_ms": "eager ms",
    "ours_ms": "reprise ms", "speedup": "x", "noisy": "",
}  # fmt: skip


def print_report(path):
    facts, rows = read_results(path)
    if not rows:
        print(f"{path} has no results")
        return
    print(f"{facts.get('date')}  {facts.get('machine')}  torch {facts.get('packages', {}).get('torch')}\n")
    print(text_table(row_lines(rows), ROW_COLUMNS))
    if any(row.get("capture") for row in rows):
        print("\nTable 1: capture (inference)\n" + text_table(capture_rows(rows) + PAPER_CAPTURE, CAPTURE_COLUMNS))
    overheads = overhead_rows(rows)
    if overheads:
        print("\nTable 2: cost of capture alone\n" + text_table(overheads, OVERHEAD_COLUMNS))
        print("the paper: TorchDynamo 5 % in inference, 1 % in training; lazy tensors 38 % and 90 %")
    speeds = speed_rows(rows)
    if speeds:
        print("\nTable 3: speed-up over eager, geometric means\n" + text_table(speeds, SPEED_COLUMNS))
        print("the paper, TorchInductor, six cells of an A100: 2.27 x in inference, 1.41 x in training")
    reasons = summary.failures(rows)
    if reasons:
        print("\nFailures and exits by reason")
        for reason, where in list(reasons.items())[:40]:
            print(f"{len(where):4}  {reason}\n        {', '.join(name for name, _ in where[:4])}")
    line = summary.headline(facts, rows)
    print("\n" + "  ".join(f"{key} {value}" for key, value in line.items() if value != ""))


def append_history(path, history):
    """The summary line as one more line of a CSV file. ValueError if its columns are others."""
    line = summary.headline(*read_results(path))
    is_new = not history.exists()
    if not is_new:
        with open(history, newline="") as lines:
            columns = next(csv.reader(lines))
        if columns != list(line):
            raise ValueError(f"{history} has other columns: {sorted(set(columns) ^ set(line))}")
    with open(history, "a", newline="") as out:
        writer = csv.DictWriter(out, list(line))
        if is_new:
            writer.writeheader()
        writer.writerow(line)
