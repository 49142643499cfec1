"""What surrounds an optimizer in a step: zero_grad forms, schedulers, clipping, scaling, hooks, accumulation."""

import pytest
import torch
from torch.optim import lr_scheduler, swa_utils
from training import TWO_ENTRIES, Trained, batch, check_training, loss_of, make_net, plain_step
from twins import NOISE, assert_same, compiled, seed


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.01, **options})


ZERO_GRADS = {
    "optimizer first": lambda m, o: o.zero_grad(),
    "optimizer, to zero": lambda m, o: o.zero_grad(set_to_none=False),
    "optimizer, to none": lambda m, o: o.zero_grad(set_to_none=True),
    "model": lambda m, o: m.zero_grad(),
    "model, to zero": lambda m, o: m.zero_grad(set_to_none=False),
    "by hand to none": lambda m, o: [setattr(p, "grad", None) for p in m.parameters()],
    "by hand to zero": lambda m, o: [p.grad.zero_() for p in m.parameters() if p.grad is not None],
    "never": lambda m, o: None,
}


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("form", ZERO_GRADS)
def test_every_form_of_zero_grad(form, where):
    zero = ZERO_GRADS[form]

    def make():
        model = make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            if where == "first":
                zero(model, optimizer)
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            if where == "last":
                zero(model, optimizer)
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make, promise=TWO_ENTRIES)


def test_zero_grad_outside_of_the_compiled_step():
    def make():
        model = make_net()
        optimizer = adamw(model)

        def step(x, y):
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make, outside=lambda trained, i: trained.optimizer.zero_grad(set_to_none=i % 2 == 0))


SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "multi step": lambda o: lr_scheduler.MultiStepLR(o, [1, 3], 0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 6),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "linear": lambda o: lr_scheduler.LinearLR(o, total_iters=4),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 5),
}


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_schedulers_inside_the_step(name):
    def make():
        model = make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = SCHEDULERS[name](optimizer)

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss.detach(), scheduler.get_last_lr()

        return Trained(model, optimizer, step, lambda: [scheduler.last_epoch, scheduler.get_last_lr()])

    check_training(make)


def test_a_scheduler_outside_of_the_compiled_step_does_not_record_again():
    def make():
        model = make_net()
        optimizer = adamw(model)
        trained = Trained(model, optimizer, plain_step(model, optimizer))
        trained.scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
        return trained

    check_training(
        make, outside=lambda trained, i: trained.scheduler.step(), promise={"recordings": range(1, 4), "exits": 0}
    )


def test_reduce_on_plateau_reads_the_loss():
    def make():
        model = make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            scheduler.step(loss.item())
            return loss.item()

        return Trained(model, optimizer, step)

    check_training(make)


CLIPPING = {
    "norm": lambda ps: torch.nn.utils.clip_grad_norm_(ps, 0.1),
    "norm foreach": lambda ps: torch.nn.utils.clip_grad_norm_(ps, 0.1, foreach=True),
    "infinity norm": lambda ps: torch.nn.utils.clip_grad_norm_(ps, 0.1, norm_type=float("inf")),
    "norm, error if not finite": lambda ps: torch.nn.utils.clip_grad_norm_(ps, 0.1, error_if_nonfinite=True),
    "value": lambda ps: torch.nn.utils.clip_grad_value_(ps, 0.01),
    "total norm": lambda ps: torch.nn.utils.get_total_norm([p.grad for p in ps]),
}


@pytest.mark.parametrize("name", list(CLIPPING))
def test_gradient_clipping(name):
    def make():
        model = make_net()
        optimizer = adamw(model)

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            norm = CLIPPING[name](list(model.parameters()))
            optimizer.step()
            return loss.detach(), norm

        return Trained(model, optimizer, step)

    check_training(make)


