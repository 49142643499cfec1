"""The program whose surroundings are changed: one forward that reads state in every way Python offers.

`make_victim()` executes SOURCE in a namespace of its own, so that classes, functions and globals of two twins are
separate objects and a change of one does not reach the other.
"""

SOURCE = """
import builtins, collections, contextvars, dataclasses, enum, functools, types
import torch
from torch import nn

SCALE = 2.0
COUNT = 2
MODE = "plain"
NAMES = ("a", "bb")
ITEMS = [1.0, 2.0]
FLAGS = {"x"}
TABLE = {"k": 3.0, "nested": {"deep": [1.0, 2.0]}}
ORDERED = collections.OrderedDict(p=1.0, q=2.0)
DEFAULTS = collections.defaultdict(float, r=1.0)
GLOBAL_TENSOR = torch.ones(3)
VARIABLE = contextvars.ContextVar("variable", default=1.0)
SETTINGS = types.SimpleNamespace(rate=0.5, inner=types.SimpleNamespace(level=2))
MODULE = types.ModuleType("module")
MODULE.value = 0.75


class Color(enum.Enum):
    RED = 1
    GREEN = 2


COLOR = Color.RED


def helper(x, k=1.5, *, j=0.25):
    return x * k + j


def other_helper(x, k=1.5, *, j=0.25):
    return x - k - j


def make_closure():
    cell = 1.25

    def inner(x):
        return x + cell

    def set_cell(value):
        nonlocal cell
        cell = value

    return inner, set_cell


CLOSURE, set_cell = make_closure()
PARTIAL = functools.partial(helper, k=2.5)


@functools.singledispatch
def dispatched(kind, x):
    return x


@dispatched.register
def _(kind: int, x):
    return x * kind


@dataclasses.dataclass
class Record:
    a: float = 1.0
    b: list = dataclasses.field(default_factory=lambda: [1, 2])

    def total(self):
        return self.a + sum(self.b)


class Slotted:
    __slots__ = ("w", "extra")

    def __init__(self):
        self.w = 1.5


class Descriptor:
    value = 4.0

    def __get__(self, obj, owner=None):
        return self.value


class Config:
    def __init__(self):
        self.present = 1.0
        self.table = {"dropped": 2.0}

    def __getattr__(self, name):
        try:
            return self.__dict__["table"][name]
        except KeyError:
            raise AttributeError(name) from None


class Base(nn.Module):
    def inherited(self, x):
        return x + 0.5


class Mixin:
    def mixed(self, x):
        return x * 1.5


class Act(nn.Module):
    def forward(self, x):
        return x.relu()


class OtherAct(nn.Module):
    def forward(self, x):
        return x.tanh()


class M(Base, Mixin):
    K = 1.0
    described = Descriptor()

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Sequential(nn.Linear(3, 3), Act())
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.named = nn.ModuleDict({"one": nn.Linear(3, 3)})
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.p = nn.Parameter(torch.ones(3))
        self.register_buffer("buf", torch.ones(3))
        self.scale = 1.5
        self.flag = True
        self.optional = None
        self.lst = [1.0, 2.0]
        self.cfg = {"k": 3.0}
        self.shape = (3,)
        self.record = Record()
        self.slotted = Slotted()
        self.config = Config()
        self.act = helper
        self.op = torch.sin
        self._rate = 0.5
        self.eval()

    @property
    def rate(self):
        return self._rate

    @staticmethod
    def static(x):
        return x + 1.0

    @classmethod
    def named_by_class(cls, x):
        return x * cls.K

    def extra(self, x):
        return x - 1.0

    def forward(self, x, **options):
        out = [self.b(self.a(x)) * self.scale * self.K * SCALE]
        for block in self.blocks:
            x = block(x)
        for name, layer in self.named.items():
            x = layer(x) + len(name)
        out += [x, self.norm(x), self.drop(x), x * self.p + self.buf]
        out.append(sum(self.lst) + self.cfg["k"] + sum(ITEMS) + sum(TABLE["nested"]["deep"]) + TABLE["k"])
        out.append(x.view(-1, *self.shape) if self.flag else x * 2)
        if self.optional is not None:
            x = x + self.optional
        out += [self.record.total(), self.slotted.w, getattr(self.slotted, "extra", None), self.config.present]
        out += [getattr(self.config, "dropped", -1.0), hasattr(self.config, "missing")]
        out += [self.act(x), self.op(x), self.rate, self.static(x), self.named_by_class(x), self.extra(x)]
        out += [self.inherited(x), self.mixed(x), self.described]
        out += [helper(x), helper(x, 2.0), CLOSURE(x), PARTIAL(x), dispatched(COUNT, x), x * COUNT, MODE, len(NAMES)]
        out += ["x" in FLAGS, "k" in TABLE, list(TABLE), list(ORDERED.items()), DEFAULTS["r"], COLOR is Color.RED]
        out += [x * GLOBAL_TENSOR, VARIABLE.get(), SETTINGS.rate, x * SETTINGS.inner.level, MODULE.value, abs(-2)]
        out += [COLOR.name, len([1])]
        out += [nn.functional.relu(x), torch.sin(x), isinstance(self.b[1], Act), sorted(options)]
        out += [type(self.b[1]).__name__]
        out += [x.requires_grad, self.training, self.p.shape, self.p.dtype, len(self.lst), len(self.blocks), M.__name__]
        out += [nn.functional.linear(x.detach(), self.a.weight).requires_grad, self.a.weight.grad is None]
        out += [torch.zeros(1) + 0.5, torch.are_deterministic_algorithms_enabled(), torch._C._get_mkldnn_enabled()]
        return out
"""


def make_victim():
    """A namespace with `m`, a fresh instance of M, and everything that M reads."""
    import torch

    torch.manual_seed(0)
    namespace = {"__name__": "victim"}
    exec(compile(SOURCE, "<program victim>", "exec"), namespace)
    namespace["m"] = namespace["M"]()
    return namespace
