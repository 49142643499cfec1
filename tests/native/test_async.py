"""async_compile: calls run PyTorch's kernels until the code of a region is there; then it is native."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import reprise
import torch

from tests.native.forks import PATIENCE_S, check, check_in_children, forks, make_program

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("c++", "g++", "clang++")), reason="no C++ compiler"
)


def compile_async(program, **options):
    return reprise.compile(program, options={"async_compile": True, **options})


def get_counters(compiled, *args):
    return reprise.explain(compiled)(*args).counters


def wait_until_native(compiled, call):
    """Calls until one runs native code: the number of calls."""
    end = time.monotonic() + PATIENCE_S
    calls = 0
    while time.monotonic() < end:
        call()
        calls += 1
        if "native code: " in str(reprise.explain(compiled)(*call.args)):
            return calls
        time.sleep(0.01)
    raise AssertionError("no native code in time")


class Call:
    def __init__(self, compiled, program, *args):
        self.compiled, self.program, self.args = compiled, program, args

    def __call__(self):
        check(self.compiled, self.program, *self.args)


@needs_compiler
def test_calls_are_live_until_the_code_is_there():
    """The system's compiler takes long enough to see it."""
    program = make_program(1)
    compiled = compile_async(program, cpu_codegen="cpp")
    x = torch.randn(8, 33)
    for _ in range(3):
        check(compiled, program, x)
    counts = get_counters(compiled, x)
    assert counts["live_regions"] >= 1 and counts["background_regions"] == 1 and counts["compiled_kernels"] == 0
    assert "is being compiled" in str(reprise.explain(compiled)(x))
    wait_until_native(compiled, Call(compiled, program, x))
    before = get_counters(compiled, x)
    for _ in range(5):
        check(compiled, program, x)
    after = get_counters(compiled, x)
    assert after["live_regions"] == before["live_regions"]
    assert after["compiled_kernels"] >= 1 and after["checked_regions"] == 1
    assert after["side_exits"] == after["dissolved_regions"] == after["failed_checks"] == 0
    assert after["recordings"] == 1


def test_gradients_are_right_before_and_after():
    program = make_program(2)
    compiled = compile_async(program)
    x = torch.randn(8, 33)

    def call():
        a, b = (x.clone().requires_grad_() for _ in range(2))
        compiled(a)[0].sum().backward()
        program(b)[0].sum().backward()
        torch.testing.assert_close(a.grad, b.grad)

    call.args = (x.clone().requires_grad_(),)
    wait_until_native(compiled, call)
    for _ in range(3):
        call()
    counts = get_counters(compiled, *call.args)
    assert counts["background_regions"] >= 1 and counts["failed_checks"] == counts["side_exits"] == 0


def test_what_writes_to_inputs_is_compiled_at_once():
    def f(x, state):
        state.add_(1.0625)
        return torch.exp(x) * state + 0.25

    compiled = compile_async(f)
    got, want = torch.zeros(33), torch.zeros(33)
    x = torch.randn(8, 33)
    for _ in range(5):
        torch.testing.assert_close(compiled(x, got), f(x, want))
    torch.testing.assert_close(got, want)
    counts = get_counters(compiled, x, got)
    assert counts["background_regions"] == 0 and counts["compiled_kernels"] >= 1


def test_sizes_each_have_their_code():
    program = make_program(3)
    compiled = compile_async(program)
    for _ in range(4):
        for size in (5, 9, 13, 17):
            check(compiled, program, torch.randn(size, 33))
    wait_until_native(compiled, Call(compiled, program, torch.randn(9, 33)))
    counts = get_counters(compiled, torch.randn(9, 33))
    assert counts["failed_checks"] == counts["dissolved_regions"] == 0


