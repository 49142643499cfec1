"""Numbers that come from tensors are values of the graph."""

import pytest
import torch

from tests.aot.harness import Compiled, check


def inputs():
    torch.manual_seed(1)
    return [torch.randn(4, 6).requires_grad_(), torch.randn(4, 6)]


def multiplies(x, b):
    s = b.sum().item()
    return x * s, x + 1 / (1 - 0.9**s), x.add(b, alpha=s)


def computes_with_ints(x, b):
    n = b.abs().sum().long().item()
    return x * n, x + n // 2, x * (n % 3), x - n, x / (n + 1)


def computes_with_floats(x, b):
    s, t = b.sum().item(), b.abs().mean().item()
    return x * (s - t), x * (s / 3 + t**2), x * (-s), x + s // 2, x * (s % 0.7)


def is_a_python_number_in_a_list(x, b):
    return torch._foreach_add([x.detach(), b], b.sum().item())


CASES = [multiplies, computes_with_ints, computes_with_floats, is_a_python_number_in_a_list]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_numbers_are_those_of_eager(function):
    compiled = check(lambda tensors: function(*tensors), inputs(), calls=1)
    torch.manual_seed(5)
    other = [torch.randn(4, 6).requires_grad_(), torch.randn(4, 6) * 3]
    check(lambda tensors: function(*tensors), other, calls=1, compiled=compiled)


def branches(x, b):
    return x if b.sum().item() > 0 else x * 2


def uses_a_number_as_a_size(x, b):
    return x[: b.abs().sum().long().item()]


@pytest.mark.parametrize("function", [branches, uses_a_number_as_a_size])
def test_a_region_ends_where_the_number_is_needed(function):
    with pytest.raises(RuntimeError, match="depends? on data"):
        Compiled(lambda tensors: [function(*tensors)], inputs())
