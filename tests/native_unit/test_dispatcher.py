"""Which of many entries a call is worth: hashing on the facts that tell them apart."""

from tests.native_unit.builder import Dispatcher, Trace, native


class Module:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Other(Module):
    pass


def function(x, n=None, mode=None):
    return x


def entry_for(build):
    trace = Trace(function)
    build(trace, trace.arg(0), trace.arg(1), trace.arg(2))
    return trace.ret(trace.const(1)).entry()


def for_number(n):
    def build(t, x, number, mode):
        t.guard(number, "Type", object=int)
        t.guard(number, "Equal", object=n)

    return entry_for(build)


def test_an_int_argument_tells_entries_apart():
    entries = [for_number(i) for i in range(64)]
    dispatcher = Dispatcher(entries)
    for i in (0, 5, 63):
        assert dispatcher.candidates(None, i) == [i] and dispatcher.look_up(None, i) == i
    assert dispatcher.candidates(None, 64) == [] and dispatcher.look_up(None, 1000) == -1
    assert dispatcher.look_up(None, True) == -1  # the entry decides


def test_facts_deep_in_a_module_tell_entries_apart():
    def for_flags(training, depth):
        def build(t, x, number, mode):
            child = t.attribute(x, "child", Module())
            t.guard(t.attribute(child, "training", Module()), "Identity", object=training)
            t.guard(t.attribute(child, "depth"), "Equal", object=depth)

        return entry_for(build)

    cases = [(training, depth) for training in (True, False) for depth in range(8)]
    dispatcher = Dispatcher([for_flags(*case) for case in cases])
    for i, (training, depth) in enumerate(cases):
        module = Module(child=Module(training=training, depth=depth))
        assert dispatcher.candidates(module) == [i] and dispatcher.look_up(module) == i
    assert dispatcher.candidates(Module(child=None)) == [] == dispatcher.candidates(3)


def test_types_lengths_missing_items_and_truths():
    def by_type(t, x, number, mode):
        t.guard(x, "Type", object=Other)

    def by_length(t, x, number, mode):
        t.guard(x, "Type", object=list)
        t.guard(x, "Length", n=2)

    def by_longer(t, x, number, mode):
        t.guard(x, "Type", object=list)
        t.guard(x, "Length", n=3)

    def by_absence(t, x, number, mode):
        t.guard(x, "Type", object=dict)
        t.guard(t.node("DictItem", x, object="k"), "Absent")

    def by_presence(t, x, number, mode):
        t.guard(x, "Type", object=dict)
        t.guard(t.node("DictItem", x, object="k"), "Equal", object="v")

    dispatcher = Dispatcher([entry_for(build) for build in (by_type, by_length, by_longer, by_absence, by_presence)])
    calls = [Other(), [1, 2], [1, 2, 3], {}, {"k": "v"}]
    assert [dispatcher.look_up(call) for call in calls] == [0, 1, 2, 3, 4]
    assert [len(dispatcher.candidates(call)) for call in calls] == [1] * 5
    assert dispatcher.look_up({"k": "w"}) == -1 and dispatcher.look_up("other") == -1


def test_an_entry_that_leaves_a_fact_open_is_in_every_bucket():
    entries = [for_number(i) for i in range(8)] + [entry_for(lambda t, x, n, m: t.guard(m, "Equal", object="any"))]
    dispatcher = Dispatcher(entries)
    assert set(dispatcher.candidates(None, 3)) == {3, 8}
    assert dispatcher.look_up(None, 3) == 3 and dispatcher.look_up(None, 3, "any") in (3, 8)
    assert dispatcher.look_up(None, 99, "any") == 8


def test_equal_programs_are_tried_most_recently_used_first():
    def for_method(value):
        return entry_for(
            lambda t, x, n, m: t.guard(t.node("Truth", t.node("Contains", x, t.const(value))), "Identity", object=True)
        )

    dispatcher = Dispatcher([for_method(i) for i in range(4)])
    assert dispatcher.candidates([9]) == [3, 2, 1, 0]
    assert dispatcher.look_up([1]) == 1
    assert dispatcher.candidates([9]) == [1, 3, 2, 0]
    assert dispatcher.look_up([0]) == 0
    assert dispatcher.candidates([9]) == [0, 1, 3, 2]


def test_sizes_of_tensors_tell_entries_apart():
    import pytest

    torch = pytest.importorskip("torch")
    tensors = [torch.ones(2, i) for i in range(16)]

    def for_tensor(tensor):
        def build(t, x, number, mode):
            t.guard(x, "Type", object=torch.Tensor)
            t.meta(x, tensor)

        return entry_for(build)

    dispatcher = Dispatcher([for_tensor(tensor) for tensor in tensors])
    assert [dispatcher.candidates(tensor) for tensor in tensors] == [[i] for i in range(16)]
    assert [dispatcher.look_up(torch.zeros(2, i)) for i in range(16)] == list(range(16))
    assert dispatcher.look_up(torch.zeros(2, 17)) == -1 and dispatcher.look_up(torch.zeros(2, 3).half()) == -1


def test_64_entries_cost_little_more_than_4():
    def time_of(count):
        handle = Dispatcher([for_number(i) for i in range(count)])
        calls = [[None, i % count, None] for i in range(64)]
        time, ok = native.time_look_up(handle.capsule, calls, 20_000)
        assert ok
        return time

    few, many = min(time_of(4) for _ in range(3)), min(time_of(64) for _ in range(3))
    assert many < 3 * few, (few, many)  # measured 1.0 to 1.3; the rest is room for a busy machine
