"""What starts cost: the same program in two processes, one behind the other, with one cache on disk.

Cold is the first process, with an empty cache; warm is the second. Both are measured as `cold_s` of worker.py: what
the first three calls cost beyond eager's, imports of the compiler among them.
"""

import json
import os
import subprocess
import sys
import tempfile

#: column -> the variable that names its cache on disk
CACHES = {"reprise": "REPRISE_CACHE", "torch": "TORCHINDUCTOR_CACHE_DIR"}


def start(row, column, folder, arguments):
    """The result of one process. RuntimeError if it has none."""
    command = [sys.executable, "-m", "bench.harness.worker", row.name, "inference", "--columns", column, *arguments]
    done = subprocess.run(command, env={**os.environ, CACHES[column]: folder}, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT ") and not done.returncode:
            return json.loads(line[len("RESULT ") :])
    raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-300:]}")


def measure_column(row, column, arguments):
    """(facts of the column, status of the row, its error)."""
    facts = {"status": "pass", "error": None}
    with tempfile.TemporaryDirectory() as folder:
        for which in ("cold_s", "warm_s"):
            found = start(row, column, folder, arguments)
            if found["status"] != "ok":
                return {}, found["status"], found.get("error")
            mine = found["columns"][column]
            if mine["status"] != "pass":
                return {"status": mine["status"], "error": mine["error"]}, "ok", None
            facts[which] = mine["cold_s"]
            if column == "reprise":
                counters = mine["counters"]
                facts["kernels"] = {name: counters.get(name, 0) for name in ("compiled_kernels", "cached_kernels")}
        facts["cache_mb"] = sum(
            os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names
        ) / 2**20  # fmt: skip
    return facts, "ok", None


def measure(row, columns, arguments):
    """The result of one row: a dict for JSON."""
    result = {"row": row.name, "suite": row.suite, "mode": "warm", "hard": row.hard, "columns": {}, "status": "ok"}
    for column in (column for column in columns if column in CACHES):
        try:
            facts, status, error = measure_column(row, column, arguments)
        except RuntimeError as failure:
            facts, status, error = {"status": "raises", "error": str(failure)}, "ok", None
        if status != "ok":
            return {**result, "status": status, "error": error}
        result["columns"][column] = facts
    return result
