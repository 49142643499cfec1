"""Run the tests of the host half on an interpreter that need not have torch, pytest or anything else.

    PYTHONPATH=build/host-3.12 python3.12 -m tests.host [part of a test's name]...

Every test_*.py of this folder is a module of unittest cases; they get the extension module from tests.host.native.
"""

import pathlib
import platform
import sys
import time
import unittest

FOLDER = pathlib.Path(__file__).parent


def main():
    start = time.perf_counter()
    loader = unittest.TestLoader()
    if sys.argv[1:]:
        loader.testNamePatterns = [f"*{part}*" for part in sys.argv[1:]]
    names = [f"tests.host.{path.stem}" for path in sorted(FOLDER.glob("test_*.py"))]
    result = unittest.TextTestRunner(verbosity=1).run(loader.loadTestsFromNames(names))
    for test, _ in result.failures + result.errors:
        print(f"FAILED tests/host::{test.id()} on {platform.python_version()}")
    bad = len(result.failures) + len(result.errors)
    passed = result.testsRun - bad - len(result.skipped)
    counts = [f"{bad} failed"] if bad else []
    counts.append(f"{passed} passed")
    if result.skipped:
        counts.append(f"{len(result.skipped)} skipped")
    print(f"host {platform.python_version()}: {', '.join(counts)} in {time.perf_counter() - start:.2f}s", flush=True)
    return bad > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
