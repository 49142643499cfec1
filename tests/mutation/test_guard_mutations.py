"""Changes after five calls that were stamped: none may be missed.

One row a change: its text is executed in the namespace of each twin (see victim.py) after five equal calls; then both
twins are called twice and compared, a second change (`undo`) is executed where there is one, and they are compared once
more. Rows of SHARED change torch or Python itself, so they are executed once, and undone.
"""

import contextlib

import pytest
import reprise
import torch
from twins import assert_same, assert_same_outcome, compiled, outcome, rnd, seed
from victim import make_victim

STAMPED_CALLS = 5

#: what changes -> (statement, second statement or None)
CHANGES = {
    # instance attributes
    "an attribute": ("m.scale = 9.0", "m.scale = 1.5"),
    "an attribute to an equal int": ("m.scale = 1", "m.scale = True"),
    "an attribute to minus zero": ("m.scale = 0.0", "m.scale = -0.0"),
    "an attribute to nan": ("m.scale = float('nan')", None),
    "an attribute to a tensor": ("m.scale = torch.ones(3) * 2", "m.scale = 2.0"),
    "a flag": ("m.flag = False", "m.flag = True"),
    "a flag to a truthy int": ("m.flag = 1", "m.flag = 0"),
    "None to a tensor": ("m.optional = torch.ones(3)", "m.optional = None"),
    "None to a number": ("m.optional = 0.5", "del m.optional; m.optional = 1"),
    "a tuple attribute": ("m.shape = (3, 1)", "m.shape = (1, 3)"),
    "an attribute deleted": ("del m.scale", "m.scale = 1.0"),
    "an instance attribute over a class attribute": ("m.K = 4.0", "del m.K"),
    "a callable attribute": ("m.act = other_helper", "m.act = helper"),
    "a torch function attribute": ("m.op = torch.cos", "m.op = torch.sin"),
    "an instance method over a class method": ("m.extra = lambda x: x * 7", "del m.extra"),
    "forward on the instance": ("m.forward = lambda x, **o: x * 0", "del m.forward"),
    "forward on a submodule's instance": ("m.a.forward = lambda x: x * 0", "del m.a.forward"),
    "the value behind a property": ("m._rate = 0.9", None),
    "the whole __dict__ of a submodule": (
        "m.a.__dict__ = dict(m.b[0].__dict__)",
        None,
    ),
    "a value written into __dict__": ("m.__dict__['scale'] = 7.0", "vars(m).update(scale=8.0)"),
    # containers
    "a list item": ("m.lst[0] = 7.0", "m.lst[0] = 1.0"),
    "a list appended": ("m.lst.append(7.0)", "m.lst.pop()"),
    "a list replaced by an equal one": ("m.lst = [1.0, 2.0]", "m.lst[1] = 5.0"),
    "a list replaced by a tuple": ("m.lst = (1.0, 3.0)", None),
    "a list reversed": ("ITEMS.reverse(); ITEMS[0] = 9.0", "ITEMS.clear()"),
    "a dict item": ("m.cfg['k'] = 8.0", "m.cfg = {'k': 3.0}"),
    "a dict item deleted": ("del m.cfg['k']", "m.cfg['k'] = 1.0"),
    "a dict key added": ("TABLE['new'] = 1", "TABLE.pop('new')"),
    "the order of a dict": ("v = TABLE.pop('k'); TABLE['k'] = v", None),
    "the order of an ordered dict": ("ORDERED.move_to_end('p')", "ORDERED.move_to_end('p')"),
    "a nested list in a nested dict": ("TABLE['nested']['deep'][1] = 9.0", "TABLE['nested']['deep'].append(1.0)"),
    "a nested dict replaced": ("TABLE['nested'] = {'deep': [5.0]}", None),
    "a default dict": ("DEFAULTS['r'] = 3.0", "del DEFAULTS['r']"),
    "a set": ("FLAGS.discard('x')", "FLAGS.add('x')"),
    "a dataclass field": ("m.record.a = 5.0", "m.record = Record(2.0)"),
    "a list in a dataclass": ("m.record.b.append(3)", "m.record.b = []"),
    "a slot": ("m.slotted.w = 9.0", "m.slotted = Slotted()"),
    "a slot set first": ("m.slotted.extra = 1.0", "del m.slotted.extra"),
    "a name that __getattr__ served": ("m.config.dropped = 5.0", "del m.config.dropped"),
    "the table behind __getattr__": ("m.config.table['dropped'] = 6.0", "m.config.table['missing'] = 1"),
    "a simple namespace": ("SETTINGS.rate = 0.1", "SETTINGS.inner = types.SimpleNamespace(level=3)"),
    "a nested simple namespace": ("SETTINGS.inner.level = 5", None),
    # globals, closures and functions
    "a global number": ("SCALE = 5.0", "SCALE = 2.0"),
    "a global int to an equal float": ("COUNT = 2.0", "COUNT = True"),
    "a global int": ("COUNT = 3", "COUNT = 'text'"),
    "a global string": ("MODE = 'other'", "MODE = ''.join(['pl', 'ain'])"),
    "a global tuple": ("NAMES = ('a',)", None),
    "a global tensor": ("GLOBAL_TENSOR = torch.zeros(3)", "GLOBAL_TENSOR = torch.ones(2, 3)"),
    "a global tensor in place": ("GLOBAL_TENSOR.mul_(3)", "GLOBAL_TENSOR.add_(1)"),
    "a global function": ("helper = other_helper", None),
    "a global deleted": ("del SCALE", "SCALE = 1.0"),
    "a builtin shadowed by a global": ("abs = lambda v: 100", "del abs"),
    "an enum member": ("COLOR = Color.GREEN", "COLOR = Color.RED"),
    "a closure's cell": ("set_cell(9.0)", "set_cell(torch.ones(3))"),
    "a closure replaced": ("CLOSURE, set_cell = make_closure(); set_cell(3.0)", None),
    "a cell written from outside": ("CLOSURE.__closure__[0].cell_contents = 6.0", None),
    "__code__ of a function": ("helper.__code__ = (lambda x, k, *, j: x * 5).__code__", None),
    "__code__ of a method": ("M.extra.__code__ = (lambda self, x: x * 5).__code__", None),
    "__code__ of a submodule's forward": ("Act.forward.__code__ = (lambda self, x: x * 5).__code__", None),
    "__code__ of forward itself": ("M.forward.__code__ = (lambda self, x, **options: x * 5).__code__", None),
    "defaults of a function": ("helper.__defaults__ = (9.0,)", "helper.__defaults__ = None"),
    "keyword defaults of a function": ("helper.__kwdefaults__ = {'j': 7.0}", "helper.__kwdefaults__['j'] = 8.0"),
    "a partial replaced": ("PARTIAL = functools.partial(other_helper, k=1.0)", None),
    "keywords of a partial": ("PARTIAL.keywords['k'] = 9.0", None),
    "a dispatch table": ("dispatched.register(int)(lambda kind, x: x - 9)", None),
    "a module attribute": ("MODULE.value = 5.0", "del MODULE.value"),
    "a context variable": ("token = VARIABLE.set(4.0)", "VARIABLE.reset(token)"),
    # classes
    "a class attribute": ("M.K = 4.0", "M.K = 1.0"),
    "a method of the class": ("M.extra = lambda self, x: x * 3", None),
    "a method of a base class": ("Base.inherited = lambda self, x: x * 3", None),
    "a method added over the base's": ("M.inherited = lambda self, x: x * 4", "del M.inherited"),
    "a method of a mixin": ("Mixin.mixed = lambda self, x: x - 4", None),
    "a static method": ("M.static = staticmethod(lambda x: x * 8)", None),
    "a class method": ("M.named_by_class = classmethod(lambda cls, x: x * 8)", None),
    "a property replaced": ("M.rate = property(lambda self: 0.125)", None),
    "a descriptor's value": ("Descriptor.value = 5.0", None),
    "a descriptor's instance attribute": ("M.__dict__['described'].value = 6.0", None),
    "a descriptor replaced": ("M.described = 7.0", None),
    "a descriptor's __get__": ("Descriptor.__get__ = lambda self, obj, owner=None: -1.0", None),
    "a descriptor made a data descriptor": ("m.described = 2.0", "Descriptor.__set__ = lambda self, obj, value: None"),
    "a submodule class's forward": ("Act.forward = lambda self, x: x - 1", None),
    "__class__ of a submodule": ("m.b[1].__class__ = OtherAct", "m.b[1].__class__ = Act"),
    "__class__ of the module": ("N = type('N', (M,), {'extra': lambda self, x: x * 0}); m.__class__ = N", None),
    "__class__ of a plain object": (
        "C2 = type('C2', (Config,), {'present': 9}); m.config.__class__ = C2; del m.config.present",
        None,
    ),
    "__bases__ of the class": (
        "Mixin2 = type('Mixin2', (), {'mixed': lambda self, x: x * 0}); M.__bases__ = (Base, Mixin2)",
        None,
    ),
    "__getattr__ of a config class": ("Config.__getattr__ = lambda self, name: 42.0", None),
    "__getattribute__ added to a class": (
        "Config.__getattribute__ = lambda self, n: 9.0 if n == 'present' else object.__getattribute__(self, n)",
        None,
    ),
    "__call__ added to a submodule's class": ("Act.__call__ = lambda self, x: x * 11", "del Act.__call__"),
    "__len__ added to a class that is tested for truth": ("Record.total = lambda self: 0.0", None),
    "an enum's name is kept by identity": ("COLOR = Color(2)", "COLOR = Color['RED']"),
    "the name of the class": ("M.__name__ = 'Renamed'", None),
    # modules, parameters and buffers
    "a submodule replaced in a Sequential": ("m.b[1] = nn.GELU()", None),
    "a submodule replaced by attribute": ("m.a = nn.Linear(3, 3); nn.init.ones_(m.a.weight)", "m.a = m.b[0]"),
    "a layer appended to a Sequential": ("m.b.append(nn.Tanh())", None),
    "a layer appended to a ModuleList": ("m.blocks.append(nn.Identity())", "del m.blocks[0]"),
    "a layer added to a ModuleDict": ("m.named['three'] = nn.Identity()", "del m.named['three']"),
    "a layer replaced in _modules": ("m._modules['a'] = nn.Linear(3, 3)", None),
    "a parameter replaced": ("m.a.weight = nn.Parameter(torch.ones(3, 3))", None),
    "a parameter replaced by a buffer": ("del m.p; m.register_buffer('p', torch.zeros(3))", None),
    "a parameter's .data": ("m.a.weight.data = torch.zeros(3, 3)", "m.a.weight.data.add_(1)"),
    "a parameter's dtype by .data": ("m.p.data = m.p.data.double()", "m.p.data = m.p.data.float()"),
    "a parameter's shape by .data": ("m.p.data = torch.ones(1, 3)", None),
    "a parameter's strides": ("m.a.weight.data = torch.arange(9.0).view(3, 3).t()", None),
    "a parameter in place": ("with torch.no_grad(): m.a.weight.mul_(2)", None),
    "a bias removed": ("m.a.bias = None", None),
    "requires_grad of a parameter": ("m.a.weight.requires_grad_(False)", "m.a.weight.requires_grad_(True)"),
    "requires_grad of all parameters": ("m.requires_grad_(False)", None),
    "a gradient that appears": ("m(torch.ones(2, 3))[0].sum().backward()", "m.zero_grad()"),
    "a buffer in place": ("m.buf.add_(1)", None),
    "a buffer replaced": ("m.buf = torch.zeros(3)", "m.register_buffer('buf', torch.ones(1))"),
    "a shared parameter": ("m.blocks[1].weight = m.blocks[0].weight", None),
    "train()": ("m.train()", "m.eval()"),
    "train() of one submodule": ("m.drop.train()", "m.norm.train()"),
    "the probability of a dropout": ("m.drop.p = 0.9; m.drop.train()", "m.drop.p = 0.0"),
    "the momentum of a batch norm": ("m.norm.momentum = 0.5; m.norm.train()", "m.norm.momentum = None"),
    "the eps of a batch norm": ("m.norm.eps = 0.1", None),
    "double()": ("m.double().float()", None),
    "weights loaded": ("m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})", None),
    "weights assigned": ("m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}, assign=True)", None),
    "a forward hook": ("h = m.a.register_forward_hook(lambda mod, i, o: o * 3)", "h.remove()"),
    "a forward pre-hook": ("h = m.a.register_forward_pre_hook(lambda mod, i: (i[0] + 1,))", "h.remove()"),
    "a hook on the module itself": ("h = m.register_forward_hook(lambda mod, i, o: o[:1])", "h.remove()"),
    "a hook that raises": ("h = m.a.register_forward_hook(lambda mod, i, o: 1 / 0)", "h.remove()"),
    "a parametrization": ("nn.utils.parametrize.register_parametrization(m.a, 'weight', nn.Tanh())", None),
}

