"""Rows of the zoo, read from `suites/*.tsv`, and how a row becomes a model with inputs.

A row is text: its constructor and its inputs are Python expressions, evaluated only in the process that runs the
model. So the tables can be listed without any package, and a row whose package is missing is skipped and counted.

Lines of a table that start with `#!` set facts for the rows below: `package` (the distribution that must be there) and
`names` (modules whose attributes the expressions may use; the input makers of `bench.zoo.inputs` always may).
"""

import builtins
import csv
import dataclasses
import importlib
import importlib.metadata
import inspect
import pathlib
import random

FOLDER = pathlib.Path(__file__).parent
COLUMNS = ("name", "construct", "inputs", "hard", "flags", "note")
#: flag -> meaning
FLAGS = {
    "small": "one of the small tier",
    "no-train": "has no training mode worth measuring (generation, detection without targets)",
    "step": "the program is a whole training step itself: it runs with gradients, in training only",
    "grad-inference": "inference needs gradients (forces, functorch)",
    "slow": "more than a few seconds of eager: left out unless asked for by name",
    "random": "draws normal numbers: float64 draws others, so there is no referee",
}
#: what varies -> the parameter of input makers that it is
SIZES = {"batches": "batch", "lengths": "length"}


class Missing(RuntimeError):
    """A row needs a package that is not installed here."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One model. `construct` makes a module (or a step program), `inputs` its arguments: a tuple or a dict of keywords.

    hard: letters of what makes it hard to capture (README.md). flags: words of FLAGS. device: where program and inputs
    lie; they are made on the CPU and moved, so they are the same everywhere. resize: None, or (parameter, function of
    the row's own value): input makers get that value.
    """

    suite: str
    name: str
    package: str
    names: tuple
    construct: str
    inputs: str
    hard: str
    flags: frozenset
    note: str
    device: str = "cpu"
    resize: tuple | None = None

    def is_installed(self):
        try:
            importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return False
        return True


class Names(dict):
    """Globals of a row's expressions: attributes of the modules named by its table, looked up when asked for."""

    def __init__(self, modules):
        super().__init__(__builtins__=builtins)
        self.modules = modules

    def __missing__(self, name):
        if hasattr(builtins, name):
            return getattr(builtins, name)
        for module in self.modules:
            if hasattr(module, name):
                return getattr(module, name)
            try:
                return importlib.import_module(f"{module.__name__}.{name}")
            except ImportError:
                pass
        raise NameError(f"{name!r} is in none of {', '.join(m.__name__ for m in self.modules)}")


def read_table(path):
    """Rows of one table. ValueError with file and line for what can't be read."""
    rows, facts = [], {"package": "torch", "names": ""}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#!"):
            key, _, value = line[2:].strip().partition(" ")
            if key not in facts:
                raise ValueError(f"{path}:{number}: unknown fact {key!r}: expected one of {', '.join(facts)}")
            facts[key] = value.strip()
        elif line.strip() and not line.startswith("#"):
            cells = line.split("\t")
            if len(cells) > len(COLUMNS) or len(cells) < 3:
                raise ValueError(f"{path}:{number}: {len(cells)} cells; expected 3 to {len(COLUMNS)}")
            row = dict(zip(COLUMNS, [c.strip() for c in cells] + [""] * len(COLUMNS)))
            flags = frozenset(row.pop("flags").split())
            if flags - FLAGS.keys():
                raise ValueError(f"{path}:{number}: unknown flags {', '.join(sorted(flags - FLAGS.keys()))}")
            names = tuple(facts["names"].split())
            rows.append(Row(suite=path.stem, package=facts["package"], names=names, flags=flags, **row))
    return rows


def all_rows():
    """Every row, suites in alphabetic order. ValueError where two rows share a name."""
    rows = [row for path in sorted((FOLDER / "suites").glob("*.tsv")) for row in read_table(path)]
    seen = {}
    for row in rows:
        if row.name in seen:
            raise ValueError(f"two rows are called {row.name}: in {seen[row.name]} and {row.suite}")
        seen[row.name] = row.suite
    return rows


def small_rows():
    """The small tier: 24 programs that cover the hard things, each a fraction of a second on a CPU."""
    return [row for row in all_rows() if "small" in row.flags]


def find_row(name):
    for row in all_rows():
        if row.name == name:
            return row
    raise ValueError(f"no row {name!r}; `python -m bench rows` lists them")


def skipped_rows():
    """Rows of the protocol's list that are not here: dicts with name, suite and reason."""
    with open(FOLDER / "skipped.tsv", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def seed_all(seed):
    """Every generator that models draw from."""
    import numpy
    import torch

    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def parameter_of(maker, size):
    """The parameter of an input maker that is this size, or None. A bare shape begins with the batch."""
    if not inspect.isfunction(maker):
        return None
    names = inspect.signature(maker).parameters
    return size if size in names else "shape" if size == "batch" and "shape" in names else None


def can_vary(row, size):
    """Whether makers of the row's inputs take this size. The program may still refuse other values."""
    makers = vars(importlib.import_module("bench.zoo.inputs"))
    used = compile(row.inputs, row.name, "eval").co_names
    return any(parameter_of(makers.get(name), size) for name in used)


def resized(maker, name, change):
    """The maker with another value for one of its parameters."""
    signature = inspect.signature(maker)

    def make(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        own = bound.arguments[name]
        bound.arguments[name] = (change(own[0]), *own[1:]) if name == "shape" else change(own)
        return maker(*bound.args, **bound.kwargs)

    return make


def names_of(row):
    makers = importlib.import_module("bench.zoo.inputs")
    names = Names([makers] + [importlib.import_module(name) for name in row.names])
    if row.resize is not None:
        size, change = row.resize
        found = {name: parameter_of(maker, size) for name, maker in vars(makers).items()}
        names.update({name: resized(vars(makers)[name], p, change) for name, p in found.items() if p})
    return names


def moved(thing, device):
    """The tensors of nested containers on a device."""
    if device == "cpu":
        return thing
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, thing)


def make_program(row, seed=0):
    """The row's module, freshly initialised; equal seeds give equal twins. Missing if the package is not there."""
    if not row.is_installed():
        raise Missing(f"{row.name} needs {row.package}")
    seed_all(seed)
    module = eval(row.construct, names_of(row))
    return module if row.device == "cpu" else module.to(row.device)


def make_inputs(row, seed=0):
    """(args, kwargs) of one call; another seed gives other values of the same shapes."""
    seed_all(1000 + seed)
    made = moved(eval(row.inputs, names_of(row)), row.device)
    return ((), made) if isinstance(made, dict) else (tuple(made), {})


def make_case(row, seed=0):
    """(program, args, kwargs)."""
    return (make_program(row, seed), *make_inputs(row, seed))
