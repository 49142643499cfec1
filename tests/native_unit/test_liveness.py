"""Liveness: what an entry executes, what exits rebuild, and when values die."""

import time

from tests.native_unit.builder import Trace, before, behind, native


def function(x, y, z):
    return x + y


def live(trace):
    return [i for i, (is_live, _) in enumerate(trace.liveness()) if is_live]


def snapshot_of(trace, *slots, caller=-1):
    return trace.snapshot(trace.frame(before(function, "BINARY_OP"), slots, caller=caller))


def test_an_unused_list_and_its_mutations_are_dead():
    trace = Trace(function)
    x = trace.arg(0)
    made = trace.node("List", x)
    trace.node("ListAppend", made, x)
    result = trace.call(len, x)
    assert live(trace.ret(result)) == [x, trace.constants[id(len)], result]


def test_a_list_that_a_call_uses_brings_its_mutations():
    trace = Trace(function)
    x = trace.arg(0)
    made = trace.node("List")
    append = trace.node("ListAppend", made, x)
    result = trace.call(len, made)
    assert {made, append} <= set(live(trace.ret(result)))


def test_mutations_of_what_existed_before_are_effects():
    trace = Trace(function)
    x, y = trace.arg(0), trace.arg(1)
    effect = trace.node("ListAppend", x, y)
    fields = trace.node("InstanceDict", x)
    store = trace.node("SetItem", fields, trace.const("k"), y)
    assert {effect, store} <= set(live(trace.ret(y)))


def test_mutations_through_the_instance_dict_belong_to_the_object():
    trace = Trace(function)
    y = trace.arg(1)
    made = trace.node("Object", trace.const(type("Made", (), {})))
    fields = trace.node("InstanceDict", made)
    store = trace.node("SetItem", fields, trace.const("k"), y)
    assert store not in live(trace.ret(y))
    assert {made, fields, store} <= set(live(trace.ret(made)))


def test_what_only_an_exit_needs_is_sunk():
    trace = Trace(function)
    x, y = trace.arg(0), trace.arg(1)
    made = trace.node("List", x)
    trace.node("ListAppend", made, y)
    value = trace.call(len, x)
    trace.guard(value, "Present", snapshot=snapshot_of(trace, made))
    result = trace.liveness() if trace.ret(value) else None
    assert not result[made][0]
    assert result[x][0] and result[y][0]
    assert result[y][1] == trace.item_count() - 1  # the guard


def test_a_python_result_that_an_exit_needs_is_executed():
    trace = Trace(function)
    x = trace.arg(0)
    value = trace.call(len, x)
    number = trace.node("Binary", value, trace.const(1))
    unused = trace.node("Binary", value, trace.const(2))
    trace.guard(value, "Present", snapshot=snapshot_of(trace, number))
    assert number in live(trace.ret(value)) and unused not in live(trace)


def test_a_value_dies_at_the_last_exit_that_shows_it():
    trace = Trace(function)
    x = trace.arg(0)
    first = trace.call(len, x)
    cell = trace.node("Cell")
    trace.node("SetCell", cell, first)
    for _ in range(3):
        value = trace.call(len, x)
        trace.guard(value, "Present", snapshot=snapshot_of(trace, cell))
    last_guard = trace.item_count() - 1
    trace.call(len, x)
    result = trace.ret(value).liveness()
    assert result[first][1] == last_guard


def test_a_cell_keeps_only_what_it_holds_at_each_exit():
    trace = Trace(function)
    x = trace.arg(0)
    cell = trace.node("Cell")
    contents, guards = [], []
    for _ in range(4):
        value = trace.call(len, x)
        trace.node("SetCell", cell, value)
        contents.append(value)
        trace.guard(trace.call(len, x), "Present", snapshot=snapshot_of(trace, cell))
        guards.append(trace.item_count() - 1)
    result = trace.ret(x).liveness()
    assert [result[value][1] for value in contents] == guards


def test_attributes_and_dict_items_are_overwritten_too_unless_somebody_looks():
    for looked_at in (False, True):
        trace = Trace(function)
        x = trace.arg(0)
        made = trace.node("Object", trace.const(type("Made", (), {})))
        table = trace.node("Dict")
        old = [trace.call(len, x), trace.call(len, x)]
        trace.node("SetAttribute", made, old[0], object="a")
        trace.node("SetItem", table, trace.const("k"), old[1])
        if looked_at:
            trace.node("Iterator", made)
            trace.node("Object", trace.const(dict), table, n=1)
        new = trace.call(len, x)
        trace.node("SetAttribute", made, new, object="a")
        trace.node("SetItem", table, trace.const("k"), new)
        trace.guard(new, "Present", snapshot=snapshot_of(trace, made, table))
        last = trace.item_count() - 1
        result = trace.ret(x).liveness()
        assert result[new][1] == last
        assert [result[v][1] == last for v in old] == [looked_at, looked_at]


def test_mutations_behind_an_exit_do_not_reach_it():
    trace = Trace(function)
    x = trace.arg(0)
    made = trace.node("List")
    early = trace.call(len, x)
    trace.guard(early, "Present", snapshot=snapshot_of(trace, made))
    guard = trace.item_count() - 1
    late = trace.call(len, x)
    trace.node("ListAppend", made, late)
    result = trace.ret(x).liveness()
    assert result[early][1] == guard
    assert result[late][1] == trace.item_count() - 2  # dead at once


def test_callers_states_are_followed_once():
    """400 exits under one caller of 400 slots, each of which holds a list: near-linear."""

    def build(n):
        trace = Trace(function)
        x = trace.arg(0)
        lists = [trace.node("List", x) for _ in range(n)]
        caller = trace.frame(behind(function, "BINARY_OP"), lists)
        for _ in range(n):
            value = trace.call(len, x)
            trace.guard(value, "Present", snapshot=snapshot_of(trace, value, caller=caller))
        return trace.ret(x).native()

    small, large = build(200), build(3200)

    def best(made):
        return min(native.time_liveness(made) for _ in range(5))

    assert best(large) < 16 * 6 * max(best(small), 2e-5)


def test_liveness_of_a_long_chain_does_not_recurse():
    trace = Trace(function)
    value = trace.arg(0)
    for _ in range(100_000):
        value = trace.node("Tuple", value, pre=False)
    start = time.perf_counter()
    assert trace.ret(value).liveness()[value][1] == "end"
    assert time.perf_counter() - start < 20


def test_the_instance_dict_of_an_object_shows_it_only_to_those_who_look():
    for looked_at in (False, True):
        trace = Trace(function)
        x = trace.arg(0)
        made = trace.node("Object", trace.const(type("Made", (), {})))
        fields = trace.node("InstanceDict", made)
        old = trace.call(len, x)
        trace.node("SetAttribute", made, old, object="a")
        if looked_at:
            trace.node("Object", trace.const(dict), fields, n=1)
        new = trace.call(len, x)
        trace.node("SetAttribute", made, new, object="a")
        trace.guard(new, "Present", snapshot=snapshot_of(trace, made, fields))
        result = trace.ret(x).liveness()
        assert (result[old][1] == trace.item_count() - 1) == looked_at
