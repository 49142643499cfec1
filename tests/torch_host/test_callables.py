"""What C callables of torch do: samples of every kind, and checks of the tables against torch's own descriptions."""

import ast
import functools
import math
import operator
import pathlib
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import _C, _VF

aten = torch.ops.aten
B = _C.TensorBase
tensor = torch.ones(3)

SAMPLES = {
    "tensor": [
        torch.add, torch.Tensor.add, torch.Tensor.add_, tensor.add, B.__add__, B.__iadd__, torch.matmul, torch.cat,
        torch.zeros, torch.tensor, torch.rand, torch.dropout, F.linear, F.gelu, F.scaled_dot_product_attention,
        torch.fft.fft, torch.linalg.inv, torch.special.erf, torch._foreach_add_, torch.conv2d, _VF.lstm, B.view,
        B.clone, B.__setitem__, B.copy_, torch.mul, torch.Tensor.detach, torch.Tensor.__neg__, torch.ones_like,
        torch.arange, aten.add, aten.add.Tensor, aten.mm.default, B._make_subclass,
        _C._group_tensors_by_device_and_dtype, _C._functorch._add_batch_dim, _C._functorch.get_unwrapped,
        torch.FloatTensor,
    ],
    "metadata": [
        B.size, B.dim, B.stride, B.numel, B.is_contiguous, B.element_size, B.storage_offset, B.get_device,
        B.is_floating_point, torch.is_floating_point, torch.is_complex, torch.numel, B.__len__, tensor.size,
        torch.result_type, torch.promote_types, torch.can_cast, _C._has_torch_function, _C._has_torch_function_unary,
        _C._has_torch_function_variadic, torch.overrides.has_torch_function, _C._nn._parse_to, torch.device, torch.Size,
        torch.Size.numel, aten.size, aten.size.default, aten.sym_size.int, torch.finfo, _C._log_api_usage_once,
    ],
    "sync": [
        B.item, tensor.item, B.tolist, B.__bool__, B.__int__, B.__float__, B.__index__, B.__complex__, torch.equal,
        torch.allclose, torch.is_nonzero, B.equal, B.is_coalesced, B._is_view, torch.get_num_threads, aten.item,
        aten.item.default, aten._local_scalar_dense.default, aten.equal.default, aten.Bool.Tensor, B.is_pinned,
    ],
    "state_read": [
        torch.is_grad_enabled, torch.is_inference_mode_enabled, _C._get_tracing_state, _C._is_tracing,
        _C._get_cudnn_enabled, _C._is_torch_function_enabled, torch.is_autocast_enabled, torch.get_autocast_dtype,
        torch.get_default_dtype, _C._get_deterministic_algorithms, _C._get_flash_sdp_enabled,
        _C._are_functorch_transforms_active, _C._functorch.maybe_current_level, _C._len_torch_function_stack,
    ],
    "state_write": [
        _C._set_grad_enabled, torch.set_autocast_enabled, torch.set_autocast_dtype, torch.autocast_increment_nesting,
        torch.clear_autocast_cache, _C._functorch._vmap_increment_nesting, _C._functorch._grad_decrement_nesting,
        _C._set_cudnn_enabled, torch.set_num_threads, _C._InferenceMode, _C._InferenceMode.__enter__,
        _C.DisableTorchFunctionSubclass, _C.DisableTorchFunctionSubclass().__exit__, _C._push_on_torch_function_stack,
        _C._enter_dual_level, _C._autograd._push_saved_tensors_default_hooks, torch.set_flush_denormal,
        _C._DisableFuncTorch.__enter__,
    ],
    "data_dependent": [
        torch.nonzero, B.nonzero, torch.masked_select, torch._unique2, torch.bincount, torch.argwhere, torch.where,
        B.__getitem__, torch.repeat_interleave, F.one_hot, aten.nonzero, aten.nonzero.default, aten.index.Tensor,
        _VF.unique_consecutive, torch.linalg.lstsq, aten._unique2.default, B.values,
    ],
    "mutates_metadata": [
        B.resize_, B.set_, B.requires_grad_, torch.Tensor.detach_, B.t_, B.squeeze_, B.unsqueeze_, B.transpose_,
        B.retain_grad, B.as_strided_, aten.squeeze_.dim, aten.set_.source_Tensor, _C._swap_tensor_impl,
    ],
    "backward": [torch.autograd.Variable._execution_engine.run_backward],
    "callback": [
        _C._FunctionBase.apply, _C._FunctionBase.__dict__["apply"],
        torch.autograd.Variable._execution_engine.queue_callback,
        (torch.ones(1, requires_grad=True) * 2).grad_fn.register_hook, B.apply_, _C._disabled_torch_function_impl,
        (torch.ones(1, requires_grad=True) * 2).grad_fn._register_hook_dict,
    ],
    "random": [
        torch.default_generator.manual_seed, torch.default_generator.get_state, torch.default_generator.seed,
        torch.Generator, torch.Generator.set_state,
    ],
    "foreign": [
        B.numpy, B.data_ptr, B.untyped_storage, torch.from_numpy, torch.frombuffer, _C._to_dlpack, _C._storage_address,
        _C.StorageBase.data_ptr,
    ],
    "opaque": [
        _C.fork, _C._jit_pass_inline, _C._get_value_trace, B.record_stream, _C._dispatch_dump, _C.ScriptFunction,
        _C._functorch.peek_interpreter_stack, aten.add.Tensor._op, _C._mtia_init, _C._profiler.gather_traceback,
    ],
}  # fmt: skip

