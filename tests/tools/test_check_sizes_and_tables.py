"""tools/check_sizes.py and tools/check_tables.py."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_sizes = load("check_sizes")
check_tables = load("check_tables")


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_long_file_is_noted_and_a_very_long_one_refused_unless_listed(tmp_path):
    lengths = {"a.cpp": 501, "b.cpp": 1501, "c.cpp": 500, "d.def": 1501}
    write(tmp_path, {f"src/{name}": "\n" * lines for name, lines in lengths.items()})
    count, notes, errors = check_sizes.check_tree(tmp_path, {"src/d.def": "one table"})
    assert count == 4
    assert notes == [f"src/{name}:1: note: {lengths[name]} lines (aim: 500)" for name in ("a.cpp", "d.def")]
    assert errors == ["src/b.cpp:1: 1501 lines; at most 1500, or a reason in LONG_FILES"]


def test_a_listed_file_must_exist(tmp_path):
    assert check_sizes.check_tree(tmp_path, {"src/gone.cpp": "why"})[2] == [
        "src/gone.cpp stands in LONG_FILES but does not exist"
    ]


def test_tables_are_checked_for_duplicates_places_readmes_and_docs(tmp_path):
    write(
        tmp_path,
        {
            "src/layers.toml": "[folders.base]\n[folders.graph]\n",
            "src/README.md": "| `base/` |\n",
            "src/base/README.md": "",
            "src/base/globals.def": 'X(a, "base/gone.cpp", "why")\n',
            "src/base/log_words.def": 'X(Trace, "trace", "doc")\nX(Trace, "trace2", "doc")\n',
            "src/base/flags.def": 'X(bool, a, true, "doc")\nX(bool, b, true, "doc")\n',
            "src/graph/op.h": "",
            "src/graph/ops.def": 'ROW("a.b", One)\n#include "graph/more.def"\n',
            "src/graph/more.def": 'ROW("a.b", Two)\n',
            "src/stray/op.h": "",
            "docs/troubleshooting.md": "`trace`",
            "docs/options.md": "`a`",
        },
    )
    assert check_tables.check_tree(tmp_path) == [
        "src/base/log_words.def:2: Trace stands in src/base/log_words.def:1 already",
        'src/graph/more.def:1: "a.b" stands in src/graph/ops.def:1 already',
        "src/base/globals.def:1: a is said to be in base/gone.cpp, which does not exist",
        "src/graph has no README.md",
        "src/README.md has no row for `graph/`",
        "src/stray/op.h is in no folder of src/layers.toml",
        "docs/troubleshooting.md does not name `trace2` of src/base/log_words.def",
        "docs/options.md does not name `b` of src/base/flags.def",
    ]
