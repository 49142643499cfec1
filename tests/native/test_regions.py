"""Native regions end to end: numbers, indexes, in-place writes, memory, threads."""

import threading
import warnings

import pytest
import reprise
import torch


def compile_native(function, **options):
    return reprise.compile(function, options=options or None)


def regions(compiled, *args):
    return [line.strip() for line in str(reprise.explain(compiled)(*args)).splitlines() if "region of" in line]


class Holder:
    scale = 0.5
    shift = 2


def test_numbers_that_vary_become_inputs():
    holder = Holder()

    def f(x):
        return torch.relu(x * holder.scale + holder.shift) * holder.scale

    compiled = compile_native(f)
    x = torch.randn(8, 8)
    for i in range(8):
        holder.scale, holder.shift = 0.5 + i * 0.25, 2 + i // 3
        torch.testing.assert_close(compiled(x), f(x))
    counts = reprise.explain(compiled)(x).counters
    assert counts["recordings"] == 1 and counts["dissolved_regions"] == 0 and counts["side_exits"] == 0


def test_a_number_changes_its_type():
    holder = Holder()

    def f(x):
        return (x * holder.scale).exp()

    compiled = compile_native(f)
    for scale in (0.5, 0.25, 3, 2, 0.125, True):
        holder.scale = scale
        for x in (torch.randn(4), torch.arange(4)):
            got, want = compiled(x), f(x)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)


def test_a_number_grows_out_of_an_int64():
    holder = Holder()

    def f(x):
        return (x * holder.shift).relu() + holder.shift

    compiled = compile_native(f)
    x = torch.rand(4)
    for shift in (2, 2, 3, 2**62, 2**70, 5):
        holder.shift = shift
        found = []
        for function in (f, compiled):
            try:
                found.append(function(x))
            except Exception as error:  # noqa: BLE001
                found.append(type(error))
        if isinstance(found[0], torch.Tensor):
            torch.testing.assert_close(found[1], found[0])
        else:
            assert found[1] is found[0]


def test_a_number_that_is_a_size_runs_outside():
    holder = Holder()

    def f(x):
        return (x[: holder.shift] * 2).sum() + x.exp().sum()

    compiled = compile_native(f)
    for shift in (2, 2, 3, 4, 5, 3):
        holder.shift = shift
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x), f(x))


def test_numbers_read_from_tensors():
    def f(x, y):
        a = x.sum().item()
        b = 1 - 0.9**a
        return torch.sigmoid(y * b) * a, y + b

    compiled = compile_native(f)
    for seed in range(5):
        x, y = torch.rand(3), torch.randn(4, 4)
        for got, want in zip(compiled(x, y), f(x, y)):
            torch.testing.assert_close(got, want)
    assert any("native code" in line for line in regions(compiled, x, y))


@pytest.mark.parametrize("bad", [100, -1])
def test_an_index_out_of_range_raises_as_in_eager(bad):
    def f(table, index, counter):
        counter.add_(1)
        return torch.nn.functional.embedding(index, table) * 2

    compiled = compile_native(f)
    table, counter, twin = torch.randn(10, 4), torch.zeros(3), torch.zeros(3)
    for values in ([1, 2], [3, 4], [5, 6], [7, bad], [8, 9]):
        index = torch.tensor(values)
        if bad in values:
            with pytest.raises(IndexError):
                f(table, index, twin)
            with pytest.raises(IndexError):
                compiled(table, index, counter)
        else:
            torch.testing.assert_close(compiled(table, index, counter), f(table, index, twin))
        assert torch.equal(counter, twin)


def test_a_region_that_raised_and_works_again_says_so():
    def f(table, index):
        return torch.nn.functional.embedding(index, table) * 2

    compiled = compile_native(f)
    table, good = torch.randn(10, 4), torch.tensor([1, 2])
    for index in (good, good, torch.tensor([1, 10]), good):
        try:
            compiled(table, index)
        except IndexError:
            pass
    assert "native code" in regions(compiled, table, good)[0]


def test_which_inputs_share_memory_may_change():
    def f(x, y):
        x.add_(1)
        return x * 2 + y

    compiled = compile_native(f)
    for case in (0, 0, 1, 0, 2, 1, 2):
        found = []
        for function in (f, compiled):
            base = torch.arange(6.0)
            pairs = ((base[:3], base[3:].clone()), (base[:3], base[:3]), (base[:3], base[1:4]))
            found.append((function(*pairs[case]), base))
        assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_results_never_share_the_memory_of_later_runs():
    def f(x):
        return (x * 2 + 1).relu(), (x - 1).t().contiguous().exp()

    compiled = compile_native(f)
    kept = []
    for i in range(6):
        x = torch.full((64, 32), float(i))
        kept.append((compiled(x), f(x)))
    for got, want in kept:
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b)


