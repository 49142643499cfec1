"""Python's object model: attribute access, descriptors, operators and protocols, weak references."""

import abc
import collections
import dataclasses
import typing
import weakref

import pytest
import torch
from twins import ONE_ENTRY, call, check, check_function, rnd, vectors


@dataclasses.dataclass(slots=True)
class Slotted:
    a: torch.Tensor
    b: float = 1.0


class Base:
    K = 2.0
    made = 0

    def __init__(self, w):
        self._w = w
        self.reads = 0
        type(self).made += 1

    @property
    def w(self):
        self.reads += 1
        return self._w

    @w.setter
    def w(self, value):
        self._w = value * 2

    @w.deleter
    def w(self):
        self._w = None

    def __call__(self, x):
        return x * self.w

    def __len__(self):
        return 0

    def __getitem__(self, i):
        return self._w * i


class Sub(Base):
    made = 0

    @property
    def w(self):
        return super().w + 1

    @classmethod
    def make(cls, w):
        return cls(w)

    @staticmethod
    def double(x):
        return x * 2


def test_slotted_objects_and_member_descriptors():
    class Slots:
        __slots__ = ("w", "n", "missing")

        def __init__(self, w):
            self.w = w
            self.n = 0

    def make():
        s = Slots(torch.ones(3))

        def f(x):
            s.n += 1
            s.w = s.w + x
            q = Slotted(x)
            q.b = q.b + s.n
            return s.w * s.n, q, hasattr(s, "missing"), hasattr(q, "__dict__")

        return f

    check(make, vectors(4))


def test_properties_super_and_classmethods():
    def make():
        Sub.made = 0
        p = Sub(torch.ones(3))

        def f(x):
            q = Sub.make(x)
            return p(x), bool(p), p[2], q(x), Sub.double(x), p.reads, q.reads, q.K, Sub.made > 0

        return f

    check(make, vectors(4))


def test_property_setters_and_deleters():
    def make():
        p = Base(torch.ones(3))

        def f(x):
            p.w = x
            first = p.w
            del p.w
            second = p._w
            p.w = x + 1
            return first, second, p.w

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_data_and_non_data_descriptors_have_their_precedence():
    class Data:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, owner=None):
            return self if obj is None else obj.__dict__.get(self.name, 1.0)

        def __set__(self, obj, value):
            obj.__dict__[self.name] = value + 1

    class NonData:
        def __get__(self, obj, owner=None):
            return 10.0

    class Holder:
        d = Data()
        n = NonData()

    def make():
        h = Holder()
        h.__dict__["d"] = 99.0

        def f(x, i):
            a = h.d
            h.d = a * 2
            if i == 2:
                h.__dict__["n"] = 5.0
            return x * h.d + h.n, a, type(Holder.d).__name__

        f.h = h
        return f

    check(make, [call(rnd(i, 3), i) for i in range(5)], post=lambda f: vars(f.h))


def test_getattr_hook_serves_missing_names_only():
    class Config:
        def __init__(self):
            self.present = 2.0
            self.asked = []

        def __getattr__(self, name):
            if name.startswith("scale_"):
                self.asked.append(name)
                return float(name[6:])
            raise AttributeError(f"no {name}")

    def make():
        c = Config()

        def f(x):
            return x * c.present * c.scale_3, getattr(c, "other", 7), hasattr(c, "scale_2"), hasattr(c, "nope")

        f.c = c
        return f

    check(make, vectors(4), post=lambda f: f.c.asked)


def test_getattribute_hook_sees_every_read():
    class Traced:
        def __init__(self):
            self.w = 2.0
            self.log = []

        def __getattribute__(self, name):
            log = object.__getattribute__(self, "log") if name != "log" and not name.startswith("__") else []
            log.append(name)
            return object.__getattribute__(self, name)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value if name == "log" else value * 1)

    def make():
        t = Traced()

        def f(x):
            t.w = t.w + 1
            return x * t.w

        f.t = t
        return f

    check(make, vectors(4), post=lambda f: f.t.log)


