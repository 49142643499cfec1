"""tools/check_layers.py on small trees."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = """
open = ["base", "types"]
[folders.base]
include = []
foreign = []
[folders.types]
include = []
foreign = []
[folders."host/cpython"]
include = []
foreign = ["python"]
python_internal_files = ["v3??.h"]
[folders.trace]
include = ["host/*"]
foreign = ["python"]
[folders.graph]
include = []
foreign = []
[foreign]
python_internal = ["internal/*"]
python = ["Python.h"]
torch = ["torch/*", "ATen/*"]
std = ["stdio.h"]
"""


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_layers = load("check_layers")


@pytest.fixture
def check(tmp_path):
    """Write files into a tree with the layers above and return the messages."""

    def run(files, layers=LAYERS):
        files = {"layers.toml": layers, "base/check.h": "", "types/dtype.h": "", "trace/trace.h": "", **files}
        for name, text in files.items():
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.check_tree(tmp_path)[1]

    return run


def test_includes_that_the_table_allows_pass(check):
    assert not check(
        {
            "host/cpython/frame.h": '#include <Python.h>\n#include <vector>\n#include "base/check.h"\n',
            "host/cpython/v311.h": "#include <internal/pycore_frame.h>\n",
            "trace/print.cpp": '#include "trace/trace.h"\n#include "host/cpython/frame.h"\n#include <stdio.h>\n',
            "types/dtype.cpp": '#include "types/dtype.h"\n#include "base/check.h"\n',
        }
    )


def test_an_include_of_a_lower_folder_is_named_with_file_and_line(check):
    (message,) = check({"host/cpython/frame.h": '\n\n  #  include "trace/trace.h"\n'})
    place, _, text = message.partition(": ")
    assert place == "src/host/cpython/frame.h:3"
    assert text == 'host/cpython includes "trace/trace.h" of trace; host/cpython may include base, types'


def test_an_open_folder_may_not_include_the_others(check):
    (message,) = check({"base/log.h": '#include "types/dtype.h"\n'})
    assert message.endswith("base may include no other folder")


def test_foreign_headers_are_refused_where_the_table_does_not_name_them(check):
    assert check({"graph/op.h": "#include <ATen/Tensor.h>\n"}) == [
        "src/graph/op.h:1: graph includes <ATen/Tensor.h> (torch); graph may use the headers std"
    ]


def test_internal_headers_of_cpython_are_refused_outside_the_named_files(check):
    messages = check(
        {
            "host/cpython/frame.h": "#include <internal/pycore_frame.h>\n",
            "trace/v311.h": '#include "internal/pycore_frame.h"\n',
        }
    )
    assert messages == [
        "src/host/cpython/frame.h:1: <internal/pycore_frame.h> is internal to CPython; allowed here only in: v3??.h",
        "src/trace/v311.h:1: <internal/pycore_frame.h> is internal to CPython; allowed here only in: no file",
    ]


def test_a_private_header_stays_in_its_folder(check):
    assert check(
        {
            "host/cpython/frame_impl.h": "",
            "host/cpython/frame.cpp": '#include "host/cpython/frame_impl.h"\n',
            "trace/x.cpp": '#include "host/cpython/frame_impl.h"\n',
        }
    ) == ['src/trace/x.cpp:1: "host/cpython/frame_impl.h" is private to host/cpython']


def test_unknown_files_folders_and_headers_are_refused(check):
    messages = check(
        {
            "trace/a.cpp": '#include "gone.h"\n#include "Python.h"\n#include <boost/any.hpp>\n#include MACRO\n',
            "other/b.cpp": "",
        }
    )
    places = [m.split(": ")[0] for m in messages]
    assert places == ["src/other/b.cpp:1", *(f"src/trace/a.cpp:{n}" for n in (1, 2, 3, 4))]
    assert "is no file below src/" in messages[1]
    assert "written in quotes; expected <Python.h>" in messages[2]
    assert "<boost/any.hpp> belongs to no group" in messages[3]
    assert "computed" in messages[4]


def test_a_table_that_names_a_folder_below_is_refused(check):
    (message,) = check(
        {},
        LAYERS.replace(
            "include = []\nforeign = []\n[folders.types]", 'include = ["trace"]\nforeign = []\n[folders.types]'
        ),
    )
    assert "'trace', which is no folder above it" in message
