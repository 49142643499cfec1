"""Exits: frames rebuilt from a run's slots, objects that only the exit needs, exceptions that are the user's."""

import gc
import operator
import signal
import sys
import traceback
import weakref

import pytest

from tests.native_unit.builder import PUSH_VALUE, Trace, before, behind


def double(x, y):
    z = x + y
    return z * 2


def entry_that_doubts(fact, **options):
    """double() up to `z * 2`, with a late fact about z in front of it."""
    trace = Trace(double)
    x, y = trace.arg(0), trace.arg(1)
    z = trace.call(operator.add, x, y)
    frame = trace.frame(before(double, "BINARY_OP", 1), [x, y, z, z, trace.const(2)])
    trace.guard(z, fact, snapshot=trace.snapshot(frame), **options)
    return trace.ret(trace.node("Binary", z, trace.const(2), n=5)).entry()


def test_a_late_guard_that_fails_goes_on_in_the_frame():
    entry = entry_that_doubts("Type", object=int)
    assert entry(3, 4) == 14 and entry.last_exit() is None
    assert entry("a", "b") == "abab" and entry.last_exit() == ("guard", 0, 0)
    assert entry(5, 6) == 22 and entry.last_exit() is None


@pytest.mark.parametrize(
    "fact, options, good, bad",
    [
        ("Type", dict(object=int), 1, 1.0),
        ("Equal", dict(object=3), 3, 4),
        ("Truth", dict(n=1), 3, 0),
        ("Length", dict(n=2), (1, 2), (1,)),
        ("Identity", dict(object=None), None, 0),
        ("Present", dict(), 1, None),
    ],
)
def test_every_late_fact_is_checked(fact, options, good, bad):
    trace = Trace(double)
    x, y = trace.arg(0), trace.arg(1)
    value = (
        trace.call(lambda x: x, x)
        if fact != "Present"
        else trace.node("DictItem", trace.call(lambda x: {"k": x} if x else {}, x), object="k")
    )
    frame = trace.frame(before(double, "RETURN_VALUE"), [x, y, -1, trace.const("left")])
    trace.guard(value, fact, snapshot=trace.snapshot(frame), **options)
    entry = trace.ret(trace.const("stayed")).entry()
    assert [entry(good, 0), entry(bad, 0)] == ["stayed", "left"]


def end_in(function, place, build, *args, **options):
    """Run an entry that ends in front of `place` of `function` with the slots that build(trace, *arg ids) makes."""
    trace = Trace(function)
    ids = [trace.arg(i) for i in range(len(args))]
    slots = build(trace, *ids)
    entry = trace.exit(trace.snapshot(trace.frame(place, slots), **options)).entry()
    results = [entry(*args) for _ in range(2)]
    assert entry.last_exit() == ("end", -1, 0)
    assert entry.statistics()["end_exits"] == 2
    return results


def show(a, b, c):
    return a, b, c


def test_sunk_containers_are_rebuilt_once_each():
    def build(t, x):
        inner = t.node("List", x)
        t.node("ListAppend", inner, t.const(2))
        outer = t.node("Tuple", inner, x, pre=False)
        table = t.node("Dict", t.const("list"), inner)
        t.node("SetItem", table, t.const("self"), table)
        t.node("DeleteItem", table, t.const("list"))
        t.node("SetItem", table, t.const("list"), inner)
        return [inner, outer, table, inner, outer, table]

    place = before(show, "BUILD_TUPLE")
    for a, b, c in end_in(show, place, build, 1):
        assert a == [1, 2] and b[0] is a and c["list"] is a and c["self"] is c and list(c) == ["self", "list"]


def test_mutations_behind_the_exit_are_not_repeated():
    trace = Trace(show)
    x = trace.arg(0)
    made = trace.node("List")
    value = trace.call(bool, x)
    trace.node("ListAppend", made, trace.const(1))
    first = trace.snapshot(trace.frame(before(show, "RETURN_VALUE"), [x, x, x, made]))
    trace.guard(value, "Truth", n=1, snapshot=first)
    trace.node("ListAppend", made, trace.const(2))
    entry = trace.exit(trace.snapshot(trace.frame(before(show, "RETURN_VALUE"), [x, x, x, made]))).entry()
    assert entry(False) == [1] and entry.last_exit()[0] == "guard"
    assert entry(True) == [1, 2] and entry.last_exit()[0] == "end"


