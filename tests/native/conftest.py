"""Tests of native code need a library with a code generator. One built with REPRISE_LLVM=OFF skips them; its programs
run with PyTorch's kernels, as in tests/replay under REPRISE_TEST_MODE=reprise."""

import pathlib

import pytest
from reprise import _C

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    if _C.has_code_generator():
        return
    for item in items:
        if HERE in pathlib.Path(item.fspath).parents:
            item.add_marker(pytest.mark.skip(reason="the library has no code generator"))
