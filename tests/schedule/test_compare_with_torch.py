"""Plans of one op agree with eager PyTorch, run by the kernel interpreter."""

from pathlib import Path

import pytest

from tests.schedule import compare_with_torch

ROOT = Path(__file__).parent.parent.parent


def find_run_plan():
    """The executable of the build that is newest, or None."""
    found = sorted(ROOT.glob("build/*/tests/reprise_run_plan"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def test_plans_of_one_op_agree_with_eager():
    run_plan = find_run_plan()
    if run_plan is None:
        pytest.skip("reprise_run_plan is not built")
    assert compare_with_torch.run(run_plan, []) == 0
