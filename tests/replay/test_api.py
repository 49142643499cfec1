"""What reprise.compile returns and offers: names, binding, options, explain, disable, fullgraph, backends."""

import copy
import inspect
import pickle

import pytest
import torch
from twins import (
    ARE_COUNTS_CHECKED,
    IS_REPRISE,
    assert_same,
    at_most,
    call,
    check_function,
    compiled,
    reprise_only,
    rnd,
    vectors,
)

from bench.compare import difference
from bench.stats import named_counts, stats_of

if IS_REPRISE:
    import reprise


def documented(x, k=2, *, scale: float = 1.0):
    """Says what it does."""
    return x * k * scale


@reprise_only
def test_a_compiled_function_keeps_its_name_signature_and_doc():
    tested = reprise.compile(documented)
    assert tested.__name__ == "documented" and tested.__doc__ == "Says what it does."
    assert tested.__qualname__ == documented.__qualname__ and tested.__module__ == documented.__module__
    assert inspect.signature(tested) == inspect.signature(documented)
    assert tested.__wrapped__ is documented and callable(tested)


@reprise_only
def test_decorator_forms():
    @reprise.compile
    def a(x):
        return x + 1

    @reprise.compile()
    def b(x):
        return x + 2

    @reprise.compile(fullgraph=False, dynamic=None, backend="native", mode=None, options=None)
    def c(x):
        return x + 3

    for i in range(3):
        x = rnd(i, 3)
        assert_same([a(x), b(x), c(x)], [x + 1, x + 2, x + 3], "decorated")


def test_a_compiled_function_binds_as_a_method():
    class Layer:
        def __init__(self):
            self.k = 3.0

        @staticmethod
        @compiled
        def static(x):
            return x * 2

        @classmethod
        def named(cls, x):
            return x, cls.__name__

        def scaled(self, x):
            return x * self.k

    Layer.scaled = compiled(Layer.scaled)
    layer, other = Layer(), Layer()
    other.k = 5.0
    for i in range(4):
        x = rnd(i, 3)
        assert_same(
            [layer.scaled(x), other.scaled(x), Layer.scaled(layer, x), Layer.static(x)],
            [x * 3, x * 5, x * 3, x * 2],
            "bound",
        )


@reprise_only
def test_compiling_twice_and_compiling_a_method():
    twice = reprise.compile(reprise.compile(documented))

    class Holder:
        def run(self, x):
            return x - 1

    method = reprise.compile(Holder().run)
    for i in range(3):
        assert_same([twice(rnd(i, 3)), method(rnd(i, 3))], [documented(rnd(i, 3)), rnd(i, 3) - 1], "twice")


@reprise_only
def test_a_compiled_function_pickles_and_copies():
    tested = reprise.compile(documented)
    x = rnd(0, 3)
    tested(x)
    for other in (copy.copy(tested), copy.deepcopy(tested)):
        assert_same(other(x, 4), x * 4, "copy")
    try:
        found = pickle.loads(pickle.dumps(tested))
    except pickle.PicklingError:
        pytest.fail("the compiled function of an importable name can't be pickled")
    assert_same(found(x, 4), x * 4, "pickle")


@reprise_only
def test_a_class_becomes_compiled_on_its_calls():
    tested = reprise.compile(torch.nn.Linear(3, 3))
    assert type(tested).__name__ and isinstance(tested, torch.nn.Linear)
    assert repr(tested).endswith(repr(torch.nn.Linear(3, 3)).split("(", 1)[1])


@reprise_only
def test_fullgraph_raises_before_the_offending_call_runs():
    log = []

    def f(x):
        y = x * 2
        log.append("before")
        print("never")
        log.append("after")
        return y

    tested = reprise.compile(f, fullgraph=True)
    with pytest.raises(reprise.GraphBreak) as caught:
        tested(rnd(0, 3))
    line = f.__code__.co_firstlineno + 3
    assert log == ["before"]
    assert f"{line}" in str(caught.value) and "test_api.py" in str(caught.value)


@reprise_only
def test_fullgraph_lets_a_whole_program_pass():
    tested = reprise.compile(documented, fullgraph=True)
    for i in range(3):
        assert_same(tested(rnd(i, 3)), documented(rnd(i, 3)), "fullgraph")


@reprise_only
def test_disable_keeps_a_function_out():
    calls = []

    @reprise.disable
    def inner(x):
        calls.append(1)
        return x * 2

    def f(x):
        return inner(x + 1) + 1

    tested = reprise.compile(f)
    for i in range(4):
        assert_same(tested(rnd(i, 3)), (rnd(i, 3) + 1) * 2 + 1, "disabled inside")
    assert len(calls) == 4


@reprise_only
def test_reset_forgets_entries_and_calls_stay_right():
    tested = reprise.compile(documented)
    for i in range(6):
        if i == 3:
            reprise.reset()
        assert_same(tested(rnd(i, 3)), documented(rnd(i, 3)), f"call {i}")


@reprise_only
def test_list_backends_names_the_built_in_ones():
    assert {"native", "eager"} <= set(reprise.list_backends())


@reprise_only
def test_explain_reports_entries_exits_and_counts():
    def f(x):
        y = x * 2
        print("out", x.shape)
        return y + 1

    report = reprise.explain(f)(rnd(0, 3))
    assert len(report.entries) >= 1
    assert named_counts(report.counters)["recordings"] >= 1
    assert isinstance(str(report), str)
    if ARE_COUNTS_CHECKED:
        line = f.__code__.co_firstlineno + 2
        assert any("test_api.py" in str(e) and str(line) in str(e) for e in report.exits), [
            str(e) for e in report.exits
        ]


