"""Tests of native code need a library with LLVM, whose texts are in it. One built with REPRISE_LLVM=OFF skips them; its
programs run with PyTorch's kernels, as in tests/replay under REPRISE_TEST_MODE=reprise."""

import pathlib

import pytest
import reprise

HERE = pathlib.Path(__file__).parent


def has_code_generator():
    library = pathlib.Path(reprise.__file__).parent / "libreprise_core.so"
    return b"LLVM ERROR: " in library.read_bytes()


def pytest_collection_modifyitems(items):
    mine = [item for item in items if HERE in pathlib.Path(item.fspath).parents]
    if mine and not has_code_generator():
        for item in mine:
            item.add_marker(pytest.mark.skip(reason="the library has no code generator"))
