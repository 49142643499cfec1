"""Seeded random programs of Python's own features, with a little work on tensors between: the same seed, the same text.

Statements and expressions are forms with typed holes: {i} a whole number, {t} a tensor, {l} a list of numbers, {d} a
dict, {s} a text, {o} an object, {g} an iterator, {c} a condition. Nothing keeps them from raising: exceptions, where
they were raised and what ran until then are compared like results.
"""

import random

HEADER = '''
import contextlib, functools, itertools, operator, collections
import torch
LOG = []
STATE = {"n": 1, "a": 2}
LIMIT = 3
WEIGHT = torch.linspace(-1, 1, 3)

class Thing:
    scale = 2
    made = 0
    def __init__(self, count=1):
        self.count = count
        self.items = [1, 2, 3]
        self.w = WEIGHT
        Thing.made += 1
    @property
    def double(self):
        LOG.append("get")
        return self.count * self.scale
    @double.setter
    def double(self, value):
        LOG.append("set")
        self.count = value // 2
    def __getattr__(self, name):
        if name.startswith("dyn"):
            LOG.append(name)
            return len(name)
        raise AttributeError(f"no {name} here")
    def __add__(self, other):
        return self.count + (other.count if isinstance(other, Thing) else other)
    __radd__ = __add__
    def __iadd__(self, other):
        self.count += int(other)
        return self
    def __eq__(self, other):
        LOG.append("eq")
        return isinstance(other, Thing) and self.count == other.count
    def __hash__(self):
        return 7
    def __lt__(self, other):
        return self.count < (other.count if isinstance(other, Thing) else other)
    def __getitem__(self, k):
        if isinstance(k, slice):
            return self.items[k]
        return self.items[k]
    def __setitem__(self, k, v):
        self.items[k] = v
    def __delitem__(self, k):
        LOG.append(("del item", k))
        del self.items[k]
    def __contains__(self, v):
        LOG.append("in")
        return v in self.items
    def __len__(self):
        return len(self.items)
    def __bool__(self):
        LOG.append("bool")
        return self.count > 0
    def __iter__(self):
        yield from self.items
    def __call__(self, t, by=1):
        return t * by + self.count
    def __repr__(self):
        return f"Thing({self.count})"
    def __format__(self, spec):
        return f"<{self.count}:{spec}>"
    def __enter__(self):
        LOG.append("enter")
        return self.count
    def __exit__(self, kind, value, tb):
        LOG.append(("exit", kind and kind.__name__))
        return self.count > 2 and kind is not None and issubclass(kind, (ValueError, KeyError))
    @classmethod
    def make(cls, n):
        return cls(n)
    @staticmethod
    def twice(n):
        return 2 * n
    def grow(self, by=1):
        self.count += by
        return self

class Child(Thing):
    scale = 5
    def __init__(self, count=0):
        super().__init__(count)
        self.extra = []
    def grow(self, by=2):
        self.extra.append(by)
        return super().grow(by)
    @property
    def double(self):
        return super().double + 1

class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, obj, kind=None):
        LOG.append("typed get")
        return self if obj is None else obj.__dict__.get(self.name, 0)
    def __set__(self, obj, value):
        LOG.append(("typed set", value))
        if value > 50:
            raise ValueError(f"{value} is too large")
        obj.__dict__[self.name] = value

class Slotted:
    __slots__ = ("x", "y", "__weakref__")
    def __init__(self, x):
        self.x = x

class Holder(Thing):
    value = Typed()

class Dies:
    """Tells when it dies."""
    def __init__(self, name):
        self.name = name
    def __del__(self):
        LOG.append(f"dead {self.name}")

class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()
    def __add__(self, other):
        return Point(self.x + other[0], self.y + other[1])

@contextlib.contextmanager
def scope(n):
    LOG.append(("in", n))
    try:
        yield n + 1
    except ValueError as e:
        LOG.append(("swallowed", str(e)))
    finally:
        LOG.append(("out", n))

def counted(function):
    calls = 0
    @functools.wraps(function)
    def inner(*args, **kwargs):
        nonlocal calls
        calls += 1
        LOG.append((function.__name__, calls))
        return function(*args, **kwargs)
    return inner

def stream(n, step=1):
    try:
        for k in range(n):
            got = yield k * step
            if got is not None:
                LOG.append(("got", got))
    except KeyError:
        LOG.append("thrown")
        yield -5
    finally:
        LOG.append(("closed", n))

def chained(n):
    r = yield from stream(n, 2)
    yield 100
    return r

def fact(n):
    return 1 if n <= 0 else n * fact(n - 1) % 101

def spread(a, b=2, *rest, k=3, **more):
    return a + b * 2 + sum(rest) * 3 + k * 5 + sum(more.values()) * 7

def soften(t, n=2):
    for _ in range(n % 4):
        t = torch.tanh(t + 1)
    return t

def fail(n):
    if n % 3 == 0:
        raise KeyError(n)
    if n % 3 == 1:
        raise ValueError(f"bad {n}")
    return n
'''