@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("enabled", [True, False])
def test_grad_scaler_on_cpu(enabled, overflow):
    def make():
        model = make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=2, enabled=enabled)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model, x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach(), scaler.get_scale()

        return Trained(model, optimizer, step, lambda: scaler.state_dict())

    def batches(i):
        x, y = batch(i)
        return (x * 1e38, y) if overflow and i in (2, 4) else (x, y)

    check_training(make, batches=batches)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_training(dtype):
    def make():
        model = make_net(norm=True)
        optimizer = adamw(model)

        def step(x, y):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=dtype):
                loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make)


def test_gradient_accumulation_over_micro_batches():
    def make():
        model = make_net()
        optimizer = adamw(model)

        def step(x, y):
            optimizer.zero_grad()
            total = 0.0
            for part, target in zip(x.chunk(3), y.chunk(3)):
                loss = loss_of(model, part, target) / 3
                loss.backward()
                total += loss.item()
            optimizer.step()
            return total

        return Trained(model, optimizer, step)

    check_training(make)


def test_an_update_on_every_second_step():
    def make():
        model = make_net()
        optimizer = adamw(model)
        state = {"n": 0}

        def step(x, y):
            state["n"] += 1
            loss = loss_of(model, x, y)
            loss.backward()
            if state["n"] % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()

        return Trained(model, optimizer, step, lambda: dict(state))

    check_training(make, steps=8)


@pytest.mark.parametrize("kind", ["parameter", "module forward", "module backward", "post accumulate", "tensor"])
def test_hooks_in_a_training_step(kind):
    def make():
        model = make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        log = []
        if kind == "parameter":
            model[0].weight.register_hook(lambda g: log.append(g.sum().item()) or g * 2)
        elif kind == "module forward":
            model[0].register_forward_hook(lambda m, args, out: log.append(out.shape) or out * 2)
        elif kind == "module backward":
            model[2].register_full_backward_hook(lambda m, gin, gout: log.append(gout[0].shape))
        elif kind == "post accumulate":
            model[0].weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.mul_(0.5).sum().item()))

        def step(x, y):
            optimizer.zero_grad()
            h = model(x)
            if kind == "tensor":
                h.register_hook(lambda g: log.append(g.norm().item()))
            loss = torch.nn.functional.mse_loss(h, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step, lambda: list(log))

    check_training(make)


def test_an_update_inside_of_backward_hooks():
    def make():
        model = make_net()
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

        def step(x, y):
            loss = loss_of(model, x, y)
            loss.backward()
            return loss.detach()

        return Trained(model, None, step)

    check_training(make)


def test_averaged_weights():
    def make():
        model = make_net(norm=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            averaged.update_parameters(model)
            return loss.detach()

        return Trained(model, optimizer, step, lambda: dict(averaged.state_dict()))

    check_training(make)


def test_a_target_network_by_hand():
    def make():
        model, target = make_net(), make_net()
        target.load_state_dict(model.state_dict())
        optimizer = adamw(model)

        def step(x, y):
            with torch.no_grad():
                goal = y + 0.9 * target(x)
            loss = loss_of(model, x, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(model.parameters(), target.parameters()):
                    q.mul_(0.99).add_(p, alpha=0.01)
            return loss.detach()

        return Trained(model, optimizer, step, lambda: dict(target.state_dict()))

    check_training(make, promise=TWO_ENTRIES)


def test_a_generator_and_a_discriminator_in_one_step():
    def make():
        model = torch.nn.ModuleDict(
            {"g": make_net(), "d": torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))}
        )
        og, od = torch.optim.Adam(model["g"].parameters(), 0.01), torch.optim.Adam(model["d"].parameters(), 0.01)

        def step(x, y):
            od.zero_grad()
            d_loss = (model["d"](y) - 1).pow(2).mean() + model["d"](model["g"](x).detach()).pow(2).mean()
            d_loss.backward()
            od.step()
            og.zero_grad()
            g_loss = (model["d"](model["g"](x)) - 1).pow(2).mean()
            g_loss.backward()
            og.step()
            return d_loss.detach(), g_loss.detach()

        return Trained(model, [og, od], step)

    check_training(make)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_in_a_training_step(use_reentrant):
    def make():
        model = make_net(dropout=0.3)
        optimizer = adamw(model)

        def step(x, y):
            optimizer.zero_grad()
            h = torch.utils.checkpoint.checkpoint(model, x.requires_grad_(), use_reentrant=use_reentrant)
            loss = torch.nn.functional.mse_loss(h, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make)


