"""Running entries: every kind of node, order of effects, when values die, what raises."""

import gc
import weakref

import pytest

from tests.native_unit.builder import ADD, CODE, NOTHING, Trace, before

MULTIPLY_IN_PLACE = 18


def function(x, y, z):
    return x + y


class Box:
    def __init__(self, value=None):
        self.value = value


class Slotted:
    __slots__ = ("a",)


def run(build, *args):
    """The result of an entry built by build(trace, *arg ids)."""
    trace = Trace(function)
    ids = [trace.arg(i) for i in range(len(args))]
    return trace.ret(build(trace, *ids)).entry()(*args)


def late(trace, id):
    """The same object, known late only."""
    return trace.call(lambda x: x, id)


def test_reads_of_late_values():
    cell = (lambda: cell).__closure__[0]
    box, slotted = Box(3), Slotted()
    slotted.a = 5

    def read(kind, **options):
        return lambda t, x: t.node(kind, late(t, x), **options)

    assert run(read("InstanceDict"), box) is box.__dict__
    assert run(read("DictItem", object="k"), {"k": 7}) == 7
    assert run(read("SequenceItem", n=1), (1, 2)) == 2
    assert run(read("SequenceItem", n=1), [1, 3]) == 3
    assert run(read("Length"), "abc") == 3
    assert run(read("CellContents"), cell) is cell.cell_contents
    assert run(read("Slot", object=Slotted.a), slotted) == 5
    assert run(read("FunctionField", n=CODE), function) is function.__code__
    assert run(read("MethodField", n=0), box.__init__) is Box.__init__
    assert run(read("MethodField", n=1), box.__init__) is box


def test_missing_things_read_as_null():
    def build(trace, x):
        item = trace.node("DictItem", late(trace, x), object="k")
        trace.guard(
            item, "Absent", snapshot=trace.snapshot(trace.frame(before(function, "BINARY_OP"), [x, x, x, x, x]))
        )
        return trace.node("DictItem", late(trace, x), object="j")

    assert run(build, {"j": 2}) == 2


def test_python_operations():
    def operation(kind, *constants, **options):
        return lambda t, x: t.node(kind, late(t, x), *(t.const(c) for c in constants), **options)

    assert run(operation("Unary", n=0), 3) == -3
    assert run(operation("Unary", n=3), 3) is False
    assert run(operation("Binary", 4, n=ADD), 3) == 7
    assert run(operation("Binary", 2, n=8), 3) == 9
    assert run(operation("Compare", 4, n=0), 3) is True
    assert run(operation("Identical", None), None) is True
    assert run(operation("Contains", "a"), {"a": 1}) is True
    assert run(operation("GetItem", 1), [1, 2]) == 2
    assert run(operation("Truth"), []) is False
    assert run(operation("Format", n=2), "a") == "'a'"
    assert run(operation("JoinStrings", "b", "c"), "a") == "abc"
    assert run(lambda t, x: t.node("Call", t.const(int), late(t, x), t.const(2), object=("base",)), "101") == 5


def test_allocations():
    assert run(lambda t, x: t.node("Tuple", late(t, x), x), 1) == (1, 1)
    assert run(lambda t, x: t.node("List", x, x), 1) == [1, 1]
    assert run(lambda t, x: t.node("Dict", t.const("k"), x), 1) == {"k": 1}
    assert run(lambda t, x: t.node("Set", x), 1) == {1}
    none = object
    assert run(lambda t, x: t.node("Slice", late(t, x), t.const(None), t.const(2)), 1) == slice(1, None, 2)
    assert type(run(lambda t, x: t.node("Object", x), Box)) is Box
    assert run(lambda t, x: t.node("Object", x, t.const(4), n=1, object=("value",)), Box).value == 4
    assert run(lambda t, x: t.node("Method", t.const(Box.__init__), x), none) == Box.__init__.__get__(none)
    assert run(lambda t, x: t.node("Method", t.const(Box.__init__), x, n=1), none) == Box.__init__.__get__(none)
    assert list(run(lambda t, x: t.node("Iterator", x), [1, 2])) == [1, 2]
    assert list(run(lambda t, x: t.node("Iterator", x, object=enumerate), "ab")) == [(0, "a"), (1, "b")]
    assert run(lambda t, x: t.node("Super", t.const(Box), x), Box()).__init__.__objclass__ is object
    cell = run(lambda t, x: t.node("Cell"), 0)
    assert cell == type(cell)()


def test_functions_are_made_with_all_their_parts():
    def template(a, *, b):
        return a, b, y

    y = 9

    def build(trace, x):
        cell = trace.node("Cell")
        trace.node("SetCell", cell, x)
        closure = trace.node("Tuple", cell)
        defaults = trace.node("Tuple", x)
        keywords = trace.node("Dict", trace.const("b"), x)
        annotations = trace.const(("a", int))
        return trace.node(
            "Function", trace.const(globals()), defaults, keywords, annotations, closure, object=template.__code__
        )

    made = run(build, 3)
    assert made() == (3, 3, 3)
    assert (
        made.__annotations__ == {"a": int}
        and made.__module__ == __name__
        and made.__qualname__ == template.__qualname__
    )


