"""The torch state word: every switch changes it, restoring the switch restores it, differences are told."""

import contextlib
import gc
import threading

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

C = torch._C


@contextlib.contextmanager
def flipped(get, put, value=None):
    """A switch set to another value, then back."""
    old = get()
    put(not old if value is None else value)
    try:
        yield
    finally:
        put(old)


class FunctionMode(TorchFunctionMode):
    pass


class DispatchMode(TorchDispatchMode):
    pass


def autocast_dtype(device, value):
    return flipped(lambda: torch.get_autocast_dtype(device), lambda v: torch.set_autocast_dtype(device, v), value)


def deterministic(value, warn_only=False):
    return flipped(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda v: C._set_deterministic_algorithms(v[0], warn_only=v[1]),
        (value, warn_only),
    )


def fp32_precision(backend, op):
    return flipped(
        lambda: C._get_fp32_precision_getter(backend, op),
        lambda v: C._set_fp32_precision_setter(backend, op, v),
        "ieee",
    )


def context(name, value=None):
    return lambda: flipped(getattr(C, "_get_" + name), getattr(C, "_set_" + name), value)


def sdp(name):
    return lambda: flipped(getattr(C, f"_get_{name}_sdp_enabled"), getattr(C, "_set_sdp_use_" + name))


SWITCHES = [
    ("grad mode", torch.no_grad, "grad mode: on when recorded, off now"),
    ("inference mode", torch.inference_mode, "inference mode: off when recorded, on now"),
    ("forward grad mode", lambda: forward_ad._set_fwd_grad_enabled(False), "forward grad mode: on when recorded"),
    ("forward level", forward_ad.dual_level, "forward-mode level: off when recorded, on now"),
    ("multithreading", lambda: torch.autograd.set_multithreading_enabled(False), "multithreaded backward: on"),
    ("view replay", lambda: torch.autograd._force_original_view_tracking(True), "view replay: off when recorded"),
    ("anomaly mode", torch.autograd.detect_anomaly, "anomaly mode: off when recorded, on now"),
    ("anomaly nan", lambda: torch.autograd.set_detect_anomaly(True, check_nan=False), "anomaly mode's nan check: on"),
    ("autocast cpu", lambda: torch.autocast("cpu"), "autocast for cpu: off when recorded, on now"),
    ("autocast cuda", lambda: flipped(lambda: False, lambda v: torch.set_autocast_enabled("cuda", v), True),
     "autocast for cuda: off when recorded, on now"),
    ("autocast xpu", lambda: flipped(lambda: False, lambda v: torch.set_autocast_enabled("xpu", v), True),
     "autocast for xpu: off when recorded, on now"),
    ("autocast dtype cpu", lambda: autocast_dtype("cpu", torch.float16),
     "autocast dtype for cpu: BFloat16 when recorded, Half now"),
    ("autocast dtype cuda", lambda: autocast_dtype("cuda", torch.bfloat16),
     "autocast dtype for cuda: Half when recorded, BFloat16 now"),
    ("autocast cache", lambda: flipped(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
     "autocast cache: on when recorded, off now"),
    ("default dtype", lambda: flipped(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
     "default dtype: Float when recorded, Double now"),
    ("default device", lambda: torch.device("meta"), "torch function modes: none when recorded, another now"),
    ("function mode", FunctionMode, "torch function modes: none when recorded, another now"),
    ("dispatch mode", DispatchMode, "number of dispatch modes: 0 when recorded, 1 now"),
    ("subclass torch function", torch._C.DisableTorchFunctionSubclass, "torch function: on when recorded, off for"),
    ("torch function", torch._C.DisableTorchFunction, "torch function: on when recorded, off now"),
    ("saved tensor hooks", lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
     "number of saved tensor hooks: 0 when recorded, 1 now"),
    ("saved tensor hooks disabled", lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
     "saved tensor hooks disabled: off when recorded, on now"),
    ("dispatch key", lambda: torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(C.DispatchKey.ADInplaceOrView)),
     "excluded dispatch keys: ADInplaceOrView now, not when recorded"),
    ("deterministic", lambda: deterministic(True), "deterministic algorithms: off when recorded, on now"),
    ("deterministic warn only", lambda: deterministic(True, True), "deterministic algorithms warn only: off"),
    ("deterministic fill", context("deterministic_fill_uninitialized_memory"), "deterministic fill of new memory: on"),
    ("cudnn", context("cudnn_enabled"), "cudnn.enabled: on when recorded, off now"),
    ("cudnn deterministic", context("cudnn_deterministic"), "cudnn.deterministic: off when recorded, on now"),
    ("cudnn benchmark", context("cudnn_benchmark"), "cudnn.benchmark: off when recorded, on now"),
    ("cudnn tf32", context("cudnn_allow_tf32"), "cudnn.allow_tf32: on when recorded, off now"),
    ("miopen", context("miopen_immediate"), "miopen.immediate: off when recorded, on now"),
    ("mkldnn", context("mkldnn_enabled"), "mkldnn.enabled: on when recorded, off now"),
    ("mkldnn deterministic", context("mkldnn_deterministic"), "mkldnn.deterministic: off when recorded, on now"),
    ("nnpack", context("nnpack_enabled"), "nnpack.enabled: on when recorded, off now"),
    ("flash", sdp("flash"), "flash attention: on when recorded, off now"),
    ("flash 3", sdp("fa3"), "flash attention 3: off when recorded, on now"),
    ("mem efficient", sdp("mem_efficient"), "memory-efficient attention: on when recorded, off now"),
    ("math", sdp("math"), "math attention: on when recorded, off now"),
    ("cudnn sdp", sdp("cudnn"), "cudnn attention: on when recorded, off now"),
    ("overrideable sdp", sdp("overrideable"), "overrideable attention: on when recorded, off now"),
    ("math sdp reduction", context("math_sdp_allow_fp16_bf16_reduction"), "half reductions in math attention: off"),
    ("sdp order", lambda: flipped(C._get_sdp_priority_order, C._set_sdp_priority_order, [2, 1, 0, 3, 4]),
     "attention backend order: "),
    ("matmul precision",
     lambda: flipped(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
     "float32 matmul precision: highest when recorded, high now"),
    ("cublas tf32", context("cublas_allow_tf32"), "float32 matmul precision: highest when recorded, high now"),
    ("cublas fp16", lambda: flipped(lambda: (True, True),
                                    lambda v: C._set_cublas_allow_fp16_reduced_precision_reduction(*v), (False, True)),
     "cublas fp16 reductions: 0 when recorded, 1 now"),
    ("cublas bf16", lambda: flipped(lambda: (True, True),
                                    lambda v: C._set_cublas_allow_bf16_reduced_precision_reduction(*v), (False, True)),
     "cublas bf16 reductions: 0 when recorded, 1 now"),
    ("cublas accumulation", context("cublas_allow_fp16_accumulation"), "cublas fp16 accumulation: off"),
    ("cpu fp16", context("cpu_allow_fp16_reduced_precision_reduction"), "cpu fp16 reductions: off when recorded"),
    ("linalg", context("linalg_preferred_backend", C._LinalgBackend.Magma), "preferred linalg backend: 0"),
    ("sm carveout", context("sm_carveout_experimental", 4), "SM carve-out: unset when recorded, 4 now"),
    ("fp32 precision", lambda: fp32_precision("generic", "all"), "float32 precision: none when recorded, ieee now"),
    ("fp32 precision mkldnn conv", lambda: fp32_precision("mkldnn", "conv"),
     "float32 precision of mkldnn convolutions: none when recorded, ieee now"),
    ("sparse invariants", lambda: flipped(lambda: False, C._set_check_sparse_tensor_invariants, True),
     "sparse invariant checks: "),
    ("quantized engine", lambda: flipped(C._get_qengine, C._set_qengine, other_quantized_engine()),
     "quantized engine: "),
    ("vmap", lambda: functorch_level("vmap"), "number of functorch levels: 0 when recorded, 1 now"),
    ("grad transform", lambda: functorch_level("grad"), "number of functorch levels: 0 when recorded, 1 now"),
    ("tracing", lambda: flipped(lambda: None, lambda v: C._set_tracing_state(v), C._get_tracing_state() or tracer()),
     "included dispatch keys: Tracer now, not when recorded"),
]  # fmt: skip


def other_quantized_engine():
    return next(engine for engine in C._supported_qengines() if engine not in (0, C._get_qengine()))


def tracer():
    graph_state = []

    def look(x):
        graph_state.append(C._get_tracing_state())
        return x

    torch.jit.trace(look, (torch.ones(1),))
    return graph_state[0]


@contextlib.contextmanager
def functorch_level(kind):
    if kind == "vmap":
        C._functorch._vmap_increment_nesting(3, "error")
    else:
        C._functorch._grad_increment_nesting()
    try:
        yield
    finally:
        getattr(C._functorch, f"_{kind}_decrement_nesting")()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make, text", [row[1:] for row in SWITCHES], ids=[row[0] for row in SWITCHES])
def test_each_switch_is_in_the_word(native, make, text):
    try:
        with make():
            pass  # torch restores some switches to the same meaning by another value, once
    except RuntimeError as error:
        pytest.skip(f"this torch refuses: {error}")
    before = native.capture_state()
    assert native.is_equal_state(before, native.capture_state())
    with make():
        now = native.capture_state()
        assert not native.is_equal_state(before, now)
        assert text in native.describe_state_difference(before, now)
        assert native.is_equal_state(now, native.capture_state())
    after = native.capture_state()
    assert native.is_equal_state(before, after), native.describe_state_difference(before, after)
    assert native.describe_state_difference(before, after) == ""


def test_a_fresh_context_of_the_same_kind_gives_the_same_word(native):
    for make in [torch.no_grad, lambda: torch.autocast("cpu", torch.float16), lambda: torch.device("meta"),
                 lambda: functorch_level("vmap"), lambda: functorch_level("grad"), forward_ad.dual_level]:  # fmt: skip
        with make():
            first = native.capture_state()
        with make():
            second = native.capture_state()
        assert native.is_equal_state(first, second), native.describe_state_difference(first, second)


def test_default_devices_differ_by_device(native):
    with torch.device("meta"):
        first = native.capture_state()
        assert not native.has_user_modes(first)
    with torch.device("cpu"):
        second = native.capture_state()
    assert not native.is_equal_state(first, second)
    assert native.describe_state_difference(first, second) == "torch function modes: others than when recorded"


def test_vmap_levels_differ_by_batch_size_and_depth(native):
    words = []
    for sizes in [(3,), (4,), (3, 3)]:
        for size in sizes:
            C._functorch._vmap_increment_nesting(size, "error")
        words.append(native.capture_state())
        assert native.has_functorch_levels(words[-1])
        for _ in sizes:
            C._functorch._vmap_decrement_nesting()
    assert not native.has_functorch_levels(native.capture_state())
    for i, first in enumerate(words):
        for second in words[i + 1 :]:
            assert not native.is_equal_state(first, second)


def test_what_a_trace_may_not_read_is_not_in_the_word(native):
    before = native.capture_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    torch.manual_seed(1)
    try:
        assert native.is_equal_state(before, native.capture_state())
    finally:
        torch.set_num_threads(threads)


def test_user_modes_are_told(native):
    for make, expected in [(FunctionMode, True), (DispatchMode, True), (torch.no_grad, False),
                           (lambda: torch.device("cpu"), False),
                           (lambda: torch.autograd.graph.save_on_cpu(), True)]:  # fmt: skip
        with make():
            assert native.has_user_modes(native.capture_state()) == expected


def test_a_recorded_state_knows_that_its_mode_is_gone(native):
    plain = native.capture_recorded()
    assert native.check_recorded(plain)
    with FunctionMode() as mode:
        recorded = native.capture_recorded()
        assert native.check_recorded(recorded)
        assert not native.check_recorded(plain)
    assert not native.check_recorded(recorded)
    with mode:
        assert native.check_recorded(recorded)
    # Make modes until one gets the old one's place; it is another all the same.
    place = id(mode)
    del mode
    gc.collect()
    kept = []
    for _ in range(1000):
        other = FunctionMode()
        if id(other) == place:
            with other:
                assert not native.check_recorded(recorded)
            break
        kept.append(other)


def test_words_are_of_the_thread(native):
    words = []

    def look():
        words.append(native.capture_state())
        with torch.no_grad():
            words.append(native.capture_state())

    with torch.inference_mode():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        here = native.capture_state()
    assert not native.is_equal_state(here, words[0])
    assert native.is_equal_state(native.capture_state(), words[0])
    assert not native.is_equal_state(words[0], words[1])


def test_capturing_under_modes_runs_no_python_and_keeps_exceptions(native):
    class Watchful(TorchFunctionMode):
        def __getattribute__(self, name):
            seen.append(name)
            return super().__getattribute__(name)

    seen = []
    with Watchful():
        seen.clear()
        native.capture_state()
        assert seen == []
    for make in [contextlib.nullcontext, FunctionMode, lambda: torch.device("cpu"), lambda: functorch_level("vmap"),
                 lambda: functorch_level("grad")]:  # fmt: skip
        with make():
            assert native.keeps_exception()


def test_the_grad_guard_restores(native):
    assert torch.is_grad_enabled()
    assert native.set_grad_in_scope(torch.is_grad_enabled) is False
    assert torch.is_grad_enabled()