def test_a_list_that_steps_use_is_the_one_that_the_frame_gets():
    seen = []

    def build(t, x):
        made = t.node("List", x)
        t.call(seen.append, made)
        t.node("ListAppend", made, x)
        return [made, made, made, made, made, made]

    (result, again) = end_in(show, before(show, "BUILD_TUPLE"), build, 1)
    assert result[0] is seen[0] and again[0] is seen[1] and seen == [[1, 1], [1, 1]]


class Box:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


def test_sunk_objects_methods_and_overwritten_stores():
    def build(t, x):
        box = t.node("Object", t.const(Box))
        for i in range(3):
            t.node("SetAttribute", box, t.const(i), object="value")
        t.node("SetAttribute", box, x, object="other")
        t.node("SetAttribute", box, x, object="value")
        method = t.node("Method", t.const(Box.get), box)
        table = t.node("Dict")
        t.node("SetItem", table, t.const("first"), t.const(1))
        t.node("SetItem", table, t.const("second"), t.const(2))
        t.node("SetItem", table, t.const("first"), x)
        return [box, method, table, box, method, table]

    for box, method, table in end_in(show, before(show, "BUILD_TUPLE"), build, 7):
        assert method() == 7 and method.__self__ is box and list(vars(box)) == ["value", "other"]
        assert list(table.items()) == [("first", 7), ("second", 2)]


def test_stores_through_the_instance_dict():
    def build(t, x):
        box = t.node("Object", t.const(Box))
        fields = t.node("InstanceDict", box)
        t.node("SetItem", fields, t.const("value"), x)
        return [box, fields, x, box, fields, x]

    for box, fields, _ in end_in(show, before(show, "BUILD_TUPLE"), build, 7):
        assert box.value == 7 and fields is vars(box)


def test_the_result_of_a_mutation_of_a_sunk_list():
    def build(t, x):
        made = t.node("List", x, t.const(2), t.const(3))
        popped = t.node("MutatorCall", made, t.const(list.pop), made)
        return [made, popped, x, made, popped, x]

    for result in end_in(show, before(show, "BUILD_TUPLE"), build, 1):
        assert result == ([1, 2], 3, 1)


def count_up():
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    add(1)
    return add


def test_cells_and_closures():
    add_code = next(c for c in count_up.__code__.co_consts if hasattr(c, "co_code"))
    # slots: add, then the cell of total
    trace = Trace(count_up)
    cell = trace.node("Cell")
    trace.node("SetCell", cell, trace.const(0))
    closure = trace.node("Tuple", cell)
    add = trace.node("Function", trace.const(globals()), -1, -1, -1, closure, object=add_code)
    trace.node("SetCell", cell, trace.call(lambda: 41))
    names = count_up.__code__.co_varnames + count_up.__code__.co_cellvars
    slots = {"add": add, "total": cell}
    frame = trace.frame(before(count_up, "RETURN_VALUE"), [slots[name] for name in names] + [add])
    entry = trace.exit(trace.snapshot(frame)).entry()
    first, second = entry(), entry()
    assert first(1) == 42 and first(1) == 43 and second(1) == 42
    assert first.__closure__[0] is not second.__closure__[0]


def total_of(items):
    total = 0
    for item in items:
        total += item
    return total


@pytest.mark.parametrize(
    "items", [[1, 2, 3, 4], (1, 2, 3, 4), range(1, 5), {1: 0, 2: 0, 3: 0, 4: 0}], ids=lambda x: type(x).__name__
)
def test_an_iterator_goes_on_where_the_trace_left_it(items):
    def build(t, x):
        iterator = t.node("Iterator", x)
        t.node("Advance", iterator)
        t.node("Advance", iterator)
        return [x, t.const(100), t.const(2), iterator]

    assert end_in(total_of, before(total_of, "FOR_ITER"), build, items) == [107, 107]


def pairs_of(items):
    found = []
    for i, item in items:
        found.append((i, item))
    return found


