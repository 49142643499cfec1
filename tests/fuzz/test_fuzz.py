"""A slice of fixed seeds of each fuzzer, in forked processes. A failure names the seed and shows the program."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent

#: kind, backend, seeds
SLICES = [
    ("tensor", "eager", "0:50"),
    ("tensor", "native", "0:30"),
    ("python", "eager", "0:40"),
    ("python", "native", "120:150"),
    ("use", "native", "0:40"),
]


@pytest.mark.parametrize(("kind", "backend", "seeds"), SLICES)
def test_programs_of_fixed_seeds(kind, backend, seeds):
    command = [sys.executable, str(HERE / "drive.py"), kind, "--seeds", seeds, "--backend", backend, "--no-minimise"]
    path = os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
