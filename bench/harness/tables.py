"""The tables of the paper as text, from one result file; the summary line for `bench/history.csv`."""

import csv

from bench.harness import paper, summary
from bench.harness.columns import COLUMNS, WITHOUT
from bench.harness.driver import read_results
from bench.table import text_table

CAPTURE_COLUMNS = {
    "suite": "suite", "models": "models", "works": "work", "operators": "operators", "graphs": "graphs/model",
    "none": "0 exits", "few": "1-9", "many": "10+", "breaks": "exits", "served": "served",
    "t_works": "Dynamo", "t_operators": "operators", "t_graphs": "graphs/model", "t_none": "0 breaks", "t_few": "1-9",
    "t_many": "10+", "t_breaks": "breaks", "trace": "jit.trace", "script": "jit.script", "fx": "fx.symbolic_trace",
}  # fmt: skip
SPEED_COLUMNS = {
    "suite": "suite", "mode": "mode", "column": "column", "mean": "x eager", "interval": "95 %", "works": "works",
    "models": "of", "noisy": "noisy", "slower": "< 0.95", "penalised": "penalised",
}  # fmt: skip


def percent(value):
    return None if value is None else f"{100 * value:.1f} %"


def capture_rows(rows):
    """Rows of table 1, ours, TorchDynamo's and the older tracers' side by side, all suites last; then the paper's."""
    asked = [row for row in rows if row["mode"] in ("inference", "tracers")]
    found = []
    for suite in [*summary.suites_of(asked), None]:
        both = [row for row in asked if suite in (None, row["suite"])]
        part = [row for row in both if row["mode"] == "inference"]
        ours, theirs = summary.capture_facts(part), summary.capture_facts(part, "torch")
        line = {
            "suite": suite or "all",
            **ours,
            "operators": percent(ours["operators"]),
            "served": percent(ours["served"]),
        }
        if theirs["works"]:
            line.update({f"t_{key}": value for key, value in theirs.items()}, t_operators=percent(theirs["operators"]))
        for tracer in ("trace", "script", "fx"):
            if count := summary.tracer_facts(both, tracer):
                line[tracer] = f"{count[0]}/{count[1]}"
        found.append(line)
    return found + paper.CAPTURE


def speed_rows(rows):
    """Rows of table 3: geometric means over models, by suite, mode and column."""
    found = []
    rows = summary.programs_of(rows)
    wanted = [c for c in COLUMNS if not c.startswith("eager")]
    columns = [c for c in wanted if any(c in r["columns"] for r in rows)]
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
    return found + paper.speed_rows() if found else found


#: the columns of table 2
CAPTURES = {"reprise-eager": 'Reprise, backend="eager"', "torch-eager": 'TorchDynamo, backend="eager"'}


def cost_rows(rows):
    """Rows of table 2: steady state of both captures with PyTorch's kernels, over eager; then the paper's."""
    found = []
    for column, who in CAPTURES.items():
        line = {"who": who}
        for mode in ("inference", "bfloat16", "training", "optimizer"):
            facts = summary.cost_facts([row for row in rows if row["mode"] == mode], column)
            if facts["mean"] is not None:
                line.update({mode: percent(facts["mean"] - 1), "models": max(line.get("models", 0), facts["counted"])})
        if len(line) > 1:
            found.append(line)
    return found + paper.COST if found else found


COST_COLUMNS = {
    "who": "capture alone", "models": "models", "inference": "inference", "bfloat16": "bfloat16",
    "training": "training", "optimizer": "optimizer",
}  # fmt: skip


def ablation_rows(rows):
    """Rows of table 4: our own speed-up without each part, over the models where every column works; the paper's."""
    columns = list(dict.fromkeys(c for row in rows for c in row["columns"] if c.startswith(WITHOUT)))
    found = {}
    for mode in ("inference", "training") if columns else ():
        facts = summary.ablation_facts([row for row in rows if row["mode"] == mode], columns)
        for column, mean, count in facts:
            line = found.setdefault(column, {"who": ablation_name(column)})
            if mean is not None:
                line.update({mode: mean, f"{mode}_less": mean - facts[0][1] or None, f"{mode}_models": count})
    return [*found.values(), *paper.ablation_rows()] if any(len(line) > 1 for line in found.values()) else []


def ablation_name(column):
    words = column.removeprefix(WITHOUT).split("+")
    return "all" if column == "reprise" else f"without {words[0]}" if len(words) == 1 else f"without all {len(words)}"


ABLATION_COLUMNS = {
    "who": "Reprise", "inference": "inference", "inference_less": "", "inference_models": "models",
    "training": "training", "training_less": "", "training_models": "models",
}  # fmt: skip


def size_rows(rows):
    """Recompiles over 16 batch sizes and 64 lengths, of both compilers."""
    found = []
    for what in ("batches", "lengths"):
        for column in ("reprise", "torch-eager"):
            facts = summary.size_facts(rows, what, column)
            if facts:
                found.append({"what": what, "column": column, **facts})
    return found


