"""`python -m tests.trace.run`: records every case of cases/ and prints what the log said, under `== name` lines.

A case is a Python file with `make()`, which gives the program, and `calls`, a list of argument tuples. Its name begins
with its outcome: ok_, exit_, recompile_ or error_.
"""

import importlib.util
import pathlib
import sys

CASES = pathlib.Path(__file__).parent / "cases"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    import reprise

    for path in sorted(CASES.glob("*.py")):
        case = load(path)
        print(f"== {path.stem}", file=sys.stderr, flush=True)
        program = reprise.compile(case.make(), backend="eager")
        for args in case.calls:
            try:
                program(*args)
            except Exception as error:  # an error_ case; the text says which
                print(f"raised {type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
