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


def chain(x):
    a = x * 2
    b = a * a + x
    c = b * a
    return c.sin() + b, a, c, b


def writes_and_goes_on(x):
    x.mul_(2)
    y = x * 3
    return y, y * x, x.detach() * x


def drops(x):
    a = torch.dropout(x * 2, 0.5, True)
    return a, torch.dropout(a * a, 0.5, True)


def hooks_on_all(f, x):
    log = []
    results = f(x)
    for i, result in enumerate(results):
        result.register_hook(lambda g, i=i: log.append((i, g)))
    (results[0].sum() + results[1].prod()).backward()
    return [x.grad, *(g for _, g in sorted(log, key=lambda pair: pair[0]))]


def kept_of_all(f, x):
    results = f(x)
    for result in results:
        result.retain_grad()
    results[0].sum().backward()
    return [x.grad, *(result.grad for result in results)]


def hook_that_changes_it(f, x):
    results = f(x)
    results[1].register_hook(lambda g: g * 3)
    results[-1].retain_grad()
    results[0].sum().backward()
    return x.grad, results[-1].grad


def gradients_of_results(f, x):
    first, *others = f(x)
    found = torch.autograd.grad(first.sum(), others, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(first.sum(), [x, others[0]], create_graph=True, allow_unused=True)
    twice = torch.autograd.grad(again[0].sum(), x, retain_graph=True, allow_unused=True)
    batch = torch.autograd.grad(first, others, torch.eye(3), is_grads_batched=True, allow_unused=True)
    return *found, *again, *twice, *batch


def kept_of_what_is_written(f, x):
    a = x * 1
    first, last, _ = f(a)
    a.retain_grad()
    first.retain_grad()
    last.sum().backward()
    return a.grad, first.grad, x.grad


def kept_of_random(f, x):
    torch.manual_seed(0)
    first, last = f(x)
    first.retain_grad()
    last.sum().backward()
    return first, first.grad, x.grad, torch.rand(2)


@pytest.mark.parametrize(
    ("f", "use"),
    [
        (chain, hooks_on_all),
        (chain, kept_of_all),
        (chain, hook_that_changes_it),
        (chain, gradients_of_results),
        (writes_and_goes_on, kept_of_what_is_written),
        (drops, kept_of_random),
    ],
)
@pytest.mark.parametrize("validate", ["first", "off"])
def test_a_result_gets_the_gradients_of_what_the_region_computed_from_it(f, use, validate):
    compiled = reprise.compile(f, options={"validate": validate})
    for _ in range(4):
        want, got = (use(g, torch.tensor([0.1, -0.2, 0.3], requires_grad=True)) for g in (f, compiled))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)


def test_a_result_that_is_only_read_gets_no_gradient():
    def f(x):
        a = x * 2
        return a, a.detach() * x

    compiled = reprise.compile(f)
    for _ in range(4):
        log = []
        first, last = compiled(torch.ones(3, requires_grad=True))
        first.register_hook(log.append)
        last.sum().backward()
        assert log == []


def test_gradients_that_wait_are_not_kept():
    """A backward that asks for a gradient of a result and of an argument, and one that raises half-way."""
    compiled = reprise.compile(chain)
    for _ in range(3):
        compiled(torch.ones(3, requires_grad=True))
    x = torch.tensor([0.1, -0.2, 0.3], requires_grad=True)
    first, a, _, _ = compiled(x)

    def fail(g):
        raise ValueError

    hook = a.register_hook(fail)
    with pytest.raises(ValueError):
        torch.autograd.grad(first.sum(), x, retain_graph=True)
    hook.remove()
    got = torch.autograd.grad(first.sum(), x)
    want = torch.autograd.grad(chain(x)[0].sum(), x)
    torch.testing.assert_close(got, want)


def test_a_result_that_is_a_view_of_another_one_follows_from_it():
    def f(x):
        a = x * 2
        return a, a[1:], a.t(), a.view(-1) * 3

    compiled = reprise.compile(f)
    for _ in range(4):
        found = []
        for g in (f, compiled):
            x = torch.arange(4.0).reshape(2, 2).requires_grad_()
            a, part, turned, last = g(x)
            a.retain_grad()
            (part.sum() + turned.square().sum() + last.sum()).backward()
            found.append([a.grad, x.grad])
        torch.testing.assert_close(found[1], found[0])


