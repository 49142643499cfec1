"""Regions: what must be one graph of a custom backend, with every PyTorch call of the program in it."""

import collections
import contextvars
import warnings

import pytest
import torch
from twins import IS_REPRISE, assert_same, reprise_only, rnd

from bench.harness.capture import CountingBackend, CountOperators
from bench.stats import entries_of, report_of, stats_of

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


# ---- sizes


@reprise_only
def test_a_custom_backend_gets_a_graph_for_each_size():
    seen = CountingBackend()
    compiled = []

    def backend(module, example_inputs):
        compiled.append(tuple(example_inputs[0].shape))
        return seen(module, example_inputs)

    def f(x):
        n = x.shape[0] * 2
        y = torch.cat([x, x + n]).view(n, -1)
        if y.shape[0] > 100:
            return y.sum()
        return y.reshape(-1, *x.shape[1:]) * (1 / n) + y.numel()

    tested = reprise.compile(f, backend=backend)
    for size in (2, 2, 3, 4, 5, 3, 4, 60, 5):
        seen.restart()
        x = rnd(size, size, 3)
        with CountOperators() as counted:
            want = f(x)
        assert_same(tested(x), want, f"size {size}")
    assert seen.graphs == 1 and seen.operators == counted.count, (seen.graphs, seen.operators, counted.count)
    assert len(compiled) == len(set(compiled)), compiled
    assert stats_of(tested)["recordings"] <= 3, stats_of(tested)


@reprise_only
def test_a_custom_backend_gets_what_follows_sizes_that_depend_on_data():
    seen = CountingBackend()

    def f(x):
        y = x[x > 0]
        z = y.new_zeros(y.size(0) + 1)
        z[1:] = y.cumsum(0)
        return z * 2, z.shape

    tested = reprise.compile(f, backend=seen)
    for i in range(8):
        with CountOperators() as counted:
            want = f(rnd(i, 9))
        seen.restart()
        assert_same(tested(rnd(i, 9)), want, f"call {i}")
    assert seen.graphs == 2 and seen.operators == counted.count - 1, (seen.graphs, seen.operators, counted.count)
    assert stats_of(tested)["recordings"] <= 2, stats_of(tested)


@reprise_only
def test_numbers_that_are_tensors_leave_a_region():
    def f(x):
        half = torch.div(x.shape[1], 2, rounding_mode="trunc") - 1
        return x * half, half

    for backend in ("native", "aot_eager"):
        tested = reprise.compile(f, backend=backend, options={"min_region_nodes": 1})
        first = [
            assert_same(tested(rnd(i, 3, 8)), f(rnd(i, 3, 8)), f"call {i}") or tested(rnd(i, 3, 8)) for i in range(3)
        ]
        assert len({half.data_ptr() for _, half in first}) == 3
        regions = [text for entry in entries_of(report_of(tested)) for text in entry["regions"]]
        assert regions and not any("dissolved" in text for text in regions), regions


# ---- Python between PyTorch calls


class Flagged:
    def __init__(self, flag, weight):
        self.flag, self.weight = flag, weight


@reprise_only
def test_facts_about_python_objects_are_asked_in_front_of_a_region():
    def f(x, items):
        item = items.pop()
        y = x * 2
        y = y + 1 if item.flag else y - 1
        return y.relu() * item.weight.sum()

    seen = CountingBackend()
    tested = reprise.compile(f, backend=seen)
    for i, flag in enumerate([True, True, True, False, True, False, True, True]):
        items = [[Flagged(flag, rnd(i, 2))] for _ in range(2)]
        seen.restart()
        assert_same(tested(rnd(i, 3), items[0]), f(rnd(i, 3), items[1]), f"call {i}")
        assert items == [[], []]
    assert seen.graphs == 1 and seen.operators == 5, (seen.graphs, seen.operators)