def test_effects_run_in_order_on_what_existed_before():
    class Table(dict):
        def __setitem__(self, key, value):
            raise AssertionError("the trace has its body")

    box, items, table = Box(), [], Table(a=1)
    trace = Trace(function)
    x, y, z = trace.arg(0), trace.arg(1), trace.arg(2)
    trace.node("SetAttribute", x, trace.const(1), object="p")
    trace.node("ListAppend", y, trace.node("DictItem", trace.node("InstanceDict", late(trace, x)), object="p"))
    trace.node("SetAttribute", x, trace.const(2), object="p")
    trace.node("ListAppend", y, trace.node("DictItem", trace.node("InstanceDict", late(trace, x)), object="p"))
    trace.node("DeleteAttribute", x, object="value")
    trace.node("SetItem", z, trace.const("b"), trace.const(2))
    trace.node("DeleteItem", z, trace.const("a"))
    trace.node("MutatorCall", y, trace.const(list.extend), y, trace.const((7, 8)))
    popped = trace.node("MutatorCall", y, trace.const(list.pop), y)
    assert trace.ret(popped).entry()(box, items, table) == 8
    assert vars(box) == {"p": 2} and items == [1, 2, 7] and table == {"b": 2}


def test_an_existing_iterator_is_advanced_and_reports_its_end():
    trace = Trace(function)
    x = trace.arg(0)
    first, second, third = (trace.node("Next", x) for _ in range(3))
    trace.guard(third, "Absent", snapshot=trace.snapshot(trace.frame(before(function, "BINARY_OP"), [x, x, x, x, x])))
    assert trace.ret(trace.node("Tuple", first, second)).entry()(iter([1, 2])) == (1, 2)


def test_a_live_iterator_stands_where_the_trace_left_it():
    trace = Trace(function)
    x = trace.arg(0)
    made = trace.node("Iterator", x)
    trace.node("Advance", made)
    trace.node("Advance", made)
    assert next(trace.ret(made).entry()([1, 2, 3])) == 3


def test_constants_and_arguments_can_be_the_result():
    assert run(lambda t, x: t.const("c"), 0) == "c"
    assert run(lambda t, x: x, "a") == "a"


def test_a_value_dies_behind_its_last_use():
    log = []

    class Tracked:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            log.append("del " + self.name)

    def make(name):
        log.append("make " + name)
        return Tracked(name)

    def use(value):
        log.append("use " + value.name)

    trace = Trace(function)
    a = trace.call(make, trace.const("a"))
    b = trace.call(make, trace.const("b"))
    trace.call(use, a)
    trace.call(use, b)
    trace.call(make, trace.const("c"))  # nobody uses it
    trace.call(use, b)
    entry = trace.ret(trace.const(1)).entry()
    for _ in range(2):
        log.clear()
        assert entry() == 1
        assert log == ["make a", "make b", "use a", "del a", "use b", "make c", "del c", "use b", "del b"]


def test_a_kept_argument_is_not_kept_longer_than_the_run():
    box = Box()
    trace = Trace(function)
    x = trace.arg(0)
    trace.call(id, x)
    entry = trace.ret(trace.const(0)).entry()
    entry(box)
    entry(box)
    alive = weakref.ref(box)
    del box
    assert alive() is None


def test_runs_may_nest():
    trace = Trace(function)
    x, y = trace.arg(0), trace.arg(1)
    made = trace.node("List", x)
    trace.call(lambda f, n: f(f, n - 1) if n else None, y, x)
    entry = trace.ret(made).entry()

    def again(_, n):
        assert entry(n, again if n else (lambda *_: None)) == [n]

    assert entry(5, again) == [5]


def test_an_exception_without_a_snapshot_propagates():
    trace = Trace(function)
    x = trace.arg(0)
    entry = trace.ret(trace.call(int, x)).entry()
    assert entry("12") == 12
    with pytest.raises(ValueError, match="invalid literal"):
        entry("a")
    assert entry.statistics()["error_exits"] == 1
    assert entry("13") == 13


def test_many_operands():
    trace = Trace(function)
    x = trace.arg(0)
    parts = [late(trace, x) for _ in range(700)]
    assert trace.ret(trace.node("Tuple", *parts)).entry()(1) == (1,) * 700


def test_a_generator_cannot_reach_compiled_code():
    def generator():
        yield 1

    trace = Trace(function)
    made = trace.node("Generator", trace.const(generator))
    with pytest.raises(ValueError, match="generator"):
        trace.ret(made).entry()


def test_slots_are_used_again():
    trace = Trace(function)
    value = trace.arg(0)
    for _ in range(100):
        value = trace.call(lambda x: x + 1, value)
    entry = trace.ret(value).entry()
    assert entry(1) == 101
    assert "r103" not in entry.text()


def test_the_text_of_an_entry():
    trace = Trace(function)
    x = trace.arg(0)
    made = trace.node("List", x)
    result = trace.call(len, made)
    assert trace.ret(result).entry().text().splitlines() == [
        "entry: 1 constants, 1 pre values, 4 slots",
        "r0 = const <builtin len>",
        "r1 = pre x",
        "r2 = list r1 free r1",
        "r3 = torch r0 r2 free r2",
        "return r3",
    ]


def test_entries_leak_nothing():
    def once():
        trace = Trace(function)
        x, y = trace.arg(0), trace.arg(1)
        trace.guard(x, "Type", Box)
        trace.node("SetAttribute", x, trace.node("List", y), object="value")
        entry = trace.ret(trace.call(len, trace.attribute(x, "text"))).entry()
        box = Box()
        box.text = "abc"
        for _ in range(3):
            assert entry(box, 1) == 3
        return weakref.ref(box), NOTHING

    import sys

    gc.collect()
    once()
    gc.collect()
    before_blocks = sys.getallocatedblocks()
    for _ in range(50):
        assert once()[0]() is None
    gc.collect()
    assert sys.getallocatedblocks() - before_blocks < 50
