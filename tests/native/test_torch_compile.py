"""torch.compile(backend="reprise"), in a process of its own: PyTorch's capture patches torch.nn for good."""

import pathlib
import subprocess
import sys


def test_our_compiler_under_the_capture_of_pytorch():
    program = pathlib.Path(__file__).with_name("torch_compile_program.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