def test_setattr_and_delattr_hooks():
    class Guarded:
        def __init__(self):
            super().__setattr__("names", [])

        def __setattr__(self, name, value):
            self.names.append(name)
            super().__setattr__(name, value)

        def __delattr__(self, name):
            self.names.append("-" + name)
            super().__delattr__(name)

    def make():
        g = Guarded()

        def f(x):
            g.a = x
            setattr(g, "b", x * 2)
            y = g.a + g.b
            del g.a
            delattr(g, "b")
            return y, hasattr(g, "a")

        f.g = g
        return f

    check(make, vectors(4), post=lambda f: f.g.names)


def test_multiple_inheritance_follows_the_mro():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 2

    class C(A):
        def go(self, x):
            return super().go(x) - 3

    class D(B, C):
        def go(self, x):
            return super().go(x) / 5, super(B, self).go(x)

    d = D()
    check_function(lambda x: (d.go(x), [c.__name__ for c in D.__mro__]), vectors(4), promise=ONE_ENTRY)


def test_operators_and_their_reflections():
    class Vec:
        def __init__(self, t):
            self.t = t

        def __add__(self, o):
            return Vec(self.t + (o.t if isinstance(o, Vec) else o))

        def __radd__(self, o):
            return Vec(o - self.t)

        def __mul__(self, o):
            return NotImplemented if isinstance(o, str) else Vec(self.t * o)

        def __iadd__(self, o):
            self.t = self.t + o
            return self

        def __matmul__(self, o):
            return self.t @ o.t

        def __neg__(self):
            return Vec(-self.t)

        def __lt__(self, o):
            return bool((self.t < o.t).all())

        def __eq__(self, o):
            return isinstance(o, Vec) and torch.equal(self.t, o.t)

        def __hash__(self):
            return 7

        def __contains__(self, v):
            return bool((self.t == v).any())

        def __iter__(self):
            return iter(self.t)

        def __bool__(self):
            return True

        def __getattr__(self, name):
            return 5

    def f(x):
        v = Vec(x)
        w = v + 1
        w += 2
        caught = ""
        try:
            v * "a"
        except TypeError as e:
            caught = str(e)
        return (3 + v).t, (v * 2).t, w.t, v @ w, (-v).t, v < w, v == Vec(x), 9.0 in v, list(v)[0], v.other, caught

    check_function(f, vectors(4))


def test_getitem_setitem_delitem_and_len_protocols():
    class Store:
        def __init__(self):
            self.d = {}

        def __getitem__(self, k):
            return self.d[k]

        def __setitem__(self, k, v):
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __len__(self):
            return len(self.d)

        def __missing__(self, k):
            return None

    def make():
        s = Store()

        def f(x):
            s["a"] = x
            s[1, 2] = x * 2
            s["a"] += 1
            y = s["a"] + s[1, 2]
            del s["a"]
            return y, len(s), bool(s), s[1, 2]

        return f

    check(make, vectors(4))


def test_iteration_by_getitem_and_by_iter_objects():
    class Old:
        def __init__(self, xs):
            self.xs = xs

        def __getitem__(self, i):
            return self.xs[i]

    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    def f(x):
        a = [v * 2 for v in Old([x, x + 1])]
        b = [n for n in Countdown(3)]
        first, *rest = Countdown(4)
        return a, b, first, rest, sum(Countdown(5)), x * max(Countdown(3)), list(zip(Countdown(2), Old([x])))

    check_function(f, vectors(4))


def test_isinstance_with_abcs_protocols_and_instancecheck():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return 4.0

    @typing.runtime_checkable
    class HasArea(typing.Protocol):
        def area(self): ...

    class Any(type):
        def __instancecheck__(cls, other):
            return other == 3

    class Three(metaclass=Any):
        pass

    def f(x, thing):
        if isinstance(thing, Shape):
            x = x * thing.area()
        caught = ""
        try:
            Shape()
        except TypeError as e:
            caught = str(e)
        return (
            x,
            isinstance(thing, HasArea),
            isinstance(3, Three),
            isinstance(x, (int, torch.Tensor)),
            isinstance(x, collections.abc.Sized),
            caught,
        )

    check_function(f, [call(rnd(i, 3), t) for i, t in enumerate([Square(), Square(), 5, Square(), 5])])


def test_changing_the_class_of_an_object():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return x * 2

    def make():
        a = A()

        def f(x, i):
            if i == 2:
                a.__class__ = B
            return a.go(x), type(a).__name__

        return f

    check(make, [call(rnd(i, 3), i) for i in range(5)])


