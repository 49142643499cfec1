"""Threads: several that compile and call one function, several models at once, and plain code beside recordings."""

import concurrent.futures
import gc
import os
import sys
import threading

import pytest
import reprise
import torch
from twins import assert_same, compiled, rnd

from bench.stats import report_of

THREADS = 4


@pytest.fixture(autouse=True)
def _switch_often():
    """Threads change often, and one that lets go of the GIL in a torch call does not wait 5 ms for it each time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


def together(work, threads=THREADS):
    """Run work(index) in several threads that start at one moment; returns the results, re-raises the first error."""
    barrier = threading.Barrier(threads)

    def run(index):
        barrier.wait()
        return work(index)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return [future.result() for future in [pool.submit(run, i) for i in range(threads)]]


def test_four_threads_compile_and_call_one_function():
    def f(x, n):
        out = [x * 2]
        for i in range(n):
            out.append(out[-1] + i)
        return out

    def work(index):
        tested = compiled(f)
        for i in range(200):
            x, n = rnd(i + index, 3), 2 + (i + index) % 3
            assert_same(tested(x, n), f(x, n), f"thread {index} call {i}")

    together(work)


def test_four_threads_share_one_compiled_function():
    def f(x, n):
        if x.shape[0] > 3:
            x = x[:3]
        return x * n + 1, n

    tested = compiled(f)

    def work(index):
        for i in range(300):
            x, n = rnd(i, 3 + (i + index) % 3), float(index)
            assert_same(tested(x, n), f(x, n), f"thread {index} call {i}")

    together(work)


def test_four_threads_share_one_compiled_module():
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(10)])
    tested = compiled(model)
    want = [model(rnd(i, 2, 4)) for i in range(10)]

    def work(index):
        for i in range(100):
            assert_same(tested(rnd(i % 10, 2, 4)).detach(), want[i % 10].detach(), f"thread {index} call {i}")

    together(work)


def test_exits_and_exceptions_in_several_threads():
    def f(x, n):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        if n == 3:
            raise ValueError(n)
        return y

    tested = compiled(f)

    def work(index):
        caught = 0
        for i in range(200):
            x, n = rnd(i * 7 + index, 3), i % 5
            try:
                assert_same(tested(x, n), f(x, n), f"thread {index} call {i}")
            except ValueError as e:
                caught += e.args == (3,)
        return caught

    assert together(work) == [40] * THREADS


def test_grad_mode_is_per_thread():
    w = torch.ones(3, requires_grad=True)
    tested = compiled(lambda x: x * w)

    def work(index):
        with torch.set_grad_enabled(index % 2 == 0):
            return {tested(rnd(i, 3)).requires_grad for i in range(100)}

    assert together(work) == [{True}, {False}, {True}, {False}]


def test_plain_code_in_other_threads_is_left_alone():
    stop = threading.Event()
    errors, rounds = [], []

    def plain():
        count = 0
        while not stop.is_set():
            values = [i * i for i in range(50)]
            if sum(values) != 40425:
                errors.append(values)
            count += 1
        rounds.append(count)

    others = [threading.Thread(target=plain) for _ in range(2)]
    for t in others:
        t.start()
    try:
        for i in range(60):

            def f(x, k=i):
                return [x * k + j for j in range(5)]

            tested = compiled(f)
            for _ in range(3):
                assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"round {i}")
    finally:
        stop.set()
        for t in others:
            t.join()
    assert not errors and len(rounds) == 2


def test_a_thread_started_inside_a_compiled_call():
    def f(x):
        found = []
        t = threading.Thread(target=lambda: found.append(x * 2))
        t.start()
        t.join()
        return found[0] + 1

    tested = compiled(f)
    for i in range(4):
        assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")


def test_training_in_two_threads():
    lock = threading.Lock()

    def train(index, wrap):
        with lock:  # the seed is one for all threads
            torch.manual_seed(0)
            model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()

        step = wrap(step)
        for i in range(30):
            step(rnd(i + 100 * index, 4, 3))
        return model.weight.detach()

    found = together(lambda index: train(index, compiled), 2)
    for index in range(2):
        assert_same(found[index], train(index, lambda step: step), f"thread {index}")


def test_a_finaliser_of_another_thread_may_call_compiled_code():
    tested = compiled(lambda x: x + 1)
    log = []

    class Noisy:
        def __del__(self):
            log.append(tested(torch.ones(1)).item())

    def work(index):
        for i in range(50):
            Noisy()
            tested(rnd(i, 1 + index))

    together(work)
    assert log == [2.0] * (50 * THREADS)


def test_what_is_of_the_thread_or_the_process_is_asked_again():
    def f(x):
        return x + 1, threading.get_ident(), gc.isenabled(), sys.getrecursionlimit(), threading.current_thread().name

    tested = compiled(f)
    x = torch.ones(2)

    def compare(found):
        found.append(f(x)[1:] == tested(x)[1:])

    found = []
    for _ in range(3):
        compare(found)
        thread = threading.Thread(target=compare, args=(found,))
        thread.start()
        thread.join()
    gc.disable()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 10)
    try:
        compare(found)
    finally:
        gc.enable()
        sys.setrecursionlimit(limit)
    compare(found)
    assert found == [True] * 8


def test_a_child_of_a_fork_has_its_own_number():
    def f(x):
        return x + 1, os.getpid()

    tested = compiled(f)
    for _ in range(3):
        assert tested(torch.ones(2))[1] == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if tested(torch.ones(2))[1] == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_regions_that_two_threads_want_to_trace_at_once_are_kept():
    def make(k):
        def f(x):
            for i in range(30):
                x = (x * k + i).sin()
            return x

        return reprise.compile(f)  # native code, whatever the mode: replay traces nothing

    tested = [make(k + 1.0) for k in range(THREADS)]

    def work(index):
        for i in range(20):
            tested[index](rnd(i, 3 + i % 2))

    together(work)
    for f in tested:
        report = report_of(f)
        assert report["counters"].get("dissolved_regions", 0) == 0, report["counters"]
