"""Tests of our compiler as a backend of torch.compile; run by test_torch_compile.py in a process of their own."""

import pytest
import reprise
import torch
from reprise import _dynamo


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_it_is_found_by_name():
    assert "reprise" in torch._dynamo.list_backends()


def test_inference_and_training():
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    compiled = torch.compile(model, backend="reprise")
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(3, 6)
        found = []
        for module in (model, compiled):
            model.zero_grad()
            out = module(x)
            out.square().sum().backward()
            found.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
        torch.testing.assert_close(*found)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))


def test_graphs_become_native_code():
    made = []

    def backend(graph_module, example_inputs):
        made.append(_dynamo.compile_graph(graph_module, example_inputs))
        return made[-1]

    def f(x):
        return (x * 2 + 1).relu().sum(-1)

    compiled = torch.compile(f, backend=backend)
    x = torch.randn(4, 5)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x))
    assert len(made) == 1
    assert "native code" in str(reprise.explain(made[0])(x))
