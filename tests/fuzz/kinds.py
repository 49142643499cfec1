"""The kinds of fuzzed programs: how each is made, compared, made smaller and shown."""

import types

import python_check
import python_programs
import tensor_check
import tensor_programs
import use_check
import use_programs

#: (kind, backend) -> seeds of the slices that fail; what for stands in the README
KNOWN = {}


def blocks(body):
    """Index ranges of statements with all that is indented behind them, large ones first."""
    ranges = []
    for i, (indent, _) in enumerate(body):
        j = i + 1
        while j < len(body) and body[j][0] > indent:
            j += 1
        ranges.append((i, j))
    return sorted(ranges, key=lambda r: r[0] - r[1])


def without(body, i, j):
    """The body without these lines; an empty block has `pass`. None if it is no program any more."""
    rest = body[:i] + body[j:]
    text = "def f():\n" + "\n".join("    " * n + t for n, t in rest)
    try:
        compile(text, "<smaller>", "exec")
        return rest
    except SyntaxError:
        rest = body[:i] + [(body[i][0], "pass")] + body[j:]
        text = "def f():\n" + "\n".join("    " * n + t for n, t in rest)
        try:
            compile(text, "<smaller>", "exec")
        except SyntaxError:
            return None
        return rest if body[i:j] != [(body[i][0], "pass")] else None


def smaller_bodies(body):
    last = len(body) - 1
    half = max(len(body) // 2, 1)
    while half > 1:  # several at once
        for i in range(0, last, half):
            rest = without(body, i, min(i + half, last))
            if rest is not None and len(rest) < len(body):
                yield rest
        half //= 2
    for i, j in blocks(body):
        if i < last:
            rest = without(body, i, j)
            if rest is not None:
                yield rest
    for i, (indent, _) in enumerate(body):  # what a block holds, without the block
        if i + 1 < len(body) and body[i + 1][0] > indent:
            j = i + 1
            while j < len(body) and body[j][0] > indent:
                j += 1
            rest = body[:i] + [(n - 1, t) for n, t in body[i + 1 : j]] + body[j:]
            text = "def f():\n" + "\n".join("    " * n + t for n, t in rest)
            try:
                compile(text, "<smaller>", "exec")
                yield rest
            except SyntaxError:
                pass
    indent, text = body[last]
    if text.startswith("return ") and text.count(",") > 1:
        names = text[len("return ") : -1].split(", ")
        for k in range(len(names)):
            rest = names[:k] + names[k + 1 :]
            yield [*body[:last], (indent, f"return {', '.join(rest)},")]


def smaller_any(program):
    """With a call less, then with less of the body."""
    for k in range(len(program["calls"])):
        calls = program["calls"][:k] + program["calls"][k + 1 :]
        if calls:
            yield {**program, "calls": calls}
    for body in smaller_bodies(program["body"]):
        yield {**program, "body": body}


def smaller_tensor(program):
    yield from smaller_any(program)
    for k, (spec, grad) in enumerate(program["calls"]):
        for i, row in enumerate(spec):
            if not isinstance(row[0], str):
                for place, plain in ((3, "plain"), (4, False), (2, "float")):
                    if row[place] != plain:
                        new = list(row)
                        new[place] = plain
                        rows = [*spec[:i], new, *spec[i + 1 :]]
                        yield {**program, "calls": [*program["calls"][:k], (rows, grad), *program["calls"][k + 1 :]]}


def show_tensor(program):
    lines = [f"def f({', '.join(program['parameters'])}):"]
    lines += ["    " * indent + text for indent, text in program["body"]]
    lines += [f"# call {spec} grad={grad}" for spec, grad in program["calls"]]
    return "\n".join([*lines, f"# {program['options']}"])


TENSOR = types.SimpleNamespace(
    make_program=tensor_programs.make_program,
    find_difference=tensor_check.find_difference,
    run_eager=lambda program: tensor_check.run(program, False, False, None, None) and None,
    smaller=smaller_tensor,
    show=show_tensor,
)


def smaller_python(program):
    yield from smaller_any(program)
    for k, (seed, number, between) in enumerate(program["calls"]):
        if between:
            yield {**program, "calls": [*program["calls"][:k], (seed, number, []), *program["calls"][k + 1 :]]}


def show_python(program):
    lines = ["def f(x, n):"] + ["    " * indent + text for indent, text in program["body"]]
    lines += [f"# call (seed of x, n, before): {row}" for row in program["calls"]]
    return "\n".join([*lines, f"# keep_plain_entries {program['plain']}"])


PYTHON = types.SimpleNamespace(
    make_program=python_programs.make_program,
    find_difference=python_check.find_difference,
    run_eager=lambda program: python_check.run(program, False, None, None) and None,
    smaller=smaller_python,
    show=show_python,
)

USE = types.SimpleNamespace(
    make_program=use_programs.make_program,
    find_difference=use_check.find_difference,
    run_eager=use_check.run_eager,
    smaller=use_programs.smaller,
    show=use_programs.show,
)
ALL = {"tensor": TENSOR, "python": PYTHON, "use": USE}
