"""Dataclasses, named tuples, enums, metaclasses, subclasses of builtins: how their objects are made and compared."""

import collections
import copy
import dataclasses
import enum
import typing

import torch
from twins import ONE_ENTRY, call, check, check_function, rnd, vectors

Named = collections.namedtuple("Named", "a b")


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: int = 3
    c: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.a * self.b


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    name: str = dataclasses.field(default="x", compare=False)

    @property
    def double(self):
        return self.n * 2


@dataclasses.dataclass
class Checked:
    a: object
    scale: dataclasses.InitVar[float] = 2.0
    derived: object = dataclasses.field(init=False)

    def __post_init__(self, scale):
        if scale < 0:
            raise ValueError(f"scale is {scale}")
        self.derived = self.a * scale


class Typed(typing.NamedTuple):
    a: torch.Tensor
    n: int = 4

    def scaled(self):
        return self.a * self.n


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def factor(self):
        return self.value * 10.0


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


class OpName(str, enum.Enum):
    SIN = "sin"
    COS = "cos"


def test_dataclasses_are_made_read_and_changed():
    def f(x):
        p = Pair(x * 2)
        p.b += 1
        p.c.append(x)
        q = dataclasses.replace(p, b=7)
        return Pair(p.a + p.b, b=len(p.c)), p, q.total(), p == p, [n.name for n in dataclasses.fields(p)]

    check_function(f, vectors(4))


def test_a_dataclass_argument_is_read_and_written():
    def f(p, x):
        p.a = p.a + x
        p.b = p.b + 1
        p.c.append(p.b)
        return p.total()

    check_function(f, [call(Pair(rnd(i, 3)), rnd(i + 1, 3)) for i in range(4)], promise=ONE_ENTRY)


def test_frozen_ordered_dataclasses_and_their_errors():
    def f(x, n):
        p, q = Frozen(n), Frozen(n + 1, "y")
        try:
            p.n = 5
        except dataclasses.FrozenInstanceError as e:
            message = str(e)
        table = {p: x, q: x * 2}
        return table[Frozen(n)], p < q, hash(p) == hash(Frozen(n, "z")), p.double, message, repr(q)

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([1, 1, 1, 2, 1])])


def test_post_init_init_vars_and_raising_constructors():
    def f(x, scale):
        p = Checked(x, scale)
        return p.derived, sorted(vars(p)), dataclasses.asdict(Frozen(3))

    check_function(f, [call(rnd(i, 3), s) for i, s in enumerate([2.0, 2.0, -1.0, 2.0])])


def test_new_init_and_init_subclass():
    class Registry:
        names = []

        def __init_subclass__(cls, scale=1, **kw):
            super().__init_subclass__(**kw)
            cls.scale = scale
            Registry.names.append(cls.__name__)

    class Cached(Registry, scale=4):
        cache = {}

        def __new__(cls, key, x):
            if key not in cls.cache:
                cls.cache[key] = super().__new__(cls)
            return cls.cache[key]

        def __init__(self, key, x):
            self.key = key
            self.x = x

    def make():
        Cached.cache = {}

        def f(x):
            a, b = Cached("k", x), Cached("k", x * 2)
            return a is b, a.x * a.scale, Registry.names[-1]

        return f

    check(make, vectors(4))


def test_metaclasses_intercept_calls_and_attributes():
    class Meta(type):
        made = 0

        def __call__(cls, *args):
            Meta.made += 1
            thing = super().__call__(*args)
            thing.tag = "meta"
            return thing

        @property
        def scale(cls):
            return 3.0

        def __getattr__(cls, name):
            return name.upper()

        def __contains__(cls, x):
            return x == 1

    class Thing(metaclass=Meta):
        def __init__(self, x):
            self.x = x

    def make():
        Meta.made = 0

        def f(x):
            t = Thing(x)
            return t.x * Thing.scale, t.tag, Thing.missing, 1 in Thing, 2 in Thing, type(Thing).__name__

        return f

    check(make, vectors(4))


def test_classes_made_inside_the_function():
    def f(x):
        class Local:
            k = 2

            def __init__(self, v):
                self.v = v

            def get(self):
                return self.v * self.k

        Made = type("Made", (Local,), {"k": 5})
        return Local(x).get(), Made(x).get(), Made.__name__, issubclass(Made, Local)

    check_function(f, vectors(4))


