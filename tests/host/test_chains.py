"""Chains of frames are rebuilt from snapshots of live frames and must end as the live run did.

The function under test calls `take` somewhere inside; the snapshot holds its callers, each waiting for its callee. The
chain is resumed several times, by CPython and by the plain evaluator, as if `take` had just returned VALUE.
"""

import copy
import sys
import traceback
import unittest

from tests.host.build import load

frame_tests = load()
PUSH, PUSH_NULL_FIRST, DROP, PUSH_VALUE = range(4)
VALUE = "value"
ITERATORS = (type(iter([])), type(iter(())), type(iter(range(1))))

taken = None
handled = None


def copy_frames(frames):
    """Frames whose lists and iterators can be consumed once more; what was one object stays one."""
    copies = {}

    def copy_slot(slot):
        if not isinstance(slot, (*ITERATORS, list)):
            return slot
        return copies.setdefault(id(slot), copy.copy(slot))

    return [(function, unit, [copy_slot(slot) for slot in slots]) for function, unit, slots in frames]


def take(depth):
    """Take a snapshot of the `depth` calling frames, outermost first."""
    global taken, handled
    taken = copy_frames(frame_tests.snapshot(depth + 1))[:-1]
    handled = sys.exc_info()[1]
    return VALUE


def observe(call):
    try:
        return ("result", call())
    except Exception as error:
        places = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        return ("raised", repr(error), places, repr(error.__context__))


def strip_places(outcome, count):
    """Keep the innermost `count` places of a traceback."""
    return outcome if outcome[0] == "result" else (*outcome[:2], outcome[2][-count:], outcome[3])


class Chains(unittest.TestCase):
    def check(self, function, *args, depth):
        global taken
        taken = None
        frame_tests.install(frame_tests.SNAPSHOT)
        try:
            expected = observe(lambda: function(*args))
        finally:
            frame_tests.uninstall()
        self.assertIsNotNone(taken)
        self.assertEqual(len(taken), depth)
        for mode in (None, frame_tests.HOOK_ONLY, frame_tests.PLAIN):
            for _ in range(2):
                frames = copy_frames(taken)
                frames[-1][2].append(VALUE)
                if mode is not None:
                    frame_tests.install(mode)
                try:
                    driven = mode is not None
                    outcome = observe(lambda f=frames, d=driven: frame_tests.resume_chain(f, handled, None, d))
                finally:
                    frame_tests.uninstall()
                self.assertEqual(strip_places(outcome, depth), strip_places(expected, depth), f"in mode {mode}")

    def test_nested_calls_in_an_expression_and_a_loop(self):
        def inner(a):
            q = a + 1
            v = take(3)
            return q, v, a

        def middle(x, *, k=7, **kwargs):
            total = []
            for i in range(4):
                if i == 2:
                    total.append(inner(i + k))
                else:
                    total.append(i)
            return total, kwargs

        def outer(p, *rest):
            z = [p * 2, middle(p, k=p, w=1), "end"]
            return z, rest

        self.check(outer, 5, 6, 7, depth=3)

    def test_an_exception_passes_finally_and_is_caught_outside(self):
        def inner(a):
            v = take(3)
            raise ValueError(a, v)

        def middle(a):
            try:
                return inner(a)
            except KeyError:
                return "wrong"
            finally:
                a = a + 1

        def outer(a):
            try:
                return middle(a)
            except ValueError as error:
                return "caught", error.args, [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)]

        self.check(outer, 3, depth=3)

    def test_an_uncaught_exception_shows_the_lines_of_all_frames(self):
        def inner(a):
            take(3)
            raise ValueError(a)

        def middle(a):
            try:
                return inner(a)
            finally:
                a = a + 1

        def outer(a):
            x = 1
            return middle(a) + x

        self.check(outer, 3, depth=3)

    def test_a_with_block_ends(self):
        class Manager:
            def __init__(self):
                self.log = []

            def __enter__(self):
                return self

            def __exit__(self, *args):
                self.log.append(args[0])
                return True

        def inner(manager):
            with manager:
                take(2)
                raise ValueError("x")
            return "after", len(manager.log) > 0

        def outer(manager):
            get = lambda: manager  # noqa: E731
            result = inner(manager)
            return result, get() is manager

        self.check(outer, Manager(), depth=2)

    def test_super_and_class_cells(self):
        class Base:
            def method(self, value):
                return "Base", take(3), value

        class Derived(Base):
            def method(self, value):
                result = super().method(value)
                return result, super().method.__func__ is Base.method, __class__.__name__

        def outer(value):
            return Derived().method(value)

        self.check(outer, 1, depth=3)

    def test_an_exception_is_being_handled(self):
        def inner():
            try:
                1 / 0
            except ZeroDivisionError:
                v = take(3)
                current = sys.exc_info()[1]
                try:
                    raise KeyError("k")
                except KeyError as second:
                    context = repr(second.__context__)
                return v, repr(current), context, repr(sys.exc_info()[1])

        def middle():
            return inner()

        def outer():
            return middle(), sys.exc_info()[1]

        self.check(outer, depth=3)

    def test_frames_see_each_other(self):
        def inner():
            v = take(3)
            frame = sys._getframe()
            seen = []
            while frame and len(seen) < 3:
                seen.append((frame.f_code.co_name, frame.f_lineno, sorted(k for k in frame.f_locals if k != "frame")))
                frame = frame.f_back
            return v, seen, sorted(locals())

        def middle(b):
            c = 1  # noqa: F841
            return inner()

        def outer(a):
            return middle(a)

        self.check(outer, 1, depth=3)

    def test_kinds_of_parameters(self):
        def no_parameters():
            return take(6)

        def only_keywords(*, k):
            return no_parameters(), k

        def only_rest(*args):
            return only_keywords(k=2), args

        def only_kwargs(**kwargs):
            return only_rest(1, 2), kwargs

        def everything(a, /, b, *args, c, d=5, **kwargs):
            return only_kwargs(z=1), a, b, args, c, d, kwargs

        def outer():
            return everything(1, 2, 3, c=4, e=6)

        self.check(outer, depth=6)

    def test_calls_with_stars_and_in_strings(self):
        def inner(n, **kwargs):
            return [take(3), n, kwargs]

        def middle(n):
            return [*inner(*[n], **{"k": n})]

        def outer(n):
            return f"{middle(n)!r:>40}|{n}"

        self.check(outer, 4, depth=3)


