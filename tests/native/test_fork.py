"""Forks while the background thread compiles: children call what the parent compiled, compile more, and end."""

import reprise
import torch

from tests.native.forks import check, check_in_children, forks, make_program


@forks
def test_forks_during_background_compiles():
    x = torch.randn(8, 33)

    def prepare(i):
        program = make_program(i)
        compiled = reprise.compile(program)
        for _ in range(2):  # the second call compiles, and queues the better code
            check(compiled, program, x)
        return i, compiled, program

    def check_child(made):
        """What the parent compiled, then something new, then everything is dropped."""
        i, compiled, program = made
        check(compiled, program, x)
        new = make_program(1000 + i)
        fresh = reprise.compile(new)
        for _ in range(3):
            check(fresh, new, x)
        reprise.reset()
        del fresh

    check_in_children(50, prepare, check_child, lambda made: check(*made[1:], x))
