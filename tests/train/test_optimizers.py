"""Every optimizer of torch.optim in its implementations, six whole steps each."""

import pytest
import torch
from torch import optim
from training import TWO_ENTRIES, Trained, batch, check_training, loss_of, make_net, plain_step
from twins import NOISE, assert_same, compiled, seed

SGD, Adam, AdamW = optim.SGD, optim.Adam, optim.AdamW

#: name -> (class, options, promise): the issue names SGD, Adam and AdamW, foreach and fused, for one entry a step
OPTIMIZERS = {
    "sgd": (SGD, dict(lr=0.1), TWO_ENTRIES),
    "sgd foreach": (SGD, dict(lr=0.1, foreach=True), TWO_ENTRIES),
    "sgd fused": (SGD, dict(lr=0.1, fused=True), TWO_ENTRIES),
    "sgd weight decay": (SGD, dict(lr=0.1, weight_decay=0.1), TWO_ENTRIES),
    "sgd maximize": (SGD, dict(lr=0.1, maximize=True), TWO_ENTRIES),
    "momentum": (SGD, dict(lr=0.1, momentum=0.9), TWO_ENTRIES),
    "momentum foreach": (SGD, dict(lr=0.1, momentum=0.9, foreach=True), TWO_ENTRIES),
    "momentum fused": (SGD, dict(lr=0.1, momentum=0.9, fused=True), TWO_ENTRIES),
    "nesterov": (SGD, dict(lr=0.1, momentum=0.9, nesterov=True), TWO_ENTRIES),
    "dampening": (SGD, dict(lr=0.1, momentum=0.9, dampening=0.5), TWO_ENTRIES),
    "adam": (Adam, dict(lr=0.01), TWO_ENTRIES),
    "adam foreach": (Adam, dict(lr=0.01, foreach=True), TWO_ENTRIES),
    "adam fused": (Adam, dict(lr=0.01, fused=True), TWO_ENTRIES),
    "adam amsgrad": (Adam, dict(lr=0.01, amsgrad=True), TWO_ENTRIES),
    "adam tensor lr": (Adam, dict(lr=torch.tensor(0.01)), None),
    "adam weight decay": (Adam, dict(lr=0.01, weight_decay=0.1), TWO_ENTRIES),
    "adamw": (AdamW, dict(lr=0.01), TWO_ENTRIES),
    "adamw foreach": (AdamW, dict(lr=0.01, foreach=True), TWO_ENTRIES),
    "adamw fused": (AdamW, dict(lr=0.01, fused=True), TWO_ENTRIES),
    "adamw amsgrad foreach": (AdamW, dict(lr=0.01, amsgrad=True, foreach=True), TWO_ENTRIES),
    "adamw maximize": (AdamW, dict(lr=0.01, maximize=True), TWO_ENTRIES),
    "adamw other betas": (AdamW, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6), TWO_ENTRIES),
    "rmsprop": (optim.RMSprop, dict(lr=0.01, momentum=0.5, centered=True), None),
    "adagrad": (optim.Adagrad, dict(lr=0.1, lr_decay=0.01), None),
    "adadelta": (optim.Adadelta, dict(lr=0.5), None),
    "adamax": (optim.Adamax, dict(lr=0.01), None),
    "nadam": (optim.NAdam, dict(lr=0.01), None),
    "radam": (optim.RAdam, dict(lr=0.01), None),
    "asgd": (optim.ASGD, dict(lr=0.1), None),
    "rprop": (optim.Rprop, dict(lr=0.01), None),
    "adafactor": (optim.Adafactor, dict(lr=0.01), None),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_six_steps_are_bit_equal(name):
    kind, options, promise = OPTIMIZERS[name]

    def make():
        model = make_net()
        optimizer = kind(model.parameters(), **options)
        return Trained(model, optimizer, plain_step(model, optimizer))

    check_training(make, promise=promise)


@pytest.mark.parametrize("name", ["sgd", "momentum foreach", "adamw", "adamw foreach", "adamw fused"])
def test_steps_with_dropout_and_batch_norm(name):
    kind, options, _ = OPTIMIZERS[name]

    def make():
        model = make_net(dropout=0.3, norm=True)
        optimizer = kind(model.parameters(), **options)
        return Trained(model, optimizer, plain_step(model, optimizer))

    check_training(make, promise=TWO_ENTRIES, noise=NOISE if "adam" in name else 1)


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_only_the_optimizer_step_is_compiled(kind):
    found = []
    for wrap in (lambda f: f, compiled):
        seed(0)
        model = make_net()
        optimizer = kind(model.parameters(), lr=0.05)
        update = wrap(optimizer.step)
        for i in range(6):
            optimizer.zero_grad()
            loss_of(model, *batch(i)).backward()
            update()
        found.append(dict(model.named_parameters()))
    assert_same(found[1], found[0], "parameters")


