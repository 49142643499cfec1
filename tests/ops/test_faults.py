"""Faults that the sweep found, each as the smallest call that showed it."""

import reprise
import torch

from tests.ops.cases import Call
from tests.ops.check import compare_outcomes, copy_call, find_fallback, run

OPTIONS = {"min_region_nodes": 1, "validate": "off"}


def change(x, scale):
    if isinstance(x, (tuple, list)):
        return type(x)(change(element, scale) for element in x)
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return (x.detach() * scale).requires_grad_(x.requires_grad)


def check(function, *arguments, gradients=False, backends=("aot_eager", "native"), is_compiled=True):
    """Live, replayed, and replayed with other values: as eager."""

    def program(input, args, kwargs):
        return function(input, *args, **kwargs)

    for backend in backends:
        compiled = reprise.compile(program, backend=backend, options=OPTIONS)
        for scale in (1, 1, 2):
            values = [change(x, scale) for x in arguments]
            call = Call(values[0], tuple(values[1:]), {})
            eager = run(program, copy_call(call), gradients)
            ours = run(compiled, copy_call(call), gradients)
            assert compare_outcomes(ours, eager, lambda: None, True) is None
        assert not is_compiled or find_fallback(compiled)[0] is None


def test_a_tensor_of_no_dimensions_expands_with_strides_of_zero():
    check(lambda x: x.expand(1, 1), torch.ones(()))
    check(lambda x: x.expand(1, 3), torch.ones(()))


def test_arange_of_floats_as_int64_truncates_its_numbers_first():
    check(lambda x: torch.arange(0.0, -8.000001, -4.0, dtype=torch.int64) + x, torch.ones(2, dtype=torch.int64))


def test_gradients_through_views_that_leave_a_region_have_eagers_strides():
    x = torch.arange(24.0).view(2, 3, 4).requires_grad_()
    check(lambda x: x.permute(2, 0, 1), x, gradients=True)
    check(lambda x: x.diagonal(0, 1, 2)[:, 1:], x, gradients=True)
    check(lambda x: x.split(2, dim=2)[1].unsqueeze(0), x, gradients=True)
    check(lambda x: (x * 2).permute(2, 0, 1), x, gradients=True)


def test_views_that_leave_a_region_have_eagers_history():
    def program(x):
        return x.permute(2, 0, 1)

    x = torch.zeros(2, 3, 4, requires_grad=True)
    compiled = reprise.compile(program, backend="aot_eager", options=OPTIONS)
    assert [type(compiled(x).grad_fn).__name__ for _ in range(3)] == ["PermuteBackward0"] * 3


def test_circular_padding_has_eagers_gradient():
    # its backward counts positions in storages
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    check(lambda x: torch.nn.functional.pad(x, (0, 2, 0, 1), mode="circular"), x, gradients=True)


def test_a_tangent_may_be_part_of_a_larger_tensor():
    x = torch.randn(1, 1, 5, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def program(x):
        return torch.nn.functional.pad(x, (0, 2, 0, 1), mode="circular")

    for backend in ("aot_eager", "native"):
        compiled = reprise.compile(program, backend=backend, options=OPTIONS)
        for offset in (0, 0, 10, 17):
            tangent = torch.arange(100.0)[offset : offset + 42].view(1, 1, 6, 7)
            expected = torch.autograd.grad(program(x), x, tangent)[0]
            assert torch.equal(torch.autograd.grad(compiled(x), x, tangent)[0], expected)


def test_tuples_and_lists_of_tensors_from_outside_are_taken_into_a_region():
    x, y = torch.arange(6.0).view(2, 3), torch.ones(2, 3)
    check(lambda t: torch.cat(t), (x, y))
    check(lambda t: torch.cat(t, 1), [x, y])
    check(lambda t: torch.stack([t[0], *t]) + torch.hstack(t)[0, 0], (x, y))
    check(lambda x, sizes: x.repeat(sizes) + x.view([2, 3])[0, 0], x, [2, 1])
    check(lambda x, i: torch.index_put(x, i, torch.zeros(())), x, (torch.tensor([1]), torch.tensor([0])))


def test_a_list_from_outside_that_changes_is_not_taken_apart():
    def program(ts, x):
        ts.append(x)
        return torch.cat(ts) * 2

    for backend in ("aot_eager", "native"):
        compiled = reprise.compile(program, backend=backend, options=OPTIONS)
        for i in range(4):
            ours, eager = [torch.ones(2)], [torch.ones(2)]
            x = torch.full((2,), float(i))
            assert torch.equal(compiled(ours, x), program(eager, x))
            assert len(ours) == 2


def test_transpose_in_place_is_part_of_a_region():
    def program(x):
        y = x * 2
        y.transpose_(0, 1)
        return y + 1

    check(program, torch.arange(6.0).view(2, 3))
