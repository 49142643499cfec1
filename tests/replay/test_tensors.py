"""Tensor programs: data that reaches Python, in-place operations, views, random numbers, dtypes and shapes."""

import functools
import math
import random

import numpy
import pytest
import torch
from twins import ONE_ENTRY, assert_same, bitwise_only, call, check, check_function, compiled, rnd, vectors


def test_item_steers_a_branch_and_an_argument():
    def f(x):
        v = x.sum().item()
        if v > 0:
            return x * v
        return x - v, x.nonzero().shape[0]

    rows = [torch.ones(3), torch.ones(3) * 2, -torch.ones(3), -torch.ones(3), torch.tensor([-1.0, 0, 0]), torch.ones(3)]
    check_function(f, [call(r) for r in rows])


def test_item_that_is_only_arithmetic_does_not_exit():
    def f(x):
        v = x.max().item()
        return x / v + v * 2

    check_function(f, vectors(5), promise=ONE_ENTRY)


def test_item_that_is_only_logged():
    def make():
        log = []

        def f(x):
            y = x * 2
            log.append(y.mean().item())
            return y + 1

        f.log = log
        return f

    check(make, vectors(5), post=lambda f: f.log, promise=ONE_ENTRY)


def test_conversions_of_tensors_to_python():
    def f(x):
        n = (x * 10).long()
        return (
            int(n[0]),
            float(x[0]),
            bool(x[0] > 0),
            n.tolist(),
            x.tolist(),
            n[0].item(),
            complex(x[1]),
            x.numpy().sum(),
            len(x),
            range(5)[n[0] % 3],
        )

    check_function(f, vectors(5))


def test_shapes_of_data_dependent_results_are_late():
    def f(x):
        hits = x.nonzero()
        kept = x[x > 0]
        unique = torch.unique((x * 2).round())
        return (
            x * hits.shape[0],
            kept,
            kept.numel(),
            len(unique),
            torch.where(x > 0)[0].size(0),
            kept.sum() / max(1, kept.shape[0]),
        )

    rows = [[1.0, 0, 0], [1.0, 0, 0], [1.0, 1, 1], [0.0, 0, 0], [-1.0, 2, 2], [1.0, 0, 0]]
    check_function(f, [call(torch.tensor(r)) for r in rows])


def test_data_dependent_sizes_feed_new_tensors_and_loops():
    def f(x):
        n = int((x > 0).sum())
        y = torch.zeros(n, 2)
        for i in range(n):
            y[i] = i * x.max()
        return y, x.repeat(n), torch.arange(n)

    check_function(f, vectors(6, (4,)))


def test_boolean_masks_read_and_write():
    def f(x):
        y = x.clone()
        y[y < 0] = 0
        y[y > 1] *= 2
        z = torch.masked_select(x, x > 0)
        return y, z, x.masked_fill(x > 0, -1.0), torch.where(x > 0, x, -x)

    check_function(f, vectors(5, (4,)))


def test_random_numbers_are_eagers():
    def f(x):
        a = torch.nn.functional.dropout(x, 0.5, True)
        b = torch.rand(3) + torch.randn_like(x)
        c = torch.randint(0, 10, (2,))
        d = torch.randperm(5)
        e = torch.empty(3).uniform_().bernoulli_(0.5)
        return a, b, c, d, e, torch.normal(0.0, torch.ones(2)), torch.multinomial(torch.ones(4), 2)

    check_function(f, vectors(5), promise=ONE_ENTRY)


def test_a_seed_set_inside_and_a_private_generator():
    def make():
        generator = torch.Generator().manual_seed(5)

        def f(x, n):
            a = torch.rand(3, generator=generator)
            torch.manual_seed(n)
            b = torch.rand(3)
            return x + a + b, torch.initial_seed()

        return f

    check(make, [call(rnd(i, 3), i) for i in range(5)])


