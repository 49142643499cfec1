"""One self-contained HTML file of a result file: `dashboard.html` with the data put in. It loads nothing."""

import csv
import json
import pathlib
import re

from bench.harness import summary, tables
from bench.harness.driver import read_results

TEMPLATE = pathlib.Path(__file__).with_name("dashboard.html")
HISTORY = pathlib.Path(__file__).parents[1] / "history.csv"
#: of a row's columns, what its page shows first
MODEL_COLUMNS = {
    "column": "column", "status": "status", "ms": "median ms", "min_ms": "min ms", "cold_s": "cold s",
    "peak_mb": "peak MB", "error": "error",
}  # fmt: skip
EXIT_COLUMNS = {"place": "place", "reason": "reason", "code": "code", "count": "taken"}
FAILURE_COLUMNS = {"count": "models", "reason": "reason", "where": "where"}


def slug(title):
    """What a link to a table says: its first words."""
    return re.sub(r"\W+", "-", title.lower().partition(":")[0])


def heads(columns):
    return list(columns.items())


def model_page(row):
    """What the page of one model in one mode shows."""
    columns = [{"column": name, **{k: facts.get(k) for k in list(MODEL_COLUMNS)[1:]}}
               for name, facts in row["columns"].items()]  # fmt: skip
    ours = summary.column_of(row, "reprise")
    exits = [{**x, "place": summary.short_place(x["place"])} for x in ours.get("reasons", {}).get("exits", [])]
    kept = {k: v for k, v in ours.items() if k not in ("times_ms", "reasons", "traceback", "phases")}
    return {
        "phases": [[phase, 1e3 * seconds] for phase, seconds in ours.get("phases", {}).items()],
        "error": row.get("error") or ours.get("error"),
        "columns": columns,
        "exits": exits,
        "facts": {"status": row["status"], "hard": row.get("hard"), "capture": row.get("capture"), "reprise": kept},
    }


def compile_points(rows):
    """[trace items, seconds of the first three calls beyond eager's, name] of each program."""
    found = []
    for row in summary.programs_of(rows):
        ours = summary.column_of(row, "reprise")
        if ours.get("items") and ours.get("cold_s"):
            found.append([ours["items"], ours["cold_s"], f"{row['row']} {row['mode']}"])
    return found


def memory_points(rows):
    """Peak memory of eager over ours of each program."""
    peaks = [(summary.column_of(row, "eager").get("peak_mb"), summary.column_of(row, "reprise").get("peak_mb"))
             for row in summary.programs_of(rows)]  # fmt: skip
    return [theirs / ours for theirs, ours in peaks if theirs and ours]


def share(key, value):
    """Shares of all rows or operators as per cents."""
    is_share = key in ("works", "whole", "operators", "torch_whole", "torch_operators", "noise")
    return tables.percent(value) if is_share else value


def dashboard_data(path, history=HISTORY):
    """Everything that the page shows, as plain lists and dicts."""
    facts, rows = read_results(path)
    line = summary.headline(facts, rows)
    past = []
    if history.exists():
        with open(history, newline="") as lines:
            past = list(csv.DictReader(lines))
    failures = [
        {"count": len(where), "reason": reason, "where": "; ".join(f"{n} {p}".strip() for n, p in where[:12])}
        for reason, where in summary.failures(rows).items()
    ]
    shown = [key for key in line if key not in ("date", "commit", "machine", "torch") and line[key] != ""]
    versions = ", ".join(f"{k} {v}" for k, v in facts.get("packages", {}).items() if v)
    return {
        "facts": f"{facts.get('date')} · {facts.get('commit')} · {facts.get('machine')} · {versions}",
        "headline": [[key.replace("_", " "), share(key, line[key])] for key in shown],
        "sections": [
            {"id": slug(title), "title": title, "rows": lines, "columns": heads(columns)}
            for title, lines, columns in tables.sections_of(rows)
            if title != "Models"
        ],
        "failures": failures,
        "compile_points": compile_points(rows),
        "memory_points": memory_points(rows),
        "rows": tables.row_lines(rows),
        "history": past,
        "models": {f"{row['row']} {row['mode']}": model_page(row) for row in rows},
        "tables": {
            "failures": heads(FAILURE_COLUMNS),
            "rows": [["suite", "suite"], *heads(tables.ROW_COLUMNS)],
            "history": [[key, key.replace("_", " ")] for key in line],
            "model_columns": heads(MODEL_COLUMNS),
            "exit_columns": heads(EXIT_COLUMNS),
        },
    }


def write_dashboard(path, html, history=HISTORY):
    """Write the page of a result file. A `<` in the data must not end the script."""
    text = json.dumps(dashboard_data(path, history)).replace("<", "\\u003c")
    text = re.sub(r"/[^\s\"']*?/(?=site-packages/|lib/python3|bench/)", "", text)  # where they lie on this machine
    html.parent.mkdir(parents=True, exist_ok=True)
    html.write_text(TEMPLATE.read_text().replace("@DATA@", text))