@reprise_only
def test_facts_that_an_effect_among_the_calls_may_change_are_asked_behind_it():
    def f(x, items, other):
        item = items.pop()
        y = x * 2
        other.flag = not other.flag
        y = y + 1 if item.flag else y - 1
        return y.relu() * 3

    tested = reprise.compile(f, backend=CountingBackend())
    for i, is_same in enumerate([False, False, False, True, False, True, True]):
        results = []
        for program in (tested, f):
            item = Flagged(i % 3 > 0, None)
            other = item if is_same else Flagged(True, None)
            results.append((program(rnd(i, 3), [item], other), item.flag, other.flag))
        assert_same(*results, f"call {i}")


@reprise_only
def test_facts_that_fail_in_front_of_a_region_become_branches():
    def f(x, items, y):
        item = items.pop()
        y.add_(x)
        y = y * 2
        if item.flag == 0:
            return y + 1
        if item.flag == 1:
            return y.abs().amax() + 2
        return y - item.flag

    for options in ({}, {"backend": CountingBackend()}):
        tested = reprise.compile(f, **options)
        for i in range(16):
            written = [torch.ones(3), torch.ones(3)]
            got = tested(rnd(i, 3), [Flagged(i % 4, None)], written[0])
            want = f(rnd(i, 3), [Flagged(i % 4, None)], written[1])
            assert_same([got, written[0]], [want, written[1]], f"call {i}")


LEVEL = contextvars.ContextVar("level", default=0)


def context_variable(x):
    y = x * 2
    token = LEVEL.set(3)
    y = y + LEVEL.get()
    LEVEL.reset(token)
    return y.relu()


def own_containers(x):
    y, found = x * 2, {"a": 1, "b": 2}
    found.setdefault("c", y)
    y = y + 1
    found.update(d=y)
    del found["a"]
    order = collections.OrderedDict(found)
    order.move_to_end("b")
    y = y * 3
    order["e"] = order.pop("d") + y
    return order, y.relu()


def named_results(x):
    best, top = x.max(1), torch.topk(x, 2)
    return best.values + 1, best.indices * 2, torch.sort(x).values + top.values.sum(), top.indices + 1


def results_that_are_none(x):
    weight, bias = torch.ones(3), torch.zeros(3)
    found = torch._transform_bias_rescale_qkv if x is None else None
    out, *rest = torch.native_layer_norm(x, [3], weight, bias, 1e-5)
    mean = torch.ops.aten.native_layer_norm_backward(out, x, [3], rest[0], rest[1], weight, bias, [True, False, False])
    return mean[0] + 1 if mean[1] is None and found is None else mean


def attributes_of_new_tensors(x):
    y = torch.zeros_like(x)
    y.label = "new"
    z = y.copy_(x) * 2
    return z.relu(), y.label


PYTHON = [context_variable, own_containers, named_results, results_that_are_none]


@reprise_only
@pytest.mark.parametrize("f", [*LISTS, *PYTHON], ids=lambda f: f.__name__)
def test_lists_and_python_that_torch_calls_do_not_see_do_not_end_a_region(f):
    check_whole(f, lambda i: (rnd(i, 3, 3),))


@reprise_only
def test_attributes_of_new_tensors_are_those_of_eager():
    tested = reprise.compile(attributes_of_new_tensors, backend=CountingBackend())
    for i in range(5):
        assert_same(tested(rnd(i, 3)), attributes_of_new_tensors(rnd(i, 3)), f"call {i}")


@reprise_only
def test_a_late_number_that_a_fact_fixes_is_a_constant_of_a_region():
    def f(x, items):
        item = items.pop()
        y = x * 2
        if item.flag == 3:
            y = y + item.flag
        return torch.nn.functional.gelu(y, approximate=item.weight)

    seen = CountingBackend()
    tested = reprise.compile(f, backend=seen)
    for i, flag in enumerate([3, 3, 3, 4, 3, 5, 3]):
        kind = "tanh" if i != 4 else "none"
        seen.restart()
        assert_same(tested(rnd(i, 3), [Flagged(flag, kind)]), f(rnd(i, 3), [Flagged(flag, kind)]), f"call {i}")
    assert seen.graphs == 1 and seen.operators == 3, (seen.graphs, seen.operators)


