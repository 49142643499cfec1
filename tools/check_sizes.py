#!/usr/bin/env python3
"""Check the lengths of source files: a note above 500 lines, an error above 1500.

    check_sizes.py [ROOT]

A file may be longer if it stands in LONG_FILES with its reason.
"""

import pathlib
import sys

NOTE_LINES = 500
MOST_LINES = 1500
FOLDERS = ["src", "python", "tests", "tools", "bench", "cmake"]
SUFFIXES = {".h", ".cpp", ".c", ".def", ".inc", ".py", ".sh", ".cmake"}

# path from the root: why it stays one file
LONG_FILES: dict[str, str] = {}


def check_tree(root, long_files=LONG_FILES):
    """Return (number of files, notes, errors)."""
    notes, errors, count = [], [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            count += 1
            name = path.relative_to(root).as_posix()
            lines = len(path.read_text(encoding="utf-8", errors="replace").splitlines())
            if lines > MOST_LINES and name not in long_files:
                errors.append(f"{name}:1: {lines} lines; at most {MOST_LINES}, or a reason in LONG_FILES")
            elif lines > NOTE_LINES:
                notes.append(f"{name}:1: note: {lines} lines (aim: {NOTE_LINES})")
    for name in long_files:
        if not (root / name).is_file():
            errors.append(f"{name} stands in LONG_FILES but does not exist")
    return count, notes, errors


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    count, notes, errors = check_tree(root)
    for message in notes + errors:
        print(message)
    print(f"sizes: {count} files, {len(notes)} notes, {len(errors)} problems")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
