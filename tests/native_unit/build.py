"""The extension module entry_tests: traces built by hand, guards, entries and exits.

    from tests.native_unit.build import load
    entry_tests = load()

With the torch of this Python if it has one, else without.
"""

from tests import extension

FOLDERS = (
    "src/base",
    "src/types",
    "src/host/cpython",
    "src/host/torch",
    "src/trace",
    "src/guards",
    "src/entry",
    "tests/native_unit",
)
RUNTIME = ("execute.cpp", "exit.cpp", "run_node.cpp")


def build():
    """The path of the module, made if it is missing or not up to date."""
    torch = extension.find_torch()
    sources = extension.list_sources(FOLDERS) + [extension.ROOT / "src/runtime" / name for name in RUNTIME]
    unwanted = "_absent.cpp" if torch else "_torch.cpp"
    sources = [path for path in sources if not path.name.endswith(unwanted)]
    return extension.build("entry_tests", "entry-tests", sources, torch)


def load():
    """Import entry_tests, built first."""
    path = build()
    if extension.find_torch():
        import torch  # noqa: F401  its libraries must be there first
    return extension.load("entry_tests", path)


if __name__ == "__main__":
    print(build())
