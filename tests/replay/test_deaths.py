"""What runs when an object dies: finalisers, callbacks of weak references, generators that are closed."""

import weakref

import pytest
from twins import check, vectors


class Noted:
    """Appends its name to a log when it dies."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(self.name)


class Plain:
    pass


def numbers(log, x):
    try:
        for i in range(5):
            yield x * i
    finally:
        log.append("closed")


def overwritten_local(x, log):
    a, b = Noted(log, "a"), Noted(log, "b")
    y = x * 2
    a = b
    log.append("one")
    b = a = None  # noqa: F841
    log.append("two")
    return y


def element_of_a_dict(x, log):
    d = {"k": Noted(log, "k")}
    x = x + 1
    log.append("one")
    d["k"] = None
    x = x * 2
    log.append("two")
    d["l"] = [Noted(log, "l")]
    d.clear()
    log.append("three")
    return x


def behind_a_long_list(x, log):
    many = [[i] for i in range(300)]
    o = Noted(log, "o")
    y = x * len(many)
    o = None  # noqa: F841
    log.append("two")
    return y


def weak_callback(x, log):
    o = Plain()
    r = weakref.ref(o, lambda _: log.append("callback"))
    x = x * 2
    log.append("one")
    o = None
    log.append("two")
    return x, r() is None


def weak_finalizer(x, log):
    o = Plain()
    weakref.finalize(o, log.append, "finalizer")
    x = x * 2
    del o
    log.append("two")
    return x


def class_in_the_call(x, log):
    class Local:
        def __del__(self):
            log.append("local")

    a = Local()
    y = x * 2
    a = Local()
    log.append("one")
    del a
    log.append("two")
    return y


def broken_loop(x, log):
    for v in numbers(log, x):
        y = v + 1
        if len(log) == 0:
            break
    log.append("behind")
    return y


def dropped_generator(x, log):
    g = numbers(log, x)
    y = next(g)
    g = None
    log.append("behind")
    g = numbers(log, x)
    z = next(g)
    del g
    log.append("behind again")
    return y + z


def generator_in_zip(x, log):
    out = [a + b for a, b in zip([x, x], numbers(log, x))]
    log.append("behind")
    for _, b in zip([x, x], numbers(log, x)):
        out.append(b)
        break
    log.append("behind again")
    return out


def generator_in_enumerate_and_map(x, log):
    for i, v in enumerate(numbers(log, x)):
        if i == 2:
            break
    log.append("behind")
    for w in map(lambda t: t + 1, numbers(log, x)):
        break
    log.append("behind again")
    return v + w


def returned_from_the_loop(x, log):
    def inner():
        for v in numbers(log, x):
            return v + 1

    y = inner()
    log.append("behind")
    return y


def raised_in_the_loop(x, log):
    try:
        for _ in numbers(log, x):
            raise ValueError("why")
    except ValueError as error:
        log.append(str(error))
    log.append("behind")
    return x * 2


PROGRAMS = [
    overwritten_local,
    element_of_a_dict,
    behind_a_long_list,
    weak_callback,
    weak_finalizer,
    class_in_the_call,
    broken_loop,
    dropped_generator,
    generator_in_zip,
    generator_in_enumerate_and_map,
    returned_from_the_loop,
    raised_in_the_loop,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_what_runs_when_objects_die(program):
    def make():
        log = []

        def f(x):
            y = program(x, log)
            return y, list(log), log.clear()

        return f

    check(make, vectors(6))
