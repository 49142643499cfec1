"""Half types are rounded where eager rounds them. (Multiples of a vector: eager rounds what is left over oftener.)"""

import pytest
import reprise
import torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x.clone().add_(y, alpha=0.3),
        lambda x, y: torch.sub(x.neg(), y, alpha=0.3).neg(),
        lambda x, y: torch.add(x.neg(), y.flatten()[0], alpha=0.3).neg(),
        lambda x, y: torch._foreach_add([x.neg()], [y], alpha=0.7)[0].neg(),
    ],
)
def test_alpha_is_rounded_to_the_common_dtype(f, dtype):
    torch.manual_seed(0)
    x, y = torch.randn(4096).to(dtype), (torch.randn(4096) * 1.3).to(dtype)
    compiled = reprise.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(x, y), f(x, y))
