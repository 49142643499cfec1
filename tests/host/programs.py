"""Small programs that together execute every opcode that matters.

`observe` runs one and returns all that can be seen of it; `PROGRAMS` lists them.
"""

import contextlib
import dataclasses
import enum
import functools
import sys
import traceback

LOG = []


def observe(program):
    """Result or exception with traceback lines and context, the log, and the exception being handled afterwards."""
    LOG.clear()
    try:
        outcome = ("result", program())
    except BaseException as error:
        places = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        outcome = ("raised", repr(error), places, repr(error.__context__))
    return repr(outcome), repr(LOG), repr(sys.exc_info()[1])


def numbers(n):
    try:
        for i in range(n):
            sent = yield i
            if sent:
                yield ("got", sent)
    finally:
        LOG.append("generator closed")


def delegating(n):
    return (yield from numbers(n))


def program_generators():
    g = delegating(3)
    seen = [next(g), g.send(5), next(g)]
    g.close()
    return seen, list(delegating(2))


def program_try():
    seen = []
    for i in range(3):
        try:
            if i == 1:
                raise ValueError(i)
            elif i == 2:
                {}["k"]
            seen.append(i)
        except ValueError as error:
            seen.append(("v", error.args, traceback.extract_tb(error.__traceback__)[0].lineno))
            try:
                raise TypeError from error
            except TypeError as second:
                seen.append(repr(second.__cause__))
        except KeyError:
            seen.append("k")
        else:
            seen.append("else")
        finally:
            seen.append("finally")
    return seen


class Manager:
    def __init__(self, suppresses):
        self.suppresses = suppresses

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(("exit", kind))
        return self.suppresses


def program_with():
    with Manager(True), Manager(False):
        with contextlib.suppress(KeyError):
            {}[1]
        raise ValueError("in with")
    return "done"


def program_uncaught():
    def inner(x):
        return [1 / y for y in x]

    with Manager(False):
        for z in ([1, 2], [3, 0]):
            inner(z)


def program_comprehensions():
    n = 3
    pairs = [(i, j) for i in range(n) for j in range(i) if i != j]
    return (
        pairs,
        {k: n for k in "ab"},
        {x % 2 for x in range(5)},
        sum(x * n for x in range(4)),
        (lambda a, b=n, *c, **d: (a, b, c, d))(1, z=2),
    )


def program_closures():
    a = 1

    def outer():
        nonlocal a
        a += 1

        def inner():
            return a * 10

        return inner

    inner = outer()
    first = inner()
    a = 5
    return first, inner(), sorted(locals())


def program_super():
    class Base:
        def method(self, *args):
            return ("Base", args)

        @property
        def value(self):
            return "base"

        @classmethod
        def name(cls):
            return cls.__name__

    class Derived(Base):
        def method(self, *args):
            return ("Derived", super().method(*args, 1))

        @property
        def value(self):
            return super(Derived, self).value + "!"

        @classmethod
        def name(cls):
            return "of " + super().name()

    return Derived().method(3), Derived().value, Derived.name(), [c.__name__ for c in Derived.__mro__[:-1]]


@dataclasses.dataclass
class Point:
    x: int
    y: int


def program_match():
    seen = []
    for subject in (Point(1, 2), [1, 2, 3], {"a": 1, "b": 2}, "text", 5, Point(0, 0)):
        match subject:
            case Point(x=0, y=second):
                seen.append(("origin", second))
            case Point(first, second):
                seen.append((first, second))
            case [first, *rest]:
                seen.append((first, rest))
            case {"a": value, **others}:
                seen.append((value, others))
            case str() as text:
                seen.append(text)
            case _:
                seen.append("other")
    return seen


def program_unpacking():
    a, *b, c = range(5)
    (d, e), f = "xy", 3

    def keep(*args, **kwargs):
        return args, kwargs

    return (
        (a, b, c, d, e, f),
        keep(*b, *[1], **{"q": 1}, r=2),
        [*b, *b],
        {**{"z": 1}, "y": 2},
        f"{a!r:>{c}}|{b}",
        keep(1, k=2),
    )


def program_exception_groups():
    seen = []
    try:
        raise ExceptionGroup("group", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as error:
        seen.append(repr(error))
    except* (TypeError, KeyError) as error:
        seen.append(repr(error))
    return seen


async def async_numbers():
    for i in range(3):
        yield i


class AsyncManager:
    async def __aenter__(self):
        return 7

    async def __aexit__(self, *args):
        LOG.append("aexit")
        return True


async def work():
    seen = [i async for i in async_numbers()]
    async with AsyncManager() as value:
        seen.append(value)
        raise KeyError
    async for x in async_numbers():
        if x == 1:
            break
        seen.append(("x", x))
    return seen


def program_async():
    coroutine = work()
    try:
        while True:
            coroutine.send(None)
    except StopIteration as stop:
        return stop.value


def program_reraise():
    try:
        try:
            raise ValueError("a")
        except ValueError:
            try:
                raise
            finally:
                LOG.append("finally")
    except ValueError as error:
        return [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]


def program_loops():
    total = i = 0
    while i < 10:
        i += 1
        if i % 3 == 0:
            continue
        if i > 8:
            break
        total += i if i % 2 else -i
        x = total and i or 7
        assert x is not None, "no"
    else:
        total = -1
    del x
    items = [total, i]
    items[0:1] = items[1:]
    return total, items[0:1], i in (9,), i is not total, i not in [1]


def program_classes():
    options = {}

    class Meta(type):
        def __new__(cls, name, bases, space, **kwargs):
            options.update(kwargs)
            return super().__new__(cls, name, bases, space)

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    class C(metaclass=Meta, flag=3):
        x: int = 4

        def __repr__(self):
            return f"C<{self.x}>"

        def __add__(self, other):
            return "sum"

        def __getitem__(self, key):
            return key

        def __bool__(self):
            LOG.append("bool")
            return False

    c = C()
    del LOG[:]
    product = functools.reduce(lambda a, b: a * b, range(1, 6))
    return options, C.__annotations__, repr(c), c + 1, c[1:2, ...], not c, Colour(2).name, (1 if c else 2), product


class Settable:
    """Attribute and item access that run Python code."""

    def __init__(self):
        object.__setattr__(self, "seen", [])

    def __setattr__(self, name, value):
        self.seen.append(("set", name, value))

    def __getattr__(self, name):
        if name == "missing":
            raise AttributeError(name)
        return lambda *args: (name, args)

    def __delattr__(self, name):
        self.seen.append(("del", name))

    def __setitem__(self, key, value):
        self.seen.append(("item", key, value))

    def __delitem__(self, key):
        self.seen.append(("delitem", key))

    def __contains__(self, item):
        return item == 3

    def __lt__(self, other):
        return other > 1

    def __iter__(self):
        return iter(self.seen)

    def __len__(self):
        return len(self.seen)


def program_special_methods():
    s = Settable()
    s.x = 1
    s[2] = 3
    del s[2]
    del s.x
    answers = [s.anything(1), 3 in s, 4 not in s, s < 2, getattr(s, "missing", None), bool(s)]
    if s < 1:
        answers.append("less")
    try:
        s.missing
    except AttributeError as error:
        answers.append(repr(error))
    return answers, [x for x in s]


PROGRAMS = {name[8:]: value for name, value in list(globals().items()) if name.startswith("program_")}
