"""Prints what the guards of a call cost with nothing changed: trees of Python objects shaped as those of nn.Module.

PYTHONPATH=build/host-3.12 python3.12 -m tests.host.bench_guards

The median of 10,000 checks of what the recorder made of one call. Not a test: times depend on the machine.
"""

import itertools
import platform

import reprise

from tests.host.native import C

CHECKS = 10_000
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
EVERYWHERE = {name: {} for name in HOOKS}


class Module:
    """What a call of an nn.Module looks at."""

    def __init__(self, *children, **parameters):
        self.training = False
        self._parameters = parameters
        self._modules = {str(i): child for i, child in enumerate(children)}
        for name in HOOKS:
            setattr(self, name, {})

    def __getattr__(self, name):
        for place in (self._parameters, self._modules):
            if name in place:
                return place[name]
        raise AttributeError(name)

    def __call__(self, x):
        if not (self._backward_hooks or self._backward_pre_hooks or self._forward_hooks or self._forward_pre_hooks
                or EVERYWHERE["_forward_hooks"] or EVERYWHERE["_backward_hooks"]):  # fmt: skip
            return self.forward(x)
        raise NotImplementedError

    def forward(self, x):
        for child in self._modules.values():
            x = child(x)
        return x


class Linear(Module):
    def forward(self, x):
        x.append(self.weight)  # a step: arithmetic of what is known at entry would be done with the guards
        x.append(self.bias)
        return x


class Scale(Module):
    def forward(self, x):
        if not self.training:
            x.append(self.weight)
        return x


VALUES = itertools.count(1)


def make_linear():
    return Linear(weight=float(next(VALUES)), bias=float(next(VALUES)))


def make_block():
    """12 modules with parameters in 3 without, as a layer of BERT has them."""
    attention = Module(make_linear(), make_linear(), make_linear(), Module(make_linear(), Scale(weight=1.0)))
    return Module(attention, Module(make_linear(), Scale(weight=1.0)), Module(make_linear(), Scale(weight=2.0)))


TREES = {
    "100 Linears": lambda: Module(*[make_linear() for _ in range(100)]),
    "BERT of 12 layers": lambda: Module(Module(Scale(weight=1.0)), *[make_block() for _ in range(12)], make_linear()),
    "600 modules": lambda: Module(*[Module(*[make_linear() for _ in range(24)]) for _ in range(24)]),
}


def count_modules(module):
    return 1 + sum(map(count_modules, module._modules.values()))


def run(module, x):
    return module(x)


def main():
    for name, make in TREES.items():
        tree = make()
        compiled = reprise.compile(run, options={"keep_plain_entries": True})
        for _ in range(3):
            assert compiled(tree, []) == run(tree, [])
        check_ns, time_ns = (C.measure_guards_ns(compiled, (tree, []), {}, CHECKS, takes) for takes in (False, True))
        assert time_ns is not None, "no entry serves this call"
        print(
            f"{platform.python_version()}  {name:18} {count_modules(tree):4} modules  {check_ns / 1e3:6.2f} us, "
            f"with references to its values {time_ns / 1e3:6.2f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
