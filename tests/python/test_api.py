"""The public API with PyTorch: compiled modules are their originals in all but speed."""

import copy
import gc
import io
import pickle
import threading
import weakref

import pytest
import reprise
import torch
from reprise import _native
from torch import nn

pytestmark = pytest.mark.skipif(_native.C is None, reason=_native.reason or "built")


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.register_buffer("scale", torch.full((), 2.0))
        self.calls = 0

    def forward(self, x, *, shift=0.0):
        self.calls += 1
        return self.inner(x) * self.scale + shift

    @reprise.compile
    def head(self, x):
        return self.inner(x).sum()


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def test_results_are_the_originals_over_several_calls(net):
    compiled = reprise.compile(net)
    for i in range(5):
        x = torch.randn(2 + i % 2, 4)
        torch.testing.assert_close(compiled(x, shift=float(i)), net(x, shift=float(i)))
    assert net.calls == compiled.calls == 10


def test_a_compiled_module_has_the_originals_class_state_and_attributes(net):
    compiled = reprise.compile(net)
    assert isinstance(compiled, Net) and compiled.__class__ is Net
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters()))
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in net.named_modules()]
    assert repr(compiled) == repr(net)
    compiled.eval()
    assert not net.training
    compiled.inner[0] = nn.Linear(4, 4)
    assert net.inner[0] is compiled.inner[0]
    net.extra = nn.Parameter(torch.zeros(1))
    assert "extra" in dict(compiled.named_parameters())
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'no_such'"):
        compiled.no_such  # noqa: B018


def test_changes_of_parameters_are_seen(net):
    compiled = reprise.compile(net)
    x = torch.randn(2, 4)
    for _ in range(3):
        compiled(x)
        with torch.no_grad():
            net.inner[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x))
    net.double()
    torch.testing.assert_close(compiled(x.double()), net(x.double()))


def test_forward_hooks_run(net):
    compiled = reprise.compile(net)
    seen = []
    x = torch.randn(2, 4)
    compiled(x)
    handle = compiled.register_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    compiled(x)
    compiled(x)
    assert seen == ["Net", "Net"]
    handle.remove()
    compiled(x)
    assert len(seen) == 2


def test_state_is_saved_and_loaded(net):
    compiled = reprise.compile(net)
    other = reprise.compile(Net())
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), other(x))


def test_it_is_pickled_as_the_original(net):
    compiled = reprise.compile(net)
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net
    x = torch.randn(2, 4)
    torch.testing.assert_close(loaded(x), net(x))


def test_deep_copies_are_compiled_and_independent(net):
    compiled = reprise.compile(net)
    copied = copy.deepcopy(compiled)
    assert type(copied) is not Net and isinstance(copied, Net)
    x = torch.randn(2, 4)
    torch.testing.assert_close(copied(x), compiled(x))
    with torch.no_grad():
        copied.inner[0].weight.zero_()
    assert not torch.equal(copied.inner[0].weight, net.inner[0].weight)


def test_a_compiled_child_lives_in_a_parent(net):
    parent = nn.Sequential(nn.Linear(4, 4), reprise.compile(net))
    expected = nn.Sequential(parent[0], net)
    assert list(parent.state_dict()) == list(expected.state_dict())
    x = torch.randn(3, 4)
    for _ in range(3):
        torch.testing.assert_close(parent(x), expected(x))


def test_methods_of_modules_are_compiled(net):
    x = torch.randn(3, 4)
    for _ in range(3):
        torch.testing.assert_close(net.head(x), net.inner(x).sum())
    forward = reprise.compile(net.forward)
    for _ in range(3):
        torch.testing.assert_close(forward(x, shift=1.0), net(x, shift=1.0))


def test_gradients_are_the_originals(net):
    compiled = reprise.compile(copy.deepcopy(net))
    for _ in range(4):
        x = torch.randn(2, 4)
        for module in (net, compiled):
            module.zero_grad()
            module(x).square().sum().backward()
        for a, b in zip(net.parameters(), compiled.parameters()):
            torch.testing.assert_close(a.grad, b.grad)


def test_deleting_module_and_callable_frees_everything():
    def make():
        net = Net()
        compiled = reprise.compile(net)
        for _ in range(3):
            compiled(torch.randn(2, 4)).sum().backward()
        step = reprise.compile(lambda x: compiled(x) * 2)
        for _ in range(3):
            step(torch.randn(2, 4))
        return [weakref.ref(o) for o in (net, compiled, net.inner[0], net.inner[0].weight, step)]

    references = make()
    gc.collect()
    assert [r() for r in references] == [None] * len(references)


def test_four_threads_call_one_module(net):
    compiled = reprise.compile(net)
    failures = []

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(2, 4, generator=generator)
            if not torch.equal(compiled(x), net.inner(x) * net.scale):
                failures.append(seed)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not _native.C.is_hook_installed()


def test_disabled_modules_keep_their_class(net):
    off = reprise.disable(net)
    x = torch.randn(2, 4)
    assert isinstance(off, Net)
    torch.testing.assert_close(off(x), net(x))