def test_namedtuples_of_both_kinds():
    def f(x):
        t = Named(x, x + 1)
        a, b = t
        u = Typed(x)
        return (
            t.a * t[1] + a,
            t,
            t._replace(b=b * 2),
            u,
            u.scaled(),
            t._asdict(),
            u == u,
            Named._fields,
            Typed._make([x, 1]),
        )

    check_function(f, vectors(4))


def test_a_namedtuple_argument_comes_back_as_its_type():
    check_function(lambda t: (t._replace(a=t.a * t.n), t), [call(Typed(rnd(i, 3), 2)) for i in range(4)])


def test_enums_by_value_name_identity_and_flag():
    def f(x, color, level):
        scale = {Color.RED: 2.0, Color.GREEN: 3.0}[color]
        if color is Color.RED:
            x = x + 1
        if level > Level.LOW:
            x = x * level
        flags = Flags.A | Flags.B
        op = getattr(torch, OpName.SIN.value)
        names = [c.name for c in Color]
        return (
            op(x) * scale * color.factor,
            Color(2),
            Color["RED"],
            flags == Flags.AB,
            Flags.A in flags,
            names,
            level + 1,
        )

    calls = [
        (Color.RED, Level.LOW),
        (Color.RED, Level.LOW),
        (Color.GREEN, Level.HIGH),
        (Color.RED, Level.HIGH),
        (Color.GREEN, Level.HIGH),
    ]
    check_function(f, [call(rnd(i, 3), *c) for i, c in enumerate(calls)])


def test_copies_of_objects_that_hold_tensors():
    def f(x):
        p = Pair(x, 2, [x])
        shallow, deep = copy.copy(p), copy.deepcopy(p)
        shallow.c.append(1)
        return p, shallow, deep, deep.a is p.a, shallow.a is p.a

    check_function(f, vectors(4))


def test_copies_of_objects_made_in_the_call_that_change_or_die_afterwards():
    class Config:
        def __init__(self, k):
            self.k, self.name = k, "a"

    def f(x, n):
        changed = Config(2)
        before = copy.copy(changed)
        changed.k = n  # 2 while it is recorded
        kept = Config(n)
        kept = copy.deepcopy(kept)
        others = [Config(i) for i in range(20)]  # where the original was
        if kept.name == "a" and copy.copy(kept).k == kept.k:
            x = x * before.k
        return x + kept.k, before.k, before.name, len(others)

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([2, 2, 3, 4, 2])])


class Settings:
    def __init__(self, layers, name):
        self.layers, self.name, self.limit = layers, name, 3


def test_copies_of_copies_hold_what_the_first_object_holds():
    """Models copy their configuration, then each part copies that: known all the way, so loops over it end no trace."""
    settings = Settings(2, "wide")

    def f(x):
        first = copy.deepcopy(settings)
        first.limit = first.limit + 1
        second = copy.deepcopy(first)
        first.name = "narrow"
        kinds = [second.name for _ in range(second.layers)]
        for kind, _ in zip(kinds, (i for i in range(second.layers)), strict=False):
            x = x * 2 if kind == "wide" else x + 1
        return x + second.limit, second.name, first.name, hasattr(second, "missing")

    check_function(f, vectors(4), promise=ONE_ENTRY)

    def changing(x, layers, name):
        settings.layers, settings.name = layers, name
        return f(x)

    check_function(
        changing, [call(rnd(i, 3), *c) for i, c in enumerate([(2, "wide"), (2, "wide"), (3, "wide"), (1, "other")])]
    )


def test_generic_classes_and_class_getitem():
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, v: T):
            self.v = v

    class Item:
        def __class_getitem__(cls, k):
            return k * 2

    check_function(lambda x: (Box[torch.Tensor](x).v * Item[3], Box(x).v), vectors(4))


