"""The extension module torch_host_native: host/torch for the tests of this folder.

build.py            builds if a source is newer, prints the module's path
build.py --absent   the build without torch (torch need not be installed)
"""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2])]

from tests import extension  # noqa: E402

NAME = "torch_host_native"


def build(absent=False):
    """The path of the module, built if needed."""
    torch = None if absent else extension.find_torch()
    if torch is None and not absent:
        raise SystemExit("torch is not installed for " + sys.executable)
    suffix = "_absent.cpp" if absent else "_torch.cpp"
    sources = [pathlib.Path(__file__).resolve().with_name("module.cpp")]
    sources += sorted((extension.ROOT / "src/host/torch").glob("*" + suffix))
    sources += extension.list_sources(("src/base", "src/types"))
    return extension.build(NAME, "torch_host", sources, torch)


def load(absent=False):
    """The module, built if needed. Import torch first."""
    return extension.load(NAME, build(absent))


if __name__ == "__main__":
    print(build(absent="--absent" in sys.argv[1:]))
