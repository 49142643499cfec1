"""Groups of regions: what is computed ahead of reads of data and their guards, and taken back where one fails.

Each program runs eagerly, under native code, and as graphs of a custom backend; values, random state, grad mode, state
of objects and exceptions must be those of eager in every call, also in those whose data take another way.
"""

import _thread
import functools
import operator
import signal
import weakref

import pytest
import torch
from twins import IS_REPRISE, assert_same, call, check, check_function, outcome, reprise_only, rnd, torch_state

from bench.harness.capture import CountingBackend
from bench.stats import stats_of

if IS_REPRISE:
    import reprise


def drive(make, calls, graphs=None, **options):
    """Every call gives eager's outcome with a custom backend; `graphs`: of the calls before the first odd one."""
    seen = CountingBackend()
    want_program, got_program = make(), make()
    tested = reprise.compile(got_program, backend=seen, options=options or None)
    for i, (arguments, is_odd) in enumerate(calls):
        results = []
        for program in (want_program, tested):
            torch.manual_seed(i)
            seen.restart()
            results.append((outcome(program, arguments(), {}), torch_state()))
        assert_same(results[1], results[0], f"call {i}")
        if graphs is not None and i >= 3 and not any(odd for _, odd in calls[: i + 1]):
            assert seen.graphs == graphs, f"call {i}: {seen.graphs} graphs"
    return stats_of(tested)


def odd_at(make_arguments, odd, count=12, where=(5, 8, 9, 10)):
    """Calls 0 ... count - 1; those of `where` with the arguments of `odd`."""
    return [
        ((lambda i=i: odd(i)), True) if i in where else ((lambda i=i: make_arguments(i)), False) for i in range(count)
    ]


def both(make, make_arguments, odd, graphs=1):
    calls = odd_at(make_arguments, odd)
    drive(make, calls, graphs)
    check(make, [call(*arguments()) for arguments, _ in calls])


def positive(i):
    return (rnd(i, 4, 4).abs() + 0.5,)


def negative(i):
    return (-rnd(i, 4, 4).abs() - 0.5,)


@reprise_only
def test_a_branch_on_data_ends_no_graph():
    def make():
        def f(x):
            y = (x * 2).tanh()
            if y.sum() > 0:
                z = y + 1
            else:
                z = y - 1
            return (z.exp() * y).sum(0), z

        return f

    both(make, positive, negative)


@reprise_only
def test_a_loop_whose_rounds_depend_on_data():
    def make():
        def f(x):
            rounds = 0
            while x.abs().max() > 0.1 and rounds < 20:
                x = x * 0.5
                rounds += 1
            return x, rounds

        return f

    both(make, lambda i: (torch.full((3,), 1.0) + 0.01 * i,), lambda i: (torch.full((3,), 10.0 + 5 * i),))


@reprise_only
def test_numbers_read_for_a_log_end_no_graph():
    def make():
        log = []

        def f(x):
            for i in range(3):
                x = (x * 0.5 + i).sin()
                log.append(x.sum().item())
            return x * 2, list(log), f"{log[-1]:.3f}", x.tolist()

        return f

    drive(make, [((lambda i=i: (rnd(i, 4),)), False) for i in range(6)], graphs=1)
    check(make, [call(rnd(i, 4)) for i in range(6)])


@reprise_only
def test_random_numbers_ahead_of_a_guard_are_put_back():
    def make():
        def f(x):
            a = torch.rand_like(x) + x
            if a.sum() > 0:
                b = torch.randn(4) * a
            else:
                b = torch.rand(2, 2).sum() * a
            return torch.nn.functional.dropout(b, 0.5) + torch.rand(1), a

        return f

    both(make, positive, lambda i: (-rnd(i, 4, 4).abs() - 3,))


@reprise_only
def test_writes_to_memory_of_its_own_run_ahead_of_a_guard():
    def make():
        def f(x):
            found = torch.empty(4, 4)
            for i in range(4):
                y = x * (i + 1)
                if y.sum() > 0:
                    found[i] = y[i]
                else:
                    found[i] = 0.0
                found[i].mul_(2)
            return found.relu_(), x

        return f

    both(make, positive, negative)


@reprise_only
def test_writes_to_tensors_of_the_caller_keep_their_place():
    def make():
        state = {"count": torch.zeros(()), "last": torch.zeros(4)}

        def f(x):
            y = x * 2
            if y.sum() > 0:
                state["count"].add_(1)
            z = y.exp().sum(0)
            state["last"].copy_(z)
            if z.max() > 1e3:
                state["count"].zero_()
            return z + state["count"], state["last"].clone(), state["count"].item()

        return f

    both(make, positive, negative, graphs=None)


