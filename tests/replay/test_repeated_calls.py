"""Calls that are executed again each time: cached functions, numpy, min and max of tensors, torch.func."""

import functools
import types

import pytest
import torch
from twins import ONE_ENTRY, call, check, check_function, rnd, vectors

numpy = pytest.importorskip("numpy")


# ---- functions behind functools.lru_cache


def make_cached(body):
    """A program that calls a cached copy of `body`, which counts its misses."""

    def make():
        misses = []

        @functools.lru_cache(maxsize=8)
        def cached(*args):
            misses.append(len(args))
            return body(*args)

        def f(x, *more):
            return x + 1, cached(*more), len(misses) > 0

        f.cached = cached
        return f

    return make


def test_a_cached_function_that_returns_a_tensor_gives_the_same_one_again():
    check(
        make_cached(lambda n: torch.arange(n)),
        [call(rnd(i, 3), 4) for i in range(4)],
        promise=ONE_ENTRY,
        post=lambda f: f.cached.cache_info(),
    )


def test_a_cached_function_that_returns_tensors_in_a_tuple_is_called_again():
    def make():
        @functools.lru_cache(maxsize=8)
        def anchors(n):
            return torch.arange(n), torch.ones(n) > 0

        def f(x):
            grid, valid = anchors(len(x))
            return torch.where(valid, x + grid, 0)

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_a_cached_function_of_a_tensor_misses_for_each_new_one():
    def make():
        @functools.lru_cache(maxsize=1)
        def positions(mask):
            return mask.cumsum(0)

        def f(x):
            return positions(x > 0) + x

        f.positions = positions
        return f

    check(make, vectors(5), promise=ONE_ENTRY, post=lambda f: f.positions.cache_info().misses)


def test_a_cached_function_of_a_size_that_depends_on_data_follows_the_data():
    def make():
        @functools.lru_cache(maxsize=64)
        def halves(n):
            return (n // 2, n - n // 2)

        def f(x):
            chosen = x[x > 0]
            left, right = halves(chosen.shape[0])
            return chosen.split([left, right])[1] * 2

        return f

    check(make, [call(rnd(i, 9)) for i in range(8)])


def test_what_a_cached_function_writes_when_it_misses_makes_nothing_late():
    def make():
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.warned, self.sizes = {}, [2, 3]

            @functools.lru_cache(maxsize=8)  # noqa: B019
            def once(self, key):
                self.warned[key] = True
                return key

            def forward(self, x):
                self.once("a")
                return sum(x * n for n in self.sizes)

        return Model()

    check(make, vectors(5), promise=ONE_ENTRY)


# ---- numpy


def test_a_ufunc_of_constants_is_one_number():
    check_function(lambda x: x * int(numpy.lcm(4, 6)), vectors(4), promise=ONE_ENTRY)


def test_arrays_are_made_and_written_again_in_each_call():
    def f(x):
        steps = numpy.array([3, 5, 7]) // 2
        rows = [numpy.zeros((2, 3), dtype=numpy.int64) for _ in range(2)]
        rows[0][0, 1:] = steps[1:]
        view = rows[0][0]
        view += 1
        rows[1] = rows[1][:1, :]
        index = torch.tensor(numpy.vstack(rows))
        return x[index], len(steps), rows[0].shape, numpy.sum(rows[0])

    check_function(f, vectors(4, (8,)), promise=ONE_ENTRY)


def test_a_branch_on_an_array_follows_its_contents():
    def f(x, n):
        counts = numpy.arange(n)
        if counts.sum() > 5:
            return x + 1
        return x - 1 if counts[-1] == 1 else x * 2

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([2, 2, 9, 3, 2, 9, 3])])


def test_random_numbers_of_numpy_are_drawn_again():
    def f(x, state):
        return x + float(state.permutation(4)[0]), x.shape

    check_function(f, [call(rnd(i, 3), numpy.random.RandomState(i)) for i in range(5)])


# ---- min and max


@pytest.mark.parametrize("choose", [min, max])
def test_min_and_max_of_tensors_give_the_very_argument(choose):
    def f(a, b):
        best = choose(a.sum(), b.sum())
        return best, best + 1

    check_function(f, [call(rnd(i, 3), rnd(i + 50, 3)) for i in range(8)])


def test_max_of_a_tensor_and_a_number_is_either():
    def f(x):
        best = max(x.sum(), 0.5)
        return x * best, isinstance(best, float)

    check_function(f, vectors(8))


def test_the_gradient_of_a_minimum_flows_to_the_smaller_one():
    def f(a, b):
        min(a.sum(), (b * 2).sum()).backward()
        return a.grad, b.grad

    def inputs(i):
        return lambda: call(rnd(i, 3, grad=True), rnd(i + 50, 3, grad=True))

    check_function(f, [inputs(i) for i in range(6)])


# ---- torch.func


def test_transforms_run_whole_in_each_call():
    def make():
        net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        with torch.no_grad():
            for i, parameter in enumerate(net.parameters()):
                parameter.copy_(rnd(i, *parameter.shape))

        def f(x):
            return net(x), torch.vmap(torch.func.jacrev(net))(x) * 2

        f.net = net
        return f

    check(make, vectors(4, (5, 1)), promise={"exits": 0, "opaque_calls": 0})


def test_a_transform_of_a_closure_sees_what_it_closes_over():
    def f(x, k):
        def energy(y):
            return (y * y).sum() * k

        return torch.func.grad(energy)(x)

    check_function(f, [call(rnd(i, 3), k) for i, k in enumerate([2.0, 2.0, 3.0, 3.0, 2.0])])


def test_what_a_transformed_function_writes_is_seen_behind_it():
    def f(x):
        seen = types.SimpleNamespace(count=0)
        calls = []

        def energy(y):
            seen.count += 1
            calls.append(seen.count)
            return (y * y).sum()

        slope = torch.func.grad(energy)(x)
        return slope * seen.count, len(calls)

    check_function(f, vectors(5))


def test_the_global_generator_of_numpy_is_drawn_from():
    def f(x):
        numpy.random.seed(3)
        return x + numpy.random.uniform(0, 1), numpy.random.permutation(3)[0] >= 0, numpy.random.rand()

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_what_a_transform_made_is_called_behind_one_that_gave_several_values():
    """The callable is known late, and what stands in front of its call is of data's sizes."""

    def f(x, y):
        mapped = torch.func.vmap(lambda a: a * y)(x)
        value, back = torch.func.vjp(lambda a: a * y, x)
        tangents = torch.func.jvp(lambda a: a.exp(), (x,), (y,))
        return mapped, value, back(y), tangents

    check_function(f, [call(rnd(i, 3), rnd(i + 9, 3)) for i in range(4)])