def test_iterators_over_iterators_show_the_position_of_their_sources():
    def enumerated(t, x):
        source = t.node("Iterator", x)
        iterator = t.node("Iterator", source, t.const(10), object=enumerate)
        for _ in range(2):
            t.node("Advance", source)
            t.node("Advance", iterator)
        return [x, t.node("List"), x, x, iterator]

    def zipped(t, x):
        sources = [t.node("Iterator", x), t.node("Iterator", t.const((7, 8, 9, 10)))]
        iterator = t.node("Iterator", *sources, object=zip)
        for source in sources:
            t.node("Advance", source)
            t.node("Advance", source)
        return [x, t.node("List"), x, x, iterator]

    place = before(pairs_of, "FOR_ITER")
    assert end_in(pairs_of, place, enumerated, "abcd") == [[(12, "c"), (13, "d")]] * 2
    assert end_in(pairs_of, place, zipped, [1, 2, 3, 4]) == [[(3, 9), (4, 10)]] * 2


def test_a_list_that_grows_while_it_is_iterated():
    def build(t, x):
        made = t.node("List", x)
        iterator = t.node("Iterator", made)
        t.node("Advance", iterator)
        t.node("ListAppend", made, t.const(5))
        t.node("Advance", iterator)
        t.node("ListAppend", made, t.const(6))
        return [made, t.const(0), x, iterator]

    assert end_in(total_of, before(total_of, "FOR_ITER"), build, 1) == [6, 6]


def numbers(n):
    i = 0
    while i < n:
        yield i
        i += 1


def generator_state(trace, made, slots):
    """numbers() at its yield."""
    frame = trace.frame(behind(numbers, "YIELD_VALUE"), slots, function=numbers)
    trace.node("Suspend", made, *(s for s in slots if s >= 0), n=frame)


def test_a_suspended_generator_is_rebuilt_in_its_last_state():
    def build(t, x):
        made = t.node("Generator", t.const(numbers))
        for i in range(3):
            generator_state(t, made, [t.const(6), t.const(i)])
        return [x, t.const(100), x, made]

    assert end_in(total_of, before(total_of, "FOR_ITER"), build, 0) == [112, 112]


def test_what_holds_a_generator_waits_for_it():
    def build(t, x):
        made = t.node("Generator", t.const(numbers))
        iterator = t.node("Iterator", made, object=enumerate)
        found = t.node("List")
        for i in range(2):
            generator_state(t, made, [t.const(4), t.const(i)])
            t.node("Advance", iterator)
            t.node("ListAppend", found, t.const((i, i)))
        return [x, found, x, x, iterator]

    assert end_in(pairs_of, before(pairs_of, "FOR_ITER"), build, 0) == [[(0, 0), (1, 1), (2, 2), (3, 3)]] * 2


def test_a_finished_generator_stays_finished():
    def build(t, x):
        made = t.node("Generator", t.const(numbers))
        generator_state(t, made, [t.const(1), t.const(0)])
        t.node("Suspend", made, n=-1)
        return [x, t.const(5), x, made]

    assert end_in(total_of, before(total_of, "FOR_ITER"), build, 0) == [5, 5]


def callee(a):
    b = a + 1
    return b * 10


def caller(x):
    y = callee(x)
    return y + 5


def outermost(x):
    return [caller(x), "outer"]


def chain(trace, x, b):
    """outermost() -> caller() -> callee() in front of `b * 10`."""
    outer = trace.frame(behind(outermost, "CALL"), [x])
    middle = trace.frame(behind(caller, "CALL"), [x, -1], function=caller, caller=outer)
    return trace.frame(before(callee, "BINARY_OP", 1), [x, b, b, trace.const(10)], function=callee, caller=middle)


def test_a_chain_of_frames_returns_through_all_of_them():
    trace = Trace(outermost)
    x = trace.arg(0)
    b = trace.call(operator.add, x, trace.const(1))
    entry = trace.exit(trace.snapshot(chain(trace, x, b))).entry()
    assert entry(2) == outermost(2) == [35, "outer"]


class Point:
    def __init__(self, x):
        self.x = x
        self.y = x * 2


def make_point(x):
    return Point(x)


