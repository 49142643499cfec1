"""The extension module frame_tests, built from the sources for the Python that runs this.

from tests.host.build import load
frame_tests = load()
"""

import os

from tests import extension

FOLDERS = ("src/host/cpython", "src/interp", "tests/host/native")


def build():
    """The path of the module, made if it is missing or not up to date."""
    return extension.build("frame_tests", "frame-tests", extension.list_sources(FOLDERS))


def load():
    """Import frame_tests, built first; child processes take what their parent has built."""
    path = os.environ.get("REPRISE_FRAME_TESTS") or str(build())
    os.environ["REPRISE_FRAME_TESTS"] = path
    return extension.load("frame_tests", path)


if __name__ == "__main__":
    print(build())
