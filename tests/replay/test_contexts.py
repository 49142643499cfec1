"""with blocks: user classes, torch's modes, context variables, locks, redirections."""

import contextlib
import contextvars
import io
import threading

import reprise
import torch
from twins import ONE_ENTRY, assert_same, call, check, check_function, compiled, rnd, vectors


class Scope:
    """Logs enter and exit; swallows ValueError."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None} {tb is None}")
        return kind is ValueError


def test_with_blocks_of_a_user_class():
    def f(x):
        log = []
        with Scope(log, "a") as a, Scope(log, "b"):
            x = x * 2
            log.append(a.name)
        with Scope(log, "c"):
            raise ValueError
        return x, log

    check_function(f, vectors(4))


def test_an_exception_leaves_through_with_blocks():
    def make():
        log = []

        def f(x, fail):
            with Scope(log, "a"):
                with Scope(log, "b"):
                    y = x * 2
                    if fail:
                        raise KeyError("k")
                return y
            return "swallowed"

        f.log = log
        return f

    check(make, [call(rnd(i, 3), k) for i, k in enumerate([False, False, True, False, True])], post=lambda f: f.log)


def test_no_grad_enable_grad_and_set_grad_enabled():
    def make():
        w = torch.ones(3, requires_grad=True)

        def f(x):
            with torch.no_grad():
                y = x * w
                with torch.enable_grad():
                    z = x * w
            with torch.set_grad_enabled(False):
                v = x * w
            return y, z, v, y.requires_grad, z.requires_grad, (x * w).requires_grad

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_grad_mode_at_entry_selects_the_entry():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        return x * w

    def make():
        return f

    tested = compiled(f)
    for i in range(6):
        with torch.set_grad_enabled(i % 2 == 0):
            assert_same(tested(rnd(i, 3)), make()(rnd(i, 3)), f"call {i}")


def test_grad_mode_left_changed_by_the_function():
    def f(x, on):
        torch.set_grad_enabled(on)
        return x * 2, torch.is_grad_enabled()

    check_function(f, [call(rnd(i, 3, grad=True), on) for i, on in enumerate([False, False, True, True, False])])


def test_no_grad_as_a_decorator():
    w = torch.ones(3, requires_grad=True)

    @torch.no_grad()
    def inner(x):
        return x * w

    @torch.inference_mode()
    def infer(x):
        return x * w

    def f(x):
        return inner(x), x * w, infer(x).is_inference()

    check_function(f, vectors(4))


def test_inference_mode_inside_and_around():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        with torch.inference_mode():
            y = x * w
        return y.requires_grad, y.is_inference(), torch.is_inference_mode_enabled()

    check_function(f, vectors(3))
    tested = compiled(f)
    for i in range(4):
        with torch.inference_mode(i % 2 == 0):
            assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")


def test_autocast_inside():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            with torch.autocast("cpu", enabled=False):
                z = x @ x
        return y, z, torch.is_autocast_enabled("cpu")

    check_function(f, vectors(4, (3, 3)))


def test_autocast_around_the_compiled_call():
    layer = torch.nn.Linear(3, 3)

    def f(x):
        return layer(x).relu()

    tested = compiled(f)
    for i, kind in enumerate([None, torch.bfloat16, None, torch.float16, torch.bfloat16, None]):
        with torch.autocast("cpu", dtype=kind, enabled=kind is not None):
            assert_same(tested(rnd(i, 2, 3)), f(rnd(i, 2, 3)), f"call {i} under {kind}")


def test_default_dtype_around_the_compiled_call():
    def f(x):
        return x + torch.ones(3) * 0.1, torch.tensor(1.5)

    tested = compiled(f)
    try:
        for i, dtype in enumerate([torch.float32, torch.float64, torch.float32, torch.float64]):
            torch.set_default_dtype(dtype)
            assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i} under {dtype}")
    finally:
        torch.set_default_dtype(torch.float32)


def test_default_device_around_the_compiled_call():
    def f():
        return torch.ones(3)

    tested = compiled(f)
    for device in ("cpu", "meta", "cpu", "meta"):
        with torch.device(device):
            assert_same(tested(), f(), device)


def test_context_variables():
    def make():
        var = contextvars.ContextVar("scale", default=2.0)

        def f(x):
            a = x * var.get()
            token = var.set(5.0)
            b = x * var.get()
            var.reset(token)
            ctx = contextvars.copy_context()
            c = ctx.run(lambda: (var.set(9.0), x * var.get())[1])
            return a, b, c, var.get(), token.var is var

        return f

    check(make, vectors(4))


def test_a_context_variable_set_outside_is_seen():
    var = contextvars.ContextVar("scale", default=2.0)

    def f(x):
        return x * var.get()

    tested = compiled(f)
    for i, v in enumerate([None, None, 3.0, 3.0, 4.0]):
        if v is not None:
            var.set(v)
        assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")


def test_thread_locals_and_locks():
    def make():
        local, lock = threading.local(), threading.Lock()
        local.scale = 2.0

        def f(x):
            with lock:
                local.count = getattr(local, "count", 0) + 1
                held = lock.locked()
            return x * local.scale + local.count, held, lock.locked()

        return f

    check(make, vectors(4))


def test_redirected_output_is_where_eager_puts_it():
    def f(x):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            print("inside", x.shape)
        print("outside")
        return x * 2, out.getvalue()

    check_function(f, vectors(4))


def test_nullcontext_closing_and_exit_stack_order():
    class Closable:
        def __init__(self, log):
            self.log = log

        def close(self):
            self.log.append("closed")

    def f(x, use):
        log = []
        with torch.no_grad() if use else contextlib.nullcontext():
            y = x * 2
        with contextlib.closing(Closable(log)):
            log.append("body")
        with contextlib.ExitStack() as stack:
            for n in "ab":
                stack.enter_context(Scope(log, n))
            kept = stack.pop_all()
        log.append("kept")
        kept.close()
        return y, log

    check_function(f, [call(rnd(i, 3, grad=True), u) for i, u in enumerate([True, True, False, False, True])])


def test_print_inside_with_blocks():
    def f(x):
        log = []
        with Scope(log, "a"):
            y = x * 2
            with torch.no_grad():
                print("in", torch.is_grad_enabled())
                z = y + 1
            print("out", torch.is_grad_enabled())
        return z * y, log

    check_function(f, vectors(4, grad=True))


def test_a_data_dependent_branch_inside_no_grad():
    def f(x):
        with torch.no_grad():
            if x.sum() > 0:
                y = x * 2
            else:
                y = x - 1
        return y, x * y

    check_function(f, vectors(6, grad=True))


def test_deterministic_flags_around_the_compiled_call():
    def f(x):
        return x * 2, torch.are_deterministic_algorithms_enabled()

    tested = compiled(f)
    try:
        for i, on in enumerate([False, True, False, True]):
            torch.use_deterministic_algorithms(on)
            assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")
    finally:
        torch.use_deterministic_algorithms(False)


def test_torch_function_and_dispatch_modes_around_the_compiled_call():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def f(x):
        return x * 2 + 1

    tested = compiled(f)
    for i, mode in enumerate([None, Functions, None, Dispatched, Functions, None]):
        logs = []
        for program in (f, tested):
            seen = []
            with mode() if mode else contextlib.nullcontext():
                value = program(rnd(i, 3))
            logs.append((value, seen))
        assert_same(logs[1], logs[0], f"call {i} under {mode}")


def test_a_context_variable_is_read_without_recording_again():
    scale = contextvars.ContextVar("scale", default=2.0)
    unset = contextvars.ContextVar("unset")

    def f(x):
        return x * scale.get() + unset.get(1.0)

    tested = compiled(f)
    for i in range(6):
        assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")
    assert reprise.explain(tested).report.counters["recordings"] == 1
    token = scale.set(3.0)
    for i in range(3):
        assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i} behind the set")
    assert reprise.explain(tested).report.counters["recordings"] == 1
    scale.reset(token)
    assert_same(tested(rnd(7, 3)), f(rnd(7, 3)), "behind the reset")
    assert reprise.explain(tested).report.counters["recordings"] == 1


def test_a_device_is_the_default_inside_of_its_block():
    def f(x, device, fails):
        try:
            with torch.device(device) as entered:
                inside = torch.ones(2)
                if fails:
                    raise ValueError(str(inside.device))
        except ValueError as e:
            return str(e), torch.zeros(1).device
        with torch.device("meta"), torch.device("cpu"):
            nested = torch.arange(3)
        return inside.device, nested, torch.ones(1), x + 1, entered

    rows = [("cpu", 0), ("cpu", 0), ("meta", 0), ("cpu", 1), ("meta", 1), ("cpu", 0), ("meta", 0), ("meta", 1)]
    check_function(f, [call(rnd(i, 3), device, fails) for i, (device, fails) in enumerate(rows)])
