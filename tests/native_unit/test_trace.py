"""The trace IR: text, source paths, invariants, truncation."""

import types

import pytest

from tests.native_unit.builder import ADD, DEFAULTS, Trace, before, behind, native


class Module:
    def __init__(self):
        self.scale = 1.5
        self._modules = {"layer": None, "0": None}
        self._parameters = {}
        self.items = [1, 2]
        self.table = {"k": 3, 4: 5}


def method(self, x, flag=True):
    return x + self.scale


GLOBAL = 3


def test_a_trace_prints_one_item_a_line_without_addresses():
    trace = Trace(method)
    me, x = trace.arg(0), trace.arg(1)
    trace.guard(me, "Type", Module)
    scale = trace.attribute(me, "scale")
    trace.guard(scale, "Type", float)
    trace.guard(scale, "Equal", 1.5)
    trace.guard(x, "Identity", None)
    snapshot = trace.snapshot(trace.frame(before(method, "BINARY_OP"), [me, x, -1, x, scale]))
    total = trace.call(len, x, snapshot=snapshot)
    trace.guard(total, "Truth", n=1, snapshot=snapshot)
    text = native.print_trace(trace.ret(total).native())
    unit = before(method, "BINARY_OP")[0]
    assert text.splitlines() == [
        "trace method at unit 0",
        "%0 = arg 0",
        "%1 = arg 1",
        f"guard %0 type {__name__}.Module",
        "%2 = dict_of %0",
        "%3 = item %2 'scale'",
        "guard %3 present",
        "guard %3 type float",
        "guard %3 equals 1.5",
        "guard %1 is None",
        "%4 = const <builtin len>",
        "%5 = torch %4 %1 @s0",
        "late %5 true True @s0",
        "return %5",
        "s0: item 9 frame f0",
        f"f0: method unit {unit} [%0 %1 - %1 %3]",
    ]


def test_source_paths_read_like_python():
    def outer():
        model = Module()

        def inner(x):
            return model, x

        return inner

    inner = outer()
    trace = Trace(inner)
    x = trace.arg(0)
    cell = trace.const(inner.__closure__[0])
    model = trace.node("CellContents", cell)
    fields = trace.node("InstanceDict", model)
    modules = trace.node("DictItem", fields, object="_modules")
    layer = trace.node("DictItem", modules, object="layer")
    first = trace.node("DictItem", modules, object="0")
    weight = trace.node(
        "DictItem", trace.node("DictItem", trace.node("InstanceDict", first), object="_parameters"), object="weight"
    )
    items = trace.node("DictItem", fields, object="items")
    item = trace.node("SequenceItem", items, n=1)
    table = trace.node("DictItem", fields, object="table")
    key = trace.node("DictItem", table, object="k")
    own = trace.node("DictItem", trace.const(inner.__globals__), object="GLOBAL")
    other = trace.node("DictItem", trace.const(vars(types)), object="FunctionType")
    builtin = trace.node("DictItem", trace.const(vars(__import__("builtins"))), object="len")
    length = trace.node("Length", items)
    defaults = trace.node("FunctionField", trace.const(method), n=DEFAULTS)
    total = trace.node("Binary", length, item, n=ADD)
    late = trace.call(len, x)
    texts = native.describe_values(trace.ret(late).native())
    expected = {
        x: "x",
        model: "model",
        layer: "model.layer",
        first: "model[0]",
        weight: "model[0].weight",
        items: "model.items",
        item: "model.items[1]",
        key: "model.table['k']",
        own: "GLOBAL",
        other: "types.FunctionType",
        builtin: "len",
        length: "len(model.items)",
        defaults: "method.__defaults__",
        total: "(len(model.items) + model.items[1])",
    }
    assert {i: texts[i] for i in expected} == expected
    assert texts[late] == f"%{late}"


