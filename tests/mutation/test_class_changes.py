"""Classes that change between calls: what concerns a recording makes a new one, and nothing else does."""

import pytest
import reprise
import torch

from bench.stats import stats_of

X = torch.ones(3)


def make():
    class Meta(type):
        limit = 3.0

    class Base(metaclass=Meta):
        scale = 2.0

        def go(self, x):
            return x * self.scale

    class Middle(Base):
        pass

    class Leaf(Middle):
        def __init__(self):
            self.own = 1.0

        def go(self, x):
            return super().go(x) + self.own

        def __call__(self, x):
            return self.go(x)

        def __len__(self):
            return 2

        def __iter__(self):
            return iter((1.0, 2.0))

        @property
        def shift(self):
            return 4.0

    leaf = Leaf()

    def f(x):
        y = leaf(x) + leaf.shift + len(leaf) + Leaf.limit
        for one in leaf:
            y = y + one
        if leaf:
            y = y + 1
        return y + getattr(leaf, "missing", 8.0) + len(Leaf.__name__ + Leaf.__qualname__ + Leaf.__module__)

    return Base, Middle, Leaf, leaf, f


CHANGES = {
    "an attribute of a base": lambda b, m, c, o: setattr(b, "scale", 3.0),
    "an attribute that hides the base's": lambda b, m, c, o: setattr(m, "scale", 3.0),
    "a method behind super": lambda b, m, c, o: setattr(b, "go", lambda self, x: x - 1),
    "a method between super and the base": lambda b, m, c, o: setattr(m, "go", lambda self, x: x - 1),
    "a method": lambda b, m, c, o: setattr(c, "go", lambda self, x: x - 1),
    "__call__": lambda b, m, c, o: setattr(c, "__call__", lambda self, x: x - 1),
    "__len__": lambda b, m, c, o: setattr(c, "__len__", lambda self: 7),
    "__len__ is zero": lambda b, m, c, o: setattr(c, "__len__", lambda self: 0),
    "__bool__ is new": lambda b, m, c, o: setattr(b, "__bool__", lambda self: False),
    "__iter__": lambda b, m, c, o: setattr(c, "__iter__", lambda self: iter((5.0,))),
    "__getattr__ is new": lambda b, m, c, o: setattr(b, "__getattr__", lambda self, name: 9.0),
    "__getattribute__ is new": lambda b, m, c, o: setattr(
        m, "__getattribute__", lambda self, name: 6.0 if name == "own" else object.__getattribute__(self, name)
    ),
    "a property hides the instance's": lambda b, m, c, o: setattr(c, "own", property(lambda self: 11.0)),
    "a property": lambda b, m, c, o: setattr(c, "shift", property(lambda self: 5.0)),
    "what was missing": lambda b, m, c, o: setattr(b, "missing", 12.0),
    "an attribute of the metaclass": lambda b, m, c, o: setattr(type(c), "limit", 30.0),
    "the class hides the metaclass": lambda b, m, c, o: setattr(c, "limit", 31.0),
    "bases": lambda b, m, c, o: setattr(c, "__bases__", (type("Other", (b,), {"scale": 13.0}),)),
    "its name": lambda b, m, c, o: setattr(c, "__name__", "Longer"),
    "its qualified name": lambda b, m, c, o: setattr(c, "__qualname__", "Longer"),
    "its module": lambda b, m, c, o: setattr(c, "__module__", "elsewhere"),
    "deleted": lambda b, m, c, o: delattr(c, "__len__"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_concerns_the_recording_is_seen(change):
    def outcome(f):
        try:
            return f(X)
        except TypeError as error:
            return str(error)

    Base, Middle, Leaf, leaf, f = make()
    compiled = reprise.compile(f)
    for n in range(4):
        assert torch.equal(compiled(X), f(X))
        Leaf.count = n  # the look-ups have been repeated before
    before = compiled(X)
    CHANGES[change](Base, Middle, Leaf, leaf)
    for _ in range(3):
        expected, found = outcome(f), outcome(compiled)
        assert torch.equal(found, expected) if isinstance(expected, torch.Tensor) else found == expected
    assert not isinstance(expected, torch.Tensor) or not torch.equal(expected, before)


def test_changes_that_do_not_concern_the_recording_cost_nothing():
    Base, Middle, Leaf, leaf, f = make()
    compiled = reprise.compile(f)
    for _ in range(3):
        compiled(X)
    recordings = stats_of(compiled)["recordings"]
    for n in range(20):
        Leaf.count = Base.count = type(Leaf).count = n
        Middle.other = lambda self: 1
        Leaf.__doc__ = str(n)
        assert torch.equal(compiled(X), f(X))
    assert stats_of(compiled)["recordings"] == recordings


def test_a_module_class_that_counts_its_instances():
    class Counted(torch.nn.Linear):
        made = 0

        def __init__(self, *args):
            super().__init__(*args)
            Counted.made += 1

    layer = Counted(3, 3)
    compiled = reprise.compile(layer)
    for _ in range(3):
        compiled(X)
    recordings = stats_of(compiled)["recordings"]
    for _ in range(5):
        Counted(3, 3)
        assert torch.equal(compiled(X), layer(X))
    assert stats_of(compiled)["recordings"] == recordings
