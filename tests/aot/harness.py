"""Runs a Python callable as a compiled region and compares it with eager: bitwise, NaN-aware, with the same seeds.

A callable takes a list of tensors and returns any nesting of lists, tuples and dicts of tensors.
"""

import torch

from tests.aot.build import load

native = load()
_item = torch.Tensor.item
_get_rng_state, _set_rng_state = torch.get_rng_state, torch.set_rng_state


class RngState:
    """A state of the generator inside of a trace: a value of the graph."""

    def __init__(self, value):
        self.value = value

    def __deepcopy__(self, memo):
        return self


def install_models():
    """The recorder's models of calls that give Python values, as far as the tests need them."""

    def get_rng_state():
        return RngState(native.rng_get()) if native.in_run() else _get_rng_state()

    def set_rng_state(state):
        native.rng_set(state.value) if native.in_run() else _set_rng_state(state)

    torch.get_rng_state = torch.random.get_rng_state = get_rng_state
    torch.set_rng_state = torch.random.set_rng_state = set_rng_state
    torch.Tensor.item = lambda tensor: native.item(tensor) if native.is_trace(tensor) else _item(tensor)


install_models()


def flatten(value, into):
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for element in value:
            flatten(element, into)
    elif isinstance(value, dict):
        for element in value.values():
            flatten(element, into)
    return into


class Compiled:
    def __init__(self, function, inputs):
        self.function = lambda tensors: flatten(function(tensors), [])
        self.code = native.compile(self.function, list(inputs))

    def __call__(self, *inputs):
        return native.call(self.code, list(inputs))

    @property
    def counts(self):
        return native.counts(self.code)

    @property
    def texts(self):
        return native.texts(self.code)


def trace(function, inputs):
    return native.trace(lambda tensors: flatten(function(tensors), []), list(inputs))


def copies(inputs):
    return [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]


def is_same(a, b):
    """The same bits; all NaN are one."""
    if a is None or b is None:
        return a is None and b is None
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach(), b.detach()
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.is_floating_point():
        return torch.equal(a, b)
    equal = (a == b) & (torch.signbit(a) == torch.signbit(b))
    return bool((equal | (a.isnan() & b.isnan())).all())


def describe_difference(a, b):
    if a is None or b is None:
        return f"{'None' if a is None else 'a tensor'} in eager, {'None' if b is None else 'a tensor'} compiled"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{tuple(a.shape)} {a.dtype} in eager, {tuple(b.shape)} {b.dtype} compiled"
    return f"differs by up to {(a.detach().to(torch.complex128) - b.detach().to(torch.complex128)).abs().max():g}"


def compare(name, pairs, problems):
    for i, (a, b) in enumerate(pairs):
        if not is_same(a, b):
            problems.append(f"{name} {i}: {describe_difference(a, b)}")


def check(function, inputs, calls=2, backward=True, nonleaf=(), compiled=None):
    """Compile on copies of the inputs, then compare some calls with eager; returns the Compiled."""

    def make():
        tensors = copies(inputs)
        leaves = list(tensors)
        for i in nonleaf:
            tensors[i] = tensors[i] * 1.5
        return tensors, leaves

    if compiled is None:
        compiled = Compiled(function, make()[0])
    problems = []
    for seed in range(calls):
        eager_inputs, eager_leaves = make()
        our_inputs, our_leaves = make()
        eager_versions = [x._version for x in eager_inputs]
        torch.manual_seed(seed)
        eager = flatten(function(eager_inputs), [])
        eager_rng = torch.get_rng_state()
        torch.manual_seed(seed)
        ours = compiled(*our_inputs)
        if not torch.equal(eager_rng, torch.get_rng_state()):
            problems.append("random state after the forward")
        tangents = [torch.randn_like(x) for x in eager if x.requires_grad]
        if backward and tangents:
            torch.manual_seed(seed)
            torch.autograd.backward([x for x in eager if x.requires_grad], tangents)
            torch.manual_seed(seed)
            roots = [x for x in ours if x.requires_grad]
            if len(roots) != len(tangents):
                problems.append(f"{len(tangents)} outputs require grad in eager, {len(roots)} compiled")
            else:
                torch.autograd.backward(roots, tangents)
        if len(eager) != len(ours):
            problems.append(f"{len(eager)} outputs in eager, {len(ours)} compiled")
        compare("output", zip(eager, ours), problems)
        for i, (a, b) in enumerate(zip(eager, ours)):
            if a.stride() != b.stride() or a.requires_grad != b.requires_grad or a.is_leaf != b.is_leaf:
                problems.append(
                    f"output {i}: strides {a.stride()} requires_grad {a.requires_grad} leaf {a.is_leaf} in eager, "
                    f"{b.stride()} {b.requires_grad} {b.is_leaf} compiled"
                )
        compare("gradient", [(a.grad, b.grad) for a, b in zip(eager_leaves, our_leaves)], problems)
        compare("input", zip(eager_inputs, our_inputs), problems)
        for i, (a, b, before) in enumerate(zip(eager_inputs, our_inputs, eager_versions)):
            if a._version != b._version:
                problems.append(f"version of input {i}: {before} -> {a._version} in eager, {b._version} compiled")
        eager_groups = [
            [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in eager_inputs + eager]
            for a in eager
        ]
        our_groups = [
            [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in our_inputs + ours] for a in ours
        ]
        compiled.same_aliasing = eager_groups == our_groups
    assert not problems, "\n".join(problems[:8]) + "\n" + compiled.texts["recorded"][:4000]
    return compiled
