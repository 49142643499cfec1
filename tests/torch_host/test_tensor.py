"""What is a tensor, what a trace may know about it, and whether a guard sees each kind of change."""

import gc

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad


class Subclass(torch.Tensor):
    pass


class SubSubclass(Subclass):
    attribute = 1


class SubParameter(nn.Parameter):
    pass


class Wrapper(torch.Tensor):
    """A subclass with a __torch_dispatch__ of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("dispatched " + str(func))


class Liar:
    """Says that it is a tensor, to isinstance."""

    @property
    def __class__(self):
        return torch.Tensor


class Watchful(torch.Tensor):
    """Every attribute read in Python is seen."""

    seen = []

    def __getattribute__(self, name):
        Watchful.seen.append(name)
        return super().__getattribute__(name)


def test_tensors_of_all_types_are_tensors(native):
    for tensor in [
        torch.ones(2),
        nn.Parameter(torch.ones(2)),
        torch.ones(2).as_subclass(Subclass),
        torch.ones(2).as_subclass(SubSubclass),
        SubParameter(torch.ones(2)),
        nn.Buffer(torch.ones(2)),
        Wrapper(torch.ones(2)),
        torch.ones(2).to_sparse(),
        torch.empty(0, device="meta"),
    ]:
        assert native.is_tensor(tensor), type(tensor)


def test_other_objects_are_no_tensors(native):
    assert isinstance(Liar(), torch.Tensor)
    for thing in [
        None, 1, 1.0, "x", [], (), {}, object(), torch, torch.Tensor, nn.Parameter, torch.float32, torch.Size([1]),
        torch.device("cpu"), torch.ones(2).untyped_storage(), np.ones(2), nn.Linear(1, 1), Liar(), type, len,
        torch.ones(2).add, torch.nn.parameter.UninitializedParameter, torch.FloatTensor,
    ]:  # fmt: skip
        assert not native.is_tensor(thing), thing
        assert not native.is_plain_tensor(thing), thing


def test_only_tensor_and_parameter_are_plain(native):
    assert native.is_plain_tensor(torch.ones(2))
    assert native.is_plain_tensor(nn.Parameter(torch.ones(2)))
    for tensor in [torch.ones(2).as_subclass(Subclass), SubParameter(torch.ones(2)), Wrapper(torch.ones(2))]:
        assert not native.is_plain_tensor(tensor)


def test_questions_run_no_python(native):
    tensor = torch.ones(2).as_subclass(Watchful)
    Watchful.seen.clear()
    native.is_tensor(tensor)
    native.is_plain_tensor(tensor)
    native.tensor_impl(tensor)
    native.tensor_storage(tensor)
    native.may_share_memory(tensor, tensor)
    meta = native.make_tensor_meta(tensor)
    native.check_tensor_meta(meta, tensor)
    native.describe_meta_mismatch(meta, tensor)
    wrapper = Wrapper(torch.ones(2))  # would raise in __torch_dispatch__
    native.check_tensor_meta(native.make_tensor_meta(wrapper), wrapper)
    native.may_share_memory(wrapper, tensor)
    assert Watchful.seen == []


def test_identity_is_the_impl(native):
    tensor = torch.ones(2)
    assert native.tensor_impl(tensor) == tensor._cdata
    assert native.tensor_impl(tensor.view(2)) != tensor._cdata
    assert native.tensor_storage(tensor) == native.tensor_storage(tensor.view(2))
    assert native.tensor_storage(tensor) != native.tensor_storage(tensor.clone())
    assert native.tensor_storage(torch.ones(2).to_sparse()) == 0


def test_may_share_memory_follows_ranges_of_elements(native):
    base = torch.arange(12.0)
    assert native.may_share_memory(base, base)
    assert native.may_share_memory(base, base.view(3, 4).t())
    assert native.may_share_memory(base[:6], base[5:])
    assert not native.may_share_memory(base[:6], base[6:])
    assert not native.may_share_memory(base, base.clone())
    assert not native.may_share_memory(base[:0], base)
    assert native.may_share_memory(base[::2], base[1::2])  # ranges meet, elements don't: may
    assert native.may_share_memory(base.view(torch.int32), base)
    assert not native.may_share_memory(base.expand(2, 12)[:, :3], base[3:])
    meta = torch.empty(4, device="meta")
    assert native.may_share_memory(meta, meta[1:])
    assert not native.may_share_memory(meta, torch.empty(4, device="meta"))
    assert not native.may_share_memory(meta, base)


def test_may_share_memory_sees_two_storages_over_one_memory(native):
    array = np.zeros(8, dtype=np.float32)
    first, second = torch.from_numpy(array), torch.from_numpy(array[2:])
    assert native.tensor_storage(first) != native.tensor_storage(second)
    assert native.may_share_memory(first, second)
    assert not native.may_share_memory(first[:2], second)
    values = torch.ones(3)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), values, (3,))
    assert native.may_share_memory(sparse, values)


DESCRIPTIONS = [
    (lambda: torch.ones(2, 3), "f32[2,3] cpu strided"),
    (lambda: torch.ones(2, 3).t(), "f32[3,2] cpu strided strides [1,3]"),
    (lambda: nn.Parameter(torch.ones(2, 3)), "f32[2,3] cpu strided requires_grad"),
    (lambda: nn.Parameter(torch.ones(2)) * 2, "f32[2] cpu strided requires_grad non-leaf"),
    (lambda: torch.ones(4, dtype=torch.int64)[1:], "i64[3] cpu strided offset 1"),
    (lambda: torch.tensor(1, dtype=torch.bool), "bool[] cpu strided"),
    (lambda: torch.ones(2, dtype=torch.bfloat16, device="meta"), "bf16[2] meta strided"),
    (lambda: torch.ones(2, dtype=torch.complex64).conj(), "c64[2] cpu strided conj"),
    (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, "f32[2] cpu strided strides [2] offset 1 neg"),
    (lambda: torch.ones(2, 2).to_sparse(), "f32[2,2] cpu sparse"),
    (lambda: torch.ones(2, 2).to_sparse_csr(), "f32[2,2] cpu sparse_csr"),
    (lambda: torch.ones(1, 2, 3, 4, 5, 6, 7), "f32[1,2,3,4,5,6,7] cpu strided"),
    (lambda: torch.ones(2, 0, 3), "f32[2,0,3] cpu strided"),
]


@pytest.mark.parametrize("make, text", DESCRIPTIONS, ids=[text for _, text in DESCRIPTIONS])
def test_metadata_is_described_and_equal_to_itself(native, make, text):
    tensor = make()
    meta = native.make_tensor_meta(tensor)
    assert native.describe_tensor_meta(meta) == text
    assert native.is_supported(meta)
    assert native.check_tensor_meta(meta, tensor)
    assert native.check_tensor_header(meta, tensor)
    assert native.describe_meta_mismatch(meta, tensor) == ""
    again = make()
    assert native.check_tensor_meta(meta, again)
    assert native.is_equal_meta(meta, native.make_tensor_meta(again))


def with_attribute():
    tensor = torch.ones(2, 3)
    tensor.note = 1
    return tensor


def with_tangent():
    return forward_ad.make_dual(torch.ones(2, 3), torch.ones(2, 3))


def in_inference():
    with torch.inference_mode():
        return torch.ones(2, 3)


def base_of_trained_view():
    view = torch.ones(2, 3)[:]
    view.requires_grad_()
    return view


MISMATCHES = [
    ("dtype", lambda: torch.ones(2, 3, dtype=torch.float64), "dtype: f32 recorded, f64 now"),
    ("device", lambda: torch.ones(2, 3, device="meta"), "device: cpu recorded, meta now"),
    ("layout", lambda: torch.ones(2, 3).to_sparse(), "layout: strided recorded, sparse now"),
    ("dimensions", lambda: torch.ones(2, 3, 1), "dimensions: 2 recorded, 3 now"),
    ("fewer dimensions", lambda: torch.ones(6), "dimensions: 2 recorded, 1 now"),
    ("size", lambda: torch.ones(4, 3), "size at dim 0: 2 recorded, 4 now"),
    ("last size", lambda: torch.ones(2, 5), "size at dim 1: 3 recorded, 5 now"),
    ("stride", lambda: torch.ones(3, 2).t(), "stride at dim 0: 3 recorded, 1 now"),
    ("expanded", lambda: torch.ones(3).expand(2, 3), "stride at dim 0: 3 recorded, 0 now"),
    ("storage offset", lambda: torch.ones(7)[1:].view(2, 3), "storage offset: 0 recorded, 1 now"),
    ("requires_grad", lambda: torch.ones(2, 3, requires_grad=True), "requires_grad: no recorded, yes now"),
    ("is_leaf", lambda: torch.ones(2, 3, requires_grad=True) * 2, "requires_grad: no recorded, yes now"),
    ("trained view", base_of_trained_view, "requires_grad: no recorded, yes now"),
    ("attributes", with_attribute, "instance attributes: no recorded, yes now"),
    ("inference tensor", in_inference, "dispatch keys: "),
    ("wrapper", lambda: Wrapper(torch.ones(2, 3)), "tensor: f32[2,3] cpu strided recorded, unsupported tensor"),
    ("None", lambda: None, "not a tensor: NoneType"),
    ("liar", lambda: Liar(), "not a tensor: Liar"),
]


@pytest.mark.parametrize("make, text", [row[1:] for row in MISMATCHES], ids=[row[0] for row in MISMATCHES])
def test_each_kind_of_mismatch_is_detected_and_told(native, make, text):
    meta = native.make_tensor_meta(torch.ones(2, 3))
    other = make()
    assert not native.check_tensor_meta(meta, other)
    assert native.describe_meta_mismatch(meta, other).startswith(text)
    if native.is_tensor(other):
        assert not native.is_equal_meta(meta, native.make_tensor_meta(other))
        assert not native.check_tensor_meta(native.make_tensor_meta(other), torch.ones(2, 3))


def test_leaf_and_result_differ(native):
    leaf = torch.ones(2, requires_grad=True)
    meta = native.make_tensor_meta(leaf)
    assert native.describe_meta_mismatch(meta, leaf * 2) == "is_leaf: yes recorded, no now"


def test_conj_and_neg_bits_differ(native):
    plain = torch.ones(2, dtype=torch.complex64)
    assert not native.check_tensor_meta(native.make_tensor_meta(plain), plain.conj())
    assert not native.check_tensor_meta(native.make_tensor_meta(plain), torch._neg_view(plain))


def test_a_tangent_is_seen(native):
    with forward_ad.dual_level():
        meta = native.make_tensor_meta(torch.ones(2, 3))
        assert native.describe_meta_mismatch(meta, with_tangent()).startswith("forward gradient: no recorded")


def test_header_leaves_sizes_open(native):
    meta = native.make_tensor_meta(torch.ones(2, 3))
    assert native.check_tensor_header(meta, torch.ones(4, 5))
    assert native.check_tensor_header(meta, torch.ones(5, 4).t()[1:])
    assert not native.check_tensor_header(meta, torch.ones(2, 3, 1))
    assert not native.check_tensor_header(meta, torch.ones(2, 3).double())
    assert not native.check_tensor_header(meta, torch.ones(2, 3, requires_grad=True))
    assert not native.check_tensor_header(meta, 3)


def test_more_than_inline_dimensions_are_compared(native):
    for count in range(9):
        shape = [2] * count
        meta = native.make_tensor_meta(torch.ones(shape))
        assert native.check_tensor_meta(meta, torch.ones(shape))
        for dim in range(count):
            other = list(shape)
            other[dim] = 3
            assert not native.check_tensor_meta(meta, torch.ones(other))


def test_what_is_not_metadata_is_not_compared(native):
    parameter = nn.Parameter(torch.ones(3))
    meta = native.make_tensor_meta(parameter)
    parameter.sum().backward()
    assert parameter.grad is not None
    assert native.check_tensor_meta(meta, parameter)
    parameter.grad = None
    parameter.data.add_(1)
    parameter.__dict__  # made on demand, empty
    hook = parameter.register_hook(lambda grad: grad)
    hook.remove()
    assert native.check_tensor_meta(meta, parameter)


def unsupported():
    from torch._subclasses.fake_tensor import FakeTensorMode

    yield "wrapper", Wrapper(torch.ones(2))
    yield "fake", FakeTensorMode().from_tensor(torch.ones(2))
    yield "nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    yield "jagged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    yield "quantized", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    yield "functional", torch._to_functional_tensor(torch.ones(2))


def test_tensors_that_are_not_what_they_seem_are_never_equal(native):
    for name, tensor in unsupported():
        meta = native.make_tensor_meta(tensor)
        assert not native.is_supported(meta), name
        assert not native.check_tensor_meta(meta, tensor), name
        assert not native.check_tensor_header(meta, tensor), name
        assert native.describe_tensor_meta(meta).startswith("unsupported tensor"), name
        assert native.describe_meta_mismatch(meta, tensor) != "", name
        assert native.may_share_memory(tensor, torch.ones(2)), name


def test_tensors_of_functorch_are_never_equal(native):
    found = []

    def look(x):
        meta = native.make_tensor_meta(x)
        found.append((native.is_supported(meta), native.check_tensor_meta(meta, x)))
        return x.sum()

    torch.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(torch.ones(3))
    assert found == [(False, False)] * 2


def test_meta_keeps_no_tensor_alive(native):
    import weakref

    tensor = torch.ones(2)
    meta = native.make_tensor_meta(tensor)
    reference = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert reference() is None
    assert native.describe_tensor_meta(meta) == "f32[2] cpu strided"
