"""Many parameters checked in one pass: every change of one is seen, and where."""

import pytest
import torch
from torch import nn


class Subclass(torch.Tensor):
    pass


def make(native, tensors):
    array = native.array_new()
    for tensor in tensors:
        assert native.array_add(array, tensor)
    return array


def test_unchanged_parameters_pass_before_and_after_training(native):
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)])
    tensors = [*model.parameters(), torch.ones(2, 2).to_sparse(), torch.ones(1, 2, 3, 4, 5, 6)]
    array = make(native, tensors)
    assert native.array_check(array)
    assert native.array_find(array) == len(tensors)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    assert native.array_check(array)
    optimizer.zero_grad()
    assert native.array_check(array)


def test_an_empty_array_passes(native):
    assert native.array_check(make(native, []))


def set_grad_fn(tensor):
    with torch.no_grad():
        tensor.requires_grad_(False)
    tensor.mul_(torch.ones(1, requires_grad=True))


CHANGES = {
    "data of another dtype": lambda t: setattr(t, "data", t.data.double()),
    "data of another shape": lambda t: setattr(t, "data", torch.ones(4)),
    "data of another stride": lambda t: setattr(t, "data", torch.ones(3, 3).t()),
    "data at an offset": lambda t: setattr(t, "data", torch.ones(10)[1:].view(3, 3)),
    "requires_grad": lambda t: t.requires_grad_(not t.requires_grad),
    "grad_fn": set_grad_fn,
    "class": lambda t: setattr(t, "__class__", Subclass),
    "attribute": lambda t: setattr(t, "note", 1),
    "resize": lambda t: torch.no_grad()(lambda: t.resize_(2, 2))(),
    "transpose": lambda t: torch.no_grad()(lambda: t.t_())(),
    "swapped": lambda t: torch.utils.swap_tensors(t, nn.Parameter(torch.ones(3, 3))),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_parameter", [True, False], ids=["parameter", "buffer"])
def test_each_change_is_found(native, name, is_parameter):
    if name == "resize" and is_parameter:
        pytest.skip("torch refuses to resize what requires grad")
    if name == "swapped" and not is_parameter:
        pytest.skip("swap_tensors wants equal types")
    tensors = [nn.Parameter(torch.rand(3, 3)) if is_parameter else torch.rand(3, 3) for _ in range(20)]
    if name == "transpose":
        tensors = [nn.Parameter(torch.rand(2, 3)) if is_parameter else torch.rand(2, 3) for _ in range(20)]
    array = make(native, tensors)
    assert native.array_check(array)
    CHANGES[name](tensors[13])
    assert not native.array_check(array)
    assert native.array_find(array) == 13


def test_data_of_the_same_metadata_is_no_change(native):
    parameter = nn.Parameter(torch.ones(3))
    array = make(native, [parameter])
    parameter.data = torch.zeros(3)
    assert native.array_check(array)


def test_unsupported_tensors_are_refused(native):
    array = native.array_new()
    assert not native.array_add(array, torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    assert native.array_check(array)
