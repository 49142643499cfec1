"""Seeded random programs: the same seed always gives the same source.

A program defines helpers and `f(x)` over tensors `t0, t1, …` of one shape (values kept small by sin and tanh), small
ints `n0, …`, a list, a dict and an object, with loops, branches, try, with, closures, comprehensions, generators, and
at random places what ends a compiled part: a print, an unlisted C call, a branch on data, an `.item()`, a raise.
"""

import random

UNARY = ["torch.sin({})", "torch.tanh({})", "{}.cos()", "{} * 0.5", "-{}", "{}.clone()", "torch.relu({})", "{}.abs()"]
BINARY = ["{} + {}", "{} - {}", "torch.tanh({} * {})", "torch.maximum({}, {})", "torch.where({} > 0, {}, {})"]

HEADER = """
class Thing:
    total = 0
    def __init__(self, w):
        self.w = w
        self.hits = 0
    @property
    def soft(self):
        self.hits += 1
        return torch.tanh(self.w)
    def mix(self, t, by=0.5):
        Thing.total += 1
        return t * by + self.w

class Scope:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("in")
    def __exit__(self, kind, value, tb):
        self.log.append("out" if kind is None else kind.__name__)
        return self.swallow and kind is ValueError

def stream(t, n):
    for i in range(n):
        t = torch.sin(t + i)
        yield t

WEIGHT = torch.linspace(-1, 1, 3)
STATE = {"calls": 0}
"""


