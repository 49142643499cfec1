"""The frame hook beside all else that looks at frames: tracing, recursion limits, threads, signals, other hooks."""

import gc
import importlib.util
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest
import weakref

from tests.host.build import load

frame_tests = load()


def run_in(mode, call, **settings):
    frame_tests.install(mode, **settings)
    try:
        return call()
    finally:
        frame_tests.uninstall()


MODES = {"plain": frame_tests.PLAIN, "shadow": frame_tests.SHADOW, "reenter": frame_tests.REENTER}


class Hook(unittest.TestCase):
    def each_mode(self, call):
        for name, mode in MODES.items():
            with self.subTest(mode=name):
                yield run_in(mode, call, probability=0.1, seed=3)

    def test_frames_reach_the_hook(self):
        def function():
            return 1

        frame_tests.take_counters()
        run_in(frame_tests.PLAIN, lambda: [function() for _ in range(10)])
        self.assertGreaterEqual(frame_tests.take_counters()["frames"], 10)
        function()
        self.assertEqual(frame_tests.take_counters()["frames"], 0)

    def test_the_recursion_limit_holds(self):
        def recurse(n):
            return 0 if n == 0 else 1 + recurse(n - 1)

        def fall():
            try:
                recurse(10**6)
            except RecursionError as error:
                return str(error)

        for text in self.each_mode(fall):
            self.assertIn("maximum recursion depth exceeded", text)

    def test_a_recursion_deeper_than_the_c_stack(self):
        def recurse(n):
            return 0 if n == 0 else 1 + recurse(n - 1)

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(60_000)
        try:
            for depth in self.each_mode(lambda: recurse(50_000)):
                self.assertEqual(depth, 50_000)
        finally:
            sys.setrecursionlimit(limit)

    def test_a_frame_is_rebuilt_in_a_deep_recursion(self):
        def function(a):
            return a + 1

        unit = next(op[4] for op in frame_tests.decode(function.__code__) if op[0] == "Resume")

        def recurse(n):
            if n == 0:
                return frame_tests.resume_chain([(function, unit, [4])])
            return recurse(n - 1)

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(60_000)
        try:
            self.assertEqual(run_in(frame_tests.PLAIN, lambda: recurse(50_000)), 5)
        finally:
            sys.setrecursionlimit(limit)

    def test_the_hook_is_back_after_a_deep_recursion(self):
        def recurse(n):
            return 0 if n == 0 else 1 + recurse(n - 1)

        def call():
            recurse(50_000)
            frame_tests.take_counters()
            recurse(5)
            return frame_tests.take_counters()["frames"]

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(60_000)
        try:
            self.assertGreaterEqual(run_in(frame_tests.PLAIN, call), 6)
        finally:
            sys.setrecursionlimit(limit)

    def test_a_trace_function_set_inside_sees_the_rest(self):
        lines = []

        def tracer(frame, event, arg):
            if frame.f_code is function.__code__:
                lines.append((event, frame.f_lineno - function.__code__.co_firstlineno))
            return tracer

        def start():
            sys.settrace(tracer)
            sys._getframe(1).f_trace = tracer

        def function(n):
            a = n
            start()
            b = a + 1
            sys.settrace(None)
            return b

        def call():
            lines.clear()
            return function(1), list(lines)

        expected = call()
        for got in self.each_mode(call):
            self.assertEqual(got, expected)

    def test_frames_and_tracebacks_are_real(self):
        def inner():
            frame = sys._getframe(1)
            return frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)

        def outer(a):
            b = a  # noqa: F841
            return inner()

        expected = outer(1)
        for got in self.each_mode(lambda: outer(1)):
            self.assertEqual(got, expected)

    def test_a_signal_interrupts_a_loop(self):
        class Interrupted(Exception):
            pass

        def on_alarm(number, frame):
            raise Interrupted(frame.f_code.co_name)

        def loop():
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                while True:
                    pass
            except Interrupted as error:
                return str(error)

        old = signal.signal(signal.SIGALRM, on_alarm)
        try:
            for got in self.each_mode(loop):
                self.assertEqual(got, "loop")
        finally:
            signal.signal(signal.SIGALRM, old)

    def test_another_thread_gets_the_gil(self):
        def loop():
            seen = []
            thread = threading.Thread(target=lambda: seen.append(1))
            thread.start()
            end = time.monotonic() + 10
            while not seen and time.monotonic() < end:
                pass
            thread.join()
            return seen

        for got in self.each_mode(loop):
            self.assertEqual(got, [1])

    def test_threads_run_side_by_side(self):
        def work(n):
            def generate():
                for i in range(n):
                    try:
                        yield i
                    except ValueError:
                        pass

            return sum(x * x for x in generate())

        def call():
            results = []
            threads = [threading.Thread(target=lambda: results.append(work(3000))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        expected = call()
        for got in self.each_mode(call):
            self.assertEqual(got, expected)

    def test_finalizers_and_weak_references_run_at_once(self):
        log = []

        class Noisy:
            def __del__(self):
                log.append(("del", sys._getframe(1).f_code.co_name))

        def drop():
            x = Noisy()
            reference = weakref.ref(x, lambda _: log.append("weak"))
            x = 1
            log.append("between")
            x = Noisy()
            del x
            log.append("end")
            Noisy()
            return reference

        def call():
            log.clear()
            drop()
            return list(log)

        expected = call()
        for got in self.each_mode(call):
            self.assertEqual(got, expected)

    def test_a_finalizer_that_calls_the_function_whose_frame_is_made(self):
        calls = []

        def function(**kwargs):
            calls.append(sorted(kwargs))
            return len(calls)

        class Cycle:
            def __init__(self):
                self.me = self

            def __del__(self):
                function(finalizer=1)

        unit = next(op[4] for op in frame_tests.decode(function.__code__) if op[0] == "Resume")
        old = gc.get_threshold()
        calls_free = function.__closure__[0]
        gc.set_threshold(1)
        try:
            for _ in range(50):
                Cycle()
                before = len(calls)
                frame_tests.resume_chain([(function, unit, [{"me": 1}, calls_free])])
                self.assertIn(["me"], calls[before:])
        finally:
            gc.set_threshold(*old)


class ForeignHooks(unittest.TestCase):
    """A second copy of the module has a hook of its own, which to the first one is somebody else's."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = shutil.copy(frame_tests.__file__, folder)
            spec = importlib.util.spec_from_file_location("frame_tests", path)
            cls.other = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(cls.other)

    def count_frames(self):
        """Frames that each of the two modules drove and passed on during some calls."""

        def function():
            return 1

        for module in (frame_tests, self.other):
            module.take_counters()
        for _ in range(10):
            function()
        mine, others = frame_tests.take_counters(), self.other.take_counters()
        return mine["frames"], mine["skipped"], others["frames"], others["skipped"]

    def test_frames_that_we_pass_on_reach_the_hook_below(self):
        self.other.install(self.other.PLAIN)
        frame_tests.install(frame_tests.HOOK_ONLY)
        self.assertEqual(self.count_frames(), (0, 10, 10, 0))
        frame_tests.uninstall()
        self.assertEqual(self.count_frames()[2], 10)
        self.other.uninstall()
        self.assertEqual(self.count_frames(), (0, 0, 0, 0))

    def test_a_hook_over_ours_stays_when_ours_goes(self):
        frame_tests.install(frame_tests.PLAIN)
        self.other.install(self.other.HOOK_ONLY)
        self.assertEqual(self.count_frames(), (10, 0, 0, 10))
        frame_tests.uninstall()
        self.assertEqual(self.count_frames(), (0, 0, 0, 10))
        self.other.uninstall()
        self.assertEqual(self.count_frames(), (0, 0, 0, 0))

    def test_hooks_that_lie_over_each_other_make_no_circle(self):
        frame_tests.install(frame_tests.HOOK_ONLY)
        self.other.install(self.other.HOOK_ONLY)
        frame_tests.install(frame_tests.HOOK_ONLY)
        mine, mine_skipped, others, others_skipped = self.count_frames()
        self.assertEqual((mine_skipped, others_skipped), (10, 10))
        frame_tests.uninstall()
        self.other.uninstall()
        frame_tests.uninstall()
        self.assertEqual(self.count_frames(), (0, 0, 0, 0))

    def test_frames_are_rebuilt_below_a_foreign_hook(self):
        def function(a):
            return a + 1

        unit = next(op[4] for op in frame_tests.decode(function.__code__) if op[0] == "Resume")
        self.other.install(self.other.PLAIN)
        try:
            self.assertEqual(frame_tests.resume_chain([(function, unit, [4])]), 5)
            self.assertEqual(self.count_frames()[2], 10)
        finally:
            self.other.uninstall()


class Leaks(unittest.TestCase):
    def test_no_memory_is_lost(self):
        from tests.host.programs import PROGRAMS, observe

        def round_trip(mode, probability, seed):
            frame_tests.install(mode, probability=probability, seed=seed)
            try:
                for _ in range(20):
                    for program in PROGRAMS.values():
                        observe(program)
            finally:
                frame_tests.uninstall()
            gc.collect()
            return sys.getallocatedblocks()

        settings = [(frame_tests.PLAIN, 0), (frame_tests.SHADOW, 0), (frame_tests.HAND_OVER, 0.05)]
        settings += [(frame_tests.REBUILD, 0.05), (frame_tests.REENTER, 0.2)]
        for seed in range(8):  # caches of the interpreter fill, behind other tests for several rounds
            round_trip(frame_tests.PLAIN, 0, seed)
        for mode, probability in settings:
            with self.subTest(mode=mode):
                blocks = [round_trip(mode, probability, seed) for seed in range(1, 6)]
                # Caches of the library fill in some rounds; a leak grows in all, by at least one for each program run.
                self.assertLess(min(after - before for before, after in zip(blocks, blocks[1:])), 40)


if __name__ == "__main__":
    unittest.main()
