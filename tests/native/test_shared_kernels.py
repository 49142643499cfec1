"""Sizes that come later: from the third choice on no kernel is compiled, and the results are eager's.

How a kernel loops depends on sizes a little (blocks of sums, tiles): all sizes here have the same loops.
"""

import pytest
import reprise
import torch
from torch.nn import functional as F


def compile_here(program, **options):
    return reprise.compile(program, options={"async_compile": False, "cache": "off", **options})


def count_compiled(compiled, *args):
    return reprise.explain(compiled)(*args).counters["compiled_kernels"]


def attention(x):
    q, k, v = (t.unflatten(-1, (1, -1)).transpose(1, 2) for t in x.chunk(3, -1))
    scores = (q @ k.transpose(-1, -2)) * 0.25
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


PROGRAMS = {
    "pointwise": lambda x: F.gelu(x) * 0.5 + x.sin(),
    "rows": lambda x: F.layer_norm(x, x.shape[-1:]) + 1,
    "softmax": lambda x: (x * 2).softmax(1),
    "means": lambda x: (x.mean(1), x.var(0), x.square().sum(), x.amax(-1)),
    "arg": lambda x: (x.argmax(1), x.cumsum(1)),
    "broadcast": lambda x: x[:, :1] + x[:, 1:] * x[:1, 1:],
    "join": lambda x: torch.cat([x, x * 2, x[:, :3]], 1),
    "turn": lambda x: x.transpose(0, 1).contiguous() * 3,
    "pick": lambda x: F.embedding((x.abs() * 3).long().clamp(max=9), torch.arange(40.0).view(10, 4)).exp(),
    "number": lambda x: x / x.shape[1] + x.shape[0],
    "integers": lambda x: (x * 8).int() // x.shape[1],
    "attention": attention,
}


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_third_size_compiles_nothing(name, axis):
    program = PROGRAMS[name]
    compiled = compile_here(program)
    counts = []
    for size in (300, 350, 420, 377, 310):
        torch.manual_seed(size)
        x = torch.randn((size, 9, 24) if axis == 0 else (3, size, 24))
        expected = program(x)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected)
        counts.append(count_compiled(compiled, x))
    report = reprise.explain(compiled)(x)
    assert "native code" in str(report) and report.counters["failed_checks"] == 0, str(report)
    assert counts[0] > 0
    assert counts[2:] == [counts[1]] * 3, counts


def test_without_it_each_size_has_code():
    compiled = compile_here(PROGRAMS["pointwise"], without="shared_kernels")
    counts = []
    for size in (300, 350, 420):
        x = torch.randn(size, 9, 24)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), PROGRAMS["pointwise"](x))
        counts.append(count_compiled(compiled, x))
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("axis", (0, 1))
def test_training_at_a_third_size_compiles_nothing(axis):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.LayerNorm(48), torch.nn.Linear(48, 24), torch.nn.Softmax(1)
    )

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    compiled = compile_here(step)
    counts = []
    for size in (300, 350, 420, 377):
        x = torch.randn((size, 9, 24) if axis == 0 else (3, size, 24))
        expected = step(x)
        gradients = [p.grad.clone() for p in model.parameters()]
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected)
            for parameter, gradient in zip(model.parameters(), gradients):
                torch.testing.assert_close(parameter.grad, gradient)
        counts.append(count_compiled(compiled, x))
    assert counts[0] > 0 and counts[2:] == [counts[1]] * 2, counts


@pytest.mark.parametrize("name", ("rows", "softmax", "sum", "columns"))
def test_bits_are_those_of_code_for_one_size(name):
    """Short and long sums: lanes, blocks and groups of blocks."""
    program = {"sum": lambda x: (x * 2).sum(-1), "columns": lambda x: (x * 2).sum(0)}.get(name) or PROGRAMS[name]
    shared, single = compile_here(program), compile_here(program, without="shared_kernels")
    for size in (50, 7, 64, 300, 4096, 5000, 20000, 600000):
        torch.manual_seed(size)
        x = torch.randn((size, 3) if name == "columns" else (3, size))
        for _ in range(3):
            assert torch.equal(shared(x), single(x))
    if name == "sum":
        assert count_compiled(shared, x) < count_compiled(single, x)
