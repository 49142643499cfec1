"""Results and arguments that are written to between a region and its backward: no error where eager saved others."""

import pytest
import reprise
import torch


def write_first_and_differentiate_last(f, x):
    first, last = f(x)
    first.mul_(2)
    last.sum().backward()
    return first, x.grad


def check(f, use):
    for options in ({}, {"validate": "off"}):
        compiled = reprise.compile(f, options=options)
        for i in range(4):
            x = torch.linspace(-1, 2, 12).reshape(3, 4).add_(i).requires_grad_()
            y = x.detach().clone().requires_grad_()
            for got, want in zip(use(compiled, x), use(f, y), strict=True):
                torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (lambda a: (a, a.exp().sin()))(x + 1),
        lambda x: (x.exp(), x.exp().cos()),
        lambda x: (lambda a: (a, a.clone().sin()))(x * 2),
        lambda x: (lambda a: (a, (a * 1).sin()))(x * 2),
        lambda x: (lambda a: (a, torch.relu(torch.relu(a)).sin()))(x * 2),
        lambda x: (lambda a: (a, a.double().float().clone().clone().sin()))(x * 2),
    ],
)
def test_a_result_that_eager_does_not_save_may_be_written_to(f):
    check(f, write_first_and_differentiate_last)


@pytest.mark.parametrize("f", [lambda x: (x.sigmoid(), x @ x.t()), lambda x: (x.softmax(-1), x.tanh())])
def test_what_only_another_result_needs_may_be_written_to(f):
    check(f, write_first_and_differentiate_last)


def test_what_the_gradient_needs_must_not_be_written_to():
    def f(x):
        return x * 2, x.exp()

    compiled = reprise.compile(f)
    for _ in range(4):
        x = torch.ones(3, requires_grad=True)
        _, last = compiled(x)
        last.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            last.sum().backward()
