"""A compiled region as a node of autograd: eager's semantics and texts at run time."""

import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.aot.harness import Compiled, check, is_same


def make(*sizes):
    torch.manual_seed(3)
    return torch.randn(*sizes).requires_grad_()


X, W = make(4, 6), make(6, 6)


def function(tensors):
    return torch.tanh(tensors[0] @ tensors[1]) * tensors[0]


def eager(x, w):
    return function([x, w])


@pytest.fixture(scope="module")
def region():
    compiled = Compiled(function, [X, W])
    return lambda x, w: compiled(x, w)[0]


def fresh():
    return X.detach().clone().requires_grad_(), W.detach().clone().requires_grad_()


def test_backward_twice_raises_the_text_of_eager(region):
    y = region(*fresh()).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_retain_graph_and_accumulation(region):
    x, w = fresh()
    y = region(x, w).sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * once)


def test_a_saved_input_that_was_modified_is_found(region):
    x, w = fresh()
    y = region(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_saved_output_that_was_modified_is_found():
    compiled = Compiled(lambda t: torch.tanh(t[0] @ t[1]), [X, W])
    (y,) = compiled(*fresh())
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_tensor_hooks_run(region):
    log = []

    def pack(tensor):
        log.append(tuple(tensor.shape))
        return tensor.clone()

    def unpack(tensor):
        log.append("unpack")
        return tensor

    a, b = fresh(), fresh()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = region(*a)
    y.sum().backward()
    eager(*b).sum().backward()
    assert len(log) >= 4 and torch.equal(a[0].grad, b[0].grad)
    a = fresh()
    with torch.autograd.graph.save_on_cpu():
        y = region(*a)
    y.sum().backward()
    assert torch.equal(a[0].grad, b[0].grad)


def test_gradients_only_for_what_needs_them(region):
    a, b = fresh(), fresh()
    a[1].requires_grad_(False)
    region(*a).sum().backward()
    eager(*b).sum().backward()
    assert a[1].grad is None and torch.equal(a[0].grad, b[0].grad)
    a = fresh()
    (g,) = torch.autograd.grad(region(*a).sum(), [a[1]])
    assert torch.equal(g, b[1].grad)


def test_a_call_without_grad_mode(region):
    with torch.no_grad():
        x, w = fresh()
        y = region(x, w)
        assert not y.requires_grad and torch.equal(y, eager(x, w))


def test_differentiating_twice_runs_the_callables_again(region):
    a, b = fresh(), fresh()
    for (x, w), f in ((a, region), (b, eager)):
        (g,) = torch.autograd.grad(f(x, w).sum(), [x], create_graph=True)
        (g * g).sum().backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(a, b))


def test_differentiating_twice_draws_the_same_random_numbers():
    def dropped(tensors):
        return torch.nn.functional.dropout(tensors[0] ** 3, 0.5) * tensors[1][:4]

    compiled = Compiled(dropped, [X, W])
    results = []
    for f in (lambda x, w: compiled(x, w)[0], lambda x, w: dropped([x, w])):
        x, w = fresh()
        torch.manual_seed(7)
        y = f(x, w)
        (g,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        (g * g).sum().backward()
        results.append((x.grad, torch.rand(3)))
    assert all(torch.equal(p, q) for p, q in zip(*results))


def test_hooks_on_outputs_and_inputs(region):
    def run(f):
        x, w = fresh()
        seen = []
        y = f(x, w)
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        x.register_hook(lambda g: (seen.append(1), g * 3)[1])
        y.sum().backward()
        return x.grad, w.grad, y.grad, torch.tensor(len(seen))

    assert all(torch.equal(p, q) for p, q in zip(run(region), run(eager)))


def test_saved_values_die_in_the_backward_though_the_output_lives(region):
    class Box:
        def __init__(self, tensor):
            self.tensor = tensor

    boxes = []

    def pack(tensor):
        box = Box(tensor)
        boxes.append(weakref.ref(box))
        return box

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        y = region(*fresh())
    assert boxes and all(box() is not None for box in boxes)
    y.sum().backward()
    gc.collect()
    assert all(box() is None for box in boxes)


def test_a_chain_through_the_region(region):
    a, b = fresh(), fresh()
    region(a[0] * 2, a[1] * 3).sum().backward()
    eager(b[0] * 2, b[1] * 3).sum().backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(a, b))