@reprise_only
def test_a_tensor_that_is_read_is_read_before_it_is_written_again():
    def make():
        def f(x):
            flag = torch.zeros(2)
            flag += x.sum()
            first = flag.tolist()
            view = flag[0]
            view.fill_(7.0)
            second = flag.tolist()
            flag.zero_()
            return first, second, flag.tolist(), view.item(), (x * 2).relu()

        return f

    both(make, positive, negative, graphs=None)


@reprise_only
def test_what_a_guard_protects_does_not_raise():
    def make():
        table = torch.arange(10.0)

        def f(index):
            if index.max() < 10:
                y = table[index] * 2
            else:
                y = table.sum() + index
            return y + 1

        return f

    both(make, lambda i: (torch.tensor([i % 3, 5]),), lambda i: (torch.tensor([1, 10 + i]),))


@reprise_only
def test_what_raises_raises_where_eager_does():
    def make():
        table, seen = torch.arange(10.0), []

        def f(index):
            y = index * 2
            seen.append(len(seen))
            if y.sum() < 1000:
                seen.append(y.sum().item())
            try:
                z = table[index] + 1
            except IndexError as error:
                seen.append(type(error).__name__)
                z = table
            return z, list(seen), table[index]

        return f

    calls = odd_at(lambda i: (torch.tensor([i % 3, 5]),), lambda i: (torch.tensor([1, 10 + i]),))
    check(make, [call(*arguments()) for arguments, _ in calls])


@reprise_only
def test_effects_in_python_stay_behind_their_guards():
    class Holder:
        total = 0

    def make():
        holder, log = Holder(), []

        def f(x):
            y = x + 1
            log.append("first")
            holder.total += 1
            if y.sum() > 0:
                holder.last = "up"
                log.append(y.sum().item())
            else:
                holder.last = "down"
                del log[:]
            z = y * 3
            holder.total += 10
            if z.min() < -100:
                raise ValueError(f"{holder.total}")
            log.append(holder.last)
            return z, list(log), holder.total, holder.last

        return f

    both(make, positive, lambda i: (-rnd(i, 4, 4).abs() - (100 if i % 2 else 1.5),))


@reprise_only
def test_grad_mode_changes_among_guards():
    def make():
        weight = rnd(99, 4).requires_grad_()

        def f(x):
            y = x * weight
            with torch.no_grad():
                s = y.sum()
                if s > 0:
                    z = y * 2
                else:
                    z = y * 3
                q = z.relu()
            out = (q + y).sum()
            if out > 1e6:
                torch.set_grad_enabled(False)
            return out * weight, q.requires_grad, torch.is_grad_enabled()

        return f

    both(make, positive, lambda i: (-rnd(i, 4, 4).abs() * (1 if i < 9 else 1e8) * rnd(99, 4).sign(),), graphs=None)
    torch.set_grad_enabled(True)


@reprise_only
def test_gradients_through_a_group():
    def make():
        weight = torch.nn.Parameter(rnd(7, 4))
        unused = torch.nn.Parameter(rnd(8, 4))

        def f(x):
            weight.grad = unused.grad = None
            y = (x * weight).tanh()
            loss = y.sum()
            if loss.isnan() or loss.item() > 1e6:
                loss = loss * 0
            if loss < 0:
                loss = loss + (unused * y).sum()
            loss.backward()
            with torch.no_grad():
                weight.sub_(weight.grad * 0.01)
            return loss.detach(), weight.grad, unused.grad

        return f

    both(make, lambda i: (rnd(i, 4),), lambda i: (rnd(i, 4) + 3,), graphs=None)


@reprise_only
def test_work_on_sizes_of_data_is_one_step_between_two_graphs():
    def make():
        def f(scores, boxes):
            found = []
            for c in range(5):
                score = scores[:, c].sigmoid()
                keep = torch.where(score > 0.3)[0]
                found.append((boxes[keep] * 2 + c, score[keep].exp()))
            return torch.cat([a for a, _ in found]), torch.cat([b for _, b in found])

        return f

    calls = [((lambda i=i: (rnd(i, 20, 5), rnd(i + 50, 20, 4))), False) for i in range(8)]
    seen = drive(make, calls)
    assert seen["exits"] <= 2, seen
    backend = CountingBackend()
    tested = reprise.compile(make(), backend=backend)
    for arguments, _ in calls:
        backend.restart()
        tested(*arguments())
    assert 1 <= backend.graphs <= 3, f"{backend.graphs} graphs"
    check(make, [call(*arguments()) for arguments, _ in calls])


@reprise_only
def test_what_a_group_has_used_dies():
    def f(x, log):
        y = x * 2
        if y.sum() > 0:
            z = y + 1
        log.append(weakref.ref(z))
        n = (z * z).sum().item()
        return z.sum(), n

    tested = reprise.compile(f)
    for i in range(6):
        log = []
        value, number = tested(positive(i)[0], log)
        assert log[0]() is None
        assert value is not None and number > 0


