"""Generators and coroutines that are made from scratch behave like the ones that they were copied from."""

import sys
import traceback
import unittest

from tests.host.build import load

frame_tests = load()
log = []


def count(a, *rest, k=2):
    c = 0

    def cell():
        return c + k

    try:
        while c < 6:
            try:
                x = yield (a, c, cell())
                c += x or 1
                if c == 3:
                    raise ValueError(c)
            except ValueError as error:
                yield ("caught", repr(error), repr(sys.exc_info()[1]))
                c += 1
    finally:
        log.append(("finally", c))
    return "returned", a, rest


def drain(generator):
    seen = []
    try:
        while True:
            seen.append(next(generator))
    except StopIteration as stop:
        seen.append(stop.value)
    return seen


def advance(steps):
    """A generator after that many steps, or None if it has ended by then."""
    generator = count(1, 8, k=3)
    try:
        for _ in range(steps):
            next(generator)
    except StopIteration:
        return None
    return generator


class Generators(unittest.TestCase):
    def each_step(self):
        for steps in range(9):
            generator = advance(steps)
            if generator is not None:
                with self.subTest(steps=steps):
                    yield steps, generator

    def test_a_copy_looks_the_same(self):
        for _, generator in self.each_step():
            copied = frame_tests.clone_generator(generator)
            self.assertEqual(copied.gi_frame.f_lineno, generator.gi_frame.f_lineno)
            self.assertEqual(copied.gi_frame.f_lasti, generator.gi_frame.f_lasti)
            self.assertEqual(sorted(copied.gi_frame.f_locals), sorted(generator.gi_frame.f_locals))

    def test_a_copy_goes_on(self):
        for steps, _ in self.each_step():
            expected = drain(advance(steps))
            for mode in (None, frame_tests.HOOK_ONLY, frame_tests.PLAIN, frame_tests.REENTER):
                copied = frame_tests.clone_generator(advance(steps))
                if mode is not None:
                    frame_tests.install(mode, probability=0.2, seed=7)
                try:
                    self.assertEqual(drain(copied), expected, f"in mode {mode}")
                finally:
                    frame_tests.uninstall()

    def test_a_copy_without_locals_and_stack(self):
        def constant():
            yield 1
            yield 2

        generator = constant()
        self.assertEqual(list(frame_tests.clone_generator(generator)), [1, 2])
        next(generator)
        self.assertEqual(list(frame_tests.clone_generator(generator)), [2])

    def test_a_copy_is_closed(self):
        for _, generator in self.each_step():
            copied = frame_tests.clone_generator(generator)
            copied.close()
            self.assertIsNone(copied.gi_frame)

    def test_an_exception_is_thrown_into_a_copy(self):
        for _, generator in self.each_step():
            try:
                frame_tests.clone_generator(generator).throw(KeyError("z"))
                self.fail("the exception was swallowed")
            except KeyError as error:
                self.assertEqual([frame.name for frame in traceback.extract_tb(error.__traceback__)][-1], "count")

    def test_a_coroutine_is_copied_while_it_awaits(self):
        class Awaitable:
            def __await__(self):
                return (yield "waiting")

        async def inner():
            return await Awaitable()

        async def outer():
            return [await inner() for _ in range(2)], await inner()

        coroutine = outer()
        coroutine.send(None)
        copied = frame_tests.clone_generator(coroutine)
        seen = [copied.send(1), copied.send(2)]
        with self.assertRaises(StopIteration) as caught:
            copied.send(3)
        self.assertEqual(seen, ["waiting", "waiting"])
        self.assertEqual(caught.exception.value, ([1, 2], 3))
        coroutine.close()

    def test_throw_and_close_reach_driven_generators(self):
        for mode in (frame_tests.PLAIN, frame_tests.SHADOW):
            frame_tests.install(mode)
            try:
                generator = advance(1)
                caught = generator.throw(ValueError("thrown"))
                self.assertEqual(caught, ("caught", "ValueError('thrown')", "ValueError('thrown')"))
                with self.assertRaises(KeyError):
                    generator.throw(KeyError)
                generator = advance(2)
                generator.close()
            finally:
                frame_tests.uninstall()


if __name__ == "__main__":
    unittest.main()
