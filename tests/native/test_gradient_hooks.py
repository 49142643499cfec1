"""Hooks and kept gradients of results that leave a region, and of arguments that it writes to."""

import pytest
import reprise
import torch


def two_results(x):
    return x * 2, x * 3


def writes_to_both(x, y):
    x.mul_(2)
    y.add_(x)
    return x * y, x - y


def hook_of_what_is_not_differentiated(f, x, log):
    first, last = f(x)
    first.register_hook(lambda g: log.append(g))
    last.sum().backward()
    (first.sum()).backward()
    return (x.grad,)


def kept_and_written(f, x, log):
    first, last = f(x)
    last.retain_grad()
    first.retain_grad()
    last.add_(1)
    first[:1].mul_(2)
    (first * last).sum().backward()
    return first.grad, last.grad, x.grad


def hooks_before_and_after_a_write(f, x, log):
    first, last = f(x)
    last.register_hook(lambda g: g * 5)
    last.mul_(2)
    last.register_hook(lambda g: log.append(g))
    (first * last).sum().backward()
    return (x.grad,)


def kept_and_written_inside(f, x, log):
    a, b = x * 1, x * 3
    a.retain_grad()
    b.retain_grad()
    first, last = f(a, b)
    (first.sum() + last.prod()).backward()
    return a.grad, b.grad, x.grad


@pytest.mark.parametrize(
    ("f", "use"),
    [
        (two_results, hook_of_what_is_not_differentiated),
        (two_results, kept_and_written),
        (two_results, hooks_before_and_after_a_write),
        (writes_to_both, kept_and_written_inside),
    ],
)
@pytest.mark.parametrize("validate", ["first", "off"])
def test_each_result_has_a_node_of_its_own(f, use, validate):
    compiled = reprise.compile(f, options={"validate": validate})
    for _ in range(4):
        found = []
        for g in (f, compiled):
            log = []
            results = use(g, torch.tensor([1.0, 2.0, 3.0], requires_grad=True), log)
            found.append([*results, *log])
        torch.testing.assert_close(found[1], found[0])


def test_a_gradient_is_kept_of_what_is_written_to_in_the_same_function():
    def f(x):
        a = x * 2
        a.retain_grad()
        b = a.add_(1)
        (b * b).sum().backward()
        return a.grad, x.grad

    compiled = reprise.compile(f)
    for _ in range(4):
        x, y = (torch.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(2))
        torch.testing.assert_close(compiled(x), f(y))