#: changes of torch or Python themselves -> (statement, undo)
SHARED = {
    "a torch function replaced": ("keep = torch.sin; torch.sin = torch.cos", "torch.sin = keep"),
    "a functional replaced": (
        "keep = torch.nn.functional.relu; torch.nn.functional.relu = lambda x: x * 9",
        "torch.nn.functional.relu = keep",
    ),
    "forward of a torch class": (
        "keep = torch.nn.Linear.forward; torch.nn.Linear.forward = lambda self, x: x * 4",
        "torch.nn.Linear.forward = keep",
    ),
    "__code__ of a torch method": (
        "f = torch.nn.Linear.forward; keep = f.__code__; f.__code__ = (lambda self, input: input * 5).__code__",
        "f.__code__ = keep",
    ),
    "__call__ of nn.Module": (
        "keep = torch.nn.Module.__call__; say = lambda m: print('called') if type(m) is torch.nn.Linear else None; "
        "torch.nn.Module.__call__ = lambda self, *a, **k: (say(self), keep(self, *a, **k))[1]",
        "torch.nn.Module.__call__ = keep",
    ),
    "a global module hook": (
        "hook = lambda m, i, o: None if isinstance(o, list) else o * 2; "
        "h = torch.nn.modules.module.register_module_forward_hook(hook)",
        "h.remove()",
    ),
    "a builtin replaced": (
        "import builtins; keep = builtins.abs; builtins.abs = lambda v: 77",
        "builtins.abs = keep",
    ),
    "the default dtype": ("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"),
    "grad mode": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"),
    "deterministic algorithms": (
        "torch.use_deterministic_algorithms(True)",
        "torch.use_deterministic_algorithms(False)",
    ),
    "a method of Tensor": (
        "keep = torch.Tensor.view; torch.Tensor.view = lambda self, *a: self * 2",
        "torch.Tensor.view = keep",
    ),
    "the oneDNN switch": ("torch.backends.mkldnn.set_flags(False)", "torch.backends.mkldnn.set_flags(True)"),
}

