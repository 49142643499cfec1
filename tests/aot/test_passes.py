"""The passes keep the bits: every case of the other files with the pipeline on, and with the minimum cut."""

import pytest

from tests.aot import models, test_functionalise, test_joint, test_models, test_scalars
from tests.aot.harness import check, is_close

OPTIONS = [{"min_cut": True}, {"simplified": True}, {"min_cut": True, "simplified": True}]
CASES = [(function, test_functionalise.inputs) for function in test_functionalise.CASES]
CASES += [(function, lambda: [test_joint.tensor(4, 6), test_joint.tensor(4, 6)]) for function in test_joint.CASES]
CASES += [(function, test_scalars.inputs) for function in test_scalars.CASES]
MODELS = [models.mlp, models.cross_entropy, models.lstm, models.resnet, models.bert]


DECOMPOSED = {"simplified": True, "decomposed": True, "is_equal": is_close}


def name_options(options):
    return "-".join(options)


@pytest.mark.parametrize("options", [*OPTIONS, DECOMPOSED], ids=name_options)
@pytest.mark.parametrize("function, inputs", CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_small_cases(function, inputs, options):
    check(lambda tensors: function(*tensors), inputs(), calls=1, **options)


@pytest.mark.parametrize("options", [*OPTIONS, DECOMPOSED], ids=name_options)
@pytest.mark.parametrize("make", MODELS)
def test_models_through_passes(make, options):
    function, inputs = make()
    check(function, inputs, calls=1, **options)


@pytest.mark.parametrize("options", [*OPTIONS, DECOMPOSED], ids=name_options)
def test_checkpoints_through_passes(options):
    function, inputs = models.bert(is_checkpointed=True)
    check(function, inputs, calls=1, **options)


@pytest.mark.parametrize("options", [*OPTIONS, DECOMPOSED], ids=name_options)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_training_steps_through_passes(name, foreach, options):
    function = test_models.training_step(name, foreach)
    check(function, test_models.step_inputs(name), calls=1, backward=False, **options)