INTS = """{i} + {i};{i} - {i};{i} * 3;{i} % 5;{i} // 2;-{i};{i} // ({i} % 3);len({l});sum({l});max({i}, {i});min({l});{l}[{i} % 4];{l}[-1];{l}.index({i});{l}.count({i})
{d}.get('a', {i});{d}['a'];{d}[{i}];len({d});sum(v for v in {d}.values() if isinstance(v, int));{o}.count;{o}.double;{o}.dyn_x;{o}.missing;{o} + {i};{i} + {o};{o}[{i} % 3];{o}[1:][0];len({o});{o}.twice({i});{o}.scale
STATE['n'];LIMIT;fact({i} % 6);spread({i}, {i});spread({i}, k={i});spread(*{l});spread({i}, **{{'z': {i}}});fail({i});next({g}, -1);next({g});sum({g});(lambda v, w={i}: v * w)({i})
{i} if {c} else {i};{i} and {i};{i} or {i};int({c});({i}, {i})[{i} % 2];{t}.shape[0];int({t}.sum() > 0);int({t}.sum().item() > 0.5);abs({i});divmod({i}, 3)[1];int('12');len({s});ord({s}[0]);{s}.find('a');bool({o}) + 1
Thing.made;Thing.scale;sum([k * 2 for k in {l}]);len({{k % 3 for k in {l}}});sum(a * b for a, b in zip({l}, {l}));functools.reduce(operator.add, {l}, {i});len([k for k in {l} if k in {o}]);max({l}, key=lambda v: -v);sorted({l})[0];Point({i}, 2).x;(Point(1, {i}) + (2, 3)).y;len(list(itertools.chain({l}, {l})));isinstance({o}, Child);next(iter({d}.values()));next(reversed({l}));any(v > 2 for v in {l});all({l});hash({i}) % 7;int(f"{{{i}}}");{i} ** 2 % 11;{i} << 1;{i} & 6;~{i};round({i} / 3);getattr({o}, 'count');getattr({o}, 'nope', {i});hasattr({o}, 'extra');callable({o});{o}.grow({i} % 3).count;pop({l});(n9 := {i}) + n9"""
TENSORS = """{t} + {t};{t} * {i};torch.tanh({t});{t}.sin();{t} - 1;soften({t});soften({t}, {i});{o}({t});{o}({t}, by={i});torch.where({t} > 0, {t}, -{t});WEIGHT + {t};{o}.w * 2;torch.stack([{t}, {t}]).mean(0);sum([{t} * k for k in {l}[:2]], {t});{t} if {c} else {t};{t}.clone();(lambda v: v * 0.5)({t});torch.maximum({t}, {t});{t}.flip(0);{t}.cumsum(0).tanh();functools.reduce(torch.add, [{t}, {t}]);{t} / 2"""
TEXTS = """'a' + {s};f"{{{i}}}-{{{i}:>4}}";f"{{{o}!r}}";f"{{{o}:x}}";str({i});'%d/%s' % ({i}, {s});{s}.upper();'-'.join(map(str, {l}));{s}[::-1];'{{}} {{}}'.format({i}, {s});repr({l});{s} * 2;f"{{{i} / 4:.2f}}";type({o}).__name__;{s}.replace('a', 'b');str({o});f"{{{s}!r:>6}}";', '.join(sorted(str(k) for k in {d}))"""
LISTS = """[{i}, {i}];[*{l}, {i}];{l} + [{i}];{l}[::-1];{l}[1:];sorted({l});[k + {i} for k in {l}];[k for k in {l} if k > {i}];list(range({i} % 5));list({g});list({o});[a * b for a in {l}[:2] for b in {l}[:2]];list(map(fact, {l}[:1]));list(filter(None, {l}));[v for _, v in sorted({d}.items(), key=str) if isinstance(v, int)];{l}.copy();{o}.items;[x for x, *_ in [{l}] if {l}];list(itertools.accumulate({l}[:3]));list(itertools.islice({g}, 2));list(dict.fromkeys({l}));[k for k, _ in itertools.groupby({l})];[i for i, v in enumerate({l}) if v]"""
DICTS = """{{'a': {i}, 'b': {i}}};{{**{d}, 'c': {i}}};dict(a={i});{{k: v for k, v in {d}.items()}};{{k: k * 2 for k in {l}[:3]}};dict(zip('ab', {l}));{d} | {{'z': {i}}};{d}.copy();collections.Counter({l}[:4]);dict(sorted({d}.items(), key=str));collections.defaultdict(int, {d});collections.OrderedDict(b={i}, a={i})"""
OBJECTS = """Thing({i});Child({i});Thing.make({i});Child.make(2);Holder();{o}.grow();Holder({i});{o} or Thing(1);max({o}, {o});type({o})(3)"""
ITERATORS = """iter({l});stream({i} % 5);chained({i} % 3);(k * 2 for k in {l});zip({l}, {l});map(fact, {l}[:2]);enumerate({l});iter({d}.copy());reversed({l});filter(lambda v: v > 1, {l});itertools.count({i});itertools.cycle([1, 2]);iter({o});iter(lambda: len({l}), 3)"""
CONDITIONS = """{i} > {i};{i} == 2;{c} and {c};not {c};{c} or {c};{i} in {l};'a' in {d};{i} in {o};{o};{l};{d};{s};{i} < {i} < 5;{o} == {o};{o} < {i};{o} is {o};isinstance({o}, Child);{t}.sum() > 0;({t} > 0).any();{t}.sum().item() > 0.3;{t} is {t};{s} == 'a';{l} == {l};{s} < 'b';{l} is None;{i} != {i};{d} == {d};type({o}) is Thing;STATE['n'] > 2;{t}.shape[0] == 3"""

