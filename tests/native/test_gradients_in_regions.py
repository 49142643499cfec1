"""Gradients that a program takes of its own results: they join the region of what they are of, and are differentiated
in turn; sizes that follow from data; backwards that get gradients of some results only."""

import pytest
import reprise
import torch
from torch import nn


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 24), nn.Softplus(), nn.Linear(24, 1))


def scatter(source, index, count):
    """A sum of rows as graph networks write it: into zeros of sizes that are read of tensors."""
    sizes = source.size()[:0] + (count,) + source.size()[1:]
    return source.new_zeros(sizes).scatter_add_(0, index.view(-1, 1).expand_as(source), source)


class Molecules(nn.Module):
    """Edges are found by data, and the number of molecules is read of it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lift, self.mix, self.last = nn.Linear(1, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, positions, batch):
        count = positions.shape[0]
        rows, columns = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
        keep = rows != columns
        edges = torch.stack([rows[keep], columns[keep]])
        lengths = (positions[edges[0]] - positions[edges[1]]).norm(dim=-1)
        hidden = self.mix(torch.tanh(self.lift(lengths[:, None])))
        atoms = self.last(scatter(nn.functional.softplus(hidden), edges[1], count))
        return scatter(atoms, batch, int(batch.max()) + 1)


def regions_of(compiled, *args):
    text = str(reprise.explain(compiled)(*args))
    return [line.strip() for line in text.splitlines() if "region of" in line]


def count_reruns(compiled, *args):
    """How many backwards PyTorch ran by calling the region's callables again; since it was compiled."""
    found = [
        line.rpartition("backwards that PyTorch ran: ")[2] for line in regions_of(compiled, *args) if "ran:" in line
    ]
    return sum(int(text.partition(",")[0]) for text in found)


def assert_close(got, want):
    for a, b in zip(got, want, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        assert a.dtype == b.dtype and a.requires_grad == b.requires_grad and a.is_contiguous() == b.is_contiguous()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def check_steps(make, arguments, calls=5):
    """`make` gives a module and a step that trains it; gradients and results are eager's."""
    (net, step), (twin, plain) = make(), make()
    compiled = reprise.compile(step)
    for i in range(calls):
        given = arguments(i)
        got, want = compiled(net, *given), plain(twin, *given)
        assert_close(
            [*got, *(p.grad for p in net.parameters())],
            [*want, *(p.grad for p in twin.parameters())],
        )
    report = reprise.explain(compiled)(net, *arguments(0))
    assert report.counters["side_exits"] == 0
    assert report.counters["dissolved_regions"] == 0
    return compiled, net


def with_penalty(net, x):
    net.zero_grad()
    x = x.detach().requires_grad_()
    y = net(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = (slope**2).sum() + y.sum()
    loss.backward()
    return loss.detach(), slope.detach()


def test_a_gradient_is_in_the_region_of_what_it_is_of_and_is_differentiated_again():
    compiled, net = check_steps(lambda: (make_net(), with_penalty), lambda i: (torch.randn(7, 5),))
    x = torch.randn(7, 5)
    assert any("13 torch calls" in line for line in regions_of(compiled, net, x))
    count = count_reruns(compiled, net, x)
    assert 0 < count <= 2  # by the first gradients of each entry
    for _ in range(3):
        compiled(net, x)
    assert count_reruns(compiled, net, x) == count


def test_code_is_made_for_the_gradients_that_come():
    """No program of gradients of one result can be made of what the forward saved for all; the next forward knows."""
    compiled, net = check_steps(lambda: (make_net(), with_penalty), lambda i: (torch.randn(7, 5),), calls=8)
    with torch.profiler.profile() as profile:
        compiled(net, torch.randn(7, 5))
    assert not any("SoftplusDoubleBackward" in e.name or e.name == "TanhBackward0" for e in profile.events())


@pytest.mark.parametrize("keeps", [True, False], ids=["keeps hooks", "calls hooks"])
def test_hooks_on_what_is_differentiated_with_respect_to_run(keeps):
    seen = []

    def f(net, x):
        y = net(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return slope * 2, y

    net = make_net()
    compiled = reprise.compile(f)
    for i in range(6):
        x = torch.randn(4, 5, requires_grad=True)
        if i >= 3:
            handle = x.register_hook(lambda g: seen.append(g.clone()) or (g * 3 if keeps else None))
        want = f(net, x)
        count = len(seen)
        got = compiled(net, x)
        assert_close(got, want)
        if i >= 3:
            assert len(seen) == count + 1
            handle.remove()


def test_a_graph_that_a_gradient_has_freed_raises_as_in_eager():
    def f(net, x):
        x = x.detach().requires_grad_()
        y = net(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        return y, -slope

    net = make_net()
    compiled = reprise.compile(f)
    for _ in range(4):
        x = torch.randn(4, 5)
        got = compiled(net, x)
        assert_close(got, f(net, x))
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            got[0].sum().backward()
    assert any("9 torch calls" in line for line in regions_of(compiled, net, x))


def forces(net, positions, batch):
    for p in net.parameters():
        p.grad = None
    positions = positions.detach().requires_grad_()
    energy = net(positions, batch)
    (slope,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
    loss = (slope**2).sum() + (energy**2).sum()
    loss.backward()
    return loss.detach(), -slope.detach()


def test_forces_of_molecules_are_one_region_behind_the_edges():
    batch = torch.tensor([0] * 4 + [1] * 5)
    compiled, net = check_steps(lambda: (Molecules(), forces), lambda i: (torch.randn(9, 3), batch))
    assert any("30 torch calls" in line for line in regions_of(compiled, net, torch.randn(9, 3), batch))


def test_how_many_molecules_there_are_may_change():
    def arguments(i):
        count = 2 + i % 3
        return torch.randn(3 * count, 3), torch.arange(count).repeat_interleave(3)

    check_steps(lambda: (Molecules(), forces), arguments, calls=12)


def test_a_size_that_data_decide_is_part_of_what_code_is_made_for():
    def f(x, index):
        count = int(index.max()) + 1
        y = (x * 2).relu()
        return y.new_zeros((count, 3)).index_add_(0, index, y).sum(1) + 1, count

    compiled = reprise.compile(f)
    for i in range(12):
        x, index = torch.randn(6, 3), torch.randint(0, 2 + i % 4, (6,))
        got, want = compiled(x, index), f(x, index)
        assert got[1] == want[1]
        assert_close([got[0]], [want[0]])
    assert reprise.explain(compiled)(x, index).counters["side_exits"] == 0