def test_a_constructor_gives_its_object_not_the_result_of_init():
    init = Point.__init__
    trace = Trace(make_point)
    x = trace.arg(0)
    made = trace.node("Object", trace.const(Point))
    trace.node("SetAttribute", made, x, object="x")
    outer = trace.frame(behind(make_point, "CALL"), [x], mode=PUSH_VALUE, mode_value=made)
    inner = trace.frame(before(init, "BINARY_OP"), [made, x, x, trace.const(2)], function=init, caller=outer)
    point = trace.exit(trace.snapshot(inner)).entry()(4)
    assert type(point) is Point and vars(point) == {"x": 4, "y": 8}


def test_a_frame_of_a_function_that_was_made_in_the_trace():
    def template(a):
        return a + offset

    offset = 3
    trace = Trace(caller)
    x = trace.arg(0)
    cell = trace.node("Cell")
    trace.node("SetCell", cell, trace.const(30))
    made = trace.node(
        "Function", trace.const(globals()), -1, -1, -1, trace.node("Tuple", cell), object=template.__code__
    )
    outer = trace.frame(behind(caller, "CALL"), [x, -1])
    inner = trace.frame(
        before(template, "BINARY_OP"),
        [x, cell, x, trace.const(30)],
        function=template,
        function_value=made,
        caller=outer,
    )
    assert trace.exit(trace.snapshot(inner)).entry()(1) == 36


# ---- exceptions


def fails(x):
    y = 1
    return int(x) + y


def calls_fails(x):
    return fails(x)


def handles(x):
    try:
        return calls_fails(x)
    except ValueError as error:
        return error


def lines_of(error):
    return [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)]


def raising_entry(exact=True):
    trace = Trace(handles)
    x = trace.arg(0)
    slots = [x] + [-1] * (len(handles.__code__.co_varnames) - 1)
    outer = trace.frame(behind(handles, "CALL"), slots)
    middle = trace.frame(behind(calls_fails, "CALL"), [x], function=calls_fails, caller=outer)
    if exact:
        inner = trace.frame(
            before(fails, "CALL"), [x, trace.const(1), -1, trace.const(int), x], function=fails, caller=middle
        )
    else:
        inner = trace.frame(
            before(calls_fails, "CALL"), [x, -1, trace.const(fails), x], function=calls_fails, caller=outer
        )
    value = trace.call(int, x, snapshot=trace.snapshot(inner, exact=exact))
    return trace.ret(trace.node("Binary", value, trace.const(1))).entry()


def test_an_exception_is_raised_in_the_users_frames():
    entry = raising_entry()
    assert entry("41") == 42
    expected = handles("x")
    error = entry("x")
    assert entry.last_exit()[0] == "error"
    assert type(error) is ValueError and str(error) == str(expected)
    assert lines_of(error) == lines_of(expected)


def test_an_inexact_snapshot_raises_where_the_c_call_stands():
    error = raising_entry(exact=False)("x")
    assert lines_of(error) == lines_of(handles("x"))[:-1]


def test_an_exception_that_nobody_handles_has_the_users_lines():
    trace = Trace(calls_fails)
    x = trace.arg(0)
    outer = trace.frame(behind(calls_fails, "CALL"), [x])
    inner = trace.frame(
        before(fails, "CALL"), [x, trace.const(1), -1, trace.const(int), x], function=fails, caller=outer
    )
    entry = trace.ret(trace.call(int, x, snapshot=trace.snapshot(inner))).entry()
    with pytest.raises(ValueError) as expected:
        calls_fails("x")
    with pytest.raises(ValueError) as found:
        entry("x")
    skip = lambda lines: [line for line in lines if not line[0].startswith(("test_", "__call__"))]  # noqa: E731
    assert skip(lines_of(found.value)) == skip(lines_of(expected.value))


def in_handler(x):
    try:
        raise KeyError(x)
    except KeyError:
        y = int(x)
    return y


def test_an_exception_in_an_except_block_has_its_context():
    trace = Trace(in_handler)
    x = trace.arg(0)
    handled = trace.call(KeyError, x)
    slots = [x, -1, trace.const(None), -1, trace.const(int), x]
    nth = [i for i, row in enumerate(calls_of(in_handler))][-1]
    frame = trace.frame(before(in_handler, "CALL", nth), slots)
    value = trace.call(int, x, snapshot=trace.snapshot(frame, handled=handled))
    entry = trace.ret(value).entry()
    assert entry("7") == 7
    with pytest.raises(ValueError) as found:
        entry("x")
    assert type(found.value.__context__) is KeyError
    assert sys.exc_info() == (None, None, None)


