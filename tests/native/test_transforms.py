"""torch.func inside of regions: the transforms' levels are on the stack only while code is made."""

import pytest
import reprise
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

from bench.stats import stats_of


def rnd(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make_net(*layers):
    torch.manual_seed(1)
    return nn.Sequential(*(make() for make in layers))


NET = make_net(lambda: nn.Linear(4, 8), nn.Tanh, lambda: nn.Linear(8, 1))
CNN = make_net(lambda: nn.Conv2d(1, 4, 3), nn.ReLU, nn.Flatten, lambda: nn.Linear(64, 3))
W = nn.Parameter(rnd(9, 4, 4))


def energy(row):
    return torch.tanh(row @ W.detach()).sum()


def loss_of(parameters, x, target):
    return F.cross_entropy(functional_call(CNN, parameters, (x[None],)), target[None])


def per_sample_gradients(x, targets):
    return vmap(grad(loss_of), in_dims=(None, 0, 0))(dict(CNN.named_parameters()), x, targets)


def laplacian(x):
    second = jacrev(jacrev(lambda row: NET(row).squeeze(-1)))
    return vmap(lambda row: torch.diagonal(second(row)).sum())(x)


def two_results(x):
    out, pull = vjp(lambda a: (a.sin(), a.cos()), x)
    return out, pull((x, x + 1))[0]


def adapted(x):
    parameters = {name: value.detach() for name, value in NET.named_parameters()}
    loss = lambda p: functional_call(NET, p, (x,)).square().mean()  # noqa: E731
    for _ in range(3):
        gradients = grad(loss)(parameters)
        parameters = {name: parameters[name] - 0.1 * gradients[name] for name in parameters}
    return loss(parameters)


def trained_through(x):
    W.grad = None
    loss = vmap(lambda row: torch.tanh(W @ row))(x).square().sum()
    loss.backward()
    return loss.detach(), W.grad.clone()


def in_place(x):
    def f(row):
        row = row.clone()
        row.add_(1)
        row[0] = 2.0
        return row

    return vmap(f)(x)


def outer(a, b):
    return a * b + a.sin()


PROGRAMS = {
    "vmap of vmap": lambda x: vmap(vmap(lambda a, b: a * b + a.sin(), in_dims=(0, None)), in_dims=(None, 0))(
        x[0], x[1]
    ),
    "dims": lambda x: vmap(lambda a, b: (a * 2 + b, a.sum()), in_dims=(1, 0), out_dims=(1, 0))(x[:4], x[:4]),
    "trees": lambda x: vmap(lambda d: {"s": d["a"].sum() + d["b"][1].prod()})({"a": x, "b": (x, x + 1)}),
    "grad": lambda x: grad(lambda a: (a @ W.detach()).sin().sum())(x),
    "grad of a vmap": lambda x: grad(lambda a: vmap(energy)(a).sum())(x),
    "vmap of a grad": vmap(grad(energy)),
    "auxiliary results": lambda x: grad_and_value(lambda a: ((a * a).sum(), a * 2), has_aux=True)(x),
    "vjp": two_results,
    "jacrev": lambda x: vmap(jacrev(NET))(x),
    "jvp": lambda x: jvp(lambda a: a.sin(), (x,), (x + 1,)),
    "jacfwd": lambda x: jacfwd(lambda a: a.sin() @ W.detach())(x[0]),
    "hessian": lambda x: hessian(energy)(x[0]),
    "second derivatives": laplacian,
    "steps in parameters": adapted,
    "backward through vmap": trained_through,
    "in place": in_place,
    "a branch behind it": lambda x: -y if (y := vmap(energy)(x)).sum() > 1e9 else y,
}


def assert_close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def check(f, make_arguments, calls=5, entries=1):
    tested = reprise.compile(f, options={"min_region_nodes": 1})
    for i in range(calls):
        want, got = f(*make_arguments(i)), tested(*make_arguments(i))
        assert_close(got, want)
    counts = stats_of(tested)
    assert counts["entries"] == entries and counts["exits"] == 0, counts
    return str(reprise.explain(tested)(*make_arguments(0)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_native_code(name):
    text = check(PROGRAMS[name], lambda i: (rnd(i, 6, 4),))
    assert "native code" in text and "dissolved" not in text and "planned again" not in text, text


def test_gradients_of_each_sample():
    text = check(per_sample_gradients, lambda i: (rnd(i, 5, 1, 6, 6), torch.tensor([0, 1, 2, 1, i % 3])))
    assert "native code" in text and "dissolved" not in text, text


def test_functional_call_leaves_the_module_as_it_was():
    parameters = dict(CNN.named_parameters())
    tested = reprise.compile(per_sample_gradients)
    for _ in range(4):
        tested(rnd(0, 5, 1, 6, 6), torch.tensor([0, 1, 2, 1, 0]))
        now = dict(CNN.named_parameters())
        assert list(now) == list(parameters) and all(now[name] is parameters[name] for name in parameters)


def test_other_batch_sizes():
    sizes = [6, 6, 6, 3, 3, 9, 9, 2, 6]
    tested = reprise.compile(PROGRAMS["vmap of a grad"], options={"min_region_nodes": 1})
    for size in sizes:
        x = rnd(size, size, 4)
        assert_close(tested(x), vmap(grad(energy))(x))
    assert stats_of(tested)["exits"] == 0


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_random_numbers_are_those_of_eager(randomness):
    f = lambda x: vmap(lambda row: F.dropout(row, 0.5) + torch.rand(4), randomness=randomness)(x)  # noqa: E731
    tested = reprise.compile(f, options={"min_region_nodes": 1})
    for i in range(5):
        torch.manual_seed(i)
        want, after = f(rnd(i, 6, 4)), torch.get_rng_state()
        torch.manual_seed(i)
        assert torch.equal(tested(rnd(i, 6, 4)), want) and torch.equal(torch.get_rng_state(), after)


def test_what_cannot_be_in_a_region_is_called_as_a_whole():
    log = []

    def f(x):
        def inner(row):
            print("inside", end="")  # nothing records this
            log.append(1)
            return row * 2

        return vmap(inner)(x)

    tested = reprise.compile(f)
    for i in range(6):
        assert torch.equal(tested(rnd(i, 6, 4)), rnd(i, 6, 4) * 2)
    assert len(log) == 6
    assert torch._C._functorch.maybe_current_level() is None


@pytest.mark.parametrize("validate", ["off", "first"])
def test_an_error_inside_is_raised_and_leaves_no_level(validate):
    def f(x, y):
        return vmap(lambda a, b: torch.linalg.cholesky(a) @ b)(x, y)

    tested = reprise.compile(f, options={"min_region_nodes": 1, "validate": validate})
    good = torch.eye(3).expand(2, 3, 3) * 2
    for x in (good, good, good, -good, good, -good):
        try:
            want = f(x, good)
        except torch.linalg.LinAlgError as error:
            with pytest.raises(torch.linalg.LinAlgError) as raised:
                tested(x, good)
            assert str(raised.value) == str(error)
        else:
            assert torch.equal(tested(x, good), want)
        assert torch._C._functorch.maybe_current_level() is None


def test_an_error_of_the_transform_itself():
    def f(x):
        try:
            return grad(lambda a: a * 2)(x)
        except RuntimeError as error:
            return str(error)

    tested = reprise.compile(f)
    for i in range(5):
        assert tested(rnd(i, 3)) == f(rnd(i, 3))


def test_a_closure_that_changes():
    scale = 1.0

    def f(x):
        return vmap(grad(lambda row: (row.sin() * scale).sum()))(x)

    tested = reprise.compile(f, options={"min_region_nodes": 1})
    for scale in (1.0, 1.0, 1.0, 2.0, 2.0, 1.0):  # noqa: B007
        assert torch.equal(tested(rnd(0, 6, 4)), f(rnd(0, 6, 4)))


def test_effects_of_the_function_happen_once_a_call():
    def f(x):
        shapes = []

        def inner(row):
            shapes.append(tuple(row.shape))
            return row * 2

        return vmap(inner)(x), shapes

    check(f, lambda i: (rnd(i, 6, 4),))


def test_double_backward_through_a_transform():
    def f(x):
        y = vmap(lambda row: (row.sin() * W.sum()).sum())(x).sum()
        (g,) = torch.autograd.grad(y, W, create_graph=True)
        return g.square().sum()

    def step(f, x):
        W.grad = None
        value = f(x)
        value.requires_grad and value.backward()
        return value.detach(), x.grad.clone()

    tested = reprise.compile(f, options={"min_region_nodes": 1})
    for i in range(5):
        x, y = (rnd(i, 6, 4).requires_grad_() for _ in range(2))
        assert_close(step(tested, x), step(f, y))


def test_seeds_that_the_program_sets_are_no_exit():
    def f(x):
        torch.manual_seed(3)
        return x + torch.rand(4)

    check(f, lambda i: (rnd(i, 6, 4),))