def test_class_attributes_are_shadowed_and_changed():
    def make():
        class Layer:
            scale = 2.0

        a, b = Layer(), Layer()

        def f(x, i):
            if i == 2:
                a.scale = 5.0
            if i == 3:
                Layer.scale = 7.0
            if i == 4:
                del a.scale
            return x * a.scale + b.scale

        return f

    check(make, [call(rnd(i, 3), i) for i in range(6)])


def test_an_instance_attribute_shadows_a_method():
    def make():
        class Layer:
            def go(self, x):
                return x + 1

        a = Layer()

        def f(x, i):
            if i == 2:
                a.go = lambda x: x * 10
            return a.go(x)

        return f

    check(make, [call(rnd(i, 3), i) for i in range(5)])


def test_weak_references_and_finalizers():
    class Node:
        def __init__(self, x):
            self.x = x

    def make():
        gone = []

        def f(x):
            n = Node(x)
            ref = weakref.ref(n)
            weakref.finalize(n, gone.append, len(gone))
            y = ref().x * 2
            del n
            return y, ref() is None, list(gone)

        return f

    check(make, vectors(4))


def test_objects_with_del_are_finalised_as_in_eager():
    def make():
        log = []

        class Noisy:
            def __init__(self, n):
                self.n = n

            def __del__(self):
                log.append(self.n)

        def f(x):
            a = Noisy("a")
            b = Noisy("b")  # noqa: F841
            del a
            y = x * 2
            a = Noisy("c")
            a = None  # noqa: F841
            log.append("end")
            return y

        f.log = log
        return f

    check(make, vectors(4), post=lambda f: f.log)


def test_getattr_with_computed_names():
    def f(x, names):
        for name in names:
            x = getattr(x, name)() if callable(getattr(x, name)) else x
        return x, getattr(x, "nothing_here", None), getattr(torch, names[0])(x)

    check_function(f, [call(rnd(i, 3), ["sin", "cos", "shape"]) for i in range(4)])


@pytest.mark.parametrize("kind", ["eq", "hash"])
def test_user_equality_and_hash_decide_dict_lookups(kind):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 1 if kind == "hash" else hash(self.n)

        def __eq__(self, other):
            return isinstance(other, Key) and self.n == other.n

    def make():
        table = {Key(1): 2.0, Key(2): 3.0}

        def f(x, n):
            return x * table[Key(n)] if Key(n) in table else x

        return f

    check(make, [call(rnd(i, 3), n) for i, n in enumerate([1, 1, 2, 3, 1, 2])])


def test_a_class_attribute_that_a_python_descriptor_gives():
    class Lazy:
        def __init__(self, function):
            self.function = function

        def __get__(self, instance, owner=None):
            return self if instance is None else self.function(instance)

    class WithProperty(Lazy, property):
        def __init__(self, function):
            property.__init__(self, function)

        def __get__(self, instance, owner=None):
            return WithProperty(lambda x: x) if instance is None else 3.0

    class Holder:
        a = Lazy(lambda self: 2.0)
        b = WithProperty(lambda self: 3.0)

    def f(x):
        h = Holder()
        return x * h.a + h.b, isinstance(type(h).a, Lazy), isinstance(Holder.b, property), isinstance(Holder.b, Lazy)

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_tensors_in_a_class_are_read_in_each_call():
    Tableau = collections.namedtuple("Tableau", "alpha beta order")

    def make():
        class Solver:
            middle = rnd(1, 3)
            tableau = Tableau(rnd(2, 3), [rnd(3, 3), rnd(4, 3)], 5)

            def step(self, x):
                self.own = self.tableau.alpha.double()
                return x * self.middle + self.tableau.beta[1] + type(self).middle + self.tableau.order, self.own

        solver = Solver()

        def f(x, another):
            result = solver.step(x)
            if another is not None:
                print("another")
                Solver.middle = another
            return result

        return f

    check(make, [call(rnd(i, 3), None) for i in range(4)], promise=ONE_ENTRY)
    check(make, [call(rnd(i, 3), rnd(9, 3) if i == 3 else None) for i in range(8)])
