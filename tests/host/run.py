"""Run all tests of the frame machinery with the Python that runs this.

    python tests/host/run.py [--full] [part of a test's name]...

Needs g++ and the headers of the Python, nothing else: the machinery is built from the sources into an extension module
of its own (build.py). --full runs the long list of CPython's test modules in all modes, half an hour on two cores.
Exit status 1 if a test failed.
"""

import os
import pathlib
import platform
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

MODULES = ["decode", "every_boundary", "exits", "chains", "generators", "hook", "watch", "cpython_suite"]


def main():
    arguments = sys.argv[1:]
    if "--full" in arguments:
        arguments.remove("--full")
        os.environ["REPRISE_HOST_FULL"] = "1"
    start = time.perf_counter()
    from tests.host.build import load

    load()
    print(f"frames {platform.python_version()}: built in {time.perf_counter() - start:.1f}s", flush=True)
    loader = unittest.TestLoader()
    if arguments:
        loader.testNamePatterns = [f"*{part}*" for part in arguments]
    suite = loader.loadTestsFromNames(f"tests.host.test_{name}" for name in MODULES)
    result = unittest.TextTestRunner().run(suite)
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(
        f"frames {platform.python_version()}: {failed} failed, {passed} passed, {len(result.skipped)} skipped "
        f"in {time.perf_counter() - start:.1f}s",
        flush=True,
    )
    return failed > 0 or passed <= 0


if __name__ == "__main__":
    sys.exit(main())