class Writer:
    """Writes one program. `exits` counts the places that end a compiled part."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.exits = 0
        self.names = 0
        self.helpers = []
        self.budget = 0

    # --- expressions

    def tensor(self):
        return self.random.choice(self.tensors)

    def number(self):
        return self.random.choice([*self.numbers, str(self.random.randint(0, 3))])

    def expression(self):
        kind = self.random.random()
        if kind < 0.35:
            return self.random.choice(UNARY).format(self.tensor())
        if kind < 0.65:
            form = self.random.choice(BINARY)
            return form.format(*[self.tensor() for _ in range(form.count("{}"))])
        if kind < 0.72:
            return f"{self.tensor()} * {self.number()}"
        if kind < 0.78:
            return f"thing.mix({self.tensor()}, by={self.random.choice(['0.25', '0.75'])})"
        if kind < 0.82:
            return f"thing.soft + {self.tensor()}"
        if kind < 0.86:
            return f"sum([{self.tensor()} * k for k in range({self.random.randint(1, 3)})], {self.tensor()})"
        if kind < 0.9:
            return f"(lambda v, w={self.tensor()}: torch.tanh(v + w))({self.tensor()})"
        if kind < 0.94 and self.helpers:
            name = self.random.choice(self.helpers)
            return f"{name}({self.tensor()}, {self.number()})"
        if kind < 0.97:
            self.exits += 1
            return f"{self.random.choice(['SAY', 'CHOOSE'])}({self.tensor()})"
        return f"torch.tanh({self.tensor()} + WEIGHT)"

    # --- statements

    def write(self, indent, text):
        self.lines.append("    " * indent + text)

    def block(self, indent, depth, size):
        """Statements at one level. Names made inside stay inside: they may not be bound afterwards."""
        tensors, numbers = list(self.tensors), list(self.numbers)
        for _ in range(size):
            self.statement(indent, depth)
        self.tensors, self.numbers = tensors, numbers

    def statement(self, indent, depth):
        self.budget -= 1
        forms = [self.assign] * 6 + [self.ending] * 3 + [self.containers] * 2 + [self.effect] * 2
        if depth < 3 and self.budget > 0:
            forms += [self.loop, self.while_loop, self.branch, self.attempt, self.scope, self.closure, self.generator]
        self.random.choice(forms)(indent, depth)

    def assign(self, indent, depth):
        expression = self.expression()
        if self.random.random() < 0.4:
            name = self.tensor()
        else:
            name = f"t{self.names}"
            self.names += 1
        self.write(indent, f"{name} = {expression}")
        if name not in self.tensors:
            self.tensors.append(name)

    def ending(self, indent, depth):
        """What a compiled part can not go through, or only one way."""
        self.exits += 1
        kind = self.random.randrange(7) if self.random.random() < 0.97 else 7
        if kind == 7:
            self.write(indent, "if PROBE.sum() < 0:")
            self.write(indent + 1, f"raise ValueError('out', {self.number()})")
        elif kind == 0:
            self.write(indent, f"print('at', {self.exits}, {self.number()})")
        elif kind == 1:
            self.write(indent, f"log.append(zlib.crc32(b'{self.exits}'))")
        elif kind == 2:
            self.write(indent, f"log.append({self.tensor()}.sum().item())")
        elif kind == 3:
            self.write(indent, f"if {self.tensor()}.sum() > {self.random.choice(['0', '0.3', '-0.5'])}:")
            self.block(indent + 1, depth + 1, 1)
            if self.random.random() < 0.5:
                self.write(indent, "else:")
                self.block(indent + 1, depth + 1, 1)
        elif kind == 4:
            self.write(indent, "if PROBE.sum() > 0:")
            self.block(indent + 1, depth + 1, 1)
        elif kind == 5:
            self.write(indent, f"print('value', round({self.tensor()}.mean().item(), 3))")
        else:
            name = f"n{self.names}"
            self.names += 1
            self.write(indent, f"{name} = int(({self.tensor()} > 0).sum())")
            self.numbers.append(name)

    def containers(self, indent, depth):
        t, n = self.tensor(), self.number()
        kind = self.random.randrange(6)
        lines = [
            [f"items.append({t})", f"items = items[-{self.random.randint(1, 3)}:]"],
            [f"table['k{n}'] = {t}", f"table.setdefault('k{self.random.randint(0, 2)}', {self.tensor()})"],
            [f"{t}, *others = [{t}, *items]", "log.append(len(others))"],
            [f"table = {{k: torch.tanh(v) for k, v in table.items()}} or {{'first': {t}}}"],
            [f"log.extend(sorted({{{n}, 1, 2}}, key=lambda v: -v))"],
            [f"{t} = torch.stack([{t}, *items]).mean(0) if items else {t}"],
        ][kind]
        for line in lines:
            self.write(indent, line)

    def effect(self, indent, depth):
        t = self.tensor()
        kind = self.random.randrange(6)
        self.write(
            indent,
            [
                "STATE['calls'] += 1",
                f"thing.w = torch.tanh({t})",
                "thing.hits += 1",
                f"{t} = {t}.clone(); {t}.mul_(0.5)",
                f"log.append(STATE['calls'] + {self.number()})",
                "Thing.total = Thing.total + 2",
            ][kind],
        )

    def loop(self, indent, depth):
        name = f"n{self.names}"
        self.names += 1
        header = self.random.choice(
            [
                f"for {name} in range({self.random.randint(1, 4)}):",
                f"for {name}, q in enumerate([{self.tensor()}, {self.tensor()}]):",
            ]
        )
        self.write(indent, header)
        self.numbers.append(name)
        self.block(indent + 1, depth + 1, self.random.randint(1, 3))
        kind = self.random.random()
        if kind < 0.25:
            self.write(indent + 1, f"if {name} == 1:")
            self.write(indent + 2, self.random.choice(["break", "continue"]))
            self.block(indent + 1, depth + 1, 1)
        if kind < 0.15:
            self.write(indent, "else:")
            self.block(indent + 1, depth + 1, 1)
        self.numbers.remove(name)

    def while_loop(self, indent, depth):
        name = f"n{self.names}"
        self.names += 1
        self.write(indent, f"{name} = 0")
        self.write(indent, f"while {name} < {self.random.randint(1, 3)}:")
        self.write(indent + 1, f"{name} += 1")
        self.block(indent + 1, depth + 1, self.random.randint(1, 3))
        self.numbers.append(name)

    def branch(self, indent, depth):
        condition = self.random.choice(
            [f"{self.number()} > 1", "len(items) > 1", "'k1' in table", "STATE['calls'] % 2", "thing.hits < 3"]
        )
        self.write(indent, f"if {condition}:")
        self.block(indent + 1, depth + 1, self.random.randint(1, 2))
        if self.random.random() < 0.6:
            self.write(indent, "else:")
            self.block(indent + 1, depth + 1, self.random.randint(1, 2))

    def attempt(self, indent, depth):
        self.write(indent, "try:")
        self.block(indent + 1, depth + 1, self.random.randint(1, 2))
        kind = self.random.randrange(4)
        if kind == 0:
            self.write(indent + 1, f"if {self.number()} != 2:")
            self.write(indent + 2, "raise ValueError('own')")
        elif kind == 1:
            self.write(indent + 1, f"log.append(table['missing{self.number()[-1]}'])")
        elif kind == 2:
            self.write(indent + 1, f"{self.tensor()} @ torch.ones(7)")
        self.write(indent, "except (ValueError, KeyError, RuntimeError) as error:")
        self.write(indent + 1, "log.append(type(error).__name__)")
        self.block(indent + 1, depth + 1, 1)
        if self.random.random() < 0.4:
            self.write(indent, "finally:")
            self.block(indent + 1, depth + 1, 1)

    def scope(self, indent, depth):
        kind = self.random.randrange(3)
        if kind == 0:
            self.write(indent, "with torch.no_grad():")
            self.block(indent + 1, depth + 1, self.random.randint(1, 2))
        else:
            self.write(indent, "with Scope(log, True):")
            self.block(indent + 1, depth + 1, self.random.randint(1, 2))
            if kind == 2:
                self.write(indent + 1, "raise ValueError('swallowed')")

    def closure(self, indent, depth):
        name, cell = f"g{self.names}", f"c{self.names}"
        self.names += 1
        self.write(indent, f"{cell} = {self.tensor()}")
        self.write(indent, f"def {name}(v, {cell}_now={cell}):")
        tensors, numbers = self.tensors, self.numbers
        self.tensors, self.numbers = ["v", f"{cell}_now", cell], ["2"]
        size = self.random.randint(1, 2)
        for _ in range(size):
            self.assign_local(indent + 1)
        self.write(indent + 1, f"return {self.expression()}")
        self.tensors, self.numbers = tensors, numbers
        self.write(indent, f"{self.tensor()} = {name}({self.tensor()})")

    def assign_local(self, indent):
        name = f"t{self.names}"
        self.names += 1
        self.write(indent, f"{name} = {self.expression()}")
        self.tensors.append(name)

    def generator(self, indent, depth):
        name = f"t{self.names}"
        self.names += 1
        self.write(indent, f"for {name} in stream({self.tensor()}, {self.random.randint(1, 3)}):")
        self.tensors.append(name)
        self.block(indent + 1, depth + 1, self.random.randint(1, 2))
        self.tensors.remove(name)

    # --- functions

    def function(self, name, size):
        is_root = name == "f"
        self.write(0, f"def {name}(x):" if is_root else f"def {name}(x, n):")
        self.tensors, self.numbers = ["x"], [] if is_root else ["n"]
        self.budget = 3 * size
        if not is_root:
            self.write(1, "log, items, table, thing = [], [x], {'first': x}, Thing(x)")
        else:
            self.write(1, "log, items, table = [], [], {}")
            self.write(1, "thing = Thing(torch.cos(x))")
            self.write(1, "x = x * 1")
        for _ in range(size):
            self.statement(1, 0)
        if is_root:
            results = ", ".join(self.tensors)
            self.write(1, f"return [{results}], items, table, log, thing.w, thing.hits, Thing.total, dict(STATE)")
        else:
            self.write(1, f"return torch.tanh({self.tensor()})")
        self.write(0, "")

    def program(self):
        for i in range(self.random.randint(0, 2)):
            self.function(f"helper{i}", self.random.randint(1, 3))
            self.helpers.append(f"helper{i}")
        self.function("f", self.random.randint(3, 9))
        return HEADER + "\n".join(self.lines)


def make_program(seed):
    """(source, number of places in it that end a compiled part)."""
    writer = Writer(seed)
    return writer.program(), writer.exits
