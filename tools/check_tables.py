#!/usr/bin/env python3
"""Check what the compiler cannot see in the .def tables and in the READMEs that go with them.

    check_tables.py [ROOT]

Rules: no table, with the tables that it includes, has two rows with the same first cell; every place in
base/globals.def exists; every folder of src/ that has source stands in layers.toml, has a README.md and a row in
src/README.md; docs/troubleshooting.md names every word of REPRISE_LOG, docs/options.md every option.
"""

import pathlib
import re
import sys
import tomllib

ROW = re.compile(r"^(?:X|ROW|ROW_IF|ATTRIBUTE)\(\s*([A-Za-z_][\w:]*|\"[^\"]+\")\s*,?")
INCLUDE = re.compile(r'^#include "([^"]+\.def)"')
SUFFIXES = {".h", ".cpp", ".c", ".def", ".inc"}


def read_rows(path):
    """Yield (line number, first cell, line) of the X rows of a table."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = ROW.match(line)
        if match:
            yield number, match.group(1), line


def check_duplicates(root):
    for path in sorted((root / "src").rglob("*.def")):
        if path.name == "flags.def":
            continue  # its first cell is a type; C++ refuses two members of one name
        included = [INCLUDE.match(line) for line in path.read_text(encoding="utf-8").splitlines()]
        seen = {}
        for table in [path, *(root / "src" / match.group(1) for match in included if match)]:
            for number, key, _ in read_rows(table):
                place = f"{table.relative_to(root).as_posix()}:{number}"
                if key in seen:
                    yield f"{place}: {key} stands in {seen[key]} already"
                seen.setdefault(key, place)


def check_globals(root):
    path = root / "src/base/globals.def"
    for number, key, line in read_rows(path):
        place = re.findall(r'"([^"]*)"', line)[0]
        if not (root / "src" / place).exists():
            yield f"src/base/globals.def:{number}: {key} is said to be in {place}, which does not exist"


def check_folders(root):
    src = root / "src"
    folders = tomllib.loads((src / "layers.toml").read_text(encoding="utf-8"))["folders"]
    table = (src / "README.md").read_text(encoding="utf-8")
    for name in folders:
        if not any(p.suffix in SUFFIXES for p in (src / name).glob("*")):
            continue
        if not (src / name / "README.md").is_file():
            yield f"src/{name} has no README.md"
        if f"`{name}/`" not in table and name.count("/") == name.startswith("host/"):
            yield f"src/README.md has no row for `{name}/`"
    for path in sorted(p for p in src.rglob("*") if p.suffix in SUFFIXES):
        parents = [p.relative_to(src).as_posix() for p in path.parents if p != src and src in p.parents]
        if not any(parent in folders for parent in parents):
            yield f"{path.relative_to(root).as_posix()} is in no folder of src/layers.toml"


def check_docs(root):
    for doc, table, pattern in [
        ("docs/troubleshooting.md", "src/base/log_words.def", r'^X\(\w+, "(\w+)"'),
        ("docs/options.md", "src/base/flags.def", r"^X\(\w+, (\w+),"),
    ]:
        text = (root / doc).read_text(encoding="utf-8")
        for name in re.findall(pattern, (root / table).read_text(encoding="utf-8"), re.M):
            if f"`{name}`" not in text:
                yield f"{doc} does not name `{name}` of {table}"


def check_tree(root):
    return [m for check in (check_duplicates, check_globals, check_folders, check_docs) for m in check(root)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    messages = check_tree(root)
    print("\n".join(messages), end="\n" if messages else "")
    print(f"tables: {len(messages)} problems")
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main())