@reprise_only
def test_a_number_that_was_read_late_is_a_constant_of_a_graph_while_it_stays():
    def f(x, items):
        y = x * 2
        return (y * items.pop().weight).relu() + 1

    seen = CountingBackend()
    tested = reprise.compile(f, backend=seen)
    for i, weight in enumerate([2.0, 2.0, 2.0, 2.0]):
        seen.restart()
        assert_same(tested(rnd(i, 3), [Flagged(0, weight)]), f(rnd(i, 3), [Flagged(0, weight)]), f"call {i}")
    assert seen.operators == 4, (seen.graphs, seen.operators)
    for i, weight in enumerate([3.0, 2.0, 4.0, 4.0]):
        assert_same(tested(rnd(i, 3), [Flagged(0, weight)]), f(rnd(i, 3), [Flagged(0, weight)]), f"call {i}")


# ---- gradients


def gradient_of_a_loss(x, w):
    loss = ((x @ w).tanh() ** 2).sum()
    (grad,) = torch.autograd.grad(loss, [w])
    return loss, w - 0.1 * grad


def two_steps(x, w):
    for _ in range(2):
        loss = ((x @ w).tanh() ** 2).mean()
        (grad,) = torch.autograd.grad(loss, [w], create_graph=True)
        w = w - 0.1 * grad
    return (x @ w).sum()


def gradient_of_something_inside(x, w):
    y = x @ w
    z = y.exp()
    (grad,) = torch.autograd.grad(z.sum(), [y], create_graph=True)
    return grad * z


@reprise_only
@pytest.mark.parametrize("f", [gradient_of_a_loss, two_steps, gradient_of_something_inside], ids=lambda f: f.__name__)
def test_gradients_join_the_graph_of_what_they_are_of(f):
    check_whole(f, lambda i: (rnd(i, 5, 4), rnd(i + 9, 4, 3, grad=True)))


@reprise_only
def test_gradients_whose_graph_is_not_inside_do_not_join():
    seen = []

    def through_another_tensor(x, w):
        y = w * 2
        if y.sum() > 1000:
            return y
        (grad,) = torch.autograd.grad((x @ y).sum() + w.sum(), [w])
        return grad

    def of_what_came_with_a_graph(x, w):
        (grad,) = torch.autograd.grad((x * w).sum(), [x], retain_graph=True)
        return grad

    def written_in_between(x, w):
        y = w.clone()
        y *= 2
        if x.sum() > 1000:
            return y
        (grad,) = torch.autograd.grad((x @ y).sum(), [w])
        return grad

    def left_in_grad(x, w):
        (x @ w).sum().backward()
        return w.grad * 1

    def backend(module, example_inputs):
        seen.extend(node.name for node in module.graph.nodes)
        return module

    for f in (through_another_tensor, written_in_between, left_in_grad):
        seen.clear()  # facts about data stand in a group of regions: the first two may join
        tested = reprise.compile(f, backend=backend)
        for i in range(4):
            ours, eagers = [(rnd(i, 5, 4), rnd(i + 9, 4, 3, grad=True)) for _ in range(2)]
            assert_same(tested(*ours), f(*eagers), f"{f.__name__}, call {i}")
    tested = reprise.compile(of_what_came_with_a_graph, backend=backend)
    for i in range(4):
        leaf = rnd(i, 3, grad=True)
        x = leaf * 2
        assert_same(tested(x, x.exp()), of_what_came_with_a_graph(x, x.exp()), f"call {i}")
    assert seen and not any("run_backward" in name for name in seen), seen


@reprise_only
def test_a_backend_that_takes_no_gradients_gets_the_rest():
    refused, taken = [], []

    def backend(module, example_inputs):
        has_gradient = any("run_backward" in node.name for node in module.graph.nodes)
        (refused if has_gradient else taken).append(module)
        if has_gradient:
            raise NotImplementedError("gradients")
        return module

    tested = reprise.compile(two_steps, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(5):
            ours, eagers = [(rnd(i, 5, 4), rnd(i + 9, 4, 3, grad=True)) for _ in range(2)]
            assert_same(tested(*ours), two_steps(*eagers), f"call {i}")
    assert len(refused) == 1 and len(taken) >= 3