NOT_TORCH = [
    len, print, [].append, list.append, dict.get, math.sqrt, operator.add, isinstance, object, int, type, "x", None,
    np.add, np.ndarray.sum, functools.partial(torch.add, 1), object.__new__, torch.nn.Linear(1, 1), abs,
    lambda: 0, torch.nn.functional.relu, torch.Tensor.__repr__, torch.nn.Module, torch.no_grad, torch, torch.float32,
    object().__init__, str.join, torch.broadcast_tensors,
    types.ModuleType, types.ModuleType.__getattribute__, type(torch).__repr__, object.__init__,
]  # fmt: skip

CASES = [(kind, callable_) for kind, callables in SAMPLES.items() for callable_ in callables]


@pytest.mark.parametrize("kind, callable_", CASES, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(CASES)])
def test_samples_have_their_kind(native, kind, callable_):
    is_torch, found, name = native.classify(callable_)
    assert (is_torch, found) == (True, kind), (callable_, name)
    assert native.classify(callable_) == (is_torch, found, name)


def test_there_are_enough_samples():
    assert len(CASES) >= 80


@pytest.mark.parametrize("callable_", NOT_TORCH, ids=range(len(NOT_TORCH)))
def test_other_objects_are_not_of_torch(native, callable_):
    assert native.classify(callable_) == (False, "unknown", "")


def test_names_are_canonical(native):
    assert native.classify(torch.Tensor.item)[2] == "Tensor.item"
    assert native.classify(tensor.item)[2] == "Tensor.item"
    assert native.classify(torch.nonzero)[2] == "torch.nonzero"
    assert native.classify(_VF.nonzero)[2] == "torch.nonzero"
    assert native.classify(_C._get_tracing_state)[2] == "torch._C._get_tracing_state"
    assert native.classify(aten.add.Tensor)[2] == "aten::add.Tensor"


def test_methods_of_subclass_instances_are_those_of_tensors(native):
    class Subclass(torch.Tensor):
        pass

    assert native.classify(tensor.as_subclass(Subclass).item)[1] == "sync"
    assert native.classify(Subclass.nonzero)[1] == "data_dependent"


@pytest.mark.filterwarnings("ignore")
def test_script_functions_are_opaque(native):
    assert native.classify(torch.jit.trace(lambda x: x + 1, (tensor,)))[:2] == (True, "opaque")


