"""The call-overhead probes: programs on tensors so small that what is measured is the cost around the kernels.

`PROBES` is the table. A row makes a program (function or module) and the arguments of its calls; all calls of one probe
have inputs like each other's, so that a compiled probe should replay one entry only. Everything runs without gradients.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

MOST_CALLS = 10_000


@dataclasses.dataclass(frozen=True)
class Probe:
    """make() -> (program, args, kwargs). block_ns: about how long one timed block takes; calls: fixed count instead."""

    name: str
    what: str
    make: Callable
    block_ns: int = 40_000_000
    calls: int | None = None


def make_add():
    def add_one(x):
        return x + 1

    return add_one, (torch.randn(1),), {}


def make_mlp():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval(), (torch.randn(1, 4),), {}


def make_bert():
    from bench.models import tiny_bert

    inputs = {"input_ids": torch.randint(0, 100, (1, 4)), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    return tiny_bert(12, 8), (), inputs


@dataclasses.dataclass
class Scales:
    factor: float = 0.5
    offset: float = 1.0


def make_dict_sum():
    def scaled_sum(tensors, scales):
        total = 0
        for value in tensors.values():
            total = total + value * scales.factor
        return total

    return scaled_sum, ({f"t{i}": torch.randn(1) for i in range(50)}, Scales()), {}


def make_600_modules():
    layers = [m for _ in range(200) for m in (nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())]
    return nn.Sequential(*layers).eval(), (torch.randn(1, 4),), {}


def make_100_linears():
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(100)]).eval(), (torch.randn(1, 4),), {}


def make_entries(count):
    """One entry a word, words in turn: the cost of finding the right entry among `count`."""

    def make():
        words = [f"word{i:03}" for i in range(count)]

        table = {word: i + 0.5 for i, word in enumerate(words)}

        def specialised(x, word):
            return x + table[word]

        return specialised, (torch.randn(1),), {"word": Turns(words)}

    return make


class Turns:
    """An argument that differs from call to call: the driver takes the next value in turn."""

    def __init__(self, values):
        self.values = values
        self.position = -1

    def take(self):
        self.position = (self.position + 1) % len(self.values)
        return self.values[self.position]


def call_of(program, args, kwargs):
    """A function without arguments that makes one call. Turns are resolved; without them nothing is added."""
    turns = [(name, value) for name, value in kwargs.items() if isinstance(value, Turns)]
    if turns:
        ((name, values),) = turns
        return lambda: program(*args, **{name: values.take()})
    if not kwargs and len(args) == 1:
        (arg,) = args
        return lambda: program(arg)
    return lambda: program(*args, **kwargs)


PROBES = {
    probe.name: probe
    for probe in (
        Probe("add", "x+1", make_add, calls=MOST_CALLS),
        Probe("mlp", "two-layer MLP", make_mlp),
        Probe("bert12x8", "12-layer BERT with hidden size 8", make_bert),
        Probe("dict50", "sum over a dict of 50 one-element tensors scaled by a dataclass field", make_dict_sum),
        Probe("modules600", "200 x (Linear 4x4, LayerNorm, GELU)", make_600_modules),
        Probe("linears100", "100 Linears 4x4", make_100_linears),
        Probe("entries4", "x+1 specialised on one of 4 words", make_entries(4)),
        Probe("entries64", "x+1 specialised on one of 64 words", make_entries(64)),
    )
}