def calls_of(function):
    from tests.native_unit.builder import instructions

    return [row for row in instructions(function) if row[0] == "CALL"]


def test_a_signal_is_raised_at_a_step():
    trace = Trace(fails)
    x = trace.arg(0)
    frame = trace.frame(before(fails, "CALL"), [x, trace.const(1), -1, trace.const(int), x])
    snapshot = trace.snapshot(frame)
    for _ in range(2000):
        value = trace.call(lambda x: x, x, snapshot=snapshot)
    entry = trace.ret(value).entry()
    assert entry(1) == 1
    calls = []

    class Interrupt(Exception):
        pass

    def handler(*_):
        calls.append(1)
        raise Interrupt

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Interrupt):
            # Python functions look for signals too: block those by pending it from a C call only
            trace = Trace(fails)
            x = trace.arg(0)
            frame = trace.frame(before(fails, "CALL"), [x, trace.const(1), -1, trace.const(int), x])
            snapshot = trace.snapshot(frame)
            trace.call(signal.raise_signal, trace.const(signal.SIGUSR1))
            for _ in range(2000):
                value = trace.call(len, x, snapshot=snapshot)
            trace.ret(value).entry()("abc")
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert calls == [1]


# ---- lifetimes


def test_an_exit_drops_what_the_frames_do_not_need():
    class Tracked:
        pass

    alive = []

    def make():
        value = Tracked()
        alive.append(weakref.ref(value))
        return value

    def probe():
        return [ref() is not None for ref in alive]

    def body(kept):
        return probe()

    trace = Trace(body)
    kept, used, dropped = trace.call(make), trace.call(make), trace.call(make)
    trace.call(id, used)
    value = trace.call(bool, trace.const(0))
    frees = [i for i, name in enumerate(body.__code__.co_freevars)]
    assert frees == [0]
    cell = trace.const(body.__closure__[0])
    nth = 0
    place = before(body, "CALL", nth)
    stack = [-1, trace.const(probe)] if sys.version_info < (3, 13) else [trace.const(probe), -1]
    snapshot = trace.snapshot(trace.frame(place, [kept, cell, *stack]))
    trace.guard(value, "Truth", n=1, snapshot=snapshot)
    entry = trace.ret(trace.call(id, dropped)).entry()
    assert entry(None) == [True, False, False]


def test_exits_leak_nothing():
    entry = raising_entry()

    def once():
        entry("x")
        end_in(
            total_of,
            before(total_of, "FOR_ITER"),
            lambda t, x: [x, t.const(1), t.const(2), t.node("Iterator", t.node("List", x))],
            5,
        )

    for _ in range(3):
        once()
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(60):
        once()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 60


def test_an_exit_inside_a_generator_that_was_made_in_the_trace():
    trace = Trace(total_of)
    x = trace.arg(0)
    made = trace.node("Generator", trace.const(numbers))
    generator_state(trace, made, [trace.const(4), trace.const(1)])
    outer = trace.frame(behind(total_of, "FOR_ITER"), [x, trace.const(100), trace.const(1), made])
    slots = [trace.const(4), trace.const(1), trace.const(1), trace.const(1)]
    inner = trace.frame(before(numbers, "BINARY_OP"), slots, function=numbers, caller=outer, generator_value=made)
    entry = trace.exit(trace.snapshot(inner)).entry()
    assert [entry(0), entry(0)] == [105, 105]  # 2 and 3 are still to come


def test_the_text_of_an_entry_shows_what_its_exits_rebuild():
    trace = Trace(double)
    x = trace.arg(0)
    made = trace.node("List", x)
    trace.node("ListAppend", made, trace.const(2))
    value = trace.call(bool, x)
    unit = before(double, "RETURN_VALUE")
    trace.guard(value, "Truth", n=1, snapshot=trace.snapshot(trace.frame(unit, [x, x, -1, made])))
    text = trace.ret(value).entry().text()
    assert text.splitlines()[-4:] == [
        "exit s0:",
        "  x0 = list r1",
        "  x1 = append x0 2",
        f"  frame double unit {unit[0]} [r1 r1 - x0]",
    ]
