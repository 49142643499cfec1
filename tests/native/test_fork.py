"""Forks while the background thread compiles: children call what the parent compiled, compile more, and end."""

import os

import pytest
import reprise
import torch

from tests.native.forks import wait_for

FORKS = 50
PATIENCE_S = 60


def make_program(seed):
    """A kernel that no other program has."""
    scales = [1.0 + (seed * 7 + i) / 1000 for i in range(6)]

    def program(x):
        y = x
        for scale in scales:
            y = torch.tanh(y * scale) + torch.exp(-y * y) * scale
        return y.sum(-1), torch.softmax(y, -1)

    return program


def check(compiled, program, x):
    for got, want in zip(compiled(x), program(x)):
        torch.testing.assert_close(got, want)


def run_child(compiled, program, x, seed):
    """In the child: what the parent compiled, then something new, then everything is dropped."""
    check(compiled, program, x)
    new = make_program(seed)
    fresh = reprise.compile(new)
    for _ in range(3):
        check(fresh, new, x)
    reprise.reset()
    del fresh


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns that the process has threads
def test_forks_during_background_compiles():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    x = torch.randn(8, 33)
    outcomes = []
    try:
        for i in range(FORKS):
            program = make_program(i)
            compiled = reprise.compile(program)
            for _ in range(2):  # the second call compiles, and queues the better code
                check(compiled, program, x)
            child = os.fork()
            if child == 0:
                try:
                    run_child(compiled, program, x, 1000 + i)
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            check(compiled, program, x)
            outcomes.append(wait_for(child, PATIENCE_S))
    finally:
        torch.set_num_threads(threads)
        reprise.reset()
    assert outcomes == [0] * FORKS
