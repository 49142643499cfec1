"""Whole models and whole training steps: outputs, gradients of every parameter and effects, bit for bit."""

import pytest
import torch
import torch.nn.functional as F
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from tests.aot import models
from tests.aot.harness import check


@pytest.mark.parametrize("make", [models.mlp, models.cross_entropy, models.lstm, models.resnet, models.bert])
def test_a_model_gives_the_bits_of_eager(make):
    function, inputs = make()
    check(function, inputs)


def test_checkpoints_are_recomputed_with_the_same_random_numbers():
    function, inputs = models.bert(is_checkpointed=True)
    whole = check(*models.bert())
    checkpointed = check(function, inputs)
    assert checkpointed.counts["saved"] < whole.counts["saved"]
    assert checkpointed.counts["backward"][0] > whole.counts["backward"][0]


def test_autocast_inside_of_a_region():
    plain, inputs = models.bert()

    def function(tensors):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(tensors)

    check(function, inputs)


def test_a_region_inside_of_autocast():
    function, inputs = models.mlp()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        compiled = check(function, inputs, backward=False)
    assert "bfloat16" in compiled.texts["recorded"]


def optimize(name, foreach, parameters, gradients, state):
    if name == "sgd":
        sgd(parameters, list(gradients), [None] * 4, weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False,
            maximize=False, foreach=foreach)  # fmt: skip
    else:
        adamw(parameters, list(gradients), state[0:4], state[4:8], [], state[8:12], foreach=foreach, amsgrad=False,
              beta1=0.9, beta2=0.999, lr=1e-2, weight_decay=0.01, eps=1e-8, maximize=False)  # fmt: skip


def training_step(name, foreach):
    def function(tensors):
        # Parameters are leaves that the optimizer updates in place without grad mode.
        parameters = [p.detach().requires_grad_() for p in tensors[:4]]
        state, (x, target) = tensors[4:-2], tensors[-2:]
        h = F.gelu(F.linear(x, parameters[0], parameters[1]))
        loss = F.mse_loss(F.linear(h, parameters[2], parameters[3]), target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            optimize(name, foreach, parameters, gradients, state)
        return loss.detach()

    return function


def step_inputs(name, step=3.0):
    torch.manual_seed(0)
    parameters = [torch.randn(16, 8), torch.randn(16), torch.randn(4, 16), torch.randn(4)]
    state = []
    if name == "adamw":
        state = [torch.zeros_like(p) for p in parameters] + [torch.zeros_like(p) for p in parameters]
        state += [torch.tensor(step) for _ in parameters]
    return parameters + state + [torch.randn(5, 8), torch.randn(5, 4)]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_whole_training_step_is_one_graph(name, foreach):
    compiled = check(training_step(name, foreach), step_inputs(name), backward=False)
    if name == "adamw":
        for step in (1.0, 7.0, 100.0):
            check(training_step(name, foreach), step_inputs(name, step), backward=False, calls=1, compiled=compiled)


def test_parameters_that_need_grad_are_updated_in_place():
    def function(tensors):
        parameters, (x, target) = tensors[:4], tensors[-2:]
        h = F.gelu(F.linear(x, parameters[0], parameters[1]))
        loss = F.mse_loss(F.linear(h, parameters[2], parameters[3]), target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            optimize("sgd", False, parameters, gradients, [])
        return loss.detach()

    inputs = step_inputs("sgd")
    for p in inputs[:4]:
        p.requires_grad_()
    check(function, inputs, backward=False)