SIMPLE = """{l}.append({i});{l}.extend({l}[:2]);{l}[0] = {i};{l}.insert(0, {i});{l}.pop();{l}.sort();{l}.reverse();{l}.remove({i});del {l}[0];{l}[1:2] = [{i}, {i}];{l} += [{i}];{l}.clear();del {l}[:]
{d}['a'] = {i};{d}[{i}] = {i};{d}.setdefault('k', {i});{d}.update(z={i});{d}.pop('a', None);{d}.pop('q');del {d}['a'];{d}['a'] += {i};{d}.clear();{d}.popitem();{d} |= {{'m': {i}}}
{o}.count = {i};{o}.double = {i};{o}.count += {i};{o} += {i};{o}[0] = {i};del {o}[0];{o}.extra.append({i});{o}.new = {i};del {o}.new;{o}.items.append({i});{o}.value = {i};{o}.w = {t};setattr({o}, 'count', {i});Thing.scale = {i};Thing.made += 1;delattr({o}, 'count');{o}.__class__ = Child;{o}.__dict__['count'] = {i}
STATE['n'] += 1;STATE['t'] = {t};LOG.append({i});LOG.append({s});LOG.append({l}[:3]);LOG.append(sorted(map(str, {d})));LOG.append(({i}, {c}));LOG.append(next({g}, None));{g}.close();LOG.append({g}.send(None));{g}.throw(KeyError('k'));LOG.append(str({o}));print({i}, {s});Dies({s});LOG.append({t}.sum().item() > 0)
assert {c}, {s};assert {c};raise ValueError({s});raise KeyError({i});fail({i});{i} / 0;raise Thing;raise RuntimeError('r') from ValueError({i});LOG.append(sum({g}))
WEIGHT.mul_(1);STATE['t'] = {t}.tanh();{l}[:] = {l}[:4];LOG.append(bool({o}));LOG.append({o} == {o});LOG.append({{k for k in {l}[:3]}});LOG.append(type({o}).__mro__[0].__name__)"""


