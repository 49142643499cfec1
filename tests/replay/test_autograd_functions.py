"""torch.autograd.Function without gradients: its forward is recorded as any function, and its calls are in graphs."""

import pytest
import torch
from test_regions import check_whole
from torch.autograd import Function
from twins import IS_REPRISE, ONE_ENTRY, at_most, call, check_function, reprise_only, rnd

from bench.harness.capture import CountingBackend
from bench.stats import stats_of

if IS_REPRISE:
    import reprise


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor, name="scaled"):
        ctx.save_for_backward(x)
        ctx.factor = factor
        ctx.name_of_it = name
        ctx.set_materialize_grads(False)
        if ctx.needs_input_grad[0]:
            return (x * ctx.factor).relu()
        return (x * ctx.factor).relu() + 1

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None, None


class Same(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_non_differentiable(y)
        return x, y, x + y, None, 3

    @staticmethod
    def backward(ctx, *grads):
        return grads[0], None


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, grad):
        return grad


class InPlaceUnmarked(Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        inner = Scaled.apply(x, 3.0)
        return (inner, [inner.sum()])

    @staticmethod
    def backward(ctx, *grads):
        return grads[0]


class Separate(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


class Branching(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    @staticmethod
    def backward(ctx, grad):
        return grad


class Weighted(Function):
    @staticmethod
    def forward(ctx, x, module):
        return module.weight if x is None else module.weight * x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def pairs(grad=False):
    return [call(rnd(i, 3, 4, grad=grad), rnd(i + 20, 3, 4, grad=grad)) for i in range(5)]


def same_object(x, y):
    a, b, c, d, e = Same.apply(x, y)
    return a is x, b is y, a, b, c, d, e, a._base is x


def all_of_them(x, y):
    z = Scaled.apply(x, 2.0)
    w, (total,) = Outer.apply(z)
    return Scaled.apply(w, 0.5, "other") + y, total


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("f", [same_object, all_of_them], ids=lambda f: f.__name__)
def test_forward_gives_what_eager_gives(f, inside, grad):
    def without_gradients(x, y):
        with torch.no_grad():
            return f(x, y)

    with torch.set_grad_enabled(inside):
        check_function(without_gradients if inside else f, pairs(grad), promise=ONE_ENTRY)


@pytest.mark.parametrize("function", [InPlace, InPlaceUnmarked])
def test_an_argument_that_is_written_comes_back_as_in_eager(function):
    def f(x, y):
        z = x + 1
        w = function.apply(z)
        w += y
        return w is z, w._base is z, z, w, function.apply(x)

    with torch.no_grad():
        check_function(f, pairs(), promise=ONE_ENTRY)


@reprise_only
def test_operators_of_forward_are_in_the_graph():
    with torch.no_grad():
        check_whole(lambda x: Scaled.apply(x + 1, 2.0) * 2, lambda i: (rnd(i, 3, 4),))
        check_whole(lambda x: Outer.apply(x)[0] + 1, lambda i: (rnd(i, 3, 4),))


def test_a_function_with_a_context_set_up_apart():
    with torch.no_grad():
        check_function(lambda x, y: Separate.apply(x, y) + 1, pairs(), promise={"exits": 0})


def test_another_scalar_and_another_flag_are_seen():
    def f(x, factor):
        return Scaled.apply(x, factor)

    calls = [call(rnd(i, 3, grad=i in (3, 4)), [2.0, 3.0, 2.0][i % 3]) for i in range(8)]
    with torch.no_grad():
        check_function(f, calls, promise={"opaque_calls": 0})


def test_a_branch_on_data_makes_it_one_call_that_is_made_again():
    def f(x, y):
        return Branching.apply(x + 1) * y

    with torch.no_grad():
        check_function(f, pairs(), promise={"recordings": at_most(2), "exits": 0, "opaque_calls": 0})


def test_a_parameter_that_forward_returns_is_detached():
    module = torch.nn.Linear(4, 3)

    def f(x, y):
        a = Weighted.apply(x, module)
        b = Weighted.apply(None, module)
        return a + b, b.requires_grad

    with torch.no_grad():
        for grad in (True, False):
            module.weight.requires_grad_(grad)
            check_function(f, pairs(), promise={})


def test_with_gradients_nothing_changes():
    def f(x, y):
        return (Scaled.apply(x, 2.0) * y).sum()

    check_function(f, pairs(grad=True), grads=True, promise=ONE_ENTRY)


def test_a_forward_that_raises_raises_as_eager():
    class Failing(Function):
        @staticmethod
        def forward(ctx, x):
            if x.shape[0] == 2:
                raise ValueError("two rows")
            return x.view(3, -1) * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    def f(x):
        try:
            return Failing.apply(x + 1)
        except ValueError as error:
            return str(error)

    calls = [call(rnd(i, n, 3)) for i, n in enumerate([3, 3, 2, 2, 3, 4, 3])]
    with torch.no_grad():
        check_function(f, calls, promise={})
        check_function(lambda x: Failing.apply(x), calls, promise={})


def test_a_context_that_others_see():
    class Telling(Function):
        @staticmethod
        def forward(ctx, x, kept):
            ctx.factor = 3
            kept.append(ctx)
            return x * 2, ctx.name()

        @staticmethod
        def backward(ctx, *grads):
            return grads[0], None

    class Kept(Function):
        @staticmethod
        def forward(ctx, x, kept):
            ctx.factor = x.shape[0]
            kept.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def f(x, y):
        kept = []
        a, name = Telling.apply(x, kept)
        b = Kept.apply(y, kept)
        return a, b, name, [(c.factor, c.needs_input_grad, type(c).__name__) for c in kept]

    with torch.no_grad():
        check_function(f, pairs(), promise={"exits": at_most(10)})


@reprise_only
def test_a_forward_that_was_replaced_is_recorded_again():
    class Changing(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1

    tested = reprise.compile(lambda x: Changing.apply(x) * 2, backend=CountingBackend())
    x = rnd(0, 3)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(tested(x), (x + 1) * 2)
        Changing.forward = staticmethod(lambda ctx, x: x - 1)
        for _ in range(3):
            assert torch.equal(tested(x), (x - 1) * 2)
    assert stats_of(tested)["recordings"] <= 3
