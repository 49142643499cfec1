"""Regions that write to tensors and look through views: the same bits, versions, effects and aliases as in eager."""

import pytest
import torch

from tests.aot.harness import check


def tensor(*sizes, grad=True):
    torch.manual_seed(1)
    return torch.randn(*sizes).requires_grad_(grad)


def inputs():
    return [tensor(4, 6), tensor(4, 6), tensor(4, 6, grad=False)]


def writes_to_views(x, y, b):
    z = x * 2
    z[1:3].mul_(y[1:3])
    z[:, 0].add_(1)
    return z.sin()


def views_of_views_all_read_again(x, y, b):
    z = x * 2
    v = z.view(-1)
    w = z.t()
    v[3:9].add_(1)
    w[2].mul_(3)
    return z * y, v.sum(), w


def writes_to_an_input_buffer(x, y, b):
    b.add_(x.detach())
    b[0].zero_()
    return b * x


def writes_an_input_that_needs_grad_into_a_buffer(x, y, b):
    b.mul_(0.5)
    b.add_(x)
    return b * 2


def writes_where_a_mask_is_true(x, y, b):
    z = x * 1
    z[z > 0] = 0.5
    return z * y


def gives_an_output_argument(x, y, b):
    out = torch.empty(4, 6)
    torch.add(x.detach(), b, out=out)
    return out, out * x


def gives_an_empty_output_argument(x, y, b):
    out = torch.empty(0)
    torch.add(b, 1, out=out)
    return out * x


def returns_views_of_inputs(x, y, b):
    return b[1:], b.view(-1), x.t(), x * 1


def returns_views_of_outputs(x, y, b):
    z = x * y
    return z, z[1], z.t(), z.detach()


def returns_a_detached_output_first(x, y, b):
    z = x * y
    return z.detach(), z


def returns_parts_of_one_tensor(x, y, b):
    z = x * y
    left, right = z.chunk(2, 1)
    return left, right, z[0, :2].detach()


def returns_one_output_thrice(x, y, b):
    z = x * y
    return z, z, [z]


def returns_a_written_input_and_a_view_of_it(x, y, b):
    b.add_(1)
    return b[0], b


def resizes(x, y, b):
    z = torch.zeros(3)
    z.resize_(2, 4)
    z.fill_(2)
    return z * x[:2, :4]


def sets(x, y, b):
    z = torch.zeros(3)
    z.set_(b)
    return z * x


def writes_data_of_an_intermediate(x, y, b):
    z = x * 2
    z.data = b * 3
    return z + x


def writes_data_of_an_input(x, y, b):
    b.data = b * 3
    return b + x


def writes_through_data(x, y, b):
    x.data.mul_(2)
    return x * b


def writes_to_a_leaf_without_grad_mode(x, y, b):
    with torch.no_grad():
        x.mul_(2)
        x[0].add_(y[0])
    return x * b


def reads_split_views_again(x, y, b):
    a, c = x.chunk(2, 0)
    z = (a * c).detach()
    p, q = z.split(1, 0)
    z.mul_(2)
    return z * a + p * q


def writes_a_list_in_place(x, y, b):
    z, w = x * 1, y * 1
    torch._foreach_mul_([z, w], 2.0)
    torch._foreach_add_([z, w], [w, b])
    return z, w


def writes_to_a_diagonal_of_a_view(x, y, b):
    z = x.expand(2, 4, 6) * 1
    z.select(0, 1).diagonal().add_(y[:, 0])
    return z


def writes_to_a_complex_view(x, y, b):
    z = torch.view_as_complex(x.view(4, 3, 2) * 1)
    z.mul_(2j)
    return torch.view_as_real(z)


def conjugates(x, y, b):
    z = torch.view_as_complex(x.view(4, 3, 2) * 1)
    return torch.view_as_real((z.conj() * z).resolve_conj()), z.conj().imag.sum()


def writes_a_constant(x, y, b):
    k = torch.tensor([1.0, 2.0, 3.0, 4.0])
    k.add_(1)
    return x * k.unsqueeze(1), k


def writes_to_an_expanded_copy(x, y, b):
    z = torch.zeros(6).expand(4, 6).clone()
    z[:, ::2] = y[:, ::2]
    z[1] += 1
    return z * x


def is_case(value):
    return hasattr(value, "__code__") and value.__code__.co_varnames[: value.__code__.co_argcount] == ("x", "y", "b")


CASES = [value for value in list(globals().values()) if is_case(value)]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_writes_and_views_are_those_of_eager(function):
    check(lambda tensors: function(*tensors), inputs())


def write_to_nonleaf(x, y):
    x.mul_(y)
    return x + 1


def write_to_view_of_nonleaf(x, y):
    x[1].mul_(y[1])
    return x + 1, x.sum()


def write_to_nonleaf_without_grad(x, y):
    with torch.no_grad():
        x.mul_(2)
    return x * y


@pytest.mark.parametrize("function", [write_to_nonleaf, write_to_view_of_nonleaf, write_to_nonleaf_without_grad])
def test_an_input_that_is_no_leaf_may_be_written_to(function):
    compiled = check(lambda tensors: function(*tensors), inputs()[:2], nonleaf=(0,))
    assert compiled.counts["needs_storage_identity"]


def modifies_a_saved_tensor(x, y, b):
    z = x.exp()
    w = z * y
    z.exp_()
    y.detach().add_(1)
    return (w, z)


def writes_to_a_leaf(x, y, b):
    x.add_(1)
    return x


def writes_to_a_view_of_a_split(x, y, b):
    p, q = (x * 1).split(2)
    p.add_(1)
    return p


@pytest.mark.parametrize("function", [modifies_a_saved_tensor, writes_to_a_leaf, writes_to_a_view_of_a_split])
def test_errors_of_eager_are_raised_while_tracing(function):
    with pytest.raises(RuntimeError) as eager:
        flat = function(*inputs())
        torch.autograd.backward(flat, [torch.ones_like(x) for x in flat])
    with pytest.raises(RuntimeError) as ours:
        check(lambda tensors: function(*tensors), inputs())
    assert str(eager.value)[:60] in str(ours.value)


def test_outputs_share_memory_as_in_eager():
    for function in (returns_views_of_inputs, returns_views_of_outputs, returns_one_output_thrice):
        assert check(lambda tensors: function(*tensors), inputs()).same_aliasing


def test_a_view_that_is_written_to_and_needs_grad_is_refused():
    base = (tensor(4, 6) * 1).requires_grad_()
    from tests.aot.harness import Compiled

    with pytest.raises(RuntimeError, match="is a view"):
        Compiled(lambda tensors: tensors[0].mul_(2), [base[1:]])