@reprise_only
@pytest.mark.parametrize(("backend", "tolerance"), [("eager", 0), ("aot_eager", 0), ("native", 100)])
def test_named_backends_give_eagers_results(backend, tolerance):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
    tested = reprise.compile(model, backend=backend)
    for i in range(4):
        found = difference(tested(rnd(i, 2, 3)), model(rnd(i, 2, 3)), f"call {i}", tolerance)
        assert found is None, str(found)


@reprise_only
def test_a_custom_backend_gets_fx_graphs():
    seen = []

    def backend(graph, example_inputs):
        seen.append((type(graph), len(example_inputs), [n.op for n in graph.graph.nodes]))
        return graph.forward

    def f(x):
        y = x * 2 + 1
        print("between")
        return y.relu().sum()

    tested = reprise.compile(f, backend=backend)
    for i in range(4):
        assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")
    assert seen and all(issubclass(kind, torch.fx.GraphModule) for kind, _, _ in seen)
    assert any("call_function" in ops or "call_method" in ops for _, _, ops in seen)


@reprise_only
@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_modes_and_dynamic_are_accepted(mode, dynamic):
    tested = reprise.compile(documented, mode=mode, dynamic=dynamic)
    for n in (3, 4, 5, 3):
        assert_same(tested(rnd(n, n)), documented(rnd(n, n)), f"size {n}")


@reprise_only
@pytest.mark.parametrize(
    "wrong", [dict(mode="fastest"), dict(backend="nothing"), dict(options={"no_such_option": 1}), dict(dynamic="yes")]
)
def test_wrong_options_raise_and_name_the_value(wrong):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        reprise.compile(documented, **wrong)(rnd(0, 3))
    value = next(iter(wrong.values()))
    value = next(iter(value)) if isinstance(value, dict) else value
    assert str(value) in str(caught.value)


@reprise_only
@pytest.mark.parametrize("thing", [5, "text", None.__class__])
def test_things_that_can_not_be_compiled(thing):
    if callable(thing):
        assert reprise.compile(thing) is not None
    else:
        with pytest.raises(TypeError):
            reprise.compile(thing)


def test_builtin_functions_and_classes_are_called_as_they_are():
    for thing, args in (
        (torch.sin, (rnd(0, 3),)),
        (len, ([1, 2],)),
        (torch.nn.Identity(), (rnd(0, 3),)),
        (dict, ([("a", 1)],)),
    ):
        tested = compiled(thing) if IS_REPRISE or not isinstance(thing, type) else thing
        for _ in range(3):
            assert_same(tested(*args), thing(*args), str(thing))


def test_entries_are_evicted_and_recorded_again_without_a_wrong_result():
    def f(x, word):
        return x * len(word), {"abc": 1}.get(word, word)

    words = [f"w{i % 90}" for i in range(200)]
    agreed = check_function(f, [call(rnd(i, 2), w) for i, w in enumerate(words)])
    if agreed.counts is not None and ARE_COUNTS_CHECKED:
        assert agreed.counts["exits"] == 0


@reprise_only
def test_options_limit_the_entries_of_a_place():
    def f(x, word):
        return x, {"a": 1, "b": 2, "c": 3}[word]

    tested = reprise.compile(f, options={"max_entries": 2})
    for word in "abcabcaab":
        assert_same(tested(rnd(0, 2), word), f(rnd(0, 2), word), word)
    counts = stats_of(tested)
    if ARE_COUNTS_CHECKED and counts is not None:
        assert counts["entries"] in at_most(2) and counts["evictions"] > 0, counts


@reprise_only
def test_counts_add_up():
    tested = reprise.compile(documented)
    for x in vectors(5):
        tested(*x.args)
    counts = stats_of(tested)
    if ARE_COUNTS_CHECKED and counts is not None:
        assert counts["calls"] == 5 and counts["recordings"] == 1 and counts["runs"] == 4 and counts["entries"] == 1, (
            counts
        )


@reprise_only
def test_a_backend_that_raises_is_told_and_the_program_goes_on():
    def backend(graph, example_inputs):
        raise KeyError("no such device")

    def f(x):
        return (x * 2 + 1).relu().sum()

    tested = reprise.compile(f, backend=backend)
    with pytest.warns(RuntimeWarning, match="no such device"):
        for i in range(4):
            assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")


@reprise_only
def test_a_backend_sees_parameters_and_trains():
    sizes = []

    def backend(graph, example_inputs):
        sizes.append(len(example_inputs))
        return graph

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    tested = reprise.compile(model, backend=backend)
    for i in range(4):
        x = rnd(i, 5, 3)
        gradients = []
        for program in (model, tested):
            loss = program(x).square().sum()
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        assert_same(gradients[1], gradients[0], f"call {i}")
    assert sizes == [5]


@reprise_only
@pytest.mark.parametrize("name", ["bert", "gpt2-cache", "resnet50"])
def test_aot_eager_gives_eagers_results(name):
    from bench.models import make_inputs, make_model

    plain, inner = make_model(name, tiny=True), make_model(name, tiny=True)
    tested = reprise.compile(inner, backend="aot_eager")
    with torch.no_grad():
        for i in range(4):
            inputs = make_inputs(name, tiny=True, seed=i)
            assert_same(tested(**inputs), plain(**inputs), f"call {i}")
    assert any(
        "a graph of" in region for entry in reprise.explain(tested)(**inputs).entries for region in entry["regions"]
    )
