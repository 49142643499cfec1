"""The zoo's tables, its referee, its summary, and a cheap slice of the regression gate.

The slice runs one process a model, as `python -m bench gate` does for the whole small tier. Counts are expected by
version of torch: elsewhere a model must only work.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from bench import zoo
from bench.harness import gate, referee, summary
from bench.harness.programs import modes_of

ROOT = pathlib.Path(__file__).parents[2]


def test_every_row_can_be_read_and_names_are_unique():
    rows = zoo.all_rows()
    assert len(rows) >= 160
    assert all(row.construct and row.inputs for row in rows)
    assert 24 <= len(zoo.small_rows()) <= 26
    assert all(skipped["reason"] for skipped in zoo.skipped_rows())


def test_a_row_whose_package_is_missing_says_so():
    row = zoo.Row("own", "nothing", "no-such-package", (), "None", "()", "", frozenset(), "")
    with pytest.raises(zoo.Missing, match="no-such-package"):
        zoo.make_case(row)


def test_equal_seeds_give_equal_twins_and_other_seeds_other_inputs():
    row = zoo.find_row("retention")
    (a, args, _), (b, again, _) = zoo.make_case(row), zoo.make_case(row)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))
    assert torch.equal(args[0], again[0])
    assert not torch.equal(args[0], zoo.make_case(row, 1)[1][0])


def test_the_referee_allows_rounding_and_nothing_else():
    exact = torch.randn(2000, dtype=torch.float64) * 1e4
    want = {"result": exact.float()}
    near = {"result": (exact * (1 + 2e-8)).float()}
    assert not torch.equal(near["result"], want["result"])
    assert referee.problem(near, want, {"result": exact}, 1e-9) is None
    off = {"result": want["result"] + 1}
    assert "rms error" in referee.problem(off, want, {"result": exact}, 1e-6)
    assert "values differ" in referee.problem({"x": torch.tensor(1)}, {"x": torch.tensor(2)}, None, 1)
    assert "instead of" in referee.problem({"x": torch.ones(2)}, {"x": torch.ones(3)}, None, 1)
    assert "other results" in referee.problem({}, want, None, 1)


def result(name, status="pass", exits=0, ms=1.0):
    ours = {"status": status, "error": None, "steady": {"exits": exits, "recordings": 0}, "ms": ms}
    columns = {"eager": {"status": "pass", "ms": 2.0}, "eager-again": {"status": "pass", "ms": 2.0}, "reprise": ours}
    capture = {"operators": 10, "reprise": {"captured": 8, "graphs": 2, "is_whole": not exits}}
    return {
        "row": name,
        "suite": "own",
        "mode": "inference",
        "status": "ok",
        "columns": columns,
        "capture": capture,
    }


def test_the_summary_counts_failures_against_us():
    rows = [result("a"), result("b", exits=2), result("c", status="wrong"), {**result("d"), "status": "crash"}]
    facts = summary.capture_facts(rows)
    assert (facts["models"], facts["works"], facts["none"], facts["few"]) == (4, 2, 1, 1)
    assert facts["operators"] == (8 + 8) / 40 and facts["served"] == (10 + 8) / 40
    assert facts["graphs"] == 2
    speeds = summary.speed_facts(rows, "reprise")
    assert (speeds["mean"], speeds["works"], speeds["models"]) == (2.0, 2, 4)
    assert speeds["penalised"] == pytest.approx(1.0)  # 2 x twice, and twice half


@pytest.mark.parametrize("name", gate.SLICE)
def test_counts_of_a_cheap_slice_are_as_expected(name):
    row = zoo.find_row(name)
    mode = modes_of(row)[0]
    command = [sys.executable, "-m", "bench.harness.worker", name, mode, "--threads", "1", "--capture"]
    environment = {**os.environ, **gate.ENVIRONMENT}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    found = json.loads(lines[-1][len("RESULT ") :])
    assert found["status"] == "ok" and found["columns"]["reprise"]["status"] == "pass", found
    assert not gate.check_or_bless([found])
    if gate.torch_version() == "2.13":  # the version of these tests
        assert not gate.without_expectations([found], gate.read_expectations())