def test_random_state_saved_and_restored_inside():
    def f(x):
        state = torch.get_rng_state()
        a = torch.rand(3)
        torch.set_rng_state(state)
        b = torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            c = torch.rand(3)
        return x + a, torch.equal(a, b), c, torch.rand(1)

    check_function(f, vectors(4))


def test_python_and_numpy_random():
    def make():
        rng = numpy.random.default_rng(3)

        def f(x):
            r = random.random()
            return x * r + random.randint(1, 5), rng.random(), random.choice("abc"), random.sample(range(9), 2)

        return f

    check(make, vectors(5))


def test_in_place_operations_on_inputs_and_temporaries():
    def f(x, y):
        x.add_(1).mul_(2)
        y[0] = 5.0
        y[1:] += x[1:]
        t = x * 1
        t.relu_()
        t.copy_(t + y)
        torch.add(x, 1, out=y[:3])
        return t, x

    check_function(f, [call(rnd(i, 3), rnd(i + 1, 3)) for i in range(4)], promise=ONE_ENTRY)


def test_augmented_assignment_rebinds_or_mutates():
    def f(x, k):
        y = x
        y += 1
        k += 1
        z = x + 0
        z *= k
        z @= torch.eye(3)
        z[1] -= 3
        return x is y, y, z, k

    check_function(f, [call(rnd(i, 3), 2.0) for i in range(4)], promise=ONE_ENTRY)


def test_views_share_memory_with_their_base():
    def f(x):
        row, column, flat, t = x[0], x[:, 1], x.view(-1), x.t()
        row.add_(1)
        flat[2] = 9
        return (
            row,
            column,
            flat,
            t,
            x.unsqueeze(0),
            x.expand(2, *x.shape),
            x.narrow(0, 0, 1),
            x.split(1),
            x.unbind(1),
            x.chunk(2),
        )

    check_function(f, vectors(4, (2, 3)), promise=ONE_ENTRY)


def test_views_of_temporaries_share_with_each_other():
    def f(x):
        y = x * 2
        a, b = y[:2], y[1:]
        a.mul_(3)
        return a, b, y.as_strided((2,), (1,), 1), y.detach(), y.flatten(), y.contiguous() is y, y.reshape(3, 1)

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_inputs_returned_are_the_same_objects():
    def f(x, y):
        return x, y, [x, (y,)], {"x": x}, x.contiguous(), x.to(torch.float32), x.requires_grad_(False), x[:]

    check_function(f, [call(rnd(i, 3), rnd(i + 1, 3)) for i in range(4)], promise=ONE_ENTRY)


def test_slicing_and_indexing_in_all_forms():
    def f(x, i, idx):
        return (
            x[i],
            x[-1],
            x[..., 0],
            x[None],
            x[::2],
            x[idx],
            x[:, idx],
            x[idx, idx],
            x[i:, None],
            x[[0, 1]],
            x[True],
            x.take(idx),
        )

    idx = torch.tensor([0, 2])
    check_function(f, [call(rnd(k, 3, 4), i, idx) for k, i in enumerate([1, 1, 1, 2, 1])])


def test_index_assignment_in_all_forms():
    def f(x, idx):
        x[0] = 1
        x[:, 1] = torch.ones(3)
        x[idx] = x[idx] * 2
        x[x > 1] = 0.5
        x[..., -1] += 1
        x.index_add_(0, idx, torch.ones(2, 4))
        x.scatter_(1, idx.view(1, 2), 7.0)
        x.index_put_((idx, idx), torch.tensor(3.0))
        return x.sum()

    check_function(f, [call(rnd(i, 3, 4), torch.tensor([0, 2])) for i in range(4)], promise=ONE_ENTRY)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64],
)
def test_arithmetic_keeps_eagers_dtypes(dtype):
    def f(x):
        y = x + 1
        z = x * 2.5
        w = x / 3
        return (
            y,
            z,
            w,
            x + x,
            x.to(torch.float32).sum(),
            torch.result_type(x, 1.0),
            (x == x).all(),
            x.dtype.is_floating_point,
        )

    check_function(f, [call((rnd(i, 5) * 3).to(dtype)) for i in range(4)])