def test_a_custom_function_in_a_training_step():
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g * 0.5

    def make():
        model = make_net()
        optimizer = adamw(model)

        def step(x, y):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(Straight.apply(model(x)), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make)


def test_second_order_regularisation():
    def make():
        model = make_net()
        optimizer = adamw(model)

        def step(x, y):
            optimizer.zero_grad()
            x.requires_grad_()
            loss = loss_of(model, x, y)
            (g,) = torch.autograd.grad(loss, x, create_graph=True)
            total = loss + 0.1 * g.pow(2).sum()
            total.backward()
            optimizer.step()
            return total.detach()

        return Trained(model, optimizer, step)

    check_training(make)


def test_a_step_that_skips_bad_batches():
    def make():
        model = make_net()
        optimizer = adamw(model)
        skipped = []

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            if not torch.isfinite(loss):
                skipped.append(1)
                return None
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step, lambda: list(skipped))

    def batches(i):
        x, y = batch(i)
        return (x * float("nan"), y) if i in (3, 5) else (x, y)

    check_training(make, steps=8, batches=batches)


def test_logging_of_the_loss_in_the_step():
    def make():
        model = make_net()
        optimizer = adamw(model)
        history = []

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
            return sum(history) / len(history)

        return Trained(model, optimizer, step, lambda: list(history))

    check_training(make)


def test_a_whole_training_loop_is_one_compiled_function():
    def make():
        model = make_net()
        optimizer = adamw(model)

        def train(x, y):
            losses = []
            for epoch in range(5):
                for i in range(3):
                    optimizer.zero_grad()
                    loss = loss_of(model, x[i : i + 1], y[i : i + 1])
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.detach())
                if epoch % 2 == 0:
                    print("epoch", epoch, losses[-1].item())
            return losses

        return Trained(model, optimizer, train)

    check_training(make, steps=3)


def test_training_and_evaluation_alternate():
    def make():
        model = make_net(dropout=0.5, norm=True)
        optimizer = adamw(model)
        state = {"n": 0}

        def step(x, y):
            state["n"] += 1
            if state["n"] % 3 == 0:
                model.eval()
                with torch.no_grad():
                    return loss_of(model, x, y)
            model.train()
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make, steps=9, noise=NOISE)


def test_a_compiled_model_in_an_eager_training_loop():
    found = []
    for wrap in (lambda m: m, compiled):
        seed(0)
        model = make_net(dropout=0.3, norm=True)
        optimizer = adamw(model)
        net = wrap(model)
        losses = []
        for i in range(6):
            seed(i)
            optimizer.zero_grad()
            loss = loss_of(net, *batch(i))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        found.append(
            (losses, dict(model.named_parameters()), dict(model.named_buffers()), [p.grad for p in model.parameters()])
        )
    assert_same(found[1], found[0], "training", noise=NOISE)


def test_gradients_that_stay_none_where_a_branch_is_unused():
    def make():
        model = torch.nn.ModuleList([make_net(), make_net()])
        optimizer = adamw(model)
        state = {"n": 0}

        def step(x, y):
            state["n"] += 1
            optimizer.zero_grad()
            loss = loss_of(model[state["n"] % 2], x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step)

    check_training(make, steps=8)


def test_rnn_language_model_training_with_carried_state():
    def make():
        model = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(4, 5), "out": torch.nn.Linear(5, 2)})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        carried = {"state": None}

        def step(x, y):
            optimizer.zero_grad()
            out, state = model["rnn"](x.unsqueeze(1), carried["state"])
            carried["state"] = tuple(s.detach() for s in state)
            loss = torch.nn.functional.mse_loss(model["out"](out[:, 0]), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            return loss.detach()

        return Trained(model, optimizer, step, lambda: carried["state"])

    check_training(make)