def test_a_compiler_that_fails_is_told_as_in_the_foreground(monkeypatch, capfd):
    monkeypatch.setenv("CXX", "/bin/false")
    program = make_program(4)
    compiled = compile_async(program, cpu_codegen="cpp")
    x = torch.randn(8, 33)
    wait_until_native(compiled, Call(compiled, program, x))
    counts = get_counters(compiled, x)
    assert counts["failed_kernels"] == 1 and counts["background_regions"] == 1
    assert capfd.readouterr().err.count("could not be compiled") == 1


def test_mistakes_are_found(monkeypatch, capfd):
    monkeypatch.setenv("REPRISE_TEST_FAULT", "wrong_factor")
    program = make_program(5)
    compiled = compile_async(program)
    x = torch.randn(8, 33)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and get_counters(compiled, x)["failed_checks"] == 0:
        check(compiled, program, x)
    assert get_counters(compiled, x)["failed_checks"] == 1
    assert "native code is not used" in capfd.readouterr().err


@needs_compiler
@pytest.mark.parametrize("end", ["reset", "delete", "number"])
def test_what_is_dropped_while_it_is_compiled(end):
    class Holder:
        scale = 1.5

    holder = Holder()
    body = make_program({"reset": 6, "delete": 7, "number": 8}[end])

    def program(x):
        a, b = body(x * holder.scale)
        return a * holder.scale, b

    compiled = compile_async(program, cpu_codegen="cpp")
    x = torch.randn(8, 33)
    for _ in range(2):
        check(compiled, program, x)
    if end == "reset":
        reprise.reset()
    elif end == "delete":
        del compiled
        gc.collect()
        return
    else:
        holder.scale = 2.5  # an input of new code
    for _ in range(2):
        check(compiled, program, x)
    wait_until_native(compiled, Call(compiled, program, x))


@pytest.mark.parametrize("is_async", [True, False])
def test_threads_that_give_other_numbers(is_async):
    """One thread traces while another finds that a number varies."""
    for seed in range(6):
        body = make_program(20 + seed, 2)

        def program(x, n):
            a, b = body(x * n)
            return a + n, b

        compiled = reprise.compile(program, options={"async_compile": is_async})
        errors = []

        def work(index):
            try:
                for i in range(60):
                    x = torch.full((3, 4), float(i))
                    for got, want in zip(compiled(x, float(index)), program(x, float(index))):
                        torch.testing.assert_close(got, want)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert not errors


@forks
def test_forks_while_it_is_compiled():
    x = torch.randn(8, 33)

    def check_all(pairs, times=1):
        for _ in range(times):
            for compiled, program in pairs:
                check(compiled, program, x)

    def prepare(i):
        programs = [make_program(100 + 3 * i + j) for j in range(3)]
        pairs = [(compile_async(program), program) for program in programs]
        check_all(pairs, 2)
        return pairs

    def check_child(pairs):
        check_all(pairs, 3)
        assert all(get_counters(compiled, x)["checked_regions"] == 1 for compiled, _ in pairs)

    check_in_children(12, prepare, check_child, check_all)


@needs_compiler
@pytest.mark.parametrize("generator", ["llvm", "cpp"])
def test_the_interpreter_ends_while_it_is_compiled(generator):
    code = (
        "import reprise, torch\n"
        "def f(x):\n"
        "    for i in range(40): x = torch.tanh(x * (1 + i / 64)) + torch.softmax(x, -1)\n"
        "    return x\n"
        "compiled = reprise.compile(f, options={'async_compile': True})\n"
        "x = torch.randn(8, 33)\n"
        "for _ in range(3): torch.testing.assert_close(compiled(x), f(x))\n"
        "print('done')\n"
    )
    environment = {**os.environ, "REPRISE_CPU_CODEGEN": generator}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_stores_in_the_cache(tmp_path):
    program = make_program(9)
    compiled = compile_async(program, cache=str(tmp_path))
    x = torch.randn(8, 33)
    wait_until_native(compiled, Call(compiled, program, x))
    counts = get_counters(compiled, x)
    assert counts["cache_misses"] == counts["compiled_kernels"] >= 1