def forms(text):
    return [form.strip() for line in text.strip().splitlines() for form in line.split(";")]


INTS, TENSORS, TEXTS, LISTS, DICTS = (forms(x) for x in (INTS, TENSORS, TEXTS, LISTS, DICTS))
OBJECTS, ITERATORS, CONDITIONS, SIMPLE = (forms(x) for x in (OBJECTS, ITERATORS, CONDITIONS, SIMPLE))
INTS = [form for form in INTS if not form.startswith("pop(")]
TABLES = {"i": INTS, "t": TENSORS, "s": TEXTS, "l": LISTS, "d": DICTS, "o": OBJECTS, "g": ITERATORS, "c": CONDITIONS}
ERRORS = "ValueError;KeyError;(ValueError, KeyError);Exception;(IndexError, ValueError, TypeError);ZeroDivisionError;StopIteration;AttributeError;LookupError"
ERRORS = ERRORS.split(";")
BETWEEN = [
    "STATE['n'] += 1",
    "Thing.scale += 1",
    "LIMIT = 5",
    "WEIGHT = WEIGHT * 2",
    "spread.__defaults__ = (4,)",
    "soften.__defaults__ = (1,)",
    "WEIGHT.add_(0.5)",
    "Thing.twice = staticmethod(lambda n: 3 * n)",
    "fact = lambda n: n + 1",
    "Child.scale = 9",
    "del Child.scale",
    "STATE['a'] = 'text'",
    "Thing.__len__ = lambda self: 4",
    "Thing.count = property(lambda self: 11, lambda self, v: None)",
    "OUTER.append(1)",
    "Thing.__bool__ = lambda self: False",
    "fail.__code__ = fact.__code__",
]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.body = []
        self.names = 0
        self.scope = {"i": [], "t": [], "s": [], "l": [], "d": [], "o": [], "g": [], "c": []}
        self.loops = 0
        self.is_generator = False

    def fresh(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    def expression(self, kind, depth=0):
        r = self.random
        known = self.scope[kind]
        plain = {"i": ["0", "1", "2", "3", "4", "7", "n"], "t": ["x"], "s": ["'a'", "'ba'"], "l": ["[1, 2]", "[3]"]}
        plain |= {
            "d": ["{'a': 1}", "STATE"],
            "o": ["Thing(2)", "OBJECT"],
            "g": ["iter([1, 2])"],
            "c": ["True", "n > 1"],
        }
        if depth >= 2 or r.random() < (0.5 if depth else 0.1):
            if known and r.random() < 0.8:
                return r.choice(known[-5:])
            return r.choice(plain[kind])
        form = r.choice(TABLES[kind])
        text = self.fill(form, depth + 1)
        return f"({text})" if kind in "itc" and depth else text

    def fill(self, form, depth=0):
        parts, i = [], 0
        while i < len(form):
            if form.startswith("{{", i) or form.startswith("}}", i):
                parts.append(form[i])
                i += 2
            elif form[i] == "{" and form[i + 2 : i + 3] == "}":
                parts.append(self.expression(form[i + 1], depth))
                i += 3
            else:
                parts.append(form[i])
                i += 1
        return "".join(parts)

    def name_of(self, kind):
        known = self.scope[kind]
        return self.random.choice(known[-4:]) if known else None

    def write(self, indent, text):
        self.body.append((indent, text))

    def assign(self, indent):
        r = self.random
        kind = r.choices("itsldogc", [8, 9, 3, 5, 3, 4, 3, 2])[0]
        text = self.expression(kind)
        if kind == "i":
            text = f"({text}) % 97"
        old = self.name_of(kind)
        name = old if old and r.random() < 0.35 else self.fresh(kind)
        self.write(indent, f"{name} = {text}")
        if name not in self.scope[kind]:
            self.scope[kind].append(name)

    def simple(self, indent):
        form = self.random.choice(SIMPLE)
        # what is written to is a variable
        for kind in "ldog":
            hole = "{" + kind + "}"
            if form.startswith(hole) or form.startswith("del " + hole):
                name = self.name_of(kind)
                if name is None:
                    return self.assign(indent)
                form = form.replace(hole, name, 1)
        first = form.split()[0] if form.split() else ""
        if first in ("raise", "assert") and self.random.random() < 0.6:
            self.write(indent, f"if {self.expression('c', 1)}:")
            indent += 1
        self.write(indent, self.fill(form, 1))
        return None

    def block(self, indent, size, **names):
        saved = {k: list(v) for k, v in self.scope.items()}
        for kind, name in names.items():
            self.scope[kind].append(name)
        for _ in range(size):
            self.statement(indent)
        self.scope = saved

    def statement(self, indent):
        r = self.random
        if indent < 4 and r.random() < 0.42:
            kinds = [self.branch, self.loop, self.while_loop, self.attempt, self.with_block, self.closure]
            kinds += [
                self.match,
                self.generator,
                self.leave,
                self.unpack,
                self.comprehension,
                self.local_class,
                self.recursion,
            ]
            return r.choice(kinds)(indent)
        if r.random() < 0.6:
            return self.assign(indent)
        if r.random() < 0.5:
            return self.simple(indent)
        self.write(indent, "try:")
        self.simple(indent + 1)
        self.write(indent, f"except {r.choice(['Exception', 'Exception', r.choice(ERRORS)])} as e:")
        return self.write(indent + 1, "LOG.append(repr(e))")

    def branch(self, indent):
        self.write(indent, f"if {self.expression('c')}:")
        self.block(indent + 1, self.random.randint(1, 3))
        if self.random.random() < 0.3:
            self.write(indent, f"elif {self.expression('c')}:")
            self.block(indent + 1, self.random.randint(1, 2))
        if self.random.random() < 0.5:
            self.write(indent, "else:")
            self.block(indent + 1, self.random.randint(1, 2))

    def loop(self, indent):
        r = self.random
        a, b = self.fresh("i"), self.fresh("i")
        header, names = r.choice(
            [
                (f"for {a} in range({r.randint(1, 4)}):", {"i": a}),
                (f"for {a} in {self.expression('l')}[:4]:", {"i": a}),
                (f"for {a}, {b} in enumerate({self.expression('l')}[:3]):", {"i": b}),
                (f"for {a} in itertools.islice({self.expression('g')}, 3):", {}),
                (f"for {a} in list({self.expression('d')}):", {}),
                (f"for {a}, {b} in {self.expression('d')}.items():", {}),
                (f"for {a}, {b} in zip({self.expression('l')}, {self.expression('l')}[:3]):", {"i": a}),
                (f"for {a} in ({self.expression('t')}, {self.expression('t')}):", {"t": a}),
                (f"for {a} in itertools.islice({self.expression('o')}, 4):", {"i": a}),
            ]
        )
        self.write(indent, header)
        self.loops += 1
        self.block(indent + 1, r.randint(1, 3), **names)
        self.loops -= 1
        if r.random() < 0.2:
            self.write(indent, "else:")
            self.block(indent + 1, 1)

    def while_loop(self, indent):
        name = self.fresh("w")
        self.write(indent, f"{name} = 0")
        self.write(indent, f"while {name} < {self.random.randint(1, 4)} and {self.expression('c')}:")
        self.write(indent + 1, f"{name} += 1")
        self.loops += 1
        self.block(indent + 1, self.random.randint(1, 3), i=name)
        self.loops -= 1
        if self.random.random() < 0.2:
            self.write(indent, "else:")
            self.block(indent + 1, 1)

    def attempt(self, indent):
        r = self.random
        self.write(indent, "try:")
        self.block(indent + 1, r.randint(1, 3))
        handlers = r.randint(0, 2)
        for _ in range(handlers):
            self.write(indent, f"except {r.choice(ERRORS)} as e:")
            self.write(
                indent + 1, r.choice(["LOG.append(repr(e))", "LOG.append(type(e).__name__)", "LOG.append(e.args)"])
            )
            self.block(indent + 1, r.randint(0, 1))
            if r.random() < 0.15:
                self.write(
                    indent + 1, r.choice(["raise", "raise ValueError('again') from e", "raise KeyError('other')"])
                )
        if handlers and r.random() < 0.3:
            self.write(indent, "else:")
            self.block(indent + 1, 1)
        if not handlers or r.random() < 0.4:
            self.write(indent, "finally:")
            loops, self.loops = self.loops, 0
            self.block(indent + 1, 1)
            self.loops = loops

    def with_block(self, indent):
        name = self.fresh("i")
        header = self.random.choice(
            [
                f"with {self.expression('o')} as {name}:",
                f"with scope({self.expression('i')}) as {name}:",
                f"with scope(1), {self.expression('o')} as {name}:",
                f"with contextlib.suppress({self.random.choice(ERRORS)}) as {name}:",
                f"with torch.no_grad() as {name}:",
                f"with contextlib.nullcontext({self.expression('i')}) as {name}:",
                f"with contextlib.ExitStack() as {name}:",
            ]
        )
        self.write(indent, header)
        if "ExitStack" in header:
            self.write(indent + 1, f"{name}.callback(LOG.append, {self.expression('i', 1)})")
            self.write(indent + 1, f"{name}.enter_context({self.expression('o', 1)})")
        self.block(indent + 1, self.random.randint(1, 3), **({"i": name} if "scope" in header else {}))

    def closure(self, indent):
        r = self.random
        f, p, q = self.fresh("f"), self.fresh("i"), self.fresh("t")
        decorator = r.choice([None, None, "@counted", "@functools.lru_cache(None)"])
        outer = self.name_of("i")
        if decorator:
            self.write(indent, decorator)
        self.write(indent, f"def {f}({p}, {q}=x, *rest, key={self.expression('i', 1)}):")
        if outer and r.random() < 0.6 and outer[0] != "w" and outer != "n" and not self.in_function:
            self.write(indent + 1, f"nonlocal {outer}")
            self.write(indent + 1, f"{outer} = ({self.expression('i', 1)}) % 97")
        function, loops = self.in_function, self.loops
        self.in_function, self.loops = True, 0
        saved = {k: list(v) for k, v in self.scope.items()}
        self.readonly = True
        for kind, name in (("i", p), ("t", q)):
            self.scope[kind] = [name]
        for kind in "sldogc":
            self.scope[kind] = []
        for _ in range(r.randint(0, 2)):
            self.statement(indent + 1)
        self.write(indent + 1, f"return {self.expression('i')}, {self.expression('t')}")
        self.scope = saved
        self.in_function, self.loops = function, loops
        i, t = self.fresh("i"), self.fresh("t")
        call = r.choice(
            [
                f"{f}({self.expression('i', 1)})",
                f"{f}(1, {self.expression('t', 1)})",
                f"{f}(2, key=3)",
                f"functools.partial({f}, 2)()",
            ]
        )
        self.write(indent, f"{i}, {t} = {call}")
        self.scope["i"].append(i)
        self.scope["t"].append(t)

    def generator(self, indent):
        g, k = self.fresh("g"), self.fresh("i")
        if self.random.random() < 0.4:
            self.write(indent, f"{g} = stream({self.expression('i', 1)} % 4)")
            self.write(indent, f"LOG.append(next({g}, None))")
            if self.random.random() < 0.5:
                self.write(indent, f"LOG.append({g}.send({self.expression('i', 1)}))")
        else:
            self.write(indent, f"def {g}_(k):")
            function, loops = self.in_function, self.loops
            self.in_function, self.loops = True, 0
            saved = {kind: list(v) for kind, v in self.scope.items()}
            for kind in "itsldogc":
                self.scope[kind] = ["k"] if kind == "i" else []
            self.write(indent + 1, f"for {k} in range(k):")
            self.loops = 1
            self.scope["i"].append(k)
            self.statement(indent + 2)
            self.write(indent + 2, f"yield {self.expression('i', 1)}")
            self.loops = 0
            self.write(indent + 1, f"yield from {self.expression('l', 1)}")
            self.scope = saved
            self.in_function, self.loops = function, loops
            self.write(indent, f"{g} = {g}_({self.random.randint(0, 3)})")
        self.scope["g"].append(g)

    def match(self, indent):
        a, b = self.fresh("i"), self.fresh("i")
        subject = self.random.choice(["({i}, {i})", "{l}", "{d}", "{o}", "{s}", "{i}"])
        self.write(indent, f"match {self.fill(subject, 1)}:")
        cases = [
            f"case [{a}, {b}]:",
            f"case [{a}, *{b}]:",
            f"case {{'a': {a}, **{b}}}:",
            f"case Child(count={a}):",
            f"case Thing(count={a}) if {self.expression('c', 1)}:",
            "case 1 | 2:",
            "case str():",
            f"case ({a}, 2) as {b}:",
            "case []:",
            f"case int({a}):",
        ]
        self.random.shuffle(cases)
        for case in cases[: self.random.randint(1, 3)]:
            self.write(indent + 1, case)
            self.block(indent + 2, 1)
        self.write(indent + 1, "case _:")
        self.block(indent + 2, 1)

    def leave(self, indent):
        if self.loops and self.random.random() < 0.7:
            self.write(indent, f"if {self.expression('c')}:")
            self.write(indent + 1, self.random.choice(["break", "continue"]))
        elif not self.in_function and self.random.random() < 0.3:
            self.write(indent, f"if {self.expression('c')}:")
            self.write(indent + 1, f"return {self.expression('i')}, {self.expression('t')}")
        else:
            self.simple(indent)

    def unpack(self, indent):
        a, b, c = self.fresh("i"), self.fresh("l"), self.fresh("i")
        text = self.random.choice(
            [
                f"{a}, *{b} = {self.expression('l')}",
                f"{a}, {c} = {self.expression('i')}, {self.expression('i')}",
                f"*{b}, {a} = [1, *{self.expression('l')}]",
                f"({a}, {c}), *{b} = [(1, 2), {self.expression('i')}]",
                f"{a} = {c} = {self.expression('i')}",
                f"{a}, {c} = {self.expression('o')}[:2]",
            ]
        )
        self.write(indent, text)
        self.scope["i"].append(a)
        if b in text:
            self.scope["l"].append(b)

    def comprehension(self, indent):
        name, k = self.fresh("l"), self.fresh("i")
        saved = list(self.scope["i"])
        self.scope["i"] = [*saved, k]
        inner = f"[{self.expression('i')} for {k} in range({self.random.randint(1, 3)}) if {self.expression('c', 1)}]"
        self.scope["i"] = saved
        self.write(indent, f"{name} = {inner}")
        self.scope["l"].append(name)

    def local_class(self, indent):
        c, o = self.fresh("C"), self.fresh("o")
        self.write(indent, f"class {c}({self.random.choice(['Thing', 'Child', 'Holder'])}):")
        self.write(indent + 1, f"count = {self.expression('i', 2)}" if self.random.random() < 0.3 else "tag = 1")
        self.write(indent + 1, "def __len__(self):")
        self.write(indent + 2, "return super().__len__() + 1")
        self.write(indent, f"{o} = {c}({self.expression('i', 1)})")
        self.scope["o"].append(o)

    def recursion(self, indent):
        f = self.fresh("f")
        self.write(indent, f"def {f}(k, t):")
        self.write(indent + 1, "if k <= 0:")
        self.write(indent + 2, f"{self.random.choice(['return t', 'raise ValueError(k)', 'return t * 2'])}")
        self.write(indent + 1, f"return {f}(k - 1, t.sin()) + k")
        t = self.fresh("t")
        self.write(indent, f"{t} = {f}({self.random.randint(0, 4)}, {self.expression('t', 1)})")
        self.scope["t"].append(t)

    def program(self):
        r = self.random
        self.in_function = False
        for _ in range(r.randint(4, 14)):
            self.statement(1)
        results = [name for kind in "itsldo" for name in self.scope[kind]]
        r.shuffle(results)
        self.write(1, f"return {', '.join(results[:8] or ['n'])},")
        calls = []
        for k in range(r.randint(3, 6)):
            between = [r.choice(BETWEEN)] if k > 1 and r.random() < 0.45 else []
            number = r.choice([2, 2, 2, 0, 1, 3, 5]) if k else 2
            calls.append((r.randrange(1000) if r.random() < 0.6 else 5, number, between))
        return {"body": self.body, "calls": calls, "plain": r.random() < 0.5}


def make_program(seed):
    """{"body": [(indent, text)], "calls": [(seed of x, n, [what runs before])], "plain": keep plain entries}."""
    for k in range(20):
        program = Writer(seed + k * 1_000_003).program()
        try:
            compile(source(program), "<fuzz>", "exec")
            return program
        except SyntaxError:
            pass
    return None


def source(program):
    lines = ["OBJECT = Child(3)", "OUTER = []", "def f(x, n):"]
    lines += ["    " * indent + text for indent, text in program["body"]]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"
