"""Whether native code is as exact as eager: both are measured against a float64 run of the same calls.

Training amplifies rounding: AdamW divides by the root of a gradient's square, so a gradient that is all rounding error
moves its parameter by the whole learning rate, and batch norm over two images is ill-conditioned. Two right programs
then differ by any bound on the last bits; only their distances to the exact result tell whether one is worse.
"""

import dataclasses
import statistics

import torch

from bench import modes
from bench.harness import referee
from bench.twins import make_twin, seeded

#: what may differ whatever float64 says, as `referee.tensor_problem` has it; absolute too, and gradients are small
TOLERANCE = 1e-7


@dataclasses.dataclass
class Verdict:
    """problem: None, or the first place that is wrong. error_ratio: of the median tensor, error over eager's error."""

    problem: str | None
    error_ratio: float


def judge(name, phase, mode, tiny, inputs):
    """Run fresh twins over `inputs`, a list of keyword arguments, and compare what each call leaves behind."""
    eager = make_twin(name, phase, tiny, modes.compiler("eager"))
    tested = make_twin(name, phase, tiny, modes.compiler(mode))
    exact = make_twin(name, phase, tiny, modes.compiler("eager"), double=True)
    found, ratios = None, []
    for i, kwargs in enumerate(inputs):
        got, want, best = (
            referee.snapshot(seeded(i, twin.call, **given), twin.state())
            for twin, given in ((tested, kwargs), (eager, kwargs), (exact, doubled(kwargs)))
        )
        wrong = referee.problem(got, want, best, TOLERANCE)
        found = found or wrong and f"call {i}, {wrong}"
        ratios += error_ratios(got, want, best)
    return Verdict(found, statistics.median(ratios))


def doubled(inputs):
    return {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def error_ratios(got, want, exact):
    """Of each float tensor that differs from the exact one: the norm of got's error over that of want's."""
    for path, best in exact.items():
        if isinstance(best, torch.Tensor) and best.is_floating_point() and {path} <= got.keys() & want.keys():
            error = (want[path].double() - best).norm().item()
            if error:
                yield (got[path].double() - best).norm().item() / error
