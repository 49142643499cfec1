"""Metadata of results: every rule against the operation itself and torch's meta kernel; other sources give the same."""

import pytest

from tests.aot import models, test_functionalise, test_joint, test_models, test_scalars
from tests.aot.harness import native, trace

CASES = [(f, test_functionalise.inputs) for f in test_functionalise.CASES]
CASES += [(f, lambda: [test_joint.tensor(4, 6), test_joint.tensor(4, 6)]) for f in test_joint.CASES]
CASES += [(f, test_scalars.inputs) for f in test_scalars.CASES]
MODELS = [models.mlp, models.cross_entropy, models.lstm, models.resnet, models.bert]

KERNEL, META = 1, 2


@pytest.fixture(autouse=True)
def options():
    yield
    native.set_options(True, True, True, 0, False)


def list_cases():
    for function, inputs in CASES:
        yield lambda tensors, function=function: function(*tensors), inputs()
    for make in MODELS:
        yield make()
    for name in ("sgd", "adamw"):
        for foreach in (False, True):
            yield test_models.training_step(name, foreach), test_models.step_inputs(name)


@pytest.mark.parametrize("mode", [KERNEL, META])
def test_rules_agree_with_torch(mode):
    native.set_options(True, True, True, mode, False)
    for function, inputs in list_cases():
        trace(function, inputs)
    statistics = native.statistics()
    assert statistics["rule"] > 1000
    # A dropout mask of zeros, say: kernels know better than their meta twins where strides are concerned.
    assert statistics["mismatches"] == []


def test_graphs_are_the_same_without_rules():
    for function, inputs in list_cases():
        native.set_options(True, True, True, 0, False)
        with_rules = native.text(trace(function, inputs))
        native.set_options(False, True, True, 0, False)
        assert native.text(trace(function, inputs)) == with_rules


def test_rows_of_the_op_table_are_those_of_torch():
    # t_ writes no data; resolve_conj gives its argument if there is nothing to do.
    metadata = ("aten::t_", "aten::transpose_", "aten::squeeze_", "aten::unsqueeze_", "aten::as_strided_")
    known = (*metadata, "aten::resolve_conj", "aten::resolve_neg")
    assert [problem for problem in native.check_op_table() if not problem.startswith(known)] == []
