"""CPython's own tests under our evaluator; see cpython_suite.py. REPRISE_HOST_FULL=1: the long list in more modes."""

import importlib.util
import os
import unittest

from tests.host import cpython_suite
from tests.host.build import load

QUICK_MODES = ["plain", "hand_over:0.02:1", "rebuild:0.02:1"]
FULL_MODES = ["plain", "shadow", "hand_over:0.02:1", "rebuild:0.02:2", "reenter:0.02:3"]


class CPythonSuite(unittest.TestCase):
    def test_results_are_those_of_a_run_without_a_hook(self):
        # Debian's Python leaves CPython's own tests out.
        if importlib.util.find_spec("test") is None or importlib.util.find_spec("test.test_dict") is None:
            self.skipTest("this Python comes without its test package")
        load()  # built once, before the children want it
        is_full = os.environ.get("REPRISE_HOST_FULL", "") not in ("", "0")
        modules, modes = (cpython_suite.QUICK, QUICK_MODES)
        if is_full:
            modules, modes = (cpython_suite.FULL, FULL_MODES)
        tests, acted = 0, 0
        for module, mode, count, different, details in cpython_suite.compare(modules, modes):
            with self.subTest(module=module, mode=mode):
                self.assertIsInstance(details, dict, f"crashed: {details}")
                self.assertEqual(different, {})
            tests += count
            acted += details["acted"] if isinstance(details, dict) else 0
        self.assertGreater(tests, 1000)
        self.assertGreater(acted, 10_000)


if __name__ == "__main__":
    unittest.main()