@reprise_only
def test_a_guard_that_fails_ends_its_group_from_then_on():
    def f(x):
        y = x.sin() + 1
        if x.sum() > 0:
            y = y * 2
        return (y + 3).cos()

    tested = reprise.compile(f)
    for i in range(12):
        x = positive(i)[0] if i < 4 or i % 2 else negative(i)[0]
        torch.testing.assert_close(tested(x), f(x))
    counts = reprise.explain(tested)(positive(0)[0]).counters
    assert counts["cut_groups"] == 1 and counts["side_exits"] == 2 and counts["branch_runs"] > 0, counts


@reprise_only
@pytest.mark.parametrize("train", [False, True])
def test_batch_statistics_are_written_once(train):
    def make():
        norm = torch.nn.BatchNorm1d(4).train(train)

        def f(x):
            y = x * 2
            if y.sum() > 0:
                y = y + 1
            z = norm(y)
            if z.abs().max() > 1e3:
                z = z * 0
            return z.relu(), norm.running_mean.clone(), norm.num_batches_tracked.item()

        return f

    both(make, positive, negative, graphs=None)


def test_a_late_number_that_is_zero_raises_at_its_line():
    class Box:
        def __init__(self):
            self.values = [2, 1, 0]

    def make():
        box = Box()

        def f(x):
            n = box.values.pop() if box.values else 3
            y = x * 2
            try:
                m = 6 // n
            except ZeroDivisionError:
                m = -1
            return y + 1, m, n

        return f

    check(make, [call(rnd(i, 3)) for i in range(6)])


def test_many_reads_of_one_call():
    def f(x):
        a, b = x[0] * 2, x[1] + 1
        if a.item() > b.item():
            a, b = b, a
        return (a - b).exp(), int((a * 10).item()), bool((b > 0).item())

    check_function(f, [call(rnd(i, 2)) for i in range(12)])


@reprise_only
def test_writes_of_a_size_of_data_keep_their_order():
    def make():
        def f(x, order):
            out = torch.zeros(6)
            view = out[1:]
            before = out + 1
            for i in range(3):
                mask = x > i * 0.2
                out[mask] = x[mask] * (i + 1)
                order.append(view.sum().item())
            out.add_(before)
            view[x[1:] < 0] = -5.0
            return out, view * 2, before

        return f

    calls = [((lambda i=i: (rnd(i, 6), [])), False) for i in range(8)]
    drive(make, calls)
    check(make, [call(*arguments()) for arguments, _ in calls])


@reprise_only
def test_statistics_that_are_only_read_end_no_group():
    def make():
        norm = torch.nn.BatchNorm1d(4).eval()

        def f(x):
            y = norm(x * 2)
            if y.sum() > 0:
                y = y + 1
            z = norm(y)
            if z.max() > 1e6:
                z = z * 0
            return z.relu()

        return f

    both(make, positive, negative)


@reprise_only
def test_autocast_among_guards():
    def make():
        linear = torch.nn.Linear(4, 4)
        with torch.no_grad():
            linear.weight.copy_(rnd(1, 4, 4))
            linear.bias.copy_(rnd(2, 4))

        def f(x):
            linear.weight.grad = None
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                y = linear(x)
            if y.isnan().any():
                y = y * 0
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = linear(x)
                if z.float().sum().item() > 1e6:
                    z = z - 1
            z.float().sum().backward()
            return y, z.detach(), linear.weight.grad, torch.is_autocast_enabled("cpu")

        return f

    drive(make, [((lambda i=i: (rnd(i, 3, 4),)), False) for i in range(6)])
    check(make, [call(rnd(i, 3, 4)) for i in range(6)])


@reprise_only
def test_a_list_of_results_that_the_program_changes():
    def make():
        def f(x):
            parts = list(x.unbind(0))
            if x.sum() > 0:
                parts.append(x[0] * 3)
            parts.insert(0, x[1] + 1)
            numbers = (x * 2).tolist()
            numbers[0].append(7.0)
            numbers.pop()
            return torch.stack(parts), parts[1] + parts[-1], numbers, sum(numbers[0])

        return f

    both(make, positive, negative, graphs=None)


@reprise_only
def test_a_signal_among_many_reads():
    class Stop(Exception):
        pass

    def handle(number, frame):
        raise Stop

    def f(x, log):
        y = x * 2
        for i in range(400):
            log.append(y[i % 4].item())
        return y + 1

    tested = reprise.compile(f)
    for i in range(4):
        log = []
        assert_same(tested(rnd(i, 4), log), f(rnd(i, 4), []), f"call {i}")
    old = signal.signal(signal.SIGINT, handle)
    try:
        calls = [_thread.interrupt_main, functools.partial(tested, rnd(9, 4), [])]
        with pytest.raises(Stop):
            list(map(operator.call, calls))  # no bytecode of ours in between
    finally:
        signal.signal(signal.SIGINT, old)
    assert_same(tested(rnd(5, 4), []), f(rnd(5, 4), []), "afterwards")
