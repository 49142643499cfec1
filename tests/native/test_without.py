"""The option `without`: regions compiled without a part of the compiler are as right, and that part did not work."""

import re

import pytest
import reprise
import torch

PARTS = (
    "use_functional_ops", "decompose", "fold_views", "simplify", "merge_equal", "min_cut", "fusion", "reuse_memory",
    "write_inputs", "shared_kernels",
)  # fmt: skip


def step(model, x):
    """Views, equal operations, algebra, writes to a buffer, a loss."""
    model.zero_grad()
    y = torch.nn.functional.gelu(model(x)).transpose(0, 1).transpose(0, 1)
    y = y.clone().mul_(2) + torch.sin(x) * 1 + torch.sin(x)
    y = torch.stack(y.split(8, 1), 1).flatten(1)
    loss = torch.nn.functional.layer_norm(y, (16,)).softmax(-1).square().sum()
    loss.backward()
    return loss.detach()


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 16)
    )


def counts_of(without):
    """(operations, kernels, library calls, bytes planned) of the step, whose results are compared with eager's."""
    eager, ours = make_model(), make_model()
    compiled = reprise.compile(step, options={"without": without})
    for call in range(4):
        torch.manual_seed(call)
        x = torch.randn(8, 16)
        torch.testing.assert_close(compiled(ours, x), step(eager, x))
    for mine, theirs in zip([*ours.parameters(), *ours.buffers()], [*eager.parameters(), *eager.buffers()]):
        torch.testing.assert_close(mine, theirs)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)
    report = reprise.explain(compiled)(ours, x)
    assert report.counters["failed_checks"] == 0 and report.counters["dissolved_regions"] == 0
    found = re.findall(r"(\d+) operations? in (\d+) kernels?, (\d+) library calls?", str(report))
    assert found
    return tuple(sum(map(int, column)) for column in zip(*found)) + (report.counters["planned_bytes"],)


@pytest.fixture(scope="module")
def whole():
    return counts_of("none")


@pytest.mark.parametrize("part", PARTS)
def test_a_region_without_a_part_gives_eagers_results(part, whole):
    operations, kernels, calls, planned = counts_of(part)
    if part == "fusion":
        assert kernels > 2 * whole[1]
    elif part == "decompose":
        assert calls > whole[2]
    elif part in ("merge_equal", "simplify"):
        assert operations > whole[0]
    elif part == "reuse_memory":
        assert planned > whole[3] > 0


def test_all_parts_at_once(whole):
    _, kernels, calls, _ = counts_of(",".join(PARTS))
    assert kernels + calls > whole[1] + whole[2]


def test_an_unknown_part_is_refused():
    with pytest.raises(reprise.UserError, match="option without is 'inlining'; expected none or words of"):
        reprise.compile(step, options={"without": "inlining"})