SIZE_COLUMNS = {
    "what": "what varies", "column": "column", "works": "works", "models": "of", "recompiles": "recompiles",
    "median": "median", "most": "most", "again": "second time", "seconds": "s over eager",
}  # fmt: skip


def size_lines(rows):
    """One line a model and what varies."""
    found = []
    for row in rows:
        if row["mode"] in ("batches", "lengths"):
            ours, theirs = summary.column_of(row, "reprise"), summary.column_of(row, "torch-eager")
            found.append({
                "row": row["row"], "mode": row["mode"], "sizes": row.get("sizes"),
                "status": row["status"] if row["status"] != "ok" else ours.get("status"),
                "recompiles": ours.get("recompiles"), "again": ours.get("recompiles_again"),
                "seconds": ours.get("recompiles_s"), "t_status": theirs.get("status"),
                "t_recompiles": theirs.get("recompiles"), "t_again": theirs.get("recompiles_again"),
            })  # fmt: skip
    return found


SIZE_LINE_COLUMNS = {
    "row": "model", "mode": "what varies", "sizes": "sizes", "status": "status", "recompiles": "recompiles",
    "again": "second time", "seconds": "s over eager", "t_status": "Dynamo", "t_recompiles": "recompiles",
    "t_again": "second time",
}  # fmt: skip


def start_rows(rows):
    """Cold and warm starts, of both compilers."""
    found = [(column, summary.start_facts(rows, column)) for column in ("reprise", "torch")]
    return [{"column": column, **facts, "left": percent(facts["left"])} for column, facts in found if facts]


START_COLUMNS = {
    "column": "column", "models": "models", "cold_s": "cold s", "warm_s": "warm s", "left": "warm / cold",
    "cache_mb": "cache MB",
}  # fmt: skip


def overhead_rows(rows):
    """What the guards of each model take, beside eager and torch.compile(backend="eager")."""
    found = []
    for row in summary.programs_of(rows):
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
    for row in summary.programs_of(rows):
        ours = summary.column_of(row, "reprise")
        status = row["status"] if row["status"] != "ok" else ours.get("status", "ok")
        steady, total = ours.get("steady") or {}, ours.get("total") or {}
        count = summary.operators(row, "reprise")
        found.append({
            "suite": row["suite"], "row": row["row"], "mode": row["mode"], "status": status,
            "entries": total.get("entries"), "exits": steady.get("exits"), "opaque": steady.get("opaque_calls"),
            "operators": f"{count[0]}/{count[1]}" if count else None, "kernels": ours.get("kernels"),
            "library": ours.get("library_calls"), "planned_mb": ours.get("planned_mb"),
            "cold_s": ours.get("cold_s"), "eager_ms": summary.column_of(row, "eager").get("ms"),
            "ours_ms": ours.get("ms"),
            "speedup": summary.speedup(row), "notes": summary.notes_of(row),
        })  # fmt: skip
    return found


ROW_COLUMNS = {
    "row": "model", "mode": "mode", "status": "status", "entries": "entries", "exits": "exits", "opaque": "opaque",
    "operators": "operators", "kernels": "kernels", "library": "library", "planned_mb": "planned MB",
    "cold_s": "cold s", "eager_ms": "eager ms", "ours_ms": "reprise ms", "speedup": "x", "notes": "",
}  # fmt: skip


def sections_of(rows):
    """(title, rows, columns) of every table that these results fill."""
    has_capture = any(row.get("capture") or row["mode"] == "tracers" for row in rows)
    found = [
        ("Models", row_lines(rows), ROW_COLUMNS),
        ("Sizes", size_lines(rows), SIZE_LINE_COLUMNS),
        ("Table 1: capture (inference)", capture_rows(rows) if has_capture else [], CAPTURE_COLUMNS),
        ("Table 2: cost of capture alone, over eager", cost_rows(rows), COST_COLUMNS),
        ("Guards", overhead_rows(rows), OVERHEAD_COLUMNS),
        ("Table 3: speed-up over eager, geometric means", speed_rows(rows), SPEED_COLUMNS),
        ("Table 4: what the parts are worth, geometric means over eager", ablation_rows(rows), ABLATION_COLUMNS),
        ("Recompiles over sizes", size_rows(rows), SIZE_COLUMNS),
        ("Starts: mean of the first three calls beyond eager's", start_rows(rows), START_COLUMNS),
    ]
    return [section for section in found if section[1]]


def print_report(path):
    facts, rows = read_results(path)
    if not rows:
        print(f"{path} has no results")
        return
    print(f"{facts.get('date')}  {facts.get('machine')}  torch {facts.get('packages', {}).get('torch')}")
    for title, lines, columns in sections_of(rows):
        print(f"\n{title}\n{text_table(lines, columns)}")
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