def test_builtin_subclasses_keep_their_own_state():
    class Log(list):
        def append(self, v):
            super().append(v)
            self.last = v

    class Default(dict):
        def __missing__(self, k):
            self[k] = k * 2.0
            return self[k]

    class Scale(float):
        def __mul__(self, o):
            return o * (float(self) + 1)

    def make():
        log, table = Log(), Default()

        def f(x):
            log.append(len(log))
            return Scale(2.0) * x * table[3.0], log.last, dict(table), list(log), len(log)

        f.log, f.table = log, table
        return f

    check(make, vectors(4), post=lambda f: (list(f.log), f.log.last, dict(f.table)))


class Ratio(float, enum.Enum):
    HALF = 0.5
    TWO = 2.0


def test_members_that_are_strings_or_numbers_are_compared_by_their_value():
    def f(x, name, level, ratio, n, text):
        flags = [name == "sin", name != "sin", "cos" == name, name == text, name < "d", name in ("sin", "x")]
        flags += [level == 1, level >= Level.HIGH, level < n, n <= level, ratio < 1, level == ratio * 2, -level < 0]
        value = x * ratio * level + level * 2 - (1 - level) + level // 2 + n**level + (level or 7)
        return value, flags, name + "!", level % 3, name == OpName.SIN, "%s" % text, {"sin": 1}.get(name)

    cases = [(OpName.SIN, Level.LOW, Ratio.HALF, 1, "sin"), (OpName.COS, Level.HIGH, Ratio.TWO, 5, "cos")]
    check_function(f, [call(rnd(i, 3), *cases[0]) for i in range(4)], promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), *cases[i % 2]) for i in range(6)])


def test_members_of_enums_as_keys_of_dicts_that_existed_before():
    def make():
        scales = {OpName.SIN: 2.0, OpName.COS: 3.0}
        colors, levels, mixed = {Color.RED: 1.0}, {Level.LOW: 4.0}, {"sin": 7.0, 1: 8.0}

        def f(x, color, change):
            if change:
                colors[Color.GREEN] = colors[Color.RED] + 1
            known = color in colors, Color.GREEN in colors
            y = x * scales[OpName.SIN] + levels[Level.LOW] * mixed[OpName.SIN]
            return y + mixed[Level.LOW] + colors[color], known

        f.colors = colors
        return f

    check(make, [call(rnd(i, 3), Color.RED, False) for i in range(4)], promise=ONE_ENTRY)
    check(make, [call(rnd(i, 3), Color.RED, i in (2, 4)) for i in range(7)], post=lambda f: f.colors)


def test_a_python_new_runs_once_for_each_object():
    class Point:
        def __new__(cls, x, **options):
            self = object.__new__(cls)
            self.x = x + 1
            return self

        def __init__(self, x, keep=None):
            self.keep = keep

    class Table(dict):
        def __new__(cls, *args):
            self = dict.__new__(cls)
            self.made_by = len(args)
            return self

    def f(x):
        return Point(x, keep=x * 2).__dict__, Table({"a": x}), Point(x).x

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_objects_with_a_python_new_leave_the_function():
    class Point:
        def __new__(cls, x):
            self = object.__new__(cls)
            self.x = x
            return self

    kept = []

    def f(x):
        kept.append(Point(x + 1))
        return kept.pop().x * 2

    check_function(f, vectors(4))


def test_a_dict_whose_class_forbids_stores_is_filled_by_its_base():
    class Frozen(dict):
        def __new__(cls, *args, **kwargs):
            self = dict.__new__(cls)
            dict.__init__(self, *args, **kwargs)
            return self

        def __init__(self, *args, **kwargs):
            pass

        def __setitem__(self, key, value):
            raise TypeError("frozen")

    def f(x):
        frozen = Frozen({"a": x, "b": 2}, c=x + 1)
        return frozen["a"] + frozen["c"], sorted(frozen)

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_arguments_of_a_type_alias_are_read():
    field: type = int | str
    row = list[int]

    def f(x):
        return x + len(field.__args__), row.__origin__ is list, typing.get_args(row)

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_vars_dir_and_dict_access():
    def make():
        p = Pair(torch.ones(3))

        def f(x):
            vars(p)["b"] = vars(p)["b"] + 1
            p.__dict__["extra"] = p.__dict__.get("extra", 0) + 2
            return x * p.b + p.extra, sorted(vars(p)), "extra" in dir(p)

        f.p = p
        return f

    check(make, vectors(4), post=lambda f: vars(f.p))
