"""Trace text tests: Python in, trace, entry and exits out. BLESS=1 rewrites the expectations (cases/*.txt)."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.py"))
ROOT = HERE.parent.parent


def normalise(text):
    """Without what differs between machines: paths, and print() of the programs."""
    text = text.replace("[reprise:", "[")
    text = re.sub(r"(/[\w.+-]+)+/cases/", "cases/", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.fixture(scope="module")
def found():
    environment = dict(os.environ, REPRISE_LOG="trace,entry,exits,recompiles", PYTHONHASHSEED="0")
    done = subprocess.run(
        [sys.executable, "-m", "tests.trace.run"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    parts = re.split(r"^== (\w+)\n", done.stderr, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(normalise, parts[2::2])))


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the units of the traces are those of CPython 3.11")
@pytest.mark.parametrize("name", CASES)
def test_the_trace_of(name, found):
    expectation = HERE / "cases" / f"{name}.txt"
    if os.environ.get("BLESS"):
        expectation.write_text(found[name])
    assert found[name] == expectation.read_text()
    outcome = name.split("_")[0]
    has_exit = bool(re.search(r"^\[exits\]", found[name], flags=re.MULTILINE))
    if outcome != "error":  # an uncaught exception is raised in the frames of an exit
        assert has_exit == (outcome == "exit"), outcome
    assert ("raised" in found[name].splitlines()[-1]) == (outcome == "error"), outcome
