"""What the checks cost; printed (pytest -s), not asserted."""

import torch
from torch import nn


class Subclass(torch.Tensor):
    pass


def test_print_costs(native):
    tensor = torch.rand(2, 3)
    parameter = nn.Parameter(torch.rand(64, 64))
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(100)])
    array = native.array_new()
    for item in model.parameters():
        assert native.array_add(array, item)
    rows = [
        ("is_tensor(Tensor)", native.bench_is_tensor(tensor)),
        ("is_tensor(subclass)", native.bench_is_tensor(tensor.as_subclass(Subclass))),
        ("is_tensor(int)", native.bench_is_tensor(1)),
        ("is_tensor(module)", native.bench_is_tensor(model)),
        ("check_tensor_meta, 2 dims", native.bench_check_meta(tensor)),
        ("check_tensor_meta, parameter", native.bench_check_meta(parameter)),
        ("check_tensor_meta, 4 dims", native.bench_check_meta(torch.rand(2, 3, 4, 5))),
        ("check_tensor_meta, non-leaf", native.bench_check_meta(parameter * 2)),
        ("TensorArray, 200 parameters", native.bench_array(array)),
        ("TensorArray, caches cold", native.bench_array_cold(array)),
        ("capture_state_word", native.bench_capture_state()),
        ("capture and compare", native.bench_check_state()),
        ("classify(torch builtin)", native.bench_classify(torch.nonzero)),
        ("classify(len)", native.bench_classify(len)),
    ]
    with torch.device("cpu"):
        rows.append(("capture_state_word, default device", native.bench_capture_state()))
    for name, time_ns in rows:
        print(f"\n{name:36} {time_ns:9.1f} ns", end="")
    print()