def test_a_result_that_repeats_elements_is_differentiated():
    def f(x):
        return x.sum(0, keepdim=True).expand(3, 3), x.exp()

    compiled = reprise.compile(f)
    for _ in range(4):
        want, got = (
            torch.autograd.grad(g(x)[0].square().sum(), x)
            for x in [torch.ones(3, 3, requires_grad=True)]
            for g in (f, compiled)
        )
        torch.testing.assert_close(got, want)


def test_what_saves_nothing_is_differentiated_as_often_as_one_likes():
    compiled = reprise.compile(lambda x: torch.cat([x[:1], x[1:]]).sum(0))
    for _ in range(3):
        x = torch.ones(3, 3, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        y.sum().backward()
        assert x.grad.eq(2).all()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x[1:], torch.no_grad()(torch.relu)(x))[:1],
        lambda x: (torch.no_grad()(lambda v: v * 2)(x), x.t())[1:],
        lambda x: (torch.no_grad()(lambda v: v[0])(x), x[1:]),
    ],
)
def test_views_in_a_region_that_begins_without_gradients(f):
    def g(x):
        with torch.no_grad():
            first = x * 3
        return first, *f(x)

    compiled = reprise.compile(g, options={"validate": "off"})
    for _ in range(4):
        x, y = (torch.ones(3, 3, requires_grad=True) for _ in range(2))
        got, want = compiled(x), g(y)
        assert [t.is_leaf for t in got] == [t.is_leaf for t in want]
        got[-1].sum().backward()
        want[-1].sum().backward()
        assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, w: ((a @ w).sin().sum(), (b @ w).sin().sum()),
        lambda a, b, w: ((a * w).sum(), (b * w).sum(), a.sin()),
        lambda a, b, w: (w.sum(), (b * w).sum(), (a * w).sum()),
    ],
)
def test_results_are_differentiated_one_after_the_other_where_the_arguments_are_gone(f):
    """As the losses of a discriminator for real and for made pictures."""
    compiled = reprise.compile(f)
    for _ in range(4):
        found = []
        for g in (f, compiled):
            torch.manual_seed(0)
            w = torch.randn(3, 3, requires_grad=True)
            results = g(torch.randn(3, 3), torch.randn(3, 3), w)
            results[0].backward()
            results[1].backward()
            found.append(w.grad)
        torch.testing.assert_close(found[1], found[0])


def test_a_result_behind_a_differentiated_one_is_differentiated_too():
    def f(x):
        a = x.exp()
        return a, a.sin().sum()

    compiled = reprise.compile(f)
    for _ in range(4):
        first, last = compiled(torch.ones(3, requires_grad=True))
        last.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            first.sum().backward()


def test_no_gradient_flows_through_a_view_made_without():
    def f(x):
        with torch.no_grad():
            y = x.view(9)
        return y.view(3, 3)[1:], x.t()

    compiled = reprise.compile(f, options={"validate": "off"})
    for _ in range(4):
        found = []
        for g in (f, compiled):
            x = torch.ones(3, 3, requires_grad=True)
            first, last = g(x)
            found.append([*torch.autograd.grad(first.sum() + last.sum(), x), first.requires_grad])
        assert found[0][1] == found[1][1] and torch.equal(found[0][0], found[1][0])


def test_views_of_what_is_no_result_itself():
    def f(x):
        a = x.exp()
        return a.diagonal(), a[..., None], a[0]

    compiled = reprise.compile(f, options={"validate": "off"})
    for _ in range(4):
        found = []
        for g in (f, compiled):
            x = torch.ones(3, 3, requires_grad=True)
            results = g(x)
            assert not any(result.is_leaf for result in results)
            found.append(torch.autograd.grad(sum(result.sum() for result in results[::2]), x))
        torch.testing.assert_close(found[1], found[0])
