"""Faults that the sweep found, each as the smallest call that showed it."""

import reprise
import torch

from tests.ops.cases import Call
from tests.ops.check import compare_outcomes, copy_call, find_fallback, run


def change(x, scale):
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return (x.detach() * scale).requires_grad_(x.requires_grad)


def check(function, *arguments, gradients=False, backends=("aot_eager",), is_compiled=True):
    """Live, replayed, and replayed with other values: as eager."""

    def program(input, args, kwargs):
        return function(input, *args, **kwargs)

    for backend in backends:
        compiled = reprise.compile(program, backend=backend, options={"min_region_nodes": 1})
        for scale in (1, 1, 2):
            values = [change(x, scale) for x in arguments]
            call = Call(values[0], tuple(values[1:]), {})
            eager = run(program, copy_call(call), gradients)
            ours = run(compiled, copy_call(call), gradients)
            assert compare_outcomes(ours, eager, lambda: None, True) is None
        assert not is_compiled or find_fallback(compiled) is None


def test_a_tensor_of_no_dimensions_expands_with_strides_of_zero():
    check(lambda x: x.expand(1, 1), torch.ones(()))
    check(lambda x: x.expand(1, 3), torch.ones(()))