def test_integers_wrap_and_divide_as_in_eager():
    def f(x, y):
        return (
            x * y,
            x + 127,
            -x,
            x // y,
            x % y,
            x / y,
            x << 1,
            x & y,
            ~x,
            x.sum(),
            x.to(torch.int8),
            torch.div(x, y, rounding_mode="floor"),
        )

    x = torch.tensor([127, -128, 100, -7], dtype=torch.int8)
    y = torch.tensor([3, -5, 100, 2], dtype=torch.int8)
    check_function(f, [call(x, y)] * 4)


def test_nan_infinity_and_signed_zero():
    def f(x):
        return (
            x * 0,
            x / 0,
            x - x,
            -(x * 0),
            x.max(),
            torch.maximum(x, -x),
            x.nan_to_num(),
            torch.isnan(x).any(),
            x == x,
            torch.sign(x),
            x.clamp(-1, 1),
        )

    x = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0])
    check_function(f, [call(x), call(x), call(-x), call(x)])


def test_python_floats_keep_their_bits():
    def f(x, s):
        return s, s * 3, s / 7, x * s, math.sqrt(abs(s)), s // 1, round(s, 2), -s, abs(s), s == 0

    values = [0.1, 0.1, -0.0, 0.0, 1e-320, float("inf"), 0.3, -2.5]
    check_function(f, [call(rnd(i, 2), v) for i, v in enumerate(values)])


def test_big_integers_and_integer_division():
    def f(x, n):
        return n**20, n // 7, -n // 7, n % 7, n << 70, divmod(n, 3), n.bit_length(), x * (n % 5), int(n / 3), hash(n)

    check_function(f, [call(rnd(i, 2), n) for i, n in enumerate([12345678901, 12345678901, 3, -3, 2**63, 3])])


def test_dtype_shape_stride_and_grad_changes_between_calls():
    def f(x):
        return x * 2 + x.sum(0)

    inputs = [
        rnd(0, 3, 4),
        rnd(1, 3, 4),
        rnd(2, 3, 4, dtype=torch.float64),
        rnd(3, 4, 3).t(),
        rnd(4, 5, 4),
        rnd(5, 3, 4, grad=True),
    ]
    inputs += [
        rnd(6, 3, 4, 2),
        rnd(7, 6, 4)[::2],
        rnd(8, 1, 4).expand(3, 4),
        torch.zeros(0, 4),
        torch.tensor([1, 2]),
        rnd(9, 3, 4),
    ]
    check_function(f, [call(x) for x in inputs] + [call(x) for x in inputs])


def test_growing_shapes_are_right_at_every_size():
    def f(x):
        n = x.shape[0]
        y = x.view(n, 1) * torch.arange(n)
        return y.sum(0) / n, y.numel(), x.new_zeros(n)

    check_function(f, [call(rnd(n, n)) for n in (1, 2, 3, 4, 5, 2, 9, 1, 3)])


def test_empty_zero_dimensional_and_broadcast_tensors():
    def f(x, y):
        return x + y, x * torch.tensor(2), x.sum() + y.sum(), x.mean(), torch.cat([x.flatten(), y.flatten()]), x.numel()

    check_function(
        f,
        [
            call(torch.zeros(0, 3), rnd(0, 3)),
            call(torch.zeros(0, 3), rnd(0, 3)),
            call(torch.tensor(1.0), rnd(1, 2)),
            call(rnd(2, 3, 1), rnd(3, 1, 4)),
            call(torch.zeros(0, 3), rnd(0, 3)),
        ],
    )


