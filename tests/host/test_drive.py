"""Programs with unknown calls in them: compiled around each, in plain mode between, with the results of CPython.

On builds with torch, entries without PyTorch calls are kept only with the option keep_plain_entries.
"""

import gc
import os
import signal
import sys
import threading
import time
import unittest
import zlib

import reprise

from tests.host.native import C

KEEP = {"keep_plain_entries": True}


def opaque(x):
    """Something that is not recorded: the C function has no model."""
    return zlib.crc32(b"x", x & 0xFFFFFFFF)


def counters(compiled):
    return reprise.explain(compiled).report.counters


def callee(x, log):
    y = x + 1
    log.append(zlib.crc32(b"y", y & 0xFFFFFFFF))
    return y * 2


def loop_with_calls(n, log):
    total = 0
    for i in range(n):
        total += callee(i, log)
        if total % 3 == 1:
            log.append(zlib.crc32(b"z"))
    return total


def nested_loops(n):
    total = 0
    for i in range(n):
        for j in range(i):
            total += zlib.adler32(b"a", i * j & 0xFFFF) & 7
        total ^= i
    while total > 1000:
        total //= 2
        total -= zlib.adler32(b"b") & 1
    return total


def raises_and_handles(n, log):
    def check(i):
        log.append(zlib.crc32(b"c", i))
        if i % 3 == 2:
            raise KeyError(i)
        return i

    total = 0
    for i in range(n):
        try:
            total += check(i)
        except KeyError as error:
            total += 100 * error.args[0]
        finally:
            log.append("finally")
    return total


def closes_over(n):
    count = 0

    def add(k):
        nonlocal count
        zlib.crc32(b"d")
        count += k
        return count

    return [add(i) for i in range(n)], count


def takes_much(a, *args, k=3, **kwargs):
    zlib.crc32(b"e")
    return a, args, k, kwargs


PROGRAMS = {
    "loop_with_calls": lambda f: (lambda log: (f(7, log), log))([]),
    "nested_loops": lambda f: f(9),
    "raises_and_handles": lambda f: (lambda log: (f(7, log), log))([]),
    "closes_over": lambda f: f(6),
    "takes_much": lambda f: f(1, 2, 3, k=4, z=5),
}


class Programs(unittest.TestCase):
    def test_results_and_effects_are_those_of_cpython(self):
        for name, call in PROGRAMS.items():
            function = globals()[name]
            compiled = reprise.compile(function, options=KEEP)
            for i in range(6):
                with self.subTest(program=name, call=i):
                    self.assertEqual(call(compiled), call(function))
            self.assertFalse(C.is_hook_installed())

    def test_recording_ends_when_all_paths_are_known(self):
        compiled = reprise.compile(loop_with_calls, options=KEEP)
        for _ in range(12):  # a guard's other path is recorded when it has failed twice
            compiled(8, [])
        before = counters(compiled)
        for _ in range(3):
            compiled(8, [])
        after = counters(compiled)
        self.assertEqual(after["recordings"], before["recordings"])
        self.assertGreater(after["entry_runs"], before["entry_runs"] + 3 * 8)

    def test_a_hundred_thousand_exits_need_no_stack(self):
        compiled = reprise.compile(loop_with_calls, options=KEEP)
        log, expected = [], []
        self.assertEqual(compiled(60_000, log), loop_with_calls(60_000, expected))
        self.assertEqual(log, expected)
        self.assertGreater(counters(compiled)["side_exits"], 50_000)

    def test_exceptions_leave_through_rebuilt_frames(self):
        def inner(x):
            zlib.crc32(b"f")
            return 1 // x

        def outer(x):
            zlib.crc32(b"g")
            return inner(x) + 1

        compiled = reprise.compile(outer, options=KEEP)
        for x in [1, 1, 1, 0, 1, 0, 0]:
            found = []
            for function in (compiled, outer):
                try:
                    found.append(function(x))
                except ZeroDivisionError as error:
                    names, traceback = [], error.__traceback__
                    while traceback is not None:
                        names.append((traceback.tb_frame.f_code.co_name, traceback.tb_lineno))
                        traceback = traceback.tb_next
                    found.append(names[1:])
            self.assertEqual(found[0], found[1])

    def test_frames_are_real_in_plain_mode(self):
        def inner():
            return sys._getframe(0).f_code.co_name, sys._getframe(1).f_code.co_name, sys._getframe(1).f_locals["x"]

        def outer(x):
            zlib.crc32(b"h")
            x += 1
            return inner()

        compiled = reprise.compile(outer, options=KEEP)
        for i in range(4):
            self.assertEqual(compiled(i), ("inner", "outer", i + 1))

    def test_generators_run_beside_driven_frames(self):
        def numbers(n):
            for i in range(n):
                zlib.crc32(b"i")
                yield i

        def f(n):
            total = 0
            for i in numbers(n):
                total += i + (zlib.crc32(b"j") & 1)
            return total + sum(numbers(n))

        compiled = reprise.compile(f, options=KEEP)
        for _ in range(5):
            self.assertEqual(compiled(5), f(5))


