"""An exit at every place of small programs: in front of every statement and around every expression."""

import pytest
from programs import EXPRESSIONS, KINDS, PROGRAMS, change, run_twins, variants


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_program_itself_runs_whole(name):
    run_twins(PROGRAMS[name], name)


def run_all(name, kind, step):
    for place, source in variants(PROGRAMS[name], kind, step):
        try:
            run_twins(source, f"{name} {kind} {place}")
        except AssertionError as error:
            error.add_note(f"exit by {kind} at place {place} of {name!r}:\n{source}")
            raise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_an_exit_at_every_place(name, kind):
    # Expressions are many; a third of them by default, all of them in the slow test.
    run_all(name, kind, 3 if kind in EXPRESSIONS else 1)


@pytest.mark.parametrize("kind", list(EXPRESSIONS))
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_an_exit_at_every_expression_slow(name, kind):
    run_all(name, kind, 1)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_exits_at_two_places_at_once(name):
    _, count = change(PROGRAMS[name], "print", -1)
    for place in range(0, count - 1, 4):
        source, _ = change(PROGRAMS[name], "print", place + 1)
        source, _ = change(source, "branch", place)
        try:
            run_twins(source, f"{name} two exits {place}")
        except AssertionError as error:
            error.add_note(source)
            raise
