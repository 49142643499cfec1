"""Python that programs use around their tensors: match, itertools, collections, heapq, re, operator, exceptions.

Each is recorded without an exit, gives what eager gives, and follows when what it depends on changes between the calls.
"""

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import operator
import random
import re
import threading
import time
import types

import pytest
from twins import ONE_ENTRY, call, check, check_function, compiled, reprise_only, rnd, vectors


@dataclasses.dataclass
class Pair:
    a: object
    b: object = 3


class Bag:
    def __init__(self, **entries):
        self.__dict__.update(entries)


class Counted:
    """Says how often its property was read."""

    __match_args__ = ("value", "missing")
    reads = 0

    def __init__(self, log):
        self.log = log

    @property
    def value(self):
        self.log.append("value")
        return 2


# ---- match


def matched(x, subject):
    match subject:
        case None:
            return x + 1
        case bool():
            return x + 2
        case int(n) if n > 5:
            return x * n
        case int() | float():
            return x * 3
        case "mul" | "add" as word:
            return x + len(word)
        case [a]:
            return x * a
        case [a, *rest, b]:
            return x * a + b + len(rest)
        case {"op": "mul", "by": by, **rest}:
            return x * by + len(rest)
        case {"op": _}:
            return x - 1
        case Pair(1, b):
            return x + b
        case Pair(a, b=(3 | 4) as b):
            return x * a + b
        case Bag(k=k):
            return x + k
        case _:
            return x


SUBJECTS = [
    None, True, 9, 2, 2.5, "mul", "add", "other", [3], (1, 2), [1, 2, 3, 4], [], {"op": "mul", "by": 4, "more": 1},
    {"op": "add"}, {"by": 1}, Pair(1), Pair(2), Pair(2, 4), Pair(2, 5), Bag(k=2), Bag(n=2), {1},
]  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_a_match_statement_is_recorded(subject):
    check_function(matched, [call(rnd(i, 3), subject) for i in range(3)], promise=ONE_ENTRY)


def test_a_match_statement_follows_its_subject():
    check_function(matched, [call(rnd(i, 3), s) for i, s in enumerate(SUBJECTS + SUBJECTS[::-1])])


def test_patterns_of_what_the_call_made():
    def f(x):
        results = []
        for value in (Pair(x, 3), {"x": x, "n": 2}, (x, [1, 2]), x):
            match value:
                case Pair(a, b):
                    results.append(a * b)
                case {"x": a, **rest}:
                    results.append(a + rest["n"])
                case (a, [m, *_]):
                    results.append(a - m)
                case object(ndim=1, shape=(n,)):
                    results.append(value * n)
        return results

    check_function(f, vectors(3), promise=ONE_ENTRY)


def test_a_pattern_reads_each_attribute_once():
    def make():
        log = []

        def f(x):
            match Counted(log):
                case Counted(value, missing):
                    return x + value + missing
                case Counted(value):
                    return x * value

        f.log = log
        return f

    check(make, vectors(4), promise=ONE_ENTRY, post=lambda f: f.log)


def test_match_args_that_change():
    class Point:
        __match_args__ = ("a", "b")
        a, b = 1, 2

    def f(x):
        match Point():
            case Point(first):
                return x + first

    tested = compiled(f)
    for names in (("a", "b"), ("a", "b"), ("b", "a"), ("a",)):
        Point.__match_args__ = names
        assert tested(rnd(0, 3)).equal(f(rnd(0, 3)))


# ---- itertools


