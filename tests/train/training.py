"""Training twins: six steps of an eager and a compiled copy, bit-equal in everything a step leaves behind.

`check_training(make)` builds two equal `Trained` and runs each twin's step on the same batches. After every step it
compares what the step returned, parameters, gradients (None included), buffers, the optimizer's state and param groups,
and whatever else `more` lists. `promise` asserts on Reprise's counters over all steps.
"""

import dataclasses
from collections.abc import Callable

import torch
from twins import IS_REPRISE, assert_counts, assert_same, compiled, rnd, seed, torch_state

from bench import stats

STEPS = 6

#: the issue's promise: one entry, and one more for the first step, where gradients and the optimizer's state are None
TWO_ENTRIES = {"recordings": range(1, 3), "exits": 0, "opaque_calls": 0}


@dataclasses.dataclass
class Trained:
    """One twin: the model, its optimizer(s), `step(x, y)`, and `more()` for what else is compared."""

    model: torch.nn.Module
    optimizer: object
    step: Callable
    more: Callable = dict

    def state(self):
        optimizers = self.optimizer if isinstance(self.optimizer, (list, tuple)) else [self.optimizer]
        state = {"parameters": dict(self.model.named_parameters()), "buffers": dict(self.model.named_buffers())}
        state["gradients"] = {k: p.grad for k, p in self.model.named_parameters()}
        state["optimizers"] = [o.state_dict() for o in optimizers if o is not None]
        state["more"] = self.more()
        return state


def make_net(dropout=0.0, norm=False):
    layers = [torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)]
    if dropout:
        layers.insert(2, torch.nn.Dropout(dropout))
    if norm:
        layers.insert(1, torch.nn.BatchNorm1d(8))
    return torch.nn.Sequential(*layers)


def loss_of(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def batch(i, rows=3):
    return rnd(100 + i, rows, 4), rnd(200 + i, rows, 2)


def plain_step(model, optimizer):
    """The usual step: zero_grad, forward, backward, step; returns the detached loss."""

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def check_training(make, *, steps=STEPS, batches=batch, promise=None, outside=None, noise=1):
    """Run the twins' steps on equal batches and compare. outside(trained, i): uncompiled code after each step."""
    twins = []
    for wrap in (lambda step: step, compiled):
        seed(0)
        trained = make()
        twins.append((trained, wrap(trained.step)))
    for i in range(steps):
        found = []
        for trained, step in twins:
            seed(i)
            value = step(*batches(i))
            if outside is not None:
                outside(trained, i)
            found.append({"returned": value, **trained.state(), "global state": torch_state()})
        assert_same(found[1], found[0], f"step {i}", noise)
    if promise is not None and IS_REPRISE:
        assert_counts(stats.stats_of(twins[1][1]), promise, stats.why_not_recorded(twins[1][1]))
    return twins
