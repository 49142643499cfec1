"""Small programs as source text, and ways to put an exit at every place of one.

`PROGRAMS` maps a name to source that defines `f(x)`. `variants(source, kind)` yields one changed source a place:

- statement kinds put a statement in front of every statement of every function: `print`, an unlisted C call, a
  data-dependent branch that goes the other way on some calls, and an `.item()` that is kept;
- expression kinds wrap one expression at a time in a call that prints, or that branches on data, and returns its
  argument, so that the value stack is not empty where the exit is taken.

`run_twins(source)` executes a source in two namespaces and compares an eager and a compiled run of `f` over calls in
which `PROBE`, the tensor that inserted branches look at, changes its sign.
"""

import ast

import torch
from twins import Shape, assert_same, assert_same_outcome, backprop, compiled, outcome, rnd, seed, torch_state

from bench import stats

STATEMENTS = {
    "print": "print('exit', {place})",
    "c call": "SEEN.append(zlib.crc32(b'text'))",
    "branch": "if PROBE.sum() > 0:\n    SEEN.append({place})",
    "item": "SEEN.append(PROBE.sum().item())",
}
EXPRESSIONS = {"printing call": "SAY", "branching call": "CHOOSE"}
KINDS = [*STATEMENTS, *EXPRESSIONS]

#: sign of PROBE on each call
PROBES = [1.0, 1.0, -1.0, 1.0, -1.0]

PRELUDE = """
import contextlib, functools, zlib
import torch
from torch import nn

SEEN = []
PROBE = torch.ones(2)


def SAY(value):
    print("saying", type(value).__name__)
    return value


def CHOOSE(value):
    if PROBE.sum() > 0:
        return value
    SEEN.append("other way")
    return value
"""