ITERTOOLS = {
    "product": lambda x: [x * a + b for a, b in itertools.product([1, 2], (3, 4))],
    "product_repeat": lambda x: x + sum(a * b for a, b in itertools.product([1, 2], repeat=2)),
    "product_of_generators": lambda x: [a * b for a, b in itertools.product((x * i for i in range(2)), [1, 2])],
    "combinations": lambda x: sum(a * b for a, b in itertools.combinations([x, x + 1, x + 2], 2)),
    "with_replacement": lambda x: sum(a * b for a, b in itertools.combinations_with_replacement([x, x + 1], 2)),
    "permutations": lambda x: x * len(list(itertools.permutations([1, 2, 3], 2))),
    "zip_longest": lambda x: [a * b for a, b in itertools.zip_longest([x, x], [1, 2, 3], fillvalue=4)],
    "zip_longest_none": lambda x: [x if b is None else x * b for _, b in itertools.zip_longest("abc", [1])],
    "pairwise": lambda x: [b - a for a, b in itertools.pairwise([x, x * 2, x * 4])],
    "islice": lambda x: list(itertools.islice([x, x + 1, x + 2, x + 3], 1, 4, 2)),
    "compress": lambda x: list(itertools.compress([x, x + 1, x + 2], [1, 0, True])),
    "cycle": lambda x: [x * n for n, _ in zip(itertools.cycle([1, 2]), range(5))],
    "count": lambda x: [x * n for n, _ in zip(itertools.count(3, 2), range(3))],
    "starmap": lambda x: list(itertools.starmap(lambda a, b: a * b, [(x, 1), (x, 2)])),
    "filterfalse": lambda x: [x * n for n in itertools.filterfalse(lambda n: n % 2, [1, 2, 3, 4])],
    "from_iterable": lambda x: list(itertools.chain.from_iterable([[x], (x + 1, x + 2)])),
}


@pytest.mark.parametrize("name", ITERTOOLS)
def test_an_iterator_of_itertools_is_recorded(name):
    check_function(ITERTOOLS[name], vectors(3), promise=ONE_ENTRY)


def test_itertools_of_arguments_that_change():
    def f(x, values):
        pairs = itertools.pairwise(values)
        first = next(pairs)
        values.append(x.sum())
        return x * first[1], list(pairs), list(itertools.combinations(values[:3], 2))

    check_function(f, [call(rnd(i, 3), list(range(2 + i % 3))) for i in range(8)])


@pytest.mark.parametrize("chain", [itertools.chain.from_iterable, lambda lists: itertools.chain(*lists)])
@pytest.mark.parametrize("at", [0, 1, None])
def test_lists_that_grow_while_they_are_chained(chain, at):
    def f(x):
        lists = [[x], [1, 2]]
        elements = chain(lists)
        first = next(elements)
        if at is None:
            lists.append([9])
        else:
            lists[at].append(9)
        return first, list(elements)

    check_function(f, vectors(4))


# ---- heapq, bisect


def test_heaps_of_numbers_and_of_tuples_are_recorded():
    def f(x, costs):
        heap = []
        for i, cost in enumerate(costs):
            heapq.heappush(heap, (cost, i, x * i))
        order = []
        while heap:
            order.append(heapq.heappop(heap)[2])
        numbers = list(costs)
        heapq.heapify(numbers)
        bisect.insort(numbers, 2)
        return order, numbers, heapq.heappushpop(numbers, 0), heapq.nlargest(2, costs), heapq.nsmallest(2, costs)

    check_function(f, vectors_with((3, 1, 2), 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), c) for i, c in enumerate([(3, 1, 2), (1, 2, 3), (3, 1, 2), (5,)])])


def test_a_heap_that_compares_tensors_is_left_to_python():
    def f(x):
        heap = [(1, x.sum()), (2, x.sum())]
        heapq.heappush(heap, (1, x.sum() - 1))
        return heapq.heappop(heap)[1]

    check_function(f, vectors(3))


def vectors_with(value, count):
    return [call(rnd(i, 3), value) for i in range(count)]


# ---- collections