def test_a_subclass_of_function_applies_as_a_callback(native):
    class Double(torch.autograd.Function):
        pass

    assert native.classify(super(torch.autograd.Function, Double).apply)[1] == "callback"


def test_custom_operators_follow_their_tags(native):
    library = torch.library.Library("reprise_test", "DEF")
    library.define("plain(Tensor x) -> Tensor")
    library.define("sized(Tensor x) -> Tensor", tags=(torch.Tag.dynamic_output_shape,))
    library.define("value(Tensor x) -> Scalar", tags=(torch.Tag.data_dependent_output,))
    kinds = {name: native.classify(getattr(torch.ops.reprise_test, name).default)[1]
             for name in ("plain", "sized", "value")}  # fmt: skip
    # One without a tag may be a non-maximum suppression.
    assert kinds == {"plain": "data_dependent", "sized": "data_dependent", "value": "sync"}


# --- sizes ---

MASK, INDEX = torch.ones(3, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
SIZES = [
    (True, torch.nonzero, (tensor,), {}),
    (False, torch.add, (tensor, tensor), {}),
    (True, torch.where, (MASK,), {}),
    (False, torch.where, (MASK, tensor, tensor), {}),
    (False, torch.where, (MASK, 0.0), {"other": tensor}),
    (True, F.one_hot, (INDEX,), {}),
    (False, F.one_hot, (INDEX, 3), {}),
    (False, F.one_hot, (INDEX,), {"num_classes": 3}),
    (True, F.one_hot, (INDEX,), {"num_classes": -1}),
    (True, torch.repeat_interleave, (INDEX,), {}),
    (True, torch.repeat_interleave, (tensor, INDEX), {}),
    (False, torch.repeat_interleave, (tensor, 2), {"dim": 0}),
    (False, torch.repeat_interleave, (tensor,), {"repeats": 2}),
    (False, torch.repeat_interleave, (tensor, INDEX), {"output_size": 4}),
    (True, torch.Tensor.repeat_interleave, (tensor, INDEX), {}),
    (False, torch.tensor_split, (tensor, 3), {}),
    (True, torch.tensor_split, (tensor, INDEX), {}),
    (False, B.__getitem__, (tensor, 0), {}),
    (False, B.__getitem__, (tensor, slice(1, None)), {}),
    (False, B.__getitem__, (tensor, (None, Ellipsis, INDEX)), {}),
    (False, B.__getitem__, (tensor, True), {}),
    (True, B.__getitem__, (tensor, MASK), {}),
    (True, B.__getitem__, (tensor, (slice(None), MASK)), {}),
    (True, B.__getitem__, (tensor, MASK.to(torch.uint8)), {}),
    (True, B.__getitem__, (tensor, slice(torch.tensor(1), None)), {}),
    (True, B.__getitem__, (tensor, np.array([True, False, True])), {}),
    (True, aten.index.Tensor, (tensor, [MASK]), {}),
    (False, aten.index.Tensor, (tensor, [None, INDEX]), {}),
]


@pytest.mark.parametrize("expected, callable_, args, kwargs", SIZES, ids=range(len(SIZES)))
def test_sizes_depend_on_data_with_these_arguments(native, expected, callable_, args, kwargs):
    assert native.has_data_dependent_sizes(callable_, *args, **kwargs) == expected


# --- against torch's own descriptions ---

TYPES = pathlib.Path(torch.__file__).parent / "_C"


def read_signatures(file, class_name=None):
    """Return annotations of every function of a type stub: name -> set of texts."""
    body = ast.parse((TYPES / file).read_text()).body
    if class_name:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name).body
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            found.setdefault(node.name, set()).add(ast.unparse(node.returns))
    return found


def gives_tensors(annotations):
    return any("Tensor" in text or text in ("Self", "S", "None") or text.startswith("torch.return_types")
               for text in annotations)  # fmt: skip


