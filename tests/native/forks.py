"""Programs that are compiled for the first time, and children of a fork that call them."""

import os
import signal
import time

import pytest
import reprise
import torch

PATIENCE_S = 60


def forks(test):
    """Marks a test that forks."""
    test = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")(test)
    # Python warns that the process has threads.
    return pytest.mark.filterwarnings("ignore::DeprecationWarning")(test)


def make_program(seed, length=6):
    """A program with a kernel that no other seed and length have."""
    scales = [1.0 + (seed * 7 + i) / 1000 for i in range(length)]

    def program(x):
        y = x
        for scale in scales:
            y = torch.tanh(y * scale) + torch.exp(-y * y) * scale
        return y.sum(-1), torch.softmax(y, -1)

    return program


def check(compiled, program, x):
    for got, want in zip(compiled(x), program(x)):
        torch.testing.assert_close(got, want)


def check_in_children(count, prepare, check_child, check_parent):
    """Forks `count` times: `made = prepare(i)`, then `check_child(made)` in a child, beside `check_parent(made)`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    outcomes = []
    try:
        for i in range(count):
            made = prepare(i)
            child = os.fork()
            if child == 0:
                try:
                    check_child(made)
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            check_parent(made)
            outcomes.append(wait_for(child, PATIENCE_S))
    finally:
        torch.set_num_threads(threads)
        reprise.reset()
    assert outcomes == [0] * count


def wait_for(child, patience_s):
    """The exit code of a child, or "hangs": it is killed then."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found == child:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"