def test_a_deque_that_the_call_makes_is_recorded():
    def f(x):
        window = collections.deque(maxlen=2)
        for i in range(4):
            window.append(x + i)
        window.appendleft(x)
        turned = collections.deque([x, x + 1, x + 2])
        turned.rotate(1)
        turned.extend([x * 5])
        turned.extendleft((x * 6, x * 7))
        last, first = turned.pop(), turned.popleft()
        turned.reverse()
        return sum(window), len(window), window[-1], last, first, list(turned), [t + 1 for t in turned]

    check_function(f, vectors(3), promise=ONE_ENTRY)


def test_a_queue_that_is_worked_off():
    def f(x, most):
        queue, n = collections.deque([1]), 0
        while queue:
            value = queue.popleft()
            n += value
            if value < most:
                queue.append(value * 2)
                queue.append(value * 3)
        return x * n

    check_function(f, vectors_with(4, 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([4, 4, 7, 1, 4])])


def test_sets_that_are_changed_in_place():
    def f(x, more):
        a = {1, 2, 3}
        b = a.copy()
        a &= {2, 3, more}
        a ^= {7}
        a -= {7}
        b.difference_update({1})
        b.symmetric_difference_update({5, more})
        return x * len(a), sorted(a), sorted(b), x + len(a | b)

    check_function(f, vectors_with(9, 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), m) for i, m in enumerate([1, 2, 3, 1, 5])])


def test_dicts_from_their_end():
    def f(x):
        d = {"a": x, "b": x + 1, "c": 2}
        o = collections.OrderedDict(a=x, b=x * 2)
        return d.popitem(), o.popitem(), list(reversed(d)), next(reversed(d.values())), next(reversed(o.items()))

    check_function(f, vectors(3), promise=ONE_ENTRY)


class Output(collections.OrderedDict):
    """Gives its items by name, or by their place, as outputs of models do."""

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else list(self.values())[key]


def test_items_of_a_dict_that_has_its_own_getitem():
    def take(a, b):
        return a * 2 + b

    def f(x):
        output = Output()
        output["a"], output["b"] = x, x + 1
        return {**output, "c": output[0]}, take(**output)

    check_function(f, vectors(3), promise=ONE_ENTRY)


def test_a_dict_that_grows_under_its_iterator_raises_on_every_call():
    def f(x, table):
        for key, _ in table.items():
            x = x + 1
            if key == 3:
                table[77] = 1
        return x

    check_function(f, [call(rnd(i, 3), dict.fromkeys(range(2 + i % 3), 1)) for i in range(9)])


def test_the_elements_of_an_array_are_taken_one_by_one():
    numpy = pytest.importorskip("numpy")

    def f(x, array):
        for i, value in enumerate(array):
            x = x * float(value)
            array[-1] = i
        return x

    check_function(f, [call(rnd(i, 3), numpy.arange(1.0, 4.0)) for i in range(3)])
    check_function(f, [call(rnd(i, 3), numpy.arange(1.0, n)) for i, n in enumerate([4.0, 4.0, 6.0, 4.0])])


# ---- operator, functools, types


def test_getters_are_recorded():
    first, nested = operator.itemgetter(1), operator.attrgetter("a.b")

    def f(x):
        space = types.SimpleNamespace(a=types.SimpleNamespace(b=2), x=x)
        space.more = x + 1
        pairs = [("a", 3), ("b", 1)]
        x = x * nested(space) + first([1, space.more]) + operator.methodcaller("sum", 0)(space.x)
        return x, sorted(pairs, key=operator.itemgetter(1)), min(pairs, key=first), operator.itemgetter(0, 1)([x, 2])

    check_function(f, vectors(3), promise=ONE_ENTRY)


def test_the_least_and_the_greatest_by_a_key():
    def f(x, values):
        least = min(values, key=lambda v: v % 3)
        return x * least, max(values, key=lambda v: v % 3), min(5, 2, key=lambda v: -v), min([], default=x, key=abs)

    check_function(f, vectors_with([4, 2, 3, 5], 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), v) for i, v in enumerate([[1, 2], [3, 1], [1, 2], [6, 3]])])