#: what is around the calls after the change
AROUND = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast to bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast disabled": lambda: torch.autocast("cpu", enabled=False),
    "a default device": lambda: torch.device("cpu"),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
}


class TensorSubclass(torch.Tensor):
    pass


#: the argument of the calls after the change
ARGUMENTS = {
    "another batch size": lambda: rnd(9, 4, 3),
    "an empty batch": lambda: rnd(9, 0, 3),
    "float64": lambda: rnd(9, 2, 3, dtype=torch.float64),
    "a non-contiguous tensor": lambda: rnd(9, 3, 2).t(),
    "an expanded tensor": lambda: rnd(9, 1, 3).expand(2, 3),
    "a tensor that requires grad": lambda: rnd(9, 2, 3, grad=True),
    "a parameter": lambda: torch.nn.Parameter(rnd(9, 2, 3)),
    "a tensor subclass": lambda: rnd(9, 2, 3).as_subclass(TensorSubclass),
    "an inference tensor": lambda: torch.inference_mode()(lambda: rnd(9, 2, 3) * 1)(),
    "integers": lambda: torch.ones(2, 3, dtype=torch.long),
    "no tensor at all": lambda: [1.0, 2.0],
    "three dimensions": lambda: rnd(9, 2, 2, 3),
}


class Twins:
    """The eager and the compiled victim after their stamped calls."""

    def __init__(self):
        self.spaces = [make_victim(), make_victim()]
        self.calls = [self.spaces[0]["m"], compiled(self.spaces[1]["m"])]
        for i in range(STAMPED_CALLS):
            self.compare(f"stamped call {i}", rnd(i, 2, 3))
        counters = reprise.explain(self.calls[1]).report.counters
        assert counters["entry_runs"] >= STAMPED_CALLS - 2, "the stamped calls were recorded, not replayed"

    def change(self, text):
        for space in self.spaces:
            seed(4)
            exec(text, space)

    def compare(self, at, x, around=contextlib.nullcontext):
        results = []
        for program in self.calls:  # forward does not write to x
            seed(3)
            with around():
                results.append(outcome(program, (x,), {}))
        assert_same_outcome(results[1], results[0], at)
        states = [dict(space["m"].state_dict()) for space in self.spaces if isinstance(space["m"], torch.nn.Module)]
        assert_same(states[1], states[0], f"state after {at}")


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_change_of(name):
    change, undo = CHANGES[name]
    twins = Twins()
    twins.change(change)
    for i in range(2):
        twins.compare(f"call {i} after the change", rnd(10 + i, 2, 3))
    if undo is not None:
        twins.change(undo)
        for i in range(2):
            twins.compare(f"call {i} after the second change", rnd(20 + i, 2, 3))


