"""Code is compared with PyTorch before it is used: mistakes in kernels are found, counted, told, and never seen."""

import pathlib

import pytest
import reprise
import torch

FAULTS = [
    line.split('"')[1]
    for line in (pathlib.Path(__file__).parents[2] / "src/kernel/faults.def").read_text().splitlines()
    if line.startswith("X(")
]


def program(x, y):
    a = torch.where(x > 0.25, torch.exp(x) * 1.5, y - x)
    b = (a + 0.75).amax(-1, keepdim=True) / (y * y).sum(-1, keepdim=True)
    return torch.sigmoid(a * b) + 2.5, b.squeeze(-1)


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(33, 65, generator=generator), torch.randn(33, 65, generator=generator)


def counters(compiled):
    return reprise.explain(compiled)(*inputs(0)).counters


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_in_kernels_is_found(fault, monkeypatch, capfd):
    monkeypatch.setenv("REPRISE_TEST_FAULT", fault)
    compiled = reprise.compile(program)
    for seed in range(5):
        for got, want in zip(compiled(*inputs(seed)), program(*inputs(seed))):
            torch.testing.assert_close(got, want)
    found = counters(compiled)["failed_checks"]
    assert found >= 1
    assert capfd.readouterr().err.count("native code is not used") == found


def test_inputs_that_repeat_their_elements(monkeypatch):
    monkeypatch.setenv("REPRISE_TEST_FAULT", "wrong_factor")

    def f(x, y):
        return torch.exp(x) * y * 1.5

    compiled = reprise.compile(f)
    for seed in range(3):
        x, y = inputs(seed)
        x = x[:1].expand(33, 65)
        assert torch.equal(compiled(x, y), f(x, y))
    assert reprise.explain(compiled)(x, y).counters["failed_checks"] == 1


def test_without_the_check_mistakes_are_seen(monkeypatch):
    monkeypatch.setenv("REPRISE_TEST_FAULT", "swapped_sign")
    compiled = reprise.compile(program, options={"validate": "off"})
    compiled(*inputs(0))
    assert not torch.allclose(compiled(*inputs(1))[0], program(*inputs(1))[0])


@pytest.mark.parametrize("mode", ["first", "always"])
def test_right_code_passes(mode):
    compiled = reprise.compile(program, options={"validate": mode})
    for seed in range(5):
        for got, want in zip(compiled(*inputs(seed)), program(*inputs(seed))):
            torch.testing.assert_close(got, want)
    counts = counters(compiled)
    assert counts["checked_regions"] >= 1 and counts["failed_checks"] == 0


def test_mistakes_in_gradients_are_found(monkeypatch):
    monkeypatch.setenv("REPRISE_TEST_FAULT", "wrong_factor")

    def f(x):
        return torch.tanh(x) + torch.sin(x)  # no product in the forward

    compiled = reprise.compile(f)
    for seed in range(3):
        x, y = (inputs(seed)[0].requires_grad_() for _ in range(2))
        compiled(x).sum().backward()
        f(y).sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert reprise.explain(compiled)(x).counters["failed_checks"] == 1


def test_the_check_changes_nothing():
    """Written inputs, random numbers, hooks and gradients are those of one run."""
    seen = []

    def f(x, state):
        state.add_(1)
        return torch.nn.functional.dropout(x * 2, 0.5) + state

    compiled = reprise.compile(f)
    for i in range(4):
        found = []
        for function in (f, compiled):
            torch.manual_seed(i)
            x, state = torch.ones(8, 8, requires_grad=True), torch.full((8,), float(i))
            x.register_hook(lambda g: seen.append(1))
            out = function(x, state)
            out.sum().backward()
            found.append((out.detach(), state, x.grad, torch.rand(3)))
        assert all(torch.equal(a, b) for a, b in zip(*found))
    assert len(seen) == 8


def test_an_input_that_gets_a_history_is_no_end_of_gradients(capfd):
    """It is written to with something that requires gradients: what flows to it is no gradient of an input."""

    def f(total, index, values):
        total.scatter_add_(0, index, values)
        return total + 1, total * 2

    compiled = reprise.compile(f)
    for seed in range(4):
        found = []
        for function in (f, compiled):
            generator = torch.Generator().manual_seed(seed)
            values = torch.randn(6, 1, generator=generator, requires_grad=True)
            a, b = function(torch.zeros(2, 1), torch.tensor([[0], [1], [0], [1], [1], [0]]), values)
            (a.sin().sum() + b.sum()).backward()
            found.append((a.detach(), b.detach(), values.grad))
        for got, want in zip(*found):
            torch.testing.assert_close(got, want)
    assert "native code is not used" not in capfd.readouterr().err


def test_float32_gradients_behind_half_types_are_as_exact_as_those(capfd):
    """PyTorch sums the gradients of a layer norm's weights in the type of its input, which autocast made bfloat16."""
    norm, weight = torch.nn.LayerNorm(6), torch.nn.Parameter(torch.randn(6, 4))

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.gelu(norm(x @ weight.t()))

    compiled = reprise.compile(f)
    for seed in range(4):
        x = torch.randn(50, 4, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        got, want = compiled(x), f(x)
        torch.testing.assert_close(got, want)
        got.sum().backward()
    assert reprise.explain(compiled)(x).counters["failed_checks"] == 0
    assert "native code is not used" not in capfd.readouterr().err
