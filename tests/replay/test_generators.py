"""Generators, coroutines and context-manager generators, made inside, passed in and handed out."""

import asyncio
import contextlib
import itertools

import torch
from twins import ONE_ENTRY, assert_same, call, check, check_function, compiled, rnd, vectors


def test_generators_driven_by_for_list_tuple_and_any():
    def gen(x, n):
        for i in range(n):
            yield x * i

    def f(x):
        s = 0
        for v in gen(x, 3):
            s = s + v
        return s, list(gen(x, 2)), torch.stack(tuple(gen(x, 2))), any(v is None for v in gen(x, 2))

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_send_throw_and_close():
    def averager():
        log, total, n = [], 0, 0
        try:
            while True:
                try:
                    v = yield total / max(n, 1), log
                except ValueError as e:
                    log.append(str(e))
                    continue
                total, n = total + v, n + 1
        finally:
            log.append("closed")

    def f(x):
        g = averager()
        next(g)
        a, log = g.send(x)
        b, _ = g.send(x * 3)
        c, _ = g.throw(ValueError("skip"))
        g.close()
        return a, b, c, log

    check_function(f, vectors(4))


def test_yield_from_passes_values_and_returns():
    def inner(x):
        got = yield x
        yield x * (got or 1)
        return "inner done"

    def outer(x):
        result = yield from inner(x)
        yield result
        yield from [1, 2]

    def f(x):
        g = outer(x)
        values = [next(g), g.send(5)]
        return values + list(g)

    check_function(f, vectors(4))


def test_generator_expressions_and_their_laziness():
    def f(x):
        log = []

        def note(i):
            log.append(i)
            return i

        lazy = (x * note(i) for i in range(5) if i % 2)
        before = list(log)
        first = next(lazy)
        middle = list(log)
        return first, before, middle, list(lazy), log

    check_function(f, vectors(4))


def test_a_generator_handed_out_goes_on_outside():
    def numbers(x):
        yield x
        yield x + 1
        yield x + 2

    def f(x):
        g = numbers(x)
        first = next(g)
        return first, g

    def drive(f):
        def g(x):
            first, rest = f(x)
            return first, list(rest)

        return g

    check_function(drive(f), vectors(4))


def test_a_generator_made_in_one_call_and_driven_in_the_next():
    def make():
        state = {}

        def numbers():
            n = 0
            while True:
                n += 1
                sent = yield n
                n += sent or 0

        def f(x):
            if "g" not in state:
                state["g"] = numbers()
                next(state["g"])
            return x * state["g"].send(2)

        return f

    check(make, vectors(5))


def test_a_generator_function_is_compiled_as_such():
    def f(x):
        y = x * 2
        sent = yield y
        yield y + (sent or 0)

    def drive(g):
        it = g(rnd(0, 3))
        return [next(it), it.send(3)]

    tested = compiled(f)
    for _ in range(3):
        assert_same(drive(tested), drive(f), "generator")


def test_infinite_generators_cut_by_islice_and_zip():
    def powers(x):
        p = torch.ones_like(x)
        while True:
            yield p
            p = p * x

    def f(x):
        return list(itertools.islice(powers(x), 3)), [i * p for i, p in zip(range(3), powers(x))]

    check_function(f, vectors(4))


def test_two_generators_interleaved():
    def walk(x, name, log):
        for i in range(3):
            log.append((name, i))
            yield x * i

    def f(x):
        log = []
        out = [a + b for a, b in zip(walk(x, "a", log), walk(x + 1, "b", log))]
        return out, log

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_recursive_generators():
    def flatten(t):
        for v in t:
            if isinstance(v, list):
                yield from flatten(v)
            else:
                yield v

    check_function(lambda x, t: [x * v for v in flatten(t)], [call(rnd(i, 3), [1, [2, [3]], 4]) for i in range(4)])


def test_print_inside_a_generator():
    def gen(x):
        for i in range(3):
            y = x * i
            print("yielding", i)
            yield y

    def f(x):
        return sum(gen(x)), [v + 1 for v in gen(x)]

    check_function(f, vectors(4))


def test_a_data_dependent_branch_inside_a_generator():
    def gen(x):
        for row in x:
            if row.sum() > 0:
                yield row * 2
            else:
                yield row - 1

    check_function(lambda x: torch.stack(list(gen(x))), vectors(6, (4, 2)))


def test_contextmanager_generators():
    def make():
        log = []

        @contextlib.contextmanager
        def scope(name):
            log.append("enter " + name)
            try:
                yield len(log)
            except ValueError as e:
                log.append("caught " + str(e))
            finally:
                log.append("exit " + name)

        def f(x):
            with scope("a") as n:
                x = x * 2
                with scope("b"):
                    x = x + 1
                    if len(log) > 4:
                        raise ValueError("deep")
            return x, n > 0

        f.log = log
        return f

    check(make, vectors(4), post=lambda f: f.log)


def test_coroutines_run_by_hand_and_by_asyncio():
    async def double(x):
        await asyncio.sleep(0)
        return x * 2

    async def both(x):
        a, b = await asyncio.gather(double(x), double(x + 1))
        return a + b

    class Ready:
        def __await__(self):
            got = yield "waiting"
            return got

    async def wait():
        return await Ready()

    def f(x):
        c = wait()
        first = c.send(None)
        try:
            c.send(x)
        except StopIteration as e:
            second = e.value
        return asyncio.run(both(x)), first, second

    check_function(f, vectors(3))


def test_async_generators_and_comprehensions():
    async def numbers(x):
        for i in range(3):
            yield x * i

    async def collect(x):
        async with contextlib.AsyncExitStack():
            return [v async for v in numbers(x)]

    check_function(lambda x: asyncio.run(collect(x)), vectors(3))


def test_a_compiled_coroutine_function():
    async def f(x):
        await asyncio.sleep(0)
        return x * 2 + 1

    tested = compiled(f)
    for i in range(3):
        assert_same(asyncio.run(tested(rnd(i, 3))), asyncio.run(f(rnd(i, 3))), "coroutine")


def test_generator_arguments_are_consumed():
    def f(x, g):
        first = next(g)
        return x * first, sum(g)

    check_function(f, [lambda i=i: call(rnd(i, 3), (k for k in (2, 3, 4))) for i in range(4)])


def test_what_a_generator_returned_is_in_the_stop_iteration_of_next():
    def gen(x):
        yield x
        return x * 2, "end"

    def silent(x):
        return x + 1
        yield

    def result_of(generator):
        try:
            while True:
                next(generator)
        except StopIteration as e:
            return e.value

    def f(x):
        return result_of(gen(x)), result_of(silent(x)), next(silent(x), None), result_of(zip(silent(x)))

    check_function(f, vectors(4))


def test_a_generator_that_is_dropped_half_used_makes_nothing_late():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(3, 3), 2.0

        def forward(self, x):
            device = next(self.parameters()).device
            x = x.to(device)
            x.kept = self.scale
            return x * x.kept + self.layer.in_features

    check(Model, vectors(4), promise=ONE_ENTRY)


def test_a_generator_that_cleans_up_when_it_is_dropped_is_seen():
    def f(x):
        log = {"open": 0}

        def numbers():
            log["open"] += 1
            try:
                yield 1
                yield 2
            finally:
                log["open"] -= 1

        first = next(numbers())
        return x + first, dict(log)

    check_function(f, vectors(4))
