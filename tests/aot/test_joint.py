"""Forward and backward in one graph: autograd's own features inside of a region."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jvp, vmap
from torch.utils.checkpoint import checkpoint

from tests.aot.harness import Compiled, check, copies


def tensor(*sizes, grad=True):
    torch.manual_seed(1)
    return torch.randn(*sizes).requires_grad_(grad)


def has_a_hook(x, y):
    h = x * y
    h.register_hook(lambda g: g * 10)
    return h.sin()


def detaches(x, y):
    return (x.detach() * y).sin() + x


def has_a_part_without_grad(x, y):
    with torch.no_grad():
        h = x * y
    return h * x


def has_outputs_without_grad(x, y):
    return x * y, (x > 0), x.argmax(1), (x * y).detach()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.exp()

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g * a.exp() * 2


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        a.mul_(2)
        ctx.mark_dirty(a)
        return a

    @staticmethod
    def backward(ctx, g):
        return g * 2


def has_a_custom_function(x, y):
    return Scaled.apply(x) * y


def has_a_custom_function_in_place(x, y):
    return Dirty.apply(x * 1) * y


def block(h, w):
    return F.gelu(h @ w.t()).tanh() @ w


def random_block(h, w):
    return F.dropout(F.gelu(h @ w.t()), 0.5) @ w


def is_checkpointed(x, y):
    return checkpoint(block, block(x, y), y, use_reentrant=False)


def is_checkpointed_reentrant(x, y):
    return checkpoint(block, block(x, y), y, use_reentrant=True)


def is_checkpointed_with_dropout(x, y):
    return checkpoint(random_block, block(x, y), y, use_reentrant=False)


def draws_random_numbers(x, y):
    return F.dropout(x, 0.3) * y + torch.rand(4, 6) + torch.randn_like(x)


def is_autocast(x, y):
    with torch.autocast("cpu", torch.bfloat16):
        h = F.linear(x, y)
        h = F.softmax(h, -1)
        return F.linear(h, y.t()).float() + x


def takes_a_functional_gradient(x, y):
    return grad(lambda a: (a.sin() * y).sum())(x)


def takes_batched_gradients(x, y):
    return vmap(grad(lambda a, b: (a.sin() * b).sum()))(x, y)


def is_batched(x, y):
    return vmap(lambda a: y @ a)(x)


def takes_a_forward_derivative(x, y):
    return jvp(lambda a: a.sin() * y, (x,), (y,))


def differentiates_twice_inside(x, y):
    h = (x * y).sum()
    (g,) = torch.autograd.grad(h, x, create_graph=True)
    return (g * g).sum()


def differentiates_inside(x, y):
    (g,) = torch.autograd.grad((x.exp() * y).sum(), x)
    return g * x


def sorts_and_scans(x, y):
    return torch.where(x > 0, x, y).cumsum(0), torch.sort(x, 1)[0], x.topk(2)[0]


def indexes(x, y):
    return torch.cat([x, y], 1).unfold(1, 3, 2).mean(-1), x[[0, 2]], y[:, torch.tensor([1, 1, 3])]


def makes_constants(x, y):
    k = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return x * k.unsqueeze(1) * torch.tensor(2.0).item(), k


def has_an_unused_input(x, y):
    return x * 2


def reduces(x, y):
    return x.std(0), y.logsumexp(1), x.norm(), (x / y.abs().clamp_min(0.1)).mean(dtype=torch.float64)


def normalises(x, y):
    return F.layer_norm(x, [6]), F.normalize(y, dim=0), F.log_softmax(x, 1)


def changes_dtypes(x, y):
    h = x.half() * 2
    return h.float() + y.double(), (x * 3).to(torch.int32)


def is_case(value):
    return hasattr(value, "__code__") and value.__code__.co_varnames[: value.__code__.co_argcount] == ("x", "y")


CASES = [value for value in list(globals().values()) if is_case(value)]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_outputs_and_gradients_are_those_of_eager(function):
    check(lambda tensors: function(*tensors), [tensor(4, 6), tensor(4, 6)])


def test_an_output_that_is_not_used_gives_no_gradient():
    x, y = tensor(4, 6), tensor(4, 6)
    compiled = Compiled(lambda t: [t[0] * 2, t[1] * 3], [x, y])
    a, b = copies([x, y])
    compiled(a, b)[0].sum().backward()
    assert b.grad is None
    assert torch.equal(a.grad, torch.full_like(a, 2))
    assert len(compiled.counts["backward"]) == 2


def test_a_zero_tangent_and_none_differ():
    """The gradient of x is None if only the second output is used, whatever zeros would give."""
    x, y = tensor(3), tensor(3)
    compiled = Compiled(lambda t: [t[0].log(), t[0] * 0 + t[1]], [x, y])
    for used in (0, 1):
        eager, ours = copies([x, y]), copies([x, y])
        [eager[0].log(), eager[0] * 0 + eager[1]][used].sum().backward()
        compiled(*ours)[used].sum().backward()
        for a, b in zip(eager, ours):
            assert (a.grad is None) == (b.grad is None)
            assert a.grad is None or torch.equal(a.grad.nan_to_num(7), b.grad.nan_to_num(7))


def test_data_dependent_sizes_end_a_region():
    with pytest.raises(RuntimeError, match="depend on data"):
        Compiled(lambda t: [t[0][t[1] > 0].sum()], [tensor(4), tensor(4)])


def test_tracing_leaves_the_state_of_torch_alone():
    x = tensor(3)
    state = torch.get_rng_state()

    def changes(t):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        return [F.dropout(t[0], 0.5) + torch.ones(3)]

    Compiled(changes, [x])
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), state)