def test_what_gives_python_values_has_a_row(native):
    """A function whose stub says that it returns a bool, an int, a dtype ... must not be taken for an operation."""
    missing = []
    for owner, file, class_name in [
        (B, "__init__.pyi", "TensorBase"), (torch._C._VariableFunctions, "_VariableFunctions.pyi", None)
    ]:  # fmt: skip
        for name, annotations in read_signatures(file, class_name).items():
            callable_ = getattr(owner, name, None)
            if callable_ is None or gives_tensors(annotations):
                continue
            is_torch, kind, full = native.classify(callable_)
            if is_torch and kind == "tensor":
                missing.append((full, annotations))
    # Python calls these with tensors and gets tensors, whatever the stub says.
    allowed = {"Tensor.__eq__", "Tensor.__ne__"}
    assert [row for row in missing if row[0] not in allowed] == []


TAGGED = {"dynamic_output_shape": "data_dependent", "data_dependent_output": "sync", "inplace_view": "mutates_metadata"}


def test_operators_tagged_by_torch_have_the_kind_of_their_tag(native):
    wrong = []
    for schema in _C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        packet = getattr(aten, schema.name[6:], None)
        overload = packet and getattr(packet, schema.overload_name or "default", None)
        if not isinstance(overload, torch._ops.OpOverload):
            continue
        tags = {str(tag).split(".")[1] for tag in overload.tags}
        expected = {kind for tag, kind in TAGGED.items() if tag in tags}
        if expected and native.classify(overload)[1] not in expected:
            wrong.append((str(overload), expected, native.classify(overload)[1]))
    assert wrong == []


def test_every_attribute_of_tensors_has_a_row(native):
    getsets = [name for name, value in vars(B).items() if type(value).__name__ == "getset_descriptor"]
    assert len(getsets) > 40
    missing = [name for name in getsets if native.classify_attribute(vars(B)[name])[0] == "unknown"]
    assert missing == []
    assert [name for name in getsets if native.classify_attribute(name)[0] == "unknown"] == []


ATTRIBUTES = {
    ("metadata", "unknown"): ["shape", "dtype", "device", "ndim", "is_leaf", "layout", "is_cuda", "itemsize", "nbytes"],
    ("metadata", "metadata"): ["requires_grad"],
    ("heap_state", "heap_state"): ["grad", "_grad", "_backward_hooks", "_post_accumulate_grad_hooks"],
    ("heap_state", "unknown"): ["grad_fn", "_base", "_version", "retains_grad"],
    ("tensor", "unknown"): ["T", "mT", "H", "mH"],
    ("tensor", "tensor"): ["real", "imag"],
    ("tensor", "metadata"): ["data"],
    ("foreign", "unknown"): ["_cdata"],
    ("unknown", "unknown"): ["no_such_attribute", "item", "__dict__", 3],
}


@pytest.mark.parametrize("kinds", ATTRIBUTES, ids="-".join)
def test_attributes_have_their_kind(native, kinds):
    for name in ATTRIBUTES[kinds]:
        assert native.classify_attribute(name) == kinds, name


def test_getsets_of_other_types_are_not_of_tensors(native):
    assert native.classify_attribute(type(torch.float32).__dict__["is_complex"]) == ("unknown", "unknown")


def test_rows_name_something(native):
    """A row that names nothing here must belong to another build or version of torch."""

    def is_elsewhere(name):
        return (name.startswith(("torch._C._cuda_", "torch._C._xpu_"))
                or (name.startswith("*.") and hasattr(aten, name[2:]))
                or name in {"*.has_names", "*.rename_"})  # fmt: skip

    unresolved = [name for name in native.find_unresolved_rows() if not is_elsewhere(name)]
    if torch.__version__.startswith("2.13."):
        assert unresolved == []
    else:
        print("rows that name nothing in torch", torch.__version__, unresolved)