def test_tangents_with_other_strides_have_their_own_backward(region):
    tangent = torch.randn(6, 4)
    a, b = fresh(), fresh()
    region(*a).t().backward(tangent)
    eager(*b).t().backward(tangent)
    assert all(is_same(p.grad, q.grad) for p, q in zip(a, b))


def test_expanded_and_gapped_tangents(region):
    for tangent in (torch.ones(1, 1).expand(4, 6), torch.randn(8, 12)[::2, ::2], torch.randn(4, 12)[:, :6]):
        a, b = fresh(), fresh()
        region(*a).backward(tangent)
        eager(*b).backward(tangent)
        assert all(is_same(p.grad, q.grad) for p, q in zip(a, b))


def test_anomaly_mode(region):
    a, b = fresh(), fresh()
    with torch.autograd.set_detect_anomaly(True):
        region(*a).sum().backward()
    eager(*b).sum().backward()
    assert torch.equal(a[0].grad, b[0].grad)


def test_a_region_inside_of_a_checkpoint(region):
    a, b = fresh(), fresh()
    checkpoint(region, *a, use_reentrant=False).sum().backward()
    eager(*b).sum().backward()
    assert torch.equal(a[0].grad, b[0].grad)


def test_nothing_leaks(region):
    def resident_kb():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4

    def run(count):
        for _ in range(count):
            region(*fresh()).sum().backward()

    run(300)
    before = resident_kb()
    run(3000)
    assert resident_kb() - before < 2000


def test_a_dropped_region_is_freed():
    class Watched:
        pass

    watched = Watched()
    reference = weakref.ref(watched)

    def f(tensors, kept=watched):
        return tensors[0] * 2

    compiled = Compiled(f, [X])
    y = compiled(X)[0]
    y.sum().backward()
    del f, watched, compiled, y
    gc.collect()
    assert reference() is None


def test_facts_that_a_guard_needs():
    plain = check(lambda t: t[0] * t[1], [make(4), make(4)])
    assert not plain.counts["needs_storage_identity"] and plain.counts["groups"] == []
    writes = check(lambda t: [t[0].add_(1), t[1] * 2][1:], [torch.randn(4), torch.randn(4)])
    assert writes.counts["needs_storage_identity"]


def test_aliased_inputs_are_as_in_eager_when_recorded_aliased():
    def f(tensors):
        tensors[0].add_(1)
        return tensors[1] * 2

    shared = torch.zeros(4)
    compiled = Compiled(f, [shared, shared.view(2, 2)])
    assert compiled.counts["groups"] == [[0, 1]]
    ours = torch.arange(4.0)
    theirs = ours.clone()
    assert torch.equal(compiled(ours, ours.view(2, 2))[0], f([theirs, theirs.view(2, 2)]))
    assert torch.equal(ours, theirs)


def test_a_compiled_region_imports_nothing():
    import subprocess
    import sys

    program = """
import sys, torch
from tests.aot import harness
x = torch.randn(4, 6, requires_grad=True)
before = set(sys.modules)
import torch.nn.functional as F
c = harness.Compiled(lambda t: F.gelu(t[0] @ t[0].t()).cumsum(0).softmax(0), [x])
y = c(x)[0]
y.sum().backward()
c = harness.Compiled(lambda t: torch.linalg.inv(t[0][:, :4] + torch.eye(4)), [x])
print(sorted(set(sys.modules) - before))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stdout + result.stderr