def test_tensor_constructors():
    def f(x, n, values):
        a = torch.tensor(values)
        b = torch.full((2,), n)
        c = torch.linspace(0, n, 3)
        d = torch.as_tensor(x)
        e = torch.tensor([x[0].item(), 2])
        return (
            a,
            b,
            c,
            d is x,
            e,
            torch.eye(2),
            x.new_tensor([1, 2]),
            torch.zeros_like(x, dtype=torch.int64),
            torch.arange(0, n, 0.5),
        )

    check_function(f, [call(rnd(i, 3), n, [1.5, n]) for i, n in enumerate([2, 2, 3, 2.5, 2])])


def test_numpy_shares_memory():
    def f(x, a):
        n = x.numpy()
        n += 1
        t = torch.from_numpy(a)
        t.mul_(2)
        return x, t, a.sum(), n.shape, numpy.add(n, 1), x + torch.as_tensor(numpy.float32(2))

    check_function(f, [lambda i=i: call(rnd(i, 3), numpy.ones(3, dtype=numpy.float32)) for i in range(4)])


def test_tensor_metadata_in_python_expressions():
    def f(x):
        b, c = x.shape
        facts = (
            x.ndim,
            x.dim(),
            x.size(),
            x.size(1),
            x.stride(),
            x.numel(),
            x.is_contiguous(),
            x.dtype,
            x.device.type,
            x.layout,
            x.storage_offset(),
        )
        x = x.reshape(c, b) if b > 1 else x
        return (
            x.view(-1, 1) * b,
            facts,
            x.is_floating_point(),
            torch.is_tensor(x),
            isinstance(x, torch.nn.Parameter),
            x.element_size(),
        )

    check_function(f, vectors(3, (2, 3)) + vectors(2, (1, 3)) + [call(rnd(0, 3, 2).t())], promise=None)


def test_metadata_changed_in_place():
    def f(x):
        x.unsqueeze_(0)
        a = x.shape
        x.squeeze_().resize_(2)
        x.t_()
        return a, x.shape, x * 2

    check_function(f, vectors(4))


def test_set_data_and_swap_storage():
    def f(x, y):
        x.data = y * 2
        z = x + 1
        x.data.add_(1)
        return x, z, x.data_ptr() == y.data_ptr()

    check_function(f, [call(rnd(i, 3), rnd(i + 1, 3)) for i in range(4)])


def test_python_attributes_on_tensors():
    def f(x):
        x.tag = getattr(x, "tag", 0) + 1
        y = x * 2
        y.name_of = "y"
        return y, x.tag, hasattr(x, "name_of"), y.name_of

    check_function(f, vectors(4))


def test_complex_sparse_and_quantised_layouts():
    def f(x):
        c = torch.complex(x, x + 1)
        s = (x * (x > 0)).to_sparse()
        return (
            c.abs(),
            c.conj(),
            c * 1j,
            torch.view_as_real(c),
            torch.fft.fft(x),
            s,
            (s @ torch.ones(3, 1)),
            s.to_dense(),
        )

    check_function(f, vectors(4, (3, 3)))


def test_einsum_matmul_and_linear_algebra():
    def f(x, y):
        return (
            torch.einsum("ij,jk->ik", x, y),
            x @ y,
            torch.linalg.norm(x),
            torch.linalg.solve(x @ x.T + torch.eye(3), y),
            torch.bmm(x[None], y[None]),
            x.T.softmax(-1),
            torch.baddbmm(x[None], x[None], y[None], beta=0.5),
        )

    check_function(f, [call(rnd(i, 3, 3), rnd(i + 1, 3, 3)) for i in range(4)], promise=ONE_ENTRY)


def test_results_with_several_tensors():
    def f(x):
        values, indices = x.max(dim=0)
        top = x.topk(2, dim=1)
        out = torch.sort(x, dim=1, descending=True)
        return values, indices, top, top.values, out[1], torch.std_mean(x), x.aminmax(), torch.linalg.qr(x)

    check_function(f, vectors(4, (3, 3)), promise=ONE_ENTRY)


