"""Tensors in guard programs: arguments, and parameters behind stamped paths."""

import pytest

torch = pytest.importorskip("torch")

from tests.native_unit.builder import Trace, before  # noqa: E402


def function(x, y=None):
    return x


def double(x, y):
    z = x + y
    return z * 2


def guard_parameter(trace, module, live, name):
    parameters = trace.attribute(module, "_parameters", live)
    trace.guard(parameters, "Type", object=dict)
    weight = trace.node("DictItem", parameters, object=name)
    trace.guard(weight, "Type", object=torch.nn.Parameter)
    trace.meta(weight, live._parameters[name])
    return weight


def linear_entry(model):
    trace = Trace(function)
    me = trace.arg(0)
    modules = trace.attribute(me, "_modules", model)
    trace.guard(modules, "Type", object=dict)
    weights = []
    for key, layer in model._modules.items():
        child = trace.node("DictItem", modules, object=key)
        trace.guard(child, "Present")
        trace.guard(trace.attribute(child, "training", layer), "Identity", object=layer.training)
        weights += [guard_parameter(trace, child, layer, "weight"), guard_parameter(trace, child, layer, "bias")]
    return trace.ret(trace.node("Tuple", *weights, pre=False)).entry()


CHANGES = {
    "another shape": "m[0].weight = torch.nn.Parameter(torch.ones(4, 4))",
    "another dtype through .data": "m[0].weight.data = torch.ones(3, 3).double()",
    "another shape through .data": "m[0].weight.data = torch.ones(2, 3)",
    "requires_grad off": "m[0].bias.requires_grad_(False)",
    "a buffer in its place": "m[0]._parameters['bias'] = torch.ones(3)",
    "None": "m[0]._parameters['bias'] = None",
    "transposed": "m[0].weight.data = m[0].weight.data.t()",
    "eval": "m.eval()",
    "another class": "m[1].weight.__class__ = torch.Tensor",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_parameter_is_noticed(name):
    m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    entry = linear_entry(m)
    for _ in range(4):
        assert entry.check(m), entry.failure()
    assert entry.statistics()["tensors"] == 4 and entry.statistics()["slow"] == 0
    try:
        exec(CHANGES[name], dict(m=m, torch=torch))
    except TypeError:
        pytest.skip("torch does not allow it")
    assert not entry.check(m)
    assert not entry.check(m)


def test_what_concerns_no_fact_passes():
    m = torch.nn.Sequential(torch.nn.Linear(3, 3))
    entry = linear_entry(m)
    assert entry.check(m) and entry.check(m)
    with torch.no_grad():
        m[0].weight.add_(1)
    m[0].weight.data = torch.ones(3, 3)
    assert entry.check(m)
    m[0].weight = torch.nn.Parameter(torch.zeros(3, 3))
    assert entry.check(m) and entry(m)[0] is m[0].weight
    m(torch.ones(2, 3)).sum().backward()
    torch.optim.SGD(m.parameters(), 0.1).step()
    assert entry.check(m) and entry.check(m)
    assert entry.statistics()["full"] == 1


def test_the_metadata_of_an_argument_is_checked_each_time():
    x = torch.ones(2, 3)
    trace = Trace(function)
    a = trace.arg(0)
    trace.guard(a, "Type", object=torch.Tensor)
    trace.meta(a, x)
    entry = trace.ret(a).entry()
    for _ in range(3):
        assert entry.check(torch.zeros(2, 3)) and not entry.check(torch.zeros(3, 2)) and not entry.check(None)
        assert not entry.check(torch.zeros(2, 3, requires_grad=True)) and not entry.check(torch.zeros(2, 3).half())
    assert "f32[2,3]" in entry.failure()
    assert "recorded" in entry.explain(torch.zeros(2, 4))


def test_a_tensor_as_dict_key_is_found_by_identity():
    p, q = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    state = {p: 1, q: 2}
    trace = Trace(function)
    table, key = trace.arg(0), trace.arg(1)
    trace.guard(trace.node("GetItem", table, key), "Equal", object=1)
    trace.guard(trace.node("Contains", table, key), "Identity", object=True)
    entry = trace.ret(table).entry()
    assert entry.check(state, p) and not entry.check(state, q) and not entry.check({}, p)


def test_the_gradient_of_a_parameter_is_read_anew():
    p = torch.nn.Parameter(torch.ones(2))
    trace = Trace(function)
    x = trace.arg(0)
    grad = trace.node("Slot", x, object=torch._C.TensorBase.grad)
    trace.guard(grad, "Identity", object=None)
    entry = trace.ret(x).entry()
    assert entry.check(p) and entry.check(p)
    p.sum().backward()
    assert not entry.check(p)
    p.grad = None
    assert entry.check(p)


def test_the_torch_state_is_compared_first():
    trace = Trace(function)
    entry = trace.ret(trace.arg(0)).entry()
    assert entry.check(1)
    with torch.no_grad():
        assert not entry.check(1)
        assert "grad mode" in entry.failure()
    assert entry.check(1)


def test_a_late_guard_on_a_tensor():
    trace = Trace(double)
    x, y = trace.arg(0), trace.arg(1)
    z = trace.node("TensorBinary", x, y, n=0)
    frame = trace.frame(before(double, "BINARY_OP", 1), [x, y, z, z, trace.const(2)])
    trace.spec["tensor_metas"].append(torch.ones(3))
    trace.guard(z, "TensorMeta", n=0, snapshot=trace.snapshot(frame))
    entry = trace.ret(z).entry()
    assert torch.equal(entry(torch.ones(3), torch.ones(3)), torch.full((3,), 2.0)) and entry.last_exit() is None
    assert torch.equal(entry(torch.ones(2), torch.ones(2)), torch.full((2,), 4.0)) and entry.last_exit()[0] == "guard"


def test_torch_nodes():
    trace = Trace(double)
    x, y = trace.arg(0), trace.arg(1)
    z = trace.node("TensorUnary", trace.node("TensorBinary", x, y, n=5), n=0)
    trace.node("TensorSetItem", z, trace.const(0), trace.const(7.0))
    picked = trace.node("TensorGetItem", z, trace.const(slice(0, 2)))
    shape = trace.node("TensorGetAttribute", picked, object="shape")
    mask = trace.node("TensorCompare", picked, trace.const(0.0), n=4)
    total = trace.call(torch.sum, z, trace.const(0), kwnames=("dim",))
    trace.node("TensorSetAttribute", picked, trace.const(True), object="requires_grad")
    truth = trace.node("SyncTruth", trace.call(torch.any, mask))
    number = trace.call(torch.Tensor.item, total, kind="SyncCall")
    trace.call(torch.set_grad_enabled, trace.const(False), kind="StateCall")
    result = trace.node("Tuple", shape, total, truth, number, picked, pre=False)
    entry = trace.ret(result).entry()
    shape, total, truth, number, picked = entry(torch.ones(3), torch.full((3,), 2.0))
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert shape == (2,) and total.item() == number == 3.0 and truth is True and picked.requires_grad


def test_activations_die_as_in_eager():
    import weakref

    alive = []

    def step(x):
        alive.append(sum(r() is not None for r in steps))
        y = x + 1
        steps.append(weakref.ref(y))
        return y

    steps = []
    trace = Trace(double)
    value = trace.arg(0)
    snapshot_slots = []
    for _ in range(6):
        snapshot_slots = [value, -1, value]
        value = trace.call(
            step, value, snapshot=trace.snapshot(trace.frame(before(double, "RETURN_VALUE"), snapshot_slots))
        )
    entry = trace.ret(value).entry()
    entry(torch.ones(2), None)
    assert alive == [0, 1, 1, 1, 1, 1]
