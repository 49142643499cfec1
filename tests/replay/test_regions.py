"""Regions: what must be one graph of a custom backend, with every PyTorch call of the program in it."""

import pytest
import torch
from twins import IS_REPRISE, assert_same, reprise_only, rnd

from bench.harness.capture import CountingBackend, CountOperators
from bench.stats import stats_of

if IS_REPRISE:
    import reprise


def check_whole(f, make_arguments, calls=5, graphs=1):
    """Every settled call runs `graphs` graphs, which hold all operators of the program and give eager's results."""
    seen = CountingBackend()
    modules = []

    def backend(module, example_inputs):
        modules.append(module)
        return seen(module, example_inputs)

    tested = reprise.compile(f, backend=backend)
    for i in range(calls):
        ours, eagers = make_arguments(i), make_arguments(i)
        with CountOperators() as counted:
            want = f(*eagers)
        seen.restart()
        got = tested(*ours)
        assert_same(got, want, f"call {i}")
    counts = stats_of(tested)
    assert counts["recordings"] == 1 and counts["exits"] == 0, counts
    assert seen.operators == counted.count, f"{seen.operators} of {counted.count} operators are in graphs"
    assert seen.graphs == graphs, f"{seen.graphs} graphs"
    return modules


# ---- lists


def appended(x):
    found = []
    for i in range(3):
        found.append(x * i)
    return torch.cat(found).relu() + 1


def grown(x):
    features = [x]
    for _ in range(3):
        features.append(torch.cat(features, 1).tanh())
    return torch.cat(features, 1) * 2


def changed_in_every_way(x):
    parts = [x, x + 1]
    parts.extend([x + 2, x + 3])
    parts.insert(0, x * 2)
    parts[1] = parts[1] * 3
    first = parts.pop()
    del parts[0]
    parts.reverse()
    return torch.stack(parts).sum(0) + first


def comprehended(x):
    parts = [part * 2 for part in x.split(1)]
    return torch.stack(parts).cumsum(0)


def nested_tuple(x):
    index = [x.argmax(0)]
    index.append(index[0].flip(0))
    return x[tuple(index)] * 2 + torch.einsum("ij,ij->i", *[x, x]).sum()


def list_as_sizes(x):
    sizes = [1]
    sizes.append(x.numel())
    sizes += [1]
    return x.reshape(sizes).permute([2, 1, 0]) * 2


LISTS = [appended, grown, changed_in_every_way, comprehended, nested_tuple, list_as_sizes]


@reprise_only
@pytest.mark.parametrize("f", LISTS, ids=lambda f: f.__name__)
def test_lists_that_the_call_makes_do_not_end_a_region(f):
    check_whole(f, lambda i: (rnd(i, 3, 3),))


@reprise_only
def test_a_list_is_given_as_it_is_at_the_call():
    def f(x):
        parts = [x]
        one = torch.cat(parts)
        parts.append(x + 1)
        two = torch.cat(parts)
        parts[0] = x * 3
        three = torch.cat(parts)
        return one, two, three, parts

    check_whole(f, lambda i: (rnd(i, 3),))


# ---- indices


@reprise_only
def test_indices_that_are_tensors_decide_about_no_sizes():
    def f(x, index):
        y = x[index] * 2
        z = x[:, index, None].sum(0)
        w = y.clone()
        w[index] = y[0] + 1
        return y + 1, z, w, y.shape, x[index.view(1, -1)].mT

    check_whole(f, lambda i: (rnd(i, 4, 4), torch.randperm(4, generator=torch.Generator().manual_seed(i))))


@reprise_only
def test_indices_that_decide_about_sizes_or_offsets_still_do():
    def f(x, mask, position):
        y, z = x[mask], x[position]
        return y.shape[0], y * 2, z.storage_offset(), z * 2, x[position : position + 1] + 1

    tested = reprise.compile(f)
    for i in range(6):
        arguments = (rnd(i, 4, 3), rnd(i + 7, 4) > 0, torch.tensor(i % 4))
        assert_same(tested(*arguments), f(*arguments), f"call {i}")


@reprise_only
def test_a_mask_of_numpy_decides_about_sizes():
    numpy = pytest.importorskip("numpy")

    def f(x, mask):
        y = x[mask]
        return y.shape[0], y * 2

    tested = reprise.compile(f)
    for i in range(5):
        arguments = (rnd(i, 4), numpy.arange(4) >= i % 3)
        assert_same(tested(*arguments), f(*arguments), f"call {i}")


# ---- what torch.fx prints


@reprise_only
def test_graphs_hold_functions_that_python_functions_of_the_same_name_call():
    def f(x):
        a, b = torch.broadcast_tensors(x, x[0])
        c = torch.cdist(a, b) + torch.einsum("ij,kj->ik", a, b)
        return c, torch.stft(x.flatten(), 4, return_complex=True, window=torch.ones(4)), x.norm(dim=0)

    check_whole(f, lambda i: (rnd(i, 4, 4),))


@reprise_only
def test_graphs_hold_attributes_numbers_changed_in_place_and_types():
    def f(x):
        scale = 2.0
        scale *= x
        count = torch.tensor(3, dtype=int)
        return scale.T + torch.fft.fft(x).real, count * 2, x.sum(dtype=torch.float64)

    check_whole(f, lambda i: (rnd(i, 4, 4),))