@pytest.mark.parametrize("name", list(SHARED))
def test_a_change_under_everyone_of(name):
    change, undo = SHARED[name]
    twins, scope = Twins(), {"torch": torch}
    exec(change, scope)
    try:
        for i in range(2):
            twins.compare(f"call {i} after the change", rnd(10 + i, 2, 3))
    finally:
        exec(undo, scope)
    for i in range(2):
        twins.compare(f"call {i} after it was undone", rnd(20 + i, 2, 3))


@pytest.mark.parametrize("name", list(AROUND))
def test_calls_move_under(name):
    twins = Twins()
    for i in range(2):
        twins.compare(f"call {i} under it", rnd(10 + i, 2, 3), AROUND[name])
        twins.compare(f"call {i} outside again", rnd(20 + i, 2, 3))


@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_the_argument_becomes(name):
    twins = Twins()
    for i in range(2):
        twins.compare(f"call {i} with it", ARGUMENTS[name]())
        twins.compare(f"call {i} without it", rnd(20 + i, 2, 3))


def test_a_backward_hook_added_and_removed():
    twins = Twins()
    found = []
    for space, program in zip(twins.spaces, twins.calls):
        log = []
        for i in range(4):
            handle = space["m"].a.register_full_backward_hook(
                lambda m, gi, go: log.append(go[0].sum().item()) or (gi[0] * 2,)
            )  # noqa: B023
            program(rnd(i, 2, 3, grad=True))[0].sum().backward()
            handle.remove()
            program(rnd(i, 2, 3, grad=True))[0].sum().backward()
        found.append((log, {k: p.grad for k, p in space["m"].named_parameters()}))
    assert len(found[0][0]) == 4
    assert_same(found[1], found[0], "what the hook saw, and gradients")


def test_there_are_at_least_sixty_kinds_of_change():
    assert len(CHANGES) + len(SHARED) + len(AROUND) + len(ARGUMENTS) >= 60


def test_changes_one_after_another_on_one_program():
    """All changes that leave the program running, in one process and on one pair of twins, in three seeded orders."""
    import random

    for order in range(3):
        print("order", order)
        twins = Twins()
        names = [n for n in CHANGES if "delete" not in n and "raises" not in n and "__bases__" not in n]
        random.Random(order).shuffle(names)
        for name in names[:40]:
            texts = [t for t in CHANGES[name] if t]
            for text in texts:
                failed = []
                for space in twins.spaces:
                    seed(4)
                    try:
                        exec(text, space)
                    except Exception as e:  # a change that earlier changes made impossible
                        failed.append(type(e))
                assert len(failed) in (0, 2)
                twins.compare(f"order {order}: {name}: {text}", rnd(order, 2, 3))