class Limits(unittest.TestCase):
    def test_a_value_that_never_comes_back_is_not_recorded_for_ever(self):
        def f(n):
            return sum(range(n))

        compiled = reprise.compile(f)
        for n in range(200):
            self.assertEqual(compiled(n), f(n))
        counts = counters(compiled)
        self.assertLess(counts["recordings"], 20)
        self.assertEqual(counts["calls"], 200)
        for n in range(200, 400):  # also when one value comes back all the time
            self.assertEqual((compiled(n), compiled(1)), (f(n), f(1)))
        self.assertLess(counters(compiled)["recordings"], 25)

    def test_entries_above_the_limit_are_evicted_and_counted(self):
        def f(n):
            return [n for _ in range(n)]

        compiled = reprise.compile(f, options={"max_entries": 2})
        for _ in range(4):
            for n in (2, 3, 4):
                self.assertEqual(compiled(n), f(n))
        report = reprise.explain(compiled).report
        if report.counters["published_entries"] > 2:
            self.assertGreater(report.counters["evicted_entries"], 0)
        self.assertLessEqual(len(report.places[0]["entries"]), 2)

    def test_a_miss_says_which_guard_failed(self):
        def f(n):
            return [n for _ in range(n)]

        compiled = reprise.compile(f)
        compiled(2)
        compiled(3)
        reasons = [entry["why"] for entry in reprise.explain(compiled).report.entries]
        self.assertEqual(reasons[0], "first call")
        self.assertTrue(len(reasons) < 2 or "n" in reasons[1], reasons)

    def test_fullgraph_raises_before_the_call_runs(self):
        log = []

        def f(x):
            log.append(x)
            print("not printed")
            log.append("behind")

        compiled = reprise.compile(f, fullgraph=True)
        for i in range(3):
            with self.assertRaises(reprise.GraphBreak):
                compiled(i)
        self.assertEqual(log, [0, 1, 2])
        self.assertFalse(C.is_hook_installed())

    def test_disabled_parts_run_plainly_inside_a_driven_frame(self):
        seen = []

        @reprise.disable
        def inside(x):
            seen.append(C.is_disabled())
            return x + 1

        def f(x):
            with reprise.disable():
                y = inside(x)
                z = inside(y)
            return inside(z) + opaque(1)

        compiled = reprise.compile(f, options=KEEP)
        for i in range(5):
            self.assertEqual(compiled(i), f(i))
        self.assertEqual(set(seen), {True})
        self.assertFalse(C.is_disabled())

    @unittest.skipIf(threading.current_thread() is not threading.main_thread(), "signals need the main thread")
    def test_a_loop_of_entries_can_be_interrupted(self):
        def f():
            i = 0
            while True:
                i = (i + zlib.crc32(b"k")) & 0xFF

        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        compiled = reprise.compile(f, options=KEEP)
        old = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            start = time.perf_counter()
            with self.assertRaises(Alarm):
                compiled()
            self.assertLess(time.perf_counter() - start, 5)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        self.assertFalse(C.is_hook_installed())

    def test_threads_drive_the_same_function(self):
        compiled = reprise.compile(loop_with_calls, options=KEEP)
        failures = []

        def run(n):
            for _ in range(20):
                log, expected = [], []
                if compiled(n, log) != loop_with_calls(n, expected) or log != expected:
                    failures.append(n)

        threads = [threading.Thread(target=run, args=(5 + k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertFalse(C.is_hook_installed())

    def test_reset_inside_a_call_is_harmless(self):
        def f(n):
            total = 0
            for i in range(n):
                total += opaque(i) & 1
                if i == 3:
                    reprise.reset()
            return total

        compiled = reprise.compile(f, options=KEEP)
        for _ in range(4):
            self.assertEqual(compiled(6), f(6))

    def test_driving_leaks_nothing(self):
        compiled = reprise.compile(loop_with_calls, options=KEEP)

        def run():
            for _ in range(20):
                compiled(10, [])

        run()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(10):
            run()
        gc.collect()
        self.assertLess(sys.getallocatedblocks() - before, 200)


if __name__ == "__main__":
    os.environ.setdefault("REPRISE_STRICT", "1")
    unittest.main()