PROGRAMS = {
    "a straight line": """
def f(x):
    a = x * 2
    b = a.sin() + x
    c = torch.cat([a, b])
    return c * 2, a
""",
    "nested calls with closures and keywords": """
def scale(x, *, by=2, **more):
    y = x * by
    return y + more.get("shift", 0)

def f(x):
    k = 3
    def inner(v, *rest):
        nonlocal k
        k = k + 1
        return scale(v, by=k, shift=len(rest)) + sum(rest)
    a = inner(x, 1, 2)
    b = inner(*[a, 3], **{})
    return a, b, k
""",
    "loops with break continue and else": """
def f(x):
    out = []
    for i, (name, w) in enumerate(zip("abcd", [1.0, 2.0, 3.0, 4.0])):
        if i == 1:
            continue
        x = x * w
        for j in range(3):
            if j == 2:
                break
            x = x + j
        else:
            out.append("never")
        out.append(name)
        if i == 3:
            break
    else:
        out.append("else")
    return x, out
""",
    "while loops": """
def f(x):
    n, out = 0, []
    while n < 4:
        n += 1
        y = x * n
        if n == 2:
            continue
        out.append(y)
        while len(out) > 2:
            out.pop(0)
    return torch.stack(out), n
""",
    "try except else finally": """
def risky(x, n):
    if n == 1:
        raise ValueError(n)
    if n == 2:
        return {}["k"]
    return x + n

def f(x):
    log = []
    for n in range(4):
        try:
            x = risky(x, n)
            log.append("fine")
        except ValueError as e:
            x = x * 2
            log.append(str(e))
        except KeyError:
            log.append("key")
            try:
                raise
            except KeyError as again:
                log.append(again.args)
        else:
            log.append("else")
        finally:
            x = x - 1
            log.append(n)
    return x, log
""",
    "an exception that leaves": """
def g(x, log):
    try:
        y = x * 2
        if len(log) > 1:
            raise KeyError("deep")
        return y
    finally:
        log.append("finally")

def f(x):
    log = []
    a = g(x, log)
    b = g(a, log)
    c = g(b, log)
    return a, b, c
""",
    "with blocks": """
class Scope:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append("in")
        return self.log
    def __exit__(self, kind, value, tb):
        self.log.append(kind.__name__ if kind else "out")
        return kind is ValueError

@contextlib.contextmanager
def scoped(log):
    log.append("start")
    try:
        yield len(log)
    finally:
        log.append("end")

def f(x):
    log = []
    with Scope(log) as l, torch.no_grad():
        x = x * 2
        l.append(torch.is_grad_enabled())
    with Scope(log):
        x = x + 1
        raise ValueError
    with scoped(log) as n:
        x = x * n
    return x, log, torch.is_grad_enabled()
""",
    "containers and comprehensions": """
def f(x):
    d = {"a": x, "b": x * 2}
    squares = [v * v for v in d.values()]
    table = {k: i for i, k in enumerate(d)}
    table.update(c=5)
    first, *rest = squares
    items = sorted(table.items(), key=lambda kv: -kv[1])
    nested = [[i + j for j in range(2)] for i in range(2)]
    d["a"] = first
    del d["b"]
    s = slice(0, 2)
    return d, rest, items, nested, x[s], {k for k in table if k > "a"}
""",
    "generators": """
def numbers(x, n):
    total = 0
    for i in range(n):
        got = yield x * i
        total += got or 1
    return total

def chained(x):
    t = yield from numbers(x, 2)
    yield x + t

def f(x):
    out = [v for v in numbers(x, 3)]
    g = numbers(x, 2)
    out.append(next(g))
    out.append(g.send(5))
    s = sum(chained(x))
    lazy = (v + 1 for v in out)
    return out, s, list(lazy)
""",
    "classes properties and super": """
class Base:
    count = 0
    def __init__(self, w):
        self.w = w
    @property
    def double(self):
        return self.w * 2
    @double.setter
    def double(self, v):
        self.w = v
    def go(self, x):
        return x + self.w
    def __getattr__(self, name):
        if name == "served":
            return 3
        raise AttributeError(name)

class Derived(Base):
    def __init__(self, w, extra=1):
        super().__init__(w)
        self.extra = extra
    def go(self, x):
        Base.count += 1
        return super().go(x) * self.extra
    @classmethod
    def make(cls, x):
        return cls(x, extra=2)
    def __add__(self, other):
        return Derived(self.w + other.w)

def f(x):
    a = Derived(x)
    b = Derived.make(x * 2)
    a.double = b.double + 1
    c = a + b
    y = a.go(x) + b.go(x) + c.w
    return y, a.served, getattr(a, "missing", None), Base.count
""",
    "recursion": """
def walk(tree, x, depth=0):
    if isinstance(tree, list):
        total = x * 0
        for t in tree:
            total = total + walk(t, x, depth + 1)
        return total
    return x * tree + depth

def f(x):
    y = walk([1, [2, [3]], 4], x)
    return y, walk(5, x)
""",
    "match statements": """
def pick(x, what):
    match what:
        case int(n) if n > 2:
            return x * n
        case [a, *rest]:
            y = x * a
            return y + len(rest)
        case {"k": v}:
            return x + v
        case str() as s:
            return x - len(s)
        case _:
            return x

def f(x):
    out = []
    for what in (5, [2, 3], {"k": 1}, "abc", None, 1):
        out.append(pick(x, what))
    return torch.stack(out)
""",
    "effects on inputs globals and attributes": """
class State:
    n = 0
STATE = State()
LOG = []
total = 0.0

def f(x):
    global total
    STATE.n += 1
    x.add_(1)
    LOG.append(x.sum())
    total = total + 0.5
    y = x * total
    y[0] = STATE.n
    STATE.last = y
    return y, len(LOG), total
""",
    "a module with hooks and buffers": """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = self.lin(x)
        self.seen += y.detach().sum(0)
        return torch.tanh(y) + x

torch.manual_seed(0)
NET = nn.Sequential(Layer(), nn.Dropout(0.5), Layer())
NET[0].register_forward_hook(lambda m, i, o: o * 2)

def f(x):
    h = x.expand(2, 3)
    for i, layer in enumerate(NET):
        h = layer(h) + i
    y = NET(h)
    return y, NET[0].calls, NET[2].seen.clone()
""",
    "a training step": """
torch.manual_seed(0)
NET = nn.Linear(3, 1)
OPT = torch.optim.SGD(NET.parameters(), lr=0.1, momentum=0.9)

def f(x):
    OPT.zero_grad()
    loss = NET(x).pow(2).sum()
    loss.backward()
    g = NET.weight.grad.clone()
    OPT.step()
    return loss.detach(), g, NET.weight.detach().clone()
""",
    "expressions of every kind": """
def f(x, k=2):
    a = x[0] if k > 1 else x[1]
    b = (x * k + 1) / (k - 0.5)
    c = f"{k:>3}|{x.shape[0]}" + "z" * k
    d = not (k and len(c) > 3) or k
    e = 1 < k < 5
    g = (lambda v, w=k: v + w)(b)
    h = {"k": [k, (k, -k)], **{"m": k}}
    i = [*h, *range(k)]
    (n := k + 1)
    j = x[1:n:1] @ x[:2]
    assert k == 2, "k"
    return a, b, c, d, e, g, h, i, j, n
""",
}


