"""Random programs with exits at random places. A failure names the seed; `REPRISE_TEST_SEED=17` runs that one alone.

`REPRISE_TEST_PROGRAMS` is the number of programs of the default run. The slow test goes on until 10,000 exits were
taken; each exit is checked by the comparison of the call that it was taken in.
"""

import os
import random

import pytest
import torch
from programs import run_twins
from random_programs import make_program
from twins import IS_REPRISE, MODE

from bench import modes

SEEDS = (
    [int(os.environ["REPRISE_TEST_SEED"])]
    if "REPRISE_TEST_SEED" in os.environ
    else range(int(os.environ.get("REPRISE_TEST_PROGRAMS", "150")))
)
ENOUGH_EXITS = 10_000


def run(seed):
    """Compare the twins of one seed; returns how many exits were taken, or could have been (outside of Reprise)."""
    source, places = make_program(seed)
    signs = random.Random(seed)
    probes = [signs.choice([1.0, -1.0]) for _ in range(6)]
    try:
        counts = run_twins(source, f"seed {seed}", probes, grads=seed % 3 == 0)
    except AssertionError as error:
        error.add_note(f"REPRISE_TEST_SEED={seed}\n{source}")
        raise
    return counts["exits"] if counts is not None else places * len(probes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program(seed):
    print("seed", seed)
    run(seed)


def test_the_same_seed_gives_the_same_program():
    assert make_program(5) == make_program(5)
    assert len({make_program(seed)[0] for seed in range(20)}) == 20


def test_ten_thousand_forced_exits_slow():
    exits, seed = 0, 1_000_000
    while exits < ENOUGH_EXITS:
        print("seed", seed, "exits", exits)
        exits += run(seed)
        seed += 1
        if seed % 20 == 0:
            modes.forget(MODE)
            torch._C._set_grad_enabled(True)
        assert IS_REPRISE or seed < 1_000_300
        assert seed < 1_010_000, f"only {exits} exits in 10,000 programs"
