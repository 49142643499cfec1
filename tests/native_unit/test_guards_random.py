"""Random object trees, random facts, random changes: stamps must answer as the whole program does, step by step."""

import gc
import os
import random

import pytest

from tests.native_unit.builder import ADD, Trace, native

SEEDS = range(int(os.environ.get("REPRISE_SEEDS", 60)))
CHANGES = 150


def function(x, y=None):
    return x


class A:
    pass


class B(A):
    pass


class Tree:
    """Objects that point at each other through attributes, lists, dicts, tuples and cells."""

    def __init__(self, rng):
        self.rng = rng
        self.objects = [A() for _ in range(6)]
        for index, obj in enumerate(self.objects):
            for name in "abcdef":
                setattr(obj, name, self.value(index))
        self.root = self.objects[0]

    def scalar(self):
        """Half of them new objects, which take the places of dead ones."""
        kind = self.rng.randrange(10)
        if kind < 3:
            return float(self.rng.choice(["1.5", "2.5", "-0.0"]))
        if kind < 5:
            return int(self.rng.choice(["1000", "1001", "100000000000000000000"]))
        if kind < 6:
            return ("".join(self.rng.choice(["ab", "ac"])), float("1.5"))
        return self.rng.choice([0, 1, "name", True, None, ""])

    def value(self, index):
        """Of an attribute of object `index`: points at later objects only, so paths end."""
        later = self.objects[index + 1 :] or [None]
        kind = self.rng.randrange(8)
        if kind < 3:
            return self.scalar()
        if kind < 5:
            return self.rng.choice(later)
        if kind == 5:
            return [self.rng.choice([self.scalar(), self.rng.choice(later)]) for _ in range(self.rng.randrange(4))]
        if kind == 6:
            return {k: self.rng.choice([self.scalar(), self.rng.choice(later)]) for k in "pqr"[: self.rng.randrange(4)]}
        content = self.rng.choice([self.scalar(), self.rng.choice(later), (self.scalar(), self.rng.choice(later))])
        return (lambda: content).__closure__[0] if self.rng.random() < 0.6 else (content, self.scalar())

    def change(self):
        rng = self.rng
        index = rng.randrange(len(self.objects))
        obj = self.objects[index]
        kind = rng.randrange(10)
        name = rng.choice("abcdef")
        old = obj.__dict__.get(name)
        if kind == 0:
            obj.__class__ = rng.choice([A, B])
        elif kind == 1:
            obj.__dict__ = dict(obj.__dict__)
        elif kind == 2:
            obj.unrelated = rng.random()
        elif kind == 3 and isinstance(old, list):
            rng.choice(
                [lambda: old.append(1), lambda: old.clear(), lambda: old.reverse(), lambda: old.insert(0, 1.5)]
            )()
        elif kind == 4 and isinstance(old, dict):
            old[rng.choice("pqrs")] = self.scalar()
        elif kind == 5 and hasattr(old, "cell_contents"):
            old.cell_contents = self.scalar()
        elif kind == 6:
            # A new number at the address of a dead one.
            for name in "abcdef":
                old = obj.__dict__.get(name)
                if type(old) in (float, int):
                    make, text = type(old), rng.choice(["1000", "1001", "1002"])
                    obj.__dict__[name] = old = None
                    obj.__dict__[name] = make(text)
        elif kind == 7:
            self.objects[index] = obj = A()  # a new object in the same places
            for key in "abcdef":
                setattr(obj, key, self.value(index))
            if index == 0:
                self.root = obj
        elif kind == 8:
            obj.__dict__.pop(name, None)
        else:
            setattr(obj, name, self.value(index))


class Recorder:
    """Looks at a tree the way a recording would and states what it sees."""

    def __init__(self, rng):
        self.rng = rng
        self.trace = Trace(function)
        self.kept = []
        self.budget = 60

    def look(self, id, value):
        trace, rng = self.trace, self.rng
        if self.budget < 0:
            return
        self.budget -= 1
        if rng.random() < 0.2:
            self.kept.append(id)
        if isinstance(value, A):
            if rng.random() < 0.9:
                trace.guard(id, "Type", object=type(value))
            fields = trace.node("InstanceDict", id)
            for name in rng.sample("abcdefg", 4):
                item = trace.node("DictItem", fields, object=name)
                if name in value.__dict__:
                    trace.guard(item, "Present")
                    self.look(item, value.__dict__[name])
                else:
                    trace.guard(item, "Absent")
        elif isinstance(value, (list, tuple)):
            trace.guard(id, "Type", object=type(value))
            if rng.random() < 0.7:
                trace.guard(id, "Length", n=len(value))
            if rng.random() < 0.3:
                trace.guard(id, "Truth", n=int(bool(value)))
            for i, element in enumerate(value):
                item = trace.node("SequenceItem", id, n=i)
                trace.guard(item, "Present")
                self.look(item, element)
        elif isinstance(value, dict):
            trace.guard(id, "Type", object=dict)
            rng.choice(
                [
                    lambda: trace.guard(id, "Keys", object=tuple(value)),
                    lambda: trace.guard(id, "Length", n=len(value)),
                    lambda: None,
                ]
            )()
            for key, element in value.items():
                item = trace.node("DictItem", id, object=key)
                trace.guard(item, "Present")
                self.look(item, element)
            inside = trace.node("Contains", id, trace.const("p"))
            trace.guard(inside, "Identity", object="p" in value)
        elif hasattr(value, "cell_contents"):
            trace.guard(id, "Type", object=type(value))
            item = trace.node("CellContents", id)
            trace.guard(item, "Present")
            self.look(item, value.cell_contents)
        elif value is None:
            trace.guard(id, "Identity", object=None)
        else:
            rng.choice(
                [lambda: trace.guard(id, "Equal", object=value), lambda: trace.guard(id, "Type", object=type(value))]
            )()
            if type(value) in (int, float) and rng.random() < 0.5:
                trace.guard(id, "Type", object=type(value))
                total = trace.node("Binary", id, trace.const(1), n=ADD)
                if rng.random() < 0.5:
                    trace.guard(total, "Equal", object=value + 1)
                self.kept.append(total)

    def entry(self, tree):
        root = self.trace.arg(0)
        self.look(root, tree.root)
        return self.trace.ret(self.trace.node("Tuple", *self.kept, pre=False)).entry()


def show(values):
    """What can be compared: numbers by value (a sum is made anew), the rest by identity."""
    return [repr(v) if isinstance(v, (int, float)) else id(v) for v in values]


@pytest.mark.parametrize("seed", SEEDS)
def test_stamps_answer_as_the_whole_program_does(seed):
    rng = random.Random(seed)
    tree = Tree(rng)
    entries = [Recorder(rng).entry(tree) for _ in range(2)]
    for _ in range(2):
        assert all(entry.check(tree.root) for entry in entries)
    held = 0
    for step in range(CHANGES):
        if rng.random() < 0.7:
            tree.change()
        if rng.random() < 0.05:
            gc.collect()
        if rng.random() < 0.1:  # a new recording, whose facts hold now
            entries[rng.randrange(2)] = Recorder(rng).entry(tree)
        for entry in entries:
            expected = entry.explain(tree.root) == ""
            assert entry.check(tree.root) == expected, (seed, step, entry.explain(tree.root), entry.failure())
            if expected and rng.random() < 0.2:  # seldom: it drops the stamps
                held += 1
                stamped = show(entry(tree.root))
                native.drop_stamps(entry.capsule)
                assert stamped == show(entry(tree.root)), (seed, step)
    assert held > 0