class Inserter(ast.NodeTransformer):
    """Puts `statement` in front of the n-th statement of function bodies; `count` is how many there are."""

    def __init__(self, statement, place):
        self.statement, self.place, self.count, self.depth = statement, place, 0, 0

    def visit_FunctionDef(self, node):
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    def visit_block(self, block):
        result = []
        for statement in block:
            if self.depth and not isinstance(statement, (ast.Global, ast.Nonlocal)):
                if self.count == self.place:
                    result += ast.parse(self.statement).body
                self.count += 1
            visited = self.visit(statement)
            result.append(visited)
        return result

    def generic_visit(self, node):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.visit_block(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


class Wrapper(ast.NodeTransformer):
    """Wraps the n-th loaded expression inside of functions in a call of `name`; `count` is how many there are."""

    KINDS = (ast.Name, ast.Call, ast.BinOp, ast.Attribute, ast.Subscript, ast.Compare, ast.Constant, ast.List, ast.Dict)

    def __init__(self, name, place):
        self.name, self.place, self.count, self.depth = name, place, 0, 0

    def visit_FunctionDef(self, node):
        self.depth += 1
        node.body = [self.visit(s) for s in node.body]
        self.depth -= 1
        return node

    def visit_Lambda(self, node):
        node.body = self.visit(node.body)
        return node

    def visit_MatchValue(self, node):
        return node

    def visit_MatchMapping(self, node):
        return node

    def visit_MatchClass(self, node):
        return node

    def visit_FormattedValue(self, node):
        node.value = self.visit(node.value)
        return node

    def generic_visit(self, node):
        super().generic_visit(node)
        is_loaded = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        is_super = isinstance(node, ast.Name) and node.id == "super"
        in_fstring = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if self.depth and isinstance(node, self.KINDS) and is_loaded and not is_super and not in_fstring:
            self.count += 1
            if self.count - 1 == self.place:
                return ast.copy_location(ast.Call(ast.Name(self.name, ast.Load()), [node], []), node)
        return node


def change(source, kind, place):
    """(changed source, number of places): `place` -1 only counts."""
    tree = ast.parse(source)
    if kind in STATEMENTS:
        editor = Inserter(STATEMENTS[kind].format(place=place), place)
    else:
        editor = Wrapper(EXPRESSIONS[kind], place)
    tree = ast.fix_missing_locations(editor.visit(tree))
    return ast.unparse(tree), editor.count


def variants(source, kind, step=1):
    """Every `step`-th changed source with its place."""
    _, count = change(source, kind, -1)
    for place in range(0, count, step):
        yield place, change(source, kind, place)[0]


def make_namespace(source, name="exits"):
    namespace = {"__name__": "test_program"}
    seed(0)
    exec(compile(PRELUDE + source, f"<program {name}>", "exec"), namespace)
    return namespace


def run_twins(source, name="exits", probes=PROBES, grads=False):
    """Compare an eager and a compiled run of the source's f; returns the compiled twin's counters (None in eager mode).

    probes: the sign of PROBE, one item a call. grads: the argument requires gradients, and they are compared.
    """
    spaces = [make_namespace(source, name), make_namespace(source, name)]
    programs = [spaces[0]["f"], compiled(spaces[1]["f"])]
    shapes = [Shape(), Shape()]
    for i, probe in enumerate(probes):
        found, facts, states = [], [], []
        for side, program in enumerate(programs):
            spaces[side]["PROBE"].fill_(probe)
            x = rnd(i, 3, grad=grads)
            seed(i)
            found.append(outcome(program, (x,), {}))
            if grads:
                backprop(found[-1].value)
            states.append((torch_state(), x, list(spaces[side]["SEEN"])))
            facts.append(shapes[side].facts((x, found[-1].value)))
            torch.set_grad_enabled(True)
        assert_same_outcome(found[1], found[0], f"call {i}")
        assert_same(states[1], states[0], f"global state, argument and log after call {i}")
        assert facts[1] == facts[0], f"call {i}: identity and sharing {facts[1]} instead of {facts[0]}"
    return stats.stats_of(programs[1])