def test_in_place_on_an_argument():
    def f(x, y):
        x.mul_(2).add_(y)
        y.copy_(x.flip(0))
        return x.sum()

    compiled = compile_native(f)
    for seed in range(4):
        torch.manual_seed(seed)
        x, y = torch.randn(5, 3), torch.randn(5, 3)
        a, b = x.clone(), y.clone()
        versions = x._version, y._version
        torch.testing.assert_close(compiled(x, y), f(a, b))
        assert torch.equal(x, a) and torch.equal(y, b)
        assert (x._version - versions[0], y._version - versions[1]) == (2, 1)


def test_many_threads_run_one_region():
    def f(x):
        return torch.softmax(x * 2, -1).cumsum(-1) + x.sin()

    compiled = compile_native(f)
    inputs = [torch.randn(16, 50) for _ in range(4)]
    wrong = []

    def work(x):
        want = f(x)
        for _ in range(200):
            if not torch.allclose(compiled(x), want, atol=1e-5):
                wrong.append(1)

    compiled(inputs[0])
    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_large_kernels_run_on_all_threads_and_give_the_same():
    def f(x):
        return (x.exp() * 0.5 + x).sum(-1), torch.sin(x) * 2

    compiled = compile_native(f)
    count = torch.get_num_threads()
    x = torch.randn(300, 1000)
    try:
        for threads in (1, 2, 1, 2):
            torch.set_num_threads(threads)
            for got, want in zip(compiled(x), f(x)):
                torch.testing.assert_close(got, want)
    finally:
        torch.set_num_threads(count)


def test_two_compilations_give_the_same_bits():
    def f(x):
        return torch.nn.functional.layer_norm(x.tanh() * x, (65,)).logsumexp(-1)

    x = torch.randn(33, 65)
    found = []
    for _ in range(2):
        compiled = compile_native(f)
        for _ in range(3):
            out = compiled(x)
        found.append(out)
    assert torch.equal(*found)


def test_views_of_inputs_that_begin_elsewhere_in_their_memory():
    """With sizes that vary, one entry serves tensors at any offset; what it gives as a view begins where they do."""

    def split(t):
        return t.view(t.shape[0], 2, 4).transpose(0, 1)

    compiled = compile_native(split)
    for count in (3, 5, 5, 4, 5, 6, 4):
        for t in torch.randn(count, 24).chunk(3, dim=-1):
            assert torch.equal(compiled(t), split(t))
        whole = torch.randn(count + 2, 8)
        assert torch.equal(compiled(whole[2:]), split(whole[2:]))
        assert torch.equal(compiled(whole[:count]), split(whole[:count]))


def test_a_call_that_reads_data_leaves_all_regions_at_once():
    def f(x):
        total = x
        for i in range(6):
            kinds = torch.nn.functional.one_hot((total[0] > i).long() + 0 * i, 3)  # looks at its greatest element
            total = (total * 0.5 + kinds.sum()).relu() + 1
        return total

    compiled = compile_native(f)
    for _ in range(5):
        x = torch.randn(4, 4)
        torch.testing.assert_close(compiled(x), f(x))
    counts = reprise.explain(compiled)(x).counters
    assert counts["dissolved_regions"] == counts["side_exits"] == 1
    assert counts["recordings"] == 1 and counts["checked_regions"] >= 3


def test_a_parameter_made_in_a_region_is_one():
    """state dicts that are assigned: code gives plain tensors, so such a region is not compiled."""

    def program(x):
        made = torch.nn.Parameter(x * 2)
        layer = torch.nn.Linear(3, 2)
        layer.load_state_dict({"weight": torch.ones(2, 3) * x.sum(), "bias": x[:2] * 1}, assign=True)
        return type(made).__name__, type(layer.weight).__name__, (made * 3).detach(), layer(x).detach()

    compiled = reprise.compile(program)
    for call in range(5):
        x = torch.randn(3)
        ours, eagers = compiled(x), program(x)
        assert ours[:2] == eagers[:2] == ("Parameter", "Parameter")
        torch.testing.assert_close(ours[2:], eagers[2:])


def check_sharing(function, *, planned_again):
    """Compares outputs, and which of them share memory, with eager's; nothing is dissolved."""
    compiled = compile_native(function)
    for i in range(4):
        x, weight = torch.randn(4, 6), torch.randn(6, 6, requires_grad=i > 1)
        want, got = function(x, weight), compiled(x, weight)
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b, a)
            assert b.stride() == a.stride() and b.storage_offset() == a.storage_offset()
        memory = [[t.untyped_storage().data_ptr() for t in outputs] for outputs in (want, got)]
        assert [row.index(p) for row in memory[:1] for p in row] == [row.index(p) for row in memory[1:] for p in row]
        if weight.requires_grad:
            grads = []
            for outputs in (want, got):
                grads += torch.autograd.grad(sum((t * t).sum() for t in outputs if t.requires_grad), weight)
            torch.testing.assert_close(*grads)
    report = reprise.explain(compiled)(x, weight)
    assert report.counters["dissolved_regions"] == 0
    assert report.counters["recordings"] == 2 and report.counters["side_exits"] == (2 if planned_again else 0)
    assert ("planned again without" in str(report)) == planned_again