class Modes(unittest.TestCase):
    """What a callee's result becomes in its caller."""

    @staticmethod
    def find_unit(function, name):
        """The boundary behind the first instruction of that neutral name."""
        return next(i[4] for i in frame_tests.decode(function.__code__) if i[0] == name)

    def resume(self, function, unit, slots, mode, value=None):
        def callee():
            return "result"

        inner = (callee, self.find_unit(callee, "Resume"), [])
        return frame_tests.resume_chain([(function, unit, slots, mode, value), inner])

    def test_the_result_is_pushed(self):
        def caller(x):
            return x.attribute

        self.assertEqual(self.resume(caller, self.find_unit(caller, "LoadAttr"), [1], PUSH), "result")

    def test_a_method_found_by_python_code_is_called(self):
        def callee():
            return lambda *args: ("called", args)

        def caller(x):
            return x.method(1)

        inner = (callee, self.find_unit(callee, "Resume"), [])
        unit = self.find_unit(caller, "LoadMethod")
        outcome = frame_tests.resume_chain([(caller, unit, [1], PUSH_NULL_FIRST, None), inner])
        self.assertEqual(outcome, ("called", (1,)))

    def test_the_result_is_dropped(self):
        def caller(x):
            x.attribute = 1
            return x

        self.assertEqual(self.resume(caller, self.find_unit(caller, "StoreAttr"), [7], DROP), 7)

    def test_another_value_is_pushed(self):
        def caller(x):
            return type(x)(1)

        calls = [i[4] for i in frame_tests.decode(caller.__code__) if i[0] == "Call"]
        self.assertEqual(self.resume(caller, calls[-1], [7], PUSH_VALUE, "made"), "made")

    def test_iter_checks_what_python_code_returned(self):
        def caller(x):
            for y in x:
                return y

        with self.assertRaisesRegex(TypeError, r"iter\(\) returned non-iterator of type 'str'"):
            self.resume(caller, self.find_unit(caller, "GetIter"), [7, ...][:2], PUSH)

    def test_a_loop_ends_when_next_raises_stop_iteration(self):
        def next_method():
            raise StopIteration

        def caller(x):
            y = "before"
            for y in x:
                pass
            return y

        inner = (next_method, self.find_unit(next_method, "Resume"), [])
        slots = [1, "before", object()]
        outcome = frame_tests.resume_chain([(caller, self.find_unit(caller, "ForIter"), slots, PUSH, None), inner])
        self.assertEqual(outcome, "before")


class Generators(unittest.TestCase):
    """The callee is a generator that its caller iterates."""

    @staticmethod
    def generate(n):
        for i in range(n):
            x = i * 2
            yield x

    def resume(self, caller, name, slots, generator, innermost):
        outer = (caller, Modes.find_unit(caller, name), slots, PUSH, None)
        return frame_tests.resume_chain([outer, (self.generate, *innermost, PUSH, None, generator)])

    def test_a_loop_goes_on_with_a_generator_in_its_middle(self):
        def caller(iterable):
            total = [0]
            for x in iterable:
                total.append(x)
            return total

        # generate(5) in front of its YieldValue with i == 3: 6 and 8 are still to come.
        unit = next(i[2] for i in frame_tests.decode(self.generate.__code__) if i[0] == "YieldValue")
        fresh = frame_tests.clone_generator(self.generate(5), True)
        iterator = iter(range(4, 5))
        outcome = self.resume(caller, "ForIter", [None, [0], ..., fresh], fresh, (unit, [5, 3, 6, iterator, 6]))
        self.assertEqual(outcome, [0, 6, 8])

    def test_a_loop_ends_with_its_generator(self):
        def caller(iterable):
            for x in iterable:
                pass
            return "end"

        unit = Modes.find_unit(self.generate, "YieldValue")
        fresh = frame_tests.clone_generator(self.generate(5), True)
        # Behind the yield, the value that was sent on the stack, nothing left to iterate.
        outcome = self.resume(caller, "ForIter", [None, ..., fresh], fresh, (unit, [5, 3, 6, iter(()), None]))
        self.assertEqual(outcome, "end")

    def test_yield_from_goes_on_with_a_generator_in_its_middle(self):
        def caller(iterable):
            return (yield from iterable)

        unit = next(i[2] for i in frame_tests.decode(self.generate.__code__) if i[0] == "YieldValue")
        inner = frame_tests.clone_generator(self.generate(5), True)
        outer = frame_tests.clone_generator(caller(()), True)
        outcome = frame_tests.resume_chain(
            [
                (consume_loop, Modes.find_unit(consume_loop, "ForIter"), [None, [], ..., outer], PUSH, None),
                (caller, Modes.find_unit(caller, "Send"), [None, inner], PUSH, None, outer),
                (self.generate, unit, [5, 3, 6, iter(range(4, 5)), 6], PUSH, None, inner),
            ]
        )
        self.assertEqual(outcome, [6, 8])


def consume_loop(iterable):
    seen = []
    for x in iterable:
        seen.append(x)
    return seen


if __name__ == "__main__":
    unittest.main()
