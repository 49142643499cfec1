"""Every program of programs.py is left at every single instruction boundary that it executes, in several ways.

Whatever is done at the boundary — CPython goes on with the frame, or with a fresh frame of the same contents — nothing
may be seen of it: results, exceptions, tracebacks, logs are those of CPython.
"""

import unittest

from tests.host.build import load
from tests.host.programs import PROGRAMS, observe

frame_tests = load()


def observe_in(mode, program, **settings):
    frame_tests.install(mode, **settings)
    try:
        return observe(program)
    finally:
        frame_tests.uninstall()


def count_boundaries(program):
    frame_tests.take_counters()
    observe_in(frame_tests.HAND_OVER, program)
    return frame_tests.take_counters()["boundaries"]


class EveryBoundary(unittest.TestCase):
    def check(self, mode, **settings):
        for name, program in PROGRAMS.items():
            with self.subTest(program=name):
                observe(program)
                expected = observe(program)
                for at in range(1, count_boundaries(program) + 1):
                    self.assertEqual(observe_in(mode, program, at=at, **settings), expected, f"at boundary {at}")

    def test_programs_run_plainly(self):
        for name, program in PROGRAMS.items():
            with self.subTest(program=name):
                observe(program)
                self.assertEqual(observe_in(frame_tests.PLAIN, program), observe(program))

    def test_ids_follow_their_objects(self):
        for name, program in PROGRAMS.items():
            with self.subTest(program=name):
                observe(program)
                self.assertEqual(observe_in(frame_tests.SHADOW, program), observe(program))

    def test_a_frame_is_handed_over(self):
        self.check(frame_tests.HAND_OVER)

    def test_a_frame_is_rebuilt(self):
        self.check(frame_tests.REBUILD)
        self.assertGreater(frame_tests.take_counters()["rebuilt"], 0)

    def test_a_frame_is_entered_again(self):
        for name, program in PROGRAMS.items():
            with self.subTest(program=name):
                observe(program)
                expected = observe(program)
                for seed in range(1, 21):
                    for probability in (0.02, 0.5, 1.0):
                        got = observe_in(frame_tests.REENTER, program, probability=probability, seed=seed)
                        self.assertEqual(got, expected, f"seed {seed}, probability {probability}")


if __name__ == "__main__":
    unittest.main()