def test_comparison_of_tensors_with_is_in_and_equal():
    def f(x, y):
        return (
            x is y,
            x is not None,
            torch.equal(x, y),
            any(x is v for v in [y, x]),
            [x, y].index(x),
            bool((x == y).all()),
            torch.allclose(x, y),
        )

    check_function(f, [call(rnd(i, 3), rnd(j, 3)) for i, j in [(0, 1), (0, 1), (2, 2), (3, 4), (2, 2)]])


def test_a_tensor_subclass_with_torch_function():
    class Tagged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(result, Tagged):
                result.history = [*getattr(args[0], "history", []), func.__name__]
            return result

    def f(x):
        t = x.as_subclass(Tagged)
        y = (t + 1) * 2
        return torch.Tensor(y.as_subclass(torch.Tensor)), y.history, type(y).__name__

    check_function(f, vectors(4))


def test_an_object_with_torch_function_as_argument():
    class Lazy:
        def __init__(self, t):
            self.t = t

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            plain = [a.t if isinstance(a, Lazy) else a for a in args]
            return Lazy(func(*plain, **(kwargs or {})))

    def f(x):
        return torch.add(Lazy(x), torch.sin(Lazy(x)).t).t

    check_function(f, vectors(4))


def test_parameters_changed_outside_between_calls():
    w = torch.nn.Parameter(torch.ones(3))

    def f(x):
        return x * w

    tested = compiled(f)
    for i in range(6):
        with torch.no_grad():
            w.mul_(1.5)
            if i == 3:
                w[0] = -1
        assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")


def test_scalar_tensors_in_arithmetic_and_indices():
    def f(x, i):
        k = torch.tensor(2.0)
        n = i + 1
        return x * k, x[i], x[n - 1 :], x[: int(i)], torch.arange(4)[n], x.shape[0] - n

    check_function(f, [call(rnd(k, 3), torch.tensor(v)) for k, v in enumerate([1, 1, 0, 2, 1])])


@bitwise_only
def test_print_of_a_tensor_and_data_branch_in_sequence():
    def f(x):
        y = x * 2
        print("y is", y)
        if y[0] > 0:
            y = y + 1
        print("sum", y.sum().item())
        return y

    check_function(f, vectors(5))


def test_lists_of_tensors_through_foreach_and_stack():
    def f(xs):
        ys = torch._foreach_mul(xs, 2.0)
        torch._foreach_add_(xs, 1.0)
        return ys, torch.stack(xs), [t.sum() for t in xs]

    check_function(f, [call([rnd(i, 3), rnd(i + 1, 3)]) for i in range(4)], promise=ONE_ENTRY)


def test_sizes_given_as_tensors_are_known_late():
    def f(x, n, zero):
        padded = torch.nn.functional.pad(x, (n, zero))
        made = torch.zeros(n), torch.arange(n), x.new_ones((n, 2)), torch.zeros((2, n))
        cut = x[:n], x.narrow(0, 0, n), x[zero:n], x.view(n * 0 - 1)
        return [t.shape for t in (padded, *made, *cut)], padded[: padded.shape[0] - 1], [t.sum() for t in made]

    calls = [call(rnd(k, 6), torch.tensor(v), torch.tensor(0)) for k, v in enumerate([2, 2, 3, 3, 5])]
    check_function(f, calls)


def test_a_number_is_looked_for_in_a_tensor():
    def f(x, n):
        y = x + 1 if n in x[:2] else x * 2
        return y, 100.0 in x, x[0] in x

    check_function(f, [call(torch.arange(3.0), 1) for _ in range(4)], promise=ONE_ENTRY)
    check_function(f, [call(torch.arange(3.0) + i % 2 * 2, 1) for i in range(6)])