def test_outputs_that_repeat_elements_of_another_output():
    """An expanded row has more elements than what it is a row of, and lies inside of it."""

    def program(x, weight):
        edges = (x @ weight).relu()
        return edges[0].view(-1, 1).expand(-1, 9), edges, edges.reshape(-1).unfold(0, 3, 1), edges[1]

    check_sharing(program, planned_again=False)


def test_outputs_that_share_some_elements_leave_the_region_without_its_rest():
    def program(x, weight):
        tokens = (x @ weight).relu()
        return tokens[:, :-1], tokens[:, 1:], (tokens * 2).sum()

    check_sharing(program, planned_again=True)


def test_library_calls_do_not_copy_the_memory_around_their_arguments():
    """PyTorch's diagonal_scatter copies the storage of its argument: here that of all temporaries."""

    def program(x, diagonal):
        wide = torch.cat([x.exp(), x.relu(), x.sin(), x.cos(), x.tanh(), x.abs()])  # is needed to the end
        corner = (wide[:4, :4] * 2).contiguous().sigmoid()
        return torch.diagonal_scatter(corner, diagonal).sum() + wide.sum()

    compiled = compile_native(program)
    x, diagonal = torch.randn(64, 64), torch.randn(4)
    for _ in range(4):
        torch.testing.assert_close(compiled(x, diagonal), program(x, diagonal))
    with torch.profiler.profile(record_shapes=True) as profile:
        compiled(x, diagonal)
    copies = [e.input_shapes[0] for e in profile.events() if e.name == "aten::copy_"]
    assert copies and all(sizes in ([4], [16], [4, 4]) for sizes in copies), copies


def test_how_far_inputs_over_one_storage_lie_apart_is_a_fact():
    """With open sizes nothing else says so; one is written, so it matters which elements the other one shares."""

    def f(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    compiled = reprise.compile(f, dynamic=True)
    for i, distance in enumerate([0, 0, 0, 2, 2, 0, 1]):
        found = []
        for function in (f, compiled):
            base = torch.arange(16.0) + i
            x = base[:4]
            y = x if distance == 0 else base[distance : distance + 4]
            found.append((function(x, y), base))
        for got, want in zip(*found):
            assert torch.equal(got, want)


def shared_twice(x):
    torch._foreach_add_([x, x], [x.flip(0), x])
    return x


def shared_by_views(x):
    torch._foreach_add_([x[0], x[1]], [x[1], x[0]], alpha=2)
    torch._foreach_mul_([x[0], x[0]], [2.0, 3.0])
    return x


def shared_by_new_memory(x):
    y = x * 1
    torch._foreach_addcmul_([y, y.view(-1)], [x, y.view(-1)], [y, y.view(-1)])
    torch._foreach_copy_([y[0], y[1]], [y[1], y[0]])
    return y


@pytest.mark.parametrize("f", [shared_twice, shared_by_views, shared_by_new_memory])
def test_lists_that_share_memory_are_written_in_order(f, capfd):
    compiled = compile_native(f)
    for i in range(4):
        x = torch.arange(12.0).reshape(3, 4) + i
        y = x.clone()
        assert torch.equal(compiled(x), f(y))
        assert torch.equal(x, y)
    assert reprise.explain(compiled)(x).counters["failed_checks"] == 0
    assert "native code is not used" not in capfd.readouterr().err


def test_a_view_that_is_given_twice_is_one_object():
    def of_input(x):
        v = x[1:]
        w = v.add_(1)
        return v, w, v is w, x[1:] is v

    def of_result(x):
        y = x * 2
        v = y[1:]
        w = v.mul_(3)
        return y, v, w, v is w

    for f in (of_input, of_result):
        compiled = compile_native(f)
        for i in range(4):
            x = torch.arange(3.0, requires_grad=i % 2 == 1) * 1
            *_, v, w, is_same, last = compiled(x) if f is of_input else (*compiled(x), False)
            assert v is w and is_same and not last
            assert torch.equal(v, f(torch.arange(3.0))[-2 if f is of_result else 0])


def test_writes_that_pytorch_refuses_are_refused():
    """Recorded with arguments that share nothing, called with some whose elements the write also reads, or repeats."""

    def shifted(x, y):
        return x.copy_(y[0]), x + y

    def repeated(x, y):
        return x.add_(y.sum()), y + 1

    def outcome(program, x, y):
        try:
            return program(x, y)
        except RuntimeError as error:
            return str(error)

    for f, dynamic in ((shifted, None), (repeated, True)):
        compiled = reprise.compile(f, dynamic=dynamic)
        for i, is_odd in enumerate([False, False, False, True, True, False]):
            found = []
            for program in (f, compiled):
                x = torch.arange(16.0).reshape(4, 4) + i
                y = x if is_odd and f is shifted else x + 1
                written = x[0].expand(4, 4) if is_odd and f is repeated else x
                found.append((outcome(program, written, y), x))
            (want, before), (got, after) = found
            assert torch.equal(before, after)
            assert got == want if is_odd else all(map(torch.equal, got, want))


def grads_of(f, is_zero_outside):
    found = []
    for i in range(3):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i)).requires_grad_()
        results = f(x)
        (results.sgn().sum() if is_zero_outside else sum(r.sum() for r in results)).backward()
        found.append(x.grad)
    return found


