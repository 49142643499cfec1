"""`.grad` of leaves: what loss.backward() inside of a region leaves there."""

import pytest
import torch
import torch.nn.functional as F

from tests.aot.harness import Compiled, is_same


def make():
    torch.manual_seed(2)
    return [torch.randn(6, 6).requires_grad_(), torch.randn(6).requires_grad_(), torch.randn(4, 6)]


def loss_of(tensors):
    w, b, x = tensors[:3]
    return F.gelu(F.linear(x, w, b)).square().mean()


def backward(tensors):
    loss = loss_of(tensors)
    loss.backward()
    return [loss.detach()]


def step(tensors):
    loss = loss_of(tensors)
    loss.backward()
    with torch.no_grad():
        for p in tensors[:2]:
            p.sub_(p.grad, alpha=0.1)
            p.grad = None
    return [loss.detach()]


def clear_and_step(tensors):
    for p in tensors[:2]:
        p.grad = None
    return step(tensors)


def compare(function, rounds, gradients=False):
    """The same calls on two sets of leaves; with `gradients`, `.grad` is there at entry."""
    eager, ours = make(), make()
    gradient_of = None
    if gradients:
        for tensors in (eager, ours):
            for p in tensors[:2]:
                p.grad = torch.full_like(p, 0.5)
        gradient_of = [-1, -1, -1, 0, 1]

    def arguments(tensors):
        return tensors + [p.grad for p in tensors[:2]] if gradients else tensors

    example = make()
    if gradients:
        for p in example[:2]:
            p.grad = torch.full_like(p, 0.5)
    compiled = Compiled(function, arguments(example), gradient_of)
    for _ in range(rounds):
        theirs = function(eager)
        mine = compiled(*arguments(ours))
        assert all(is_same(a, b) for a, b in zip(theirs, mine)) and len(theirs) == len(mine)
        for p, q in zip(eager, ours):
            assert is_same(p, q) and is_same(p.grad, q.grad) and p._version == q._version
            assert p.grad is None or (p.grad.stride() == q.grad.stride() and not q.grad.requires_grad)
    return compiled


def test_a_backward_inside_leaves_gradients():
    compare(backward, 1)


def test_gradients_at_entry_are_added_to_in_place():
    compiled = compare(backward, 3, gradients=True)
    assert compiled.counts["needs_storage_identity"]


def test_a_whole_step_with_gradients_dropped_at_its_end():
    compare(step, 3)


def test_gradients_at_entry_that_are_dropped():
    compare(clear_and_step, 1, gradients=True)


def test_a_backward_inside_and_one_outside():
    def function(tensors):
        inner = loss_of(tensors)
        inner.backward()
        return [(tensors[0] * tensors[1]).sum() + inner.detach()]

    eager, ours = make(), make()
    compiled = Compiled(function, make())
    function(eager)[0].backward()
    compiled(*ours)[0].backward()
    assert all(is_same(p.grad, q.grad) for p, q in zip(eager, ours))


def test_a_backward_that_leaves_the_region_is_refused():
    w, b, x = make()
    with pytest.raises(RuntimeError, match="goes on outside"):
        Compiled(backward, [w * 1, b, x])


def test_inputs_that_must_have_no_hooks():
    assert Compiled(backward, make()).counts["no_hooks"] == [0, 1]
    assert Compiled(lambda t: [loss_of(t)], make()).counts["no_hooks"] == []
