"""Regions around tensors whose sizes depend on data: what gives them may end a region, what uses them is in the next
one, with a graph for each size up to a bound."""

import warnings

import pytest
import torch
from test_regions import check_whole
from torch import nn
from twins import IS_REPRISE, assert_same, reprise_only, rnd

from bench.harness.capture import CountingBackend, CountOperators
from bench.stats import entries_of, report_of

if IS_REPRISE:
    import reprise

pytestmark = reprise_only


def masked(x, w):
    y = x[x > 0]
    z = torch.relu(torch.mul(torch.neg(y), 2))
    return torch.cat([z, z]).sum() + w.relu().sum()


def positions(x, w):
    ids = torch.where(x > 0)[0]
    rows = w[ids].relu()
    return torch.flatten(rows), (x + 1).neg()


def unique(x, w):
    values, place = torch._unique2((x * 2).long(), True, True)[:2]
    return torch.relu(w[place]) + 1, torch.flip(values, (0,)).float().exp()


def number_as_a_size(x, w):
    n = x.argmax() + 1
    return torch.flip(torch.ones(n), (0,)).cumsum(0) * 2, w + n


def nested(x, w):
    y = x[x > 0]
    z = torch.exp(y)
    u = z[z < 2]
    return torch.neg(u).cumsum(0), w * 2


@pytest.mark.parametrize(
    "f, graphs",
    [(masked, 2), (positions, 2), (unique, 2), (number_as_a_size, 2), (nested, 3)],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_what_gives_such_sizes_ends_a_graph_and_what_uses_them_is_in_the_next(f, graphs):
    check_whole(f, lambda i: (rnd(i, 12), rnd(i + 50, 12, 3)), calls=9, graphs=graphs)


def test_a_result_that_nobody_uses_leaves_its_graph():
    check_whole(lambda x: ((x * 2)[x > 0], x.nonzero(), (x + 1).relu()), lambda i: (rnd(i, 12),), calls=9)


def test_packed_sequences_are_in_graphs():
    torch.manual_seed(0)
    rnn = nn.LSTM(4, 6, batch_first=True)

    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, (hidden, _) = rnn(packed)
        return found.data.relu() + 1, hidden

    def arguments(i):
        return rnd(i, 3, 7, 4), torch.tensor([[7, 3, 5], [2, 7, 6], [4, 4, 7]][i % 3])

    seen = CountingBackend()
    tested = reprise.compile(f, backend=seen)
    with torch.no_grad():
        for i in range(9):
            assert_same(tested(*arguments(i)), f(*arguments(i)), f"call {i}")
    assert seen.operators > 9 * 20, seen.operators
    assert not any("dissolved" in text for entry in entries_of(report_of(tested)) for text in entry["regions"])


def test_gradients_go_through_such_graphs():
    def f(x, w):
        y = x[x > 0] * 3
        z = torch.tanh(torch.mul(y, 2))
        return torch.cat([z, z]).sum() * w.sum()

    tested = reprise.compile(f, backend=CountingBackend())
    for i in range(9):
        ours, eagers = [[rnd(i, 12, grad=True), rnd(i + 50, 4, grad=True)] for _ in range(2)]
        got, want = tested(*ours), f(*eagers)
        assert_same(got, want, f"call {i}")
        got.backward()
        want.backward()
        assert_same([t.grad for t in ours], [t.grad for t in eagers], f"gradients of call {i}")


def first(n, size=100):
    return torch.cat([torch.full((n,), 2.0), torch.full((size - n,), -1.0)])


@pytest.mark.parametrize("backend", ["own", "aot_eager", "native"])
def test_code_is_made_for_a_bounded_number_of_such_sizes(backend):
    made = []

    def own(module, example_inputs):
        made.append([tuple(t.shape) for t in example_inputs])
        return module

    def f(x):
        y = x[x > 0]
        return torch.relu(torch.neg(y)) + 1, torch.cumsum(y, 0) * 2

    given = own if backend == "own" else backend
    tested = reprise.compile(f, backend=given, options={"min_region_nodes": 1})
    for _ in range(3):
        for n in range(1, 60):
            assert_same(tested(first(n)), f(first(n)), f"{n} elements")
    counts = reprise.explain(tested).report.counters
    assert counts["recordings"] <= 2 and counts.get("evicted_sizes", 0) == 0, counts
    assert counts["live_regions"] >= 3 * 59 - 60, counts
    assert len(made) <= 20, made
    assert not any("dissolved" in text for entry in entries_of(report_of(tested)) for text in entry["regions"])


def test_sizes_beyond_the_bound_take_the_branches_that_eager_takes():
    def f(x):
        y = x[x > 0]
        z = torch.cumsum(y, 0)
        return (z + 1).relu() if z.shape[0] % 3 else torch.neg(z)

    tested = reprise.compile(f, backend=lambda module, example_inputs: module)
    for _ in range(2):
        for n in range(1, 50):
            assert_same(tested(first(n)), f(first(n)), f"{n} elements")


def test_other_tensors_whose_sizes_are_written_leave_sizes_known():
    def f(x, w):
        total = w.sum(0)
        total.unsqueeze_(0)
        y = x[x > 0]
        return torch.relu(y.view(1, y.shape[0])).expand(2, y.shape[0]), total

    seen = CountingBackend()
    tested = reprise.compile(f, backend=seen)
    for i in range(9):
        ours, eagers = [(rnd(i, 12), rnd(i + 50, 4, 3)) for _ in range(2)]
        with CountOperators() as counted:
            want = f(*eagers)
        seen.restart()
        assert_same(tested(*ours), want, f"call {i}")
    in_place = 1
    assert seen.operators == counted.count - in_place, (seen.operators, counted.count)


def test_a_backend_that_takes_no_such_results_gets_the_rest():
    refused, taken = [], []

    def backend(module, example_inputs):
        if any("where" in str(node.target) or "getitem" in str(node.target) for node in module.graph.nodes):
            refused.append(module)
            raise NotImplementedError("results of unknown sizes")
        taken.append(module)
        return module

    def f(x, w):
        y = (x * 2)[x > 0]
        ids = torch.where(torch.neg(y) < -1)[0]
        return torch.relu(ids + 1), w.exp()

    tested = reprise.compile(f, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(9):
            assert_same(tested(rnd(i, 12), rnd(i, 3)), f(rnd(i, 12), rnd(i, 3)), f"call {i}")
    assert len(refused) == 1 and taken
    assert "planned again without results of data's sizes" in str(reprise.explain(tested).report)
    assert not any("dissolved" in text for entry in entries_of(report_of(tested)) for text in entry["regions"])


def test_native_code_that_writes_is_made_for_few_such_sizes():
    def f(x, w):
        y = x[x > 0]
        n = y.shape[0]
        w[:n] += y
        return torch.neg(w), torch.cumsum(y, 0)

    tested = reprise.compile(f, options={"min_region_nodes": 1})
    for n in [*range(1, 30), 3, 4]:
        ours, eagers = torch.ones(40), torch.ones(40)
        assert_same(tested(first(n, 40), ours), f(first(n, 40), eagers), f"{n} elements")
        assert torch.equal(ours, eagers)
    counters = reprise.explain(tested).report.counters
    assert counters["recordings"] <= 2 and counters["checked_regions"] <= 12, counters