def test_numbers_in_tensors_are_formatted():
    def f(x):
        if x.shape[0] > 100:
            raise ValueError(f"found {x.sum()}")
        return f"{x.sum():.3f}", f"of {x.shape[0]}", x + 1

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_a_conversion_by_type_gives_a_tensor():
    def f(x):
        y = x.type(torch.float64)
        return y.type(y.dtype) + 1, y.type(), x.type(torch.float32) is x

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_a_store_at_a_place_that_data_says_needs_no_recording_for_each_place():
    def make():
        class Queue(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("queue", torch.zeros(3, 12))
                self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

            def forward(self, x):
                start = int(self.pointer)
                self.queue[:, start : start + len(x)] = x.t()
                self.pointer[0] = (start + len(x)) % self.queue.shape[1]
                return self.queue * 2, self.queue[:, start:]

        return Queue()

    check(make, vectors(8, (2, 3)), promise=ONE_ENTRY)


def test_attributes_of_a_new_tensor_are_its_own():
    class Holder:
        pass

    def make():
        holder = Holder()

        def f(x):
            holder.copies = holder.count = 1
            cache = torch.zeros(2, 3)
            cache.mark = "kept"
            like = torch.zeros_like(x)
            like.mark = "other"
            holder.count += 1
            same, other = cache.to(cache.device), cache.to(torch.float64)
            other.mark = same.mark + "2"
            holder.copies += 1
            cache[0].copy_(x)
            return cache.sum(0) + holder.count, same.mark + like.mark + other.mark, hasattr(like, "copies")

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_numbers_picked_by_data_need_no_recording_for_each_place():
    def f(x):
        path = [x.argmax().item()]
        for row in x.reshape(3, 3).long().clamp(0, 8):
            path.append(row[path[-1] % 3].item())
        picked = x[path[-1] % 9]
        return picked * 2, path[1], picked.storage_offset()

    check_function(f, [call(rnd(i, 9) * 4) for i in range(8)], promise={"exits": 0, "opaque_calls": 0})


def test_text_about_tensors_is_made_where_somebody_looks():
    def f(x, is_strict):
        text = f"all of {x} and {x.sum():.2f}"
        if is_strict and x.sum() < 0:
            raise ValueError(text)
        return x + len(text) if is_strict else x

    check_function(f, [call(rnd(i, 3), i > 3) for i in range(12)])
    check_function(f, [call(rnd(i, 3), False) for i in range(3)], promise=ONE_ENTRY)


def test_a_slice_that_data_ends_has_the_size_that_data_says():
    def f(x, w):
        n = int(w.sum())
        part = x[:, :n]
        row = x[1, n:].exp() + 1
        return part.relu() * part.shape[1], part.sum(1), row.sum(), [s for s in row.shape], x[(0, slice(n))].numel()

    check_function(f, [call(rnd(i, 3, 9), torch.tensor([1, n])) for i, n in enumerate([3, 3, 5, 1, 7, 3, 0, 5])])


def test_state_that_in_place_operations_change_is_read_behind_them():
    def f(x):
        before = x._version, x.grad_fn is None
        x.add_(1)
        after = x._version, x.grad_fn is None
        x[0] = 2
        x *= 3
        return before, after, x._version

    def written(i):
        return call(torch.ones(3).requires_grad_(i % 2 == 1).clone().mul_(i))

    check_function(f, [functools.partial(written, i) for i in range(5)])


def test_what_the_program_made_and_wrote_has_its_version():
    def f(x):
        y = x * 2
        y.add_(1)
        view = y.view(-1)
        view[1:].mul_(3)
        z = torch.exp(x)
        untouched = x + 1
        return y, view, z, untouched, y._version, view._version, [t._version for t in (z, untouched)]

    def g(x):
        return [t._version for t in f(x)[:4]]

    for grad in (False, True):
        check_function(f, vectors(3, grad=grad), promise=ONE_ENTRY)
        check_function(g, vectors(3, grad=grad))
    tested = compiled(f)
    for i in range(3):
        assert [t._version for t in tested(rnd(i, 3))[:4]] == [2, 2, 0, 0]