def test_gradients_that_are_zeros_without_memory():
    """The gradient of sgn has no memory: made inside of a region, and given to one from outside."""

    def inside(x):
        return x.mean(-1), x.sgn(), x.sgn() * x

    def outside(x):
        return x.sin() * 2 + 1

    for f, is_zero_outside in ((inside, False), (outside, True)):
        for a, b in zip(grads_of(reprise.compile(f), is_zero_outside), grads_of(f, is_zero_outside), strict=True):
            torch.testing.assert_close(a, b)


def test_a_wrapper_made_by_the_call_on_what_data_picks():
    """What vmap returns is no constant: the planner asked a table of callables about nothing."""

    def f(x):
        row = torch.block_diag(x, x)[[0], 1:][torch.tensor(0)].floor()
        return torch.func.vmap(lambda v: v * 2 + v.sum())(row)

    compiled = compile_native(f)
    for _ in range(4):
        x = torch.randn(4, 4)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_view_has_the_history_of_what_it_is_a_view_of():
    """x and x.data are two inputs over one memory."""

    def f(x):
        x.data.mul_(2)
        return x[1:], x.data[1:]

    compiled = compile_native(f)
    for _ in range(3):
        x = torch.randn(3, 2, requires_grad=True)
        view, plain = compiled(x)
        assert view.requires_grad and not plain.requires_grad
        view.sum().backward()
        assert x.grad.tolist() == [[0, 0], [1, 1], [1, 1]]


def test_hooks_and_kept_gradients_see_all_that_was_computed_from_the_tensor():
    seen = []

    def kept(x):
        h = (x * 2).sin()
        y = h * h
        h.retain_grad()
        return h, y

    def observed(x):
        h = (x * 2).sin()
        y = h * h
        h.register_hook(lambda g: seen.append(g.clone()))
        return h, y

    def doubled(x):
        h = (x * 2).sin()
        y = h * h
        h.register_hook(lambda g: g * 2)
        return (y,)

    for f in (kept, observed, doubled):
        compiled = compile_native(f)
        for _ in range(3):
            x = torch.randn(4)
            found = []
            for g in (f, compiled):
                a = x.clone().requires_grad_()
                results = g(a)
                sum(r.sum() for r in results).backward()
                found.append([a.grad, results[0].grad if results[0].retains_grad else None, *seen])
                seen.clear()
            torch.testing.assert_close(found[1], found[0])


def test_results_of_one_region_are_differentiated_one_after_the_other():
    """Eager frees the graph behind each loss only."""
    weight = torch.randn(4, 4, requires_grad=True)

    def f(x, y):
        return (x @ weight).sin(), (y * weight).tanh(), x.square() * y

    compiled = compile_native(f)
    for _ in range(3):
        x, y = torch.randn(4, 4), torch.randn(4, 4)
        found = []
        for g in (f, compiled):
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            weight.grad = None
            for result in g(a, b):
                result.sum().backward()
            found.append((a.grad, b.grad, weight.grad))
        torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)
    first, _, _ = compiled(torch.randn(4, 4), torch.randn(4, 4))
    first.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        first.sum().backward()


def test_out_tensors_that_get_other_sizes():
    """They have other memory then: what is computed of them is not what they were made with."""

    def f(p):
        t = p & p
        torch.stack([p, p], out=t)
        return torch.cat([t.reshape(-1), t.reshape(-1)]), t

    compiled = compile_native(f, validate="off")  # which would keep the code from being used
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch advises against it
        for i in range(4):
            p = torch.tensor(i % 2 == 0)
            got, want = compiled(p), f(p)
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
