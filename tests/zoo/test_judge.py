"""The demo's judge: errors like eager's pass, a wrong gradient does not."""

import torch

from bench import judge, modes
from bench.models import make_inputs


def model_of(step):
    """The module in a training step."""
    return next(c.cell_contents for c in step.__closure__ if isinstance(c.cell_contents, torch.nn.Module))


def verdict_of(monkeypatch, wrap):
    """The verdict on a program that `wrap` makes of a tiny ResNet's training step."""
    find = modes.compiler
    monkeypatch.setattr(modes, "compiler", lambda mode: wrap if mode == "tested" else find(mode))
    inputs = [make_inputs("resnet50", tiny=True, seed=i, labels=True) for i in range(2)]
    return judge.judge("resnet50", "training", "tested", True, inputs)


def test_the_program_itself_is_as_exact_as_eager(monkeypatch):
    verdict = verdict_of(monkeypatch, lambda step: step)
    assert verdict.problem is None
    assert verdict.error_ratio == 1


def test_a_wrong_result_is_named(monkeypatch):
    verdict = verdict_of(monkeypatch, lambda step: lambda **inputs: step(**inputs) * 1.01)
    assert verdict.problem.startswith("call 0, result: ")


def test_a_state_that_drifts_is_named(monkeypatch):
    def wrap(step):
        def drifting(**inputs):
            with torch.no_grad():
                next(model_of(step).parameters()).mul_(1.01)
            return step(**inputs)

        return drifting

    verdict = verdict_of(monkeypatch, wrap)
    assert verdict.problem is not None
    assert verdict.error_ratio > 2


def test_a_wrong_gradient_is_named_however_small_it_is(monkeypatch):
    def wrap(step):
        def wrong(**inputs):
            loss = step(**inputs)
            smallest = min((p.grad for p in model_of(step).parameters() if p.dim() > 1), key=lambda g: g.norm())
            smallest.mul_(1.05)
            return loss

        return wrong

    assert "gradient" in verdict_of(monkeypatch, wrap).problem
