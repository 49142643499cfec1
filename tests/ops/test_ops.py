"""A slice of the sweep over PyTorch's own table of operators, the same cases every time. `make test-ops` runs all."""

import pytest

from tests.ops.cases import list_cases, pick_slice
from tests.ops.run import run_cases, summarise

PART = {"native": 0.04, "aot_eager": 0.015}


@pytest.mark.parametrize("backend", PART)
def test_compiled_operators_agree_with_eager(backend):
    names = [case.name for case in pick_slice(list_cases(), PART[backend])]
    rows = []
    run_cases(names, backend, 2, 60, rows.append)
    report = "\n".join(summarise(rows, backend))
    print(report)
    assert len(rows) == len(names)
    assert all(row["status"] == "ok" for row in rows), report