def test_a_cached_property_of_a_new_object():
    class Lazy:
        @functools.cached_property
        def value(self):
            return 7

    def f(x):
        lazy = Lazy()
        return x * lazy.value + lazy.value

    check_function(f, vectors(3), promise=ONE_ENTRY)


def test_a_lock_is_taken_and_given_back():
    lock = threading.Lock()

    def f(x):
        with lock:
            return x * 2, lock.locked()

    check_function(f, vectors(4))
    assert not lock.locked()


# ---- re, strings


NUMBER = re.compile(r"(?P<name>\w)(\d+)")


def test_regular_expressions_on_constants_are_recorded():
    re.sub(r"\d", "-", ""), re.match("b", "")  # the cache of the module re

    def f(x, text):
        found = NUMBER.search(text)
        names = NUMBER.findall(text)
        names.append("more")
        entries = found.groupdict()
        entries["x"] = x
        return x * int(found.group(2)), names, entries, re.sub(r"\d", "-", text), re.match("b", text)

    check_function(f, vectors_with("a12 b3", 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), t) for i, t in enumerate(["a1", "b22", "a1", "b22 c3"])])


def test_what_a_pattern_calls_is_called_each_time():
    calls = []

    def note(found):
        calls.append(found.group())
        return "-"

    def f(x):
        return x + 1, NUMBER.sub(note, "a1 b2"), [m.group() for m in NUMBER.finditer("a1 b2")]

    check_function(f, vectors(4))
    assert len(calls) == 16


def test_strings_that_are_made_of_tuples():
    def f(x, n):
        return x, "%d %s %5.2f %s" % (n, "b", n / 2, x.shape), "%s" % (x.dtype,)  # noqa: UP031

    check_function(f, vectors_with(3, 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([1, 2, 3, 1])])


class Shown:
    def __repr__(self):
        return "shown"

    def __int__(self):
        return 6

    def __float__(self):
        return 2.5

    def __hash__(self):
        return 3

    def __round__(self, digits=None):
        return 4


def test_objects_that_say_what_they_are():
    def f(x):
        o = Shown()
        return x * int(o) + float(o), repr(o), hash(o), round(o)

    check_function(f, vectors(3), promise=ONE_ENTRY)


# ---- generators


def test_values_that_are_sent_into_a_generator():
    def f(x):
        def total():
            sum_so_far = 0
            while True:
                value = yield sum_so_far
                sum_so_far = sum_so_far + value

        running = total()
        next(running)
        running.send(x)
        return running.send(x * 2), running.send(1)

    check_function(f, vectors(3), promise=ONE_ENTRY)


def test_yield_from_containers():
    def f(x, values):
        def parts():
            got = yield from values
            yield from (x, x + 1)
            yield from {"a": got}
            yield from range(2)

        return list(parts())

    check_function(f, vectors_with([1, 2], 3), promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), v) for i, v in enumerate([[1], [2, 3], (1,), []])])


# ---- clocks and random numbers


@reprise_only
def test_a_clock_needs_no_exit():
    def f(x, log):
        start = time.perf_counter()
        y = x * 2
        log.append(time.perf_counter() - start)
        return y

    log = []
    agreed = compiled(f)
    for i in range(4):
        assert agreed(rnd(i, 3), log).equal(rnd(i, 3) * 2)
    assert len(log) == 4 and len(set(log)) > 1 and min(log) > 0


def test_random_numbers_of_python_are_drawn_anew():
    def f(x):
        if random.random() < 0.5:
            x = x + 1
        return x * random.random(), random.uniform(1, 2)

    check_function(f, vectors(8))


def test_the_second_random_number_of_a_call_needs_no_exit_either():
    def f(x):
        first = random.random()
        return x * first, random.random() < first or x.sum() > -100

    def g(x):
        return f(x)[0] + random.random()

    check_function(g, vectors(4), promise={"opaque_calls": 0})
