"""Frames that are left in the middle: with a computed result, or with an exception raised at any instruction."""

import sys
import traceback
import unittest

from tests.host.build import load

frame_tests = load()


def list_places(error):
    """Where an exception has been. Early 3.11 enters a frame twice when its trace function raises: one is enough."""
    places = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return [place for i, place in enumerate(places) if i == 0 or place != places[i - 1]]


def observe(call):
    try:
        return ("result", call())
    except Exception as error:
        return ("raised", repr(error), list_places(error)[1:])


def run_in(mode, call, code, at, value):
    frame_tests.install(mode, code=code, at=at, value=value)
    try:
        return observe(call)
    finally:
        frame_tests.uninstall()


def count_boundaries(call, code):
    frame_tests.take_counters()
    run_in(frame_tests.HAND_OVER, call, code, 0, None)
    return frame_tests.take_counters()["boundaries"]


class Manager:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False


class Finish(unittest.TestCase):
    """finish_frame at every boundary of a function."""

    def check(self, function, call, wrap):
        code = function.__code__
        for at in range(1, count_boundaries(call, code) + 1):
            frame_tests.take_counters()
            outcome = run_in(frame_tests.FINISH, call, code, at, "done")
            self.assertEqual(outcome, ("result", wrap("done")), f"at boundary {at}")
            self.assertEqual(frame_tests.take_counters()["acted"], 1)
            outcome = run_in(frame_tests.FINISH, call, code, at, KeyError("gone"))
            self.assertEqual(outcome[:2], ("raised", "KeyError('gone')"), f"at boundary {at}")
            self.assertNotIn(code.co_name, [name for name, _ in outcome[2]])

    def test_a_function(self):
        def function(n):
            total = []
            for i in range(n):
                with Manager():
                    total.append([i, *total])
            return total

        def call():
            return [function(2)]

        self.check(function, call, lambda value: [value])

    def test_a_function_that_returns_only_constants(self):
        def function(n):
            for _ in range(n):
                pass

        self.check(function, lambda: function(2), lambda value: value)

    def test_a_frame_that_somebody_holds(self):
        frames = []

        def function(n):
            frames.append(sys._getframe())
            local = n
            return local

        def call():
            return function(2)

        code = function.__code__
        for value in ("done", KeyError("gone")):
            for at in range(1, count_boundaries(call, code) + 1):
                frames.clear()
                outcome = run_in(frame_tests.FINISH, call, code, at, value)
                self.assertEqual(outcome[1], value if value == "done" else repr(value))
                for frame in frames:
                    self.assertIs(frame.f_code, code)
                    self.assertIs(frame.f_back.f_code, call.__code__)
                    self.assertGreater(frame.f_lineno, code.co_firstlineno)

    def test_a_generator(self):
        def function(n):
            for i in range(n):
                yield i

        def call():
            generator = function(3)
            seen = list(generator)
            return seen, generator.gi_frame

        code = function.__code__
        self.assertEqual(call(), ([0, 1, 2], None))
        first = next(i for i, op in enumerate(frame_tests.decode(code), 1) if op[0] == "Resume")
        for at in range(first + 1, count_boundaries(call, code) + 1):
            kind, value = run_in(frame_tests.FINISH, call, code, at, "done")
            self.assertEqual(kind, "result")
            self.assertEqual(value[0], list(range(len(value[0]))))
            self.assertIsNone(value[1])


class Raise(unittest.TestCase):
    """raise_in_frame at every boundary; the oracle is a trace function that raises at the same instruction."""

    def trace(self, call, code, on_opcode):
        """Call with `on_opcode(frame)` in front of every instruction of the code."""

        def tracer(frame, event, arg):
            if frame.f_code is not code:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and is_on:
                on_opcode(frame)
            return tracer

        is_on = False
        sys.settrace(tracer)
        try:
            observe(call)  # 3.12 and 3.13 send opcode events from the second call on
            is_on = True
            return observe(call)
        finally:
            sys.settrace(None)

    def find_events(self, call, code):
        """Offsets at which a trace function is called."""
        offsets = []
        self.trace(call, code, lambda frame: offsets.append(frame.f_lasti))
        return offsets

    def trace_and_raise(self, call, code, at):
        """What happens if a trace function raises in front of the at-th instruction of the code."""
        count = 0

        def raise_at(frame):
            nonlocal count
            count += 1
            if count == at:
                raise LookupError("injected")

        outcome = self.trace(call, code, raise_at)
        if outcome[0] == "raised":
            return (*outcome[:2], [place for place in outcome[2] if place[0] not in ("tracer", "raise_at")])
        return outcome

    def check(self, function, call):
        code = function.__code__
        units = {op[3]: op for op in frame_tests.decode(code)}
        # The prologue, RESUME included, cannot be raised in by a trace function.
        resume = next(op[3] for op in units.values() if op[0] == "Resume")
        prologue = sum(op[3] <= resume for op in units.values())
        boundaries = count_boundaries(call, code)
        self.find_events(call, code)  # in 3.12 from the second trace function on
        events = self.find_events(call, code)
        executed = [i for i, offset in enumerate(events, 1) if offset // 2 in units and offset // 2 > resume]
        self.assertEqual(prologue + len(executed), boundaries)
        for number, event in enumerate(executed, prologue + 1):
            expected = self.trace_and_raise(call, code, event)
            call()  # CPython takes its instrumentation out
            outcome = run_in(frame_tests.RAISE, call, code, number, LookupError("injected"))
            self.assertEqual(outcome, expected, f"at {units[events[event - 1] // 2]}, boundary {number}")

    def test_try_except_finally(self):
        log = []

        def function(n):
            for i in range(n):
                try:
                    if i == 1:
                        raise ValueError(i)
                    log.append(i)
                except ValueError as error:
                    log.append(repr(error))
                finally:
                    log.append("finally")
            return log

        def call():
            log.clear()
            try:
                return list(function(2))
            except LookupError as error:
                log.append([line for name, line in list_places(error) if name == "function"])
                return list(log)

        self.check(function, call)

    def test_with(self):
        log = []

        class Manager:
            def __enter__(self):
                log.append("enter")

            def __exit__(self, kind, *rest):
                log.append(("exit", kind))
                return len(log) % 2 == 0

        def function(n):
            with Manager():
                x = n + 1
                with Manager():
                    x = [x, n]
                log.append(x)
            return log

        def call():
            log.clear()
            return list(function(2))

        self.check(function, call)

    def test_a_loop_over_a_list_comprehension(self):
        def function(n):
            total = 0
            for x in [y * 2 for y in n]:
                total += x
            return total

        self.check(function, lambda: function([1, 2]))


if __name__ == "__main__":
    unittest.main()
