"""The regression gate without clocks: counts of the small tier that do not depend on the machine.

`bench/expectations.json` holds them by version of torch (its first two numbers), since what PyTorch and the packages
run differs between versions. `python -m bench gate` runs the rows and compares; BLESS=1 rewrites what it ran. Better
counts are differences as well: they are blessed like any other change, and reviewed.
"""

import importlib.metadata
import json
import os
import pathlib
import sys

EXPECTATIONS = pathlib.Path(__file__).parents[1] / "expectations.json"
#: rows of the test of every change: our own models, cheap, of many kinds
SLICE = ("lstm_lm", "dlrm", "retention", "hamiltonian", "moco")

#: what the rows run with: which library multiplies matrices depends on the processor, and with it what is fused
ENVIRONMENT = {"REPRISE_GEMM": "mkl"}


#: counts that depend on the bytecode, and the version of Python that they are expected of
OF_BYTECODE = ("guards", "items")
PYTHON = (3, 11)


def torch_version():
    return ".".join(importlib.metadata.version("torch").split(".")[:2])


def counts_of(result):
    """The counts of one result that are compared."""
    ours = result["columns"].get("reprise", {})
    found = {"status": result["status"] if result["status"] != "ok" else ours.get("status")}
    if "steady" in ours:
        found.update(
            entries=ours["total"]["entries"],
            exits=ours["steady"]["exits"],
            opaque_calls=ours["steady"]["opaque_calls"],
            recordings=ours["steady"]["recordings"],
            kernels=ours["kernels"],
            library_calls=ours["library_calls"],
            regions_not_native=ours["not_native_count"],
            guards=ours["guards"],
            items=ours["items"],
            planned_bytes=ours["counters"].get("planned_bytes", 0),
        )
    capture = result.get("capture") or {}
    if isinstance(capture.get("operators"), int):
        found["operators"] = capture["operators"]
        found["captured"] = (capture.get("reprise") or {}).get("captured")
    return found


def read_expectations(path=EXPECTATIONS):
    return json.loads(path.read_text()) if path.exists() else {}


def key_of(result):
    return f"{result['row']} {result['mode']}"


def without_expectations(results, expectations):
    """Keys of the rows that ran and that nothing is expected of: new ones, or all under another version of torch."""
    expected = expectations.get(torch_version(), {})
    return [key_of(r) for r in results if r["status"] != "missing" and key_of(r) not in expected]


def differences(results, expectations):
    """Texts, one a count that differs; for rows that nothing is expected of see `without_expectations`."""
    expected = expectations.get(torch_version(), {})
    found = []
    for result in results:
        key = key_of(result)
        if key not in expected or result["status"] == "missing":
            continue
        mine = counts_of(result)
        skipped = () if sys.version_info[:2] == PYTHON else OF_BYTECODE
        for name in sorted({*expected[key], *mine} - {*skipped}):
            if expected[key].get(name) != mine.get(name):
                found.append(f"{key}: {name} {mine.get(name)}, expected {expected[key].get(name)}")
    return found


def bless(results, path=EXPECTATIONS):
    """Write the counts of these results over those of the same rows and version."""
    expectations = read_expectations(path)
    section = expectations.setdefault(torch_version(), {})
    for result in results:
        if result["status"] != "missing":
            section[key_of(result)] = counts_of(result)
    expectations[torch_version()] = dict(sorted(section.items()))
    lines = []
    for version, rows in sorted(expectations.items()):
        body = ",\n".join(f"  {json.dumps(key)}: {json.dumps(counts)}" for key, counts in rows.items())
        lines.append(f"{json.dumps(version)}: {{\n{body}\n}}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check_or_bless(results):
    """Differences, or none after writing them where BLESS=1 is set."""
    if os.environ.get("BLESS") == "1":
        bless(results)
        return []
    return differences(results, read_expectations())