def test_param_groups_with_their_own_options():
    def make():
        model = make_net()
        optimizer = AdamW(
            [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "weight_decay": 0.5}],
            lr=0.01,
        )
        return Trained(model, optimizer, plain_step(model, optimizer))

    check_training(make)


def test_a_group_added_during_training():
    def make():
        model = make_net()
        optimizer = SGD(model[0].parameters(), lr=0.1, momentum=0.9)
        return Trained(model, optimizer, plain_step(model, optimizer))

    def outside(trained, i):
        if i == 2:
            trained.optimizer.add_param_group({"params": trained.model[2].parameters()})

    check_training(make, outside=outside)


def test_a_learning_rate_set_by_hand():
    def make():
        model = make_net()
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        return Trained(model, optimizer, plain_step(model, optimizer))

    def outside(trained, i):
        trained.optimizer.param_groups[0]["lr"] *= 0.9

    check_training(make, outside=outside)


def test_two_optimizers_in_turn():
    def make():
        model = make_net()
        a, b = AdamW(model[0].parameters(), lr=0.01), SGD(model[2].parameters(), lr=0.1)

        def step(x, y):
            for optimizer in (a, b):
                optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            for optimizer in (a, b):
                optimizer.step()
            return loss.detach()

        return Trained(model, [a, b], step)

    check_training(make)


def test_a_closure_for_lbfgs():
    def make():
        model = make_net()
        optimizer = optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                return loss

            return optimizer.step(closure).detach()

        return Trained(model, optimizer, step)

    check_training(make, steps=4)


def test_a_closure_for_sgd():
    def make():
        model = make_net()
        optimizer = SGD(model.parameters(), lr=0.1)

        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                return loss

            return optimizer.step(closure).detach()

        return Trained(model, optimizer, step)

    check_training(make)


def test_optimizer_hooks_run_around_every_step():
    def make():
        model = make_net()
        optimizer = AdamW(model.parameters(), lr=0.01)
        log = []
        optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append("pre"))
        optimizer.register_step_post_hook(lambda o, args, kwargs: log.append(o.param_groups[0]["lr"]))
        return Trained(model, optimizer, plain_step(model, optimizer), lambda: list(log))

    check_training(make)


def test_state_saved_and_loaded_during_training():
    def make():
        model = make_net()
        optimizer = AdamW(model.parameters(), lr=0.01)
        return Trained(model, optimizer, plain_step(model, optimizer))

    def outside(trained, i):
        if i == 2:
            trained.saved = trained.model.state_dict(), trained.optimizer.state_dict()
            trained.saved = torch.utils._pytree.tree_map(
                lambda v: v.clone() if isinstance(v, torch.Tensor) else v, trained.saved
            )
        if i == 4:
            trained.model.load_state_dict(trained.saved[0])
            trained.optimizer.load_state_dict(trained.saved[1])

    check_training(make, steps=8, outside=outside)


def test_a_parameter_frozen_and_thawed():
    def make():
        model = make_net()
        optimizer = AdamW(model.parameters(), lr=0.01)
        return Trained(model, optimizer, plain_step(model, optimizer))

    def outside(trained, i):
        if i == 1:
            trained.model[0].weight.requires_grad_(False)
        if i == 3:
            trained.model[0].weight.requires_grad_(True)

    check_training(make, outside=outside)


def test_a_user_written_optimizer():
    class SignDescent(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if not state:
                        state["step"], state["average"] = 0, torch.zeros_like(p)
                    state["step"] += 1
                    state["average"].lerp_(p.grad, 0.1)
                    p.add_(state["average"].sign(), alpha=-group["lr"] / state["step"])

    def make():
        model = make_net()
        optimizer = SignDescent(model.parameters(), 0.1)
        return Trained(model, optimizer, plain_step(model, optimizer))

    check_training(make)


def test_a_changing_batch_size():
    def make():
        model = make_net()
        optimizer = AdamW(model.parameters(), lr=0.01)
        return Trained(model, optimizer, plain_step(model, optimizer))

    check_training(make, batches=lambda i: batch(i, [3, 3, 5, 3, 1, 5][i]))