def test_guards_read_like_python():
    trace = Trace(method)
    me, x = trace.arg(0), trace.arg(1)
    trace.guard(me, "Type", Module)
    trace.guard(x, "Identity", None)
    trace.guard(x, "Equal", "a")
    trace.guard(x, "Length", n=3)
    trace.guard(x, "Keys", ("a", "b"))
    trace.guard(x, "Absent")
    trace.guard(x, "Present")
    trace.guard(x, "Truth", n=0)
    trace.guard(x, "Same", n=me)
    trace.guard(x, "Different", n=me)
    trace.guard(x, "Code", method.__code__)
    assert native.describe_guards(trace.ret(x).native()) == [
        f"type(self) is {__name__}.Module", "x is None", "x == 'a'", "len(x) == 3", "keys of x are ('a', 'b')",
        "x is absent", "x is present", "bool(x) is False", "x is self", "x is not self", "x.__code__ is <code method>",
    ]  # fmt: skip


def test_objects_have_short_texts_without_user_code():
    class Loud:
        def __repr__(self):
            raise AssertionError

    describe = native.describe_object
    assert describe(Loud()).endswith("Loud>")
    assert describe("x" * 100) == "'" + "x" * 59 + "...'"
    assert describe((1, (2.5, None), "a")) == "(1, (2.5, None), 'a')"
    assert describe(str.join) == "<str.join>"
    assert describe({}) == "<dict>"
    assert describe(types) == "<module types>"
    assert describe(Loud.__repr__).startswith("<function ")


def late_call(trace, operand, **options):
    return trace.call(len, operand, **options)


def broken_traces():
    def operand_after_use(t):
        return t.ret(t.node("Length", 5, pre=False))

    def wrong_arity(t):
        return t.ret(t.node("Compare", t.arg(0)))

    def pre_of_late(t):
        return t.ret(t.node("Length", late_call(t, t.arg(0)), pre=True))

    def pre_call(t):
        return t.ret(t.node("TensorCall", t.const(len), t.arg(0), pre=True))

    def late_guard_without_snapshot(t):
        value = late_call(t, t.arg(0))
        t.guard(value, "Present")
        return t.ret(value)

    def entry_guard_with_snapshot(t):
        x = t.arg(0)
        t.guard(x, "Present", snapshot=t.snapshot(t.frame((0, 0), [x])))
        return t.ret(x)

    def snapshot_of_the_future(t):
        x = t.arg(0)
        value = late_call(t, x)
        t.guard(value, "Present", snapshot=t.snapshot(t.frame((0, 0), [value]), item=1))
        return t.ret(value)

    def guard_compares_with_late(t):
        x = t.arg(0)
        value = late_call(t, x)
        t.guard(x, "Same", n=value)
        return t.ret(value)

    def advance_of_a_list(t):
        x = t.node("List")
        t.node("Advance", x)
        return t.ret(x)

    def exit_without_snapshot(t):
        t.arg(0)
        return t

    def arg_out_of_range(t):
        return t.ret(t.arg(7))

    def constant_without_object(t):
        return t.ret(t.node("Const"))

    return [f for f in locals().values()]


@pytest.mark.parametrize("make", broken_traces(), ids=lambda f: f.__name__)
def test_the_verifier_refuses(make):
    text = make(Trace(method)).verify()
    assert text.startswith(("item", "snapshot", "end")), text
    with pytest.raises(ValueError, match="broken trace"):
        make(Trace(method)).entry()


def test_the_verifier_accepts_a_chain_of_frames():
    trace = Trace(method)
    me, x = trace.arg(0), trace.arg(1)
    caller = trace.frame(behind(method, "BINARY_OP"), [me, x])
    inner = trace.frame(before(method, "BINARY_OP"), [me, x, x], caller=caller)
    value = trace.call(len, x, snapshot=trace.snapshot(inner))
    assert trace.ret(value).verify() == ""


def test_truncation_drops_items_and_their_guards():
    trace = Trace(method)
    x = trace.arg(0)
    trace.guard(x, "Present")
    length = trace.node("Length", x)
    trace.guard(length, "Equal", 3)
    made = trace.ret(x).native()
    native.truncate(made, 2)
    assert native.verify_trace(made) == ""
    assert native.print_trace(made).splitlines()[1:] == ["%0 = arg 0", "guard %0 present", "return %0"]
