#!/usr/bin/env python3
"""Check that src/ keeps the layers of src/layers.toml, on direct includes.

    check_layers.py [ROOT]

Reports every broken rule as file:line: what was found, what is allowed. Exit status 1 if there is one.
Rules: an include in quotes names a file below src/ by its path from src/; its folder must be one that the including
folder may include; headers ending _impl.h stay in their folder; an include in angle brackets must belong to a group of
foreign headers that the folder may use; CPython's internal headers only in the files named for it.
"""

import fnmatch
import pathlib
import re
import sys
import tomllib

INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>|(\S+))')
SUFFIXES = {".h", ".cpp", ".c", ".def", ".inc"}


class Layers:
    """The rules of one layers.toml."""

    def __init__(self, text):
        table = tomllib.loads(text)
        self.open = table["open"]
        self.folders = table["folders"]
        self.foreign = table["foreign"]
        self.allowed = {}
        self.problems = []
        for name, row in self.folders.items():
            allowed = {name, *self.open}
            for pattern in row["include"]:
                above = fnmatch.filter(self.allowed, pattern)
                if not above:
                    self.problems.append(f"folder {name} may include {pattern!r}, which is no folder above it")
                allowed.update(above)
            for group in row["foreign"]:
                if group not in self.foreign:
                    self.problems.append(f"folder {name} may use the headers {group!r}, which is no group in [foreign]")
            # Open folders come first and may include only what stands above them.
            if name in self.open:
                allowed = {name, *(o for o in self.open if o in self.allowed)}
            self.allowed[name] = allowed

    def find_folder(self, path):
        """The folder of the table that holds a path below src/ (the longest match), or None."""
        parts = pathlib.PurePosixPath(path).parts[:-1]
        for count in range(len(parts), 0, -1):
            name = "/".join(parts[:count])
            if name in self.folders:
                return name
        return None

    def find_group(self, header):
        for group, patterns in self.foreign.items():
            if any(fnmatch.fnmatchcase(header, pattern) for pattern in patterns):
                return group
        return "std" if re.fullmatch(r"[a-z0-9_]+", header) else None

    def check_own(self, folder, header, exists):
        """What is wrong with a quoted include, or None."""
        if not exists(header):
            group = self.find_group(header)
            if group is not None:
                return f'foreign header "{header}" ({group}) is written in quotes; expected <{header}>'
            return f'"{header}" is no file below src/; expected a path from src/, such as "base/check.h"'
        target = self.find_folder(header)
        if target is None:
            return f'"{header}" is in no folder of layers.toml'
        if header.endswith("_impl.h") and target != folder:
            return f'"{header}" is private to {target}'
        if target not in self.allowed[folder]:
            return f'{folder} includes "{header}" of {target}; {folder} may include {self.show(folder)}'
        return None

    def check_foreign(self, folder, name, header):
        """What is wrong with an include in angle brackets, or None."""
        row = self.folders[folder]
        group = self.find_group(header)
        if group is None:
            return f"<{header}> belongs to no group in [foreign] of layers.toml"
        if group == "std" or group in row["foreign"]:
            return None
        if group == "python_internal":
            files = row.get("python_internal_files", [])
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in files):
                return None
            return f"<{header}> is internal to CPython; allowed here only in: {', '.join(files) or 'no file'}"
        allowed = ", ".join(["std", *row["foreign"]])
        return f"{folder} includes <{header}> ({group}); {folder} may use the headers {allowed}"

    def show(self, folder):
        return ", ".join(sorted(self.allowed[folder] - {folder}) or ["no other folder"])


def check_file(layers, src, path):
    """Yield (line number, what is wrong) for one source file."""
    relative = path.relative_to(src).as_posix()
    folder = layers.find_folder(relative)
    if folder is None:
        yield 1, f"{relative} is in no folder of layers.toml"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match is None:
            continue
        own, foreign, computed = match.groups()
        if own is not None:
            is_internal = layers.find_group(own) == "python_internal"
            problem = (
                layers.check_foreign(folder, path.name, own)
                if is_internal
                else layers.check_own(folder, own, lambda header: (src / header).is_file())
            )
        elif foreign is not None:
            problem = layers.check_foreign(folder, path.name, foreign)
        else:
            problem = f"include of {computed} is computed; write the name"
        if problem is not None:
            yield number, problem


def check_tree(root):
    """Return (number of files, list of messages) for the tree below root."""
    src = root / "src"
    layers = Layers((src / "layers.toml").read_text(encoding="utf-8"))
    messages = [f"src/layers.toml: {problem}" for problem in layers.problems]
    files = sorted(p for p in src.rglob("*") if p.suffix in SUFFIXES)
    for path in files:
        for number, problem in check_file(layers, src, path):
            messages.append(f"{path.relative_to(root).as_posix()}:{number}: {problem}")
    return len(files), messages


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    count, messages = check_tree(root)
    print("\n".join(messages), end="\n" if messages else "")
    print(f"layers: {count} files, {len(messages)} problems")
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main())
