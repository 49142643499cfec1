"""Sizes that change from call to call: from the second value on, one entry fits all of them."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from twins import assert_same, at_most, call, check, check_function, compiled, reprise_only, rnd

SIZES = [(2, 5), (3, 5), (3, 7), (4, 9), (1, 6), (2, 1), (5, 8), (2, 5), (4, 9), (7, 3)]

#: the first sizes, the second ones, and both dimensions
THREE_ENTRIES = {"recordings": at_most(3), "exits": 0, "opaque_calls": 0}


def boxes(last=4, sizes=SIZES, grad=False):
    return [call(rnd(i, b, t, last, grad=grad)) for i, (b, t) in enumerate(sizes)]


def test_sizes_that_only_torch_sees():
    check_function(lambda x: torch.relu(x) * 2 + x.sum(), boxes(), promise=THREE_ENTRIES)


def test_shape_feeds_views():
    def f(x):
        b, t, c = x.shape
        y = x.view(b, t, 2, c // 2).transpose(1, 2)
        return y.reshape(b * 2, t, -1), y.size(-2), x.numel()

    check_function(f, boxes(), promise=THREE_ENTRIES)


def test_sizes_of_results():
    def f(x):
        y = torch.cat([x, x], dim=1)
        z = y.new_zeros(y.shape[0], y.size(1) + 1)
        return z[:, : y.shape[1]] + y.mean(-1), len(y), y.shape[:-1], (*y.shape, 1)

    check_function(f, boxes(), promise=THREE_ENTRIES)


def test_positions_and_masks():
    def f(x):
        n = x.size(1)
        positions = torch.arange(n)
        mask = torch.full((n, n), float("-inf")).triu(1)
        return x.transpose(0, 1).softmax(0).transpose(0, 1) + positions[None, :, None] * 0.1, mask.exp().sum(-1)

    check_function(f, boxes(), promise=THREE_ENTRIES)


def test_arithmetic_on_sizes():
    def f(x):
        b, t, _ = x.shape
        half = max(t // 2, 1)
        scale = 1.0 / math.sqrt(t * b)
        return x[:, :half] * scale, x[:, -half:], min(b, t), t % 2, f"{b}x{t}"

    check_function(f, boxes(), promise={"opaque_calls": 0})


def test_a_branch_on_a_size_is_a_way_of_its_own():
    def f(x):
        if x.shape[1] > 5:
            return x * 2
        return x - 1

    check_function(f, boxes(), promise={"recordings": at_most(4), "exits": at_most(2)})


def test_a_branch_on_the_size_of_a_result():
    def f(x):
        y = torch.cat([x, x], 1) + 1
        if y.shape[1] > 10:
            y = y * 2
        return y.relu() - 1

    check_function(f, boxes() + boxes(), promise={"recordings": at_most(6), "opaque_calls": 0})


def test_a_loop_over_a_size():
    def f(x):
        out = x[:, 0]
        for i in range(1, x.shape[1]):
            out = out + x[:, i] * i
        return out

    check_function(f, boxes())


def test_a_comprehension_over_rows():
    check_function(lambda x: [row.sum() for row in x], boxes())


def test_shapes_compared():
    def f(x, y):
        if x.shape == y.shape:
            return x + y
        return x.sum() + y.sum()

    calls = [call(rnd(i, b, t), rnd(i + 1, b, t)) for i, (b, t) in enumerate(SIZES)]
    calls += [call(rnd(1, 3, 4), rnd(2, 4, 3)), call(rnd(1, 5, 4), rnd(2, 5, 4)), call(rnd(1, 5, 2), rnd(2, 2, 5))]
    check_function(f, calls, promise={"recordings": at_most(5)})


def test_sizes_that_must_agree_raise_as_eager():
    calls = [
        call(rnd(i, n, 3), rnd(i, m, 3)) for i, (n, m) in enumerate([(2, 2), (3, 3), (4, 4), (4, 5), (1, 5), (6, 6)])
    ]
    check_function(lambda x, y: (x * 2 + y).relu(), calls)


def test_broadcasting_from_and_to_one():
    calls = [
        call(rnd(i, n, 3), rnd(i, m, 3)) for i, (n, m) in enumerate([(2, 2), (3, 1), (1, 4), (1, 1), (5, 5), (7, 1)])
    ]
    check_function(lambda x, y: x * y + x, calls, promise={"recordings": at_most(3), "exits": 0})


def test_empty_tensors():
    check_function(
        lambda x: (x.sum(), (x + 1).relu(), x.shape[0]), [call(rnd(i, n, 3)) for i, n in enumerate([2, 0, 3, 0, 1])]
    )


def test_split_and_chunk():
    def f(x):
        first, second = x.chunk(2, dim=-1)
        parts = x.split(2, dim=1)
        return first * second.sigmoid(), len(parts), parts[-1]

    check_function(f, boxes() + boxes())


def test_strides_and_contiguity():
    def f(x):
        y = x.transpose(0, 1)
        return y.is_contiguous(), y.stride(0), x.stride(), y.contiguous().view(-1, x.shape[-1]).cumsum(0)

    check_function(f, boxes(), promise={"opaque_calls": 0})


def test_other_strides_of_equal_sizes():
    def inputs(i, b, t):
        x = rnd(i, b, t)
        return call(x if i % 2 else rnd(i, t, b).t())

    check_function(lambda x: (x + 1) @ x.t(), [inputs(i, b, t) for i, (b, t) in enumerate(SIZES)])


def test_an_int_that_selects():
    def f(x, n):
        return x[:n] * 2, x.narrow(0, 0, n).sum()

    check_function(
        f, [call(rnd(i, 9, 2), n) for i, n in enumerate([3, 5, 7, 2, 9, 1])], promise={"recordings": at_most(2)}
    )


def test_an_int_that_makes_sizes_and_takes_part_in_arithmetic():
    def f(x, n):
        return x.view(n, -1) * n + torch.ones(n, 1)

    check_function(f, [call(rnd(i, 24), n) for i, n in enumerate([2, 3, 4, 6, 8])], promise={"recordings": at_most(2)})


def test_an_int_that_is_a_key_is_fixed():
    table = {1: 10.0, 2: 20.0, 3: 30.0}
    check_function(lambda x, n: x * table[n], [call(rnd(i, 3), n) for i, n in enumerate([1, 2, 3, 1, 2, 3])])


def test_resizing_in_place():
    def f(x):
        y = x * 1
        before = y.shape[0]
        y.t_()
        return y, before, y.shape[0]

    check_function(f, [call(rnd(i, b, t)) for i, (b, t) in enumerate(SIZES)])


def test_writes_to_the_argument():
    def f(x):
        x[:, : x.shape[1] // 2] = 0
        x.add_(1)
        return x * 2

    check_function(f, boxes(), promise=THREE_ENTRIES)


def test_views_of_the_argument():
    check_function(lambda x: (x[: x.shape[0] - 1], x.view(-1), x.unsqueeze(0)), boxes(), promise=THREE_ENTRIES)


def test_dicts_and_dataclasses():
    @dataclasses.dataclass
    class Batch:
        ids: torch.Tensor
        lengths: list

    def f(batch, *, extra):
        b, t = batch.ids.shape
        return {"sum": batch.ids.sum(1) + extra["bias"].expand(b), "size": (b, t), "last": batch.ids[:, t - 1]}

    calls = [call(Batch(rnd(i, b, t), [t] * b), extra={"bias": rnd(i, 1)}) for i, (b, t) in enumerate(SIZES)]
    check_function(f, calls, promise=THREE_ENTRIES)


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask=None):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm(x)).split(c, dim=2)
        )
        is_causal = q.shape[2] > 1 and mask is None
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


def test_attention_over_lengths():
    check(Attention, boxes(16) + boxes(16), promise={"recordings": at_most(7), "opaque_calls": 0})


def test_training_over_sizes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 16)
            self.block = Attention()
            self.head = nn.Linear(16, 11)

        def forward(self, ids):
            logits = self.head(self.block(self.embed(ids)))
            return nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), ids.view(-1))

    sizes = [(b, t) for b, t in SIZES if t > 1]
    calls = [
        call(torch.randint(0, 11, size, generator=torch.Generator().manual_seed(i))) for i, size in enumerate(sizes)
    ]
    check(Model, calls * 2, grads=True, promise={"recordings": at_most(3), "opaque_calls": 0})


def test_a_cache_that_grows():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(4, 4)
            self.cache = None

        def forward(self, x):
            y = self.proj(x)
            self.cache = y if self.cache is None else torch.cat([self.cache, y], 1)
            return self.cache.mean(1), self.cache.shape[1]

    def make():
        return Model().requires_grad_(False)

    check(make, [call(rnd(i, 2, 3 if i == 0 else 1, 4)) for i in range(12)], promise={"recordings": at_most(5)})


def test_a_size_that_varies_beside_one_that_is_open_already():
    def f(cache, mask):
        if mask is None:  # as without padding: only the cache grows
            return cache * 2
        if cache.shape[0] + 1 - mask.shape[0] > 0:
            mask = torch.cat([mask, mask[:1]])
        return torch.cat([cache, cache[:1]]) * mask

    calls = [call(rnd(n, n, 3), None) for n in (3, 4, 5)]
    calls += [call(rnd(n, n, 3), rnd(n, n + 1, 1)) for n in (5, 6, 7, 8, 9, 10)]
    check_function(f, calls, promise={"recordings": 4, "exits": 0})


def test_batch_norm_and_convolutions():
    def make():
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )

    calls = [call(rnd(i, b, 3, h, h + 1)) for i, (b, h) in enumerate([(2, 6), (3, 6), (3, 8), (4, 9), (2, 7), (5, 6)])]
    check(make, calls, grads=True, promise={"recordings": at_most(3)})


@reprise_only
def test_dynamic_true_needs_one_recording():
    import reprise

    def f(x):
        return x.view(x.shape[0], -1) * 2

    tested = compiled(f, dynamic=True)
    for i, (b, t) in enumerate(SIZES):
        x = rnd(i, b, t, 4)
        assert torch.equal(tested(x), f(x))
    assert reprise.explain(tested).report.counters["recordings"] == 1


@reprise_only
def test_dynamic_false_records_each_size():
    import reprise

    tested = compiled(lambda x: x * 2, dynamic=False)
    for n in range(1, 6):
        tested(rnd(n, n))
    assert reprise.explain(tested).report.counters["recordings"] == 5


@reprise_only
def test_a_marked_dimension_needs_one_recording():
    import reprise

    tested = compiled(lambda x: x.view(x.shape[0], -1) * 2)
    x = rnd(0, 3, 2, 2)
    torch._dynamo.mark_dynamic(x, 0)
    tested(x)
    for n in (4, 5):
        x = rnd(n, n, 2, 2)
        torch._dynamo.mark_dynamic(x, 0)
        tested(x)
    assert reprise.explain(tested).report.counters["recordings"] == 1


@pytest.mark.parametrize("count", [40])
def test_many_lengths(count):
    calls = [call(rnd(n, 2, n % 37 + 2, 4)) for n in range(count)]
    check_function(lambda x: (x.softmax(1) * x.shape[1]).sum(1), calls, promise={"recordings": at_most(2), "exits": 0})


DATA = [call(rnd(i, 12), rnd(i + 50, 40, 3)) for i in range(14)]
ONE_RECORDING = {"recordings": at_most(1), "exits": 0, "opaque_calls": 0}


def test_a_mask_whose_count_is_read():
    def f(x, w):
        y = x[x > 0]
        n = y.shape[0]
        z = y * 2 + torch.arange(n)
        return z.relu() @ z, n, w[:n].sum(0)

    check_function(f, DATA, promise=ONE_RECORDING)


def test_positions_that_are_found_by_data():
    def f(x, w):
        ids = torch.where(x > 0)[0]
        if ids.numel() == 0:
            return x.sum()
        found = x.nonzero()
        return (w[ids] * 2).relu().view(ids.shape[0], -1).sum(0), found.new_zeros(len(found), 2).sum(), found.size()

    check_function(f, DATA, promise=ONE_RECORDING)


def test_each_expert_gets_its_rows():
    def f(x, w):
        out = torch.zeros(12, 3)
        choice = (x.abs() * 2).long()
        for expert in range(3):
            ids = choice.eq(expert).nonzero().squeeze(-1)
            rows = w[ids].reshape(-1, 3)
            out[ids] = (rows.view(rows.size(0), 1, 3) * (expert + 1)).sum(1)
        return out

    check_function(f, DATA, promise=ONE_RECORDING)


def test_groups_that_are_found_by_data():
    def f(x, w):
        groups, place = torch.unique((x * 2).long(), return_inverse=True)
        return groups.new_zeros(groups.size(0)).scatter_add_(0, place, torch.ones_like(place)), groups.shape

    check_function(f, DATA, promise=ONE_RECORDING)


def test_a_branch_on_a_size_that_depends_on_data():
    def f(x, w):
        y = x[x > 0]
        if y.shape[0] > 6:
            return w[: y.shape[0]].sum() + y.mean()
        return y.sum() * 2

    check_function(f, DATA * 2, promise={"recordings": at_most(4), "exits": at_most(3), "opaque_calls": 0})


def test_gradients_through_sizes_that_depend_on_data():
    def f(x, w):
        y = x[x > 0] * 3
        return (y.view(1, y.shape[0]) @ w[: y.shape[0]]).tanh().sum()

    calls = [call(rnd(i, 12, grad=True), rnd(i + 50, 40, 3, grad=True)) for i in range(14)]
    check_function(f, calls, grads=True, promise=ONE_RECORDING)


@reprise_only
def test_dynamic_false_fixes_sizes_that_depend_on_data():
    tested = compiled(lambda x: x[x > 0].view(1, -1) * 2, dynamic=False)
    for i in range(6):
        x = rnd(i, 12)
        assert torch.equal(tested(x), x[x > 0].view(1, -1) * 2)


@reprise_only
def test_a_region_that_needs_code_for_each_of_too_many_sizes_is_dissolved():
    import reprise

    def f(x, w):
        y = x[x > 0]
        w[: y.shape[0]] += y
        return w.sum()

    tested = compiled(f)
    for n in [*range(1, 150), 3, 150]:
        x = torch.cat([torch.full((n,), 2.0), torch.full((200 - n,), -1.0)])
        found, wanted = torch.ones(200), torch.ones(200)
        assert torch.equal(tested(x, found), f(x, wanted))
        assert torch.equal(found, wanted)
    counters = reprise.explain(tested).report.counters
    assert counters["recordings"] <= 3
    assert counters["evicted_sizes"] <= 64


def test_new_sizes_of_a_tensor_that_may_be_another_one():
    """contiguous() gives its argument or a copy, as strides decide, which are open."""

    def of_the_argument(x):
        y = x.contiguous()
        x.unsqueeze_(0)
        return y.shape, y * 2, x.shape

    def of_the_result(x):
        y = x.contiguous()
        y.unsqueeze_(0)
        return x.shape, x.dim(), y + 1

    for f in (of_the_argument, of_the_result):
        for first in (0, 1):
            tested = compiled(f)
            for i in range(8):
                ours, eagers = [rnd(i, 3, 4 + i) if (i + first) % 2 else rnd(i, 3, 4 + i).t() for _ in range(2)]
                assert_same(tested(ours), f(eagers), f"{f.__name__}, {first}, call {i}")


def test_sizes_and_shapes_made_of_numbers_that_vary():
    def f(x, k):
        made = torch.Size([k]), torch.Size((k, x.shape[0])), torch.Size([x.shape[0] * 2, k]).numel()
        return made, torch.broadcast_shapes((k, 1), (1, x.shape[0])), x + 1, f"{torch.Size([k])}"

    check_function(f, [call(rnd(i, 2 + i % 3), k) for i, k in enumerate([1, 2, 3, 1, 5, 7, 2])])


def test_views_as_attributes_follow_from_the_tensor():
    # Nothing else asks for the metadata of `x`.
    calls = [
        call(rnd(i, *size, dtype=dtype)) for i, size in enumerate(SIZES[:5]) for dtype in (torch.float32, torch.float64)
    ]
    for f in (lambda x: x.T * 2, lambda x: x.real + 1, lambda x: (x.mT.shape, x.data.dtype), lambda x: x.real.mul_(2)):
        check_function(f, calls)


def test_a_part_of_a_larger_tensor_is_written_within_its_bounds():
    def rows(i, last):
        base = rnd(i, 4, 4)
        return call(base[1:last], base)

    check_function(lambda y, base: y.real.tril_(), [rows(0, 4), rows(1, 4), rows(2, 3), rows(3, 3), rows(4, 4)])


def test_iteration_over_a_tensor_inside_of_a_call():
    def f(x):
        first, *rest = (lambda a, *b: (a, *b))(*x)
        pairs = list(zip(x, enumerate(x)))
        return first, rest, pairs, list(map(lambda row: row * 2, x)), max(*x.sum(1)), sorted(x.sum(1))

    check_function(f, [call(rnd(i, rows, 3)) for i, rows in enumerate([4, 4, 2, 3, 5, 2, 4])])


def test_sizes_given_to_metadata_functions():
    def f(x):
        n = int(x[0, 0].abs().item() * 3) + 1
        return x.shape.numel(), torch.Size(x.shape), torch.broadcast_shapes(x.shape, (1,)), torch.Size((n, 2)).numel()

    check_function(f, [call(rnd(i, *size)) for i, size in enumerate(SIZES)])


def test_sums_of_sizes_are_sizes():
    def f(x):
        n = x.shape[1:] + x.shape[:1]
        return n, x.shape + (1,), (1,) + x.shape, type(n) is torch.Size, n.numel(), x.reshape(x.shape[:-1] + (2, 2))

    check_function(f, boxes())


def test_a_loop_over_rows_when_there_are_fewer_of_them():
    def f(x):
        parts = []
        for row in x:
            parts.append(row.view(-1))
        return torch.cat(parts)

    rows = [(4, 4), (4, 4), (2, 4), (5, 3), (3, 5), (4, 4), (2, 4), (5, 3)]
    check_function(f, [call(rnd(i, *size)) for i, size in enumerate(rows)])
