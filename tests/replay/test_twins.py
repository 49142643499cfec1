"""The twins notice: each sabotaged copy of a program must be told apart from the original."""

import functools
import warnings

import pytest
import torch
import twins
from twins import bitwise_only, check, vectors

pytestmark = bitwise_only  # what is left of a sabotage may be within the tolerance


def program(x):
    print("working")
    y = x * 2
    return [y, y.view(-1), x], {"n": 1}


def raising(x):
    y = x * 2
    raise ValueError(y.shape)


def wrapped_error(run):
    def sabotage(x):
        try:
            return run(x)
        except ValueError as e:
            raise ValueError(*e.args) from None

    return sabotage


def changed(run, change):
    def sabotage(x):
        result = run(x)
        return change(result, x)

    return sabotage


def silent(run):
    def sabotage(x):
        y = x * 2
        return [y, y.view(-1), x], {"n": 1}

    return sabotage


def with_warning(run):
    @functools.wraps(run)
    def sabotage(x):
        warnings.warn("own")
        return run(x)

    return sabotage


def one_bit_off(result, x):
    result[0][0].detach().view(torch.int32)[0] += 1
    return result


def nothing(result, x):
    return result


def leave(**effects):
    def change(result, x):
        if "grad" in effects:
            torch.set_grad_enabled(False)
        if "random" in effects:
            torch.rand(1)
        if "argument" in effects:
            x += 1
        return result

    return change


SABOTAGES = {
    "one bit": lambda run: changed(run, one_bit_off),
    "another dtype": lambda run: changed(run, lambda r, x: ([r[0][0].double(), *r[0][1:]], r[1])),
    "a tuple for a list": lambda run: changed(run, lambda r, x: (tuple(r[0]), r[1])),
    "an equal float for an int": lambda run: changed(run, lambda r, x: (r[0], {"n": 1.0})),
    "True for 1": lambda run: changed(run, lambda r, x: (r[0], {"n": True})),
    "a copy of the argument": lambda run: changed(run, lambda r, x: ([*r[0][:2], x.clone()], r[1])),
    "a copy of a view": lambda run: changed(run, lambda r, x: ([r[0][0], r[0][1].clone(), x], r[1])),
    "one dict for all calls": lambda run: changed(run, lambda r, x, one={"n": 1}: (r[0], one)),
    "silence": silent,
    "a warning": with_warning,
    "a changed argument": lambda run: changed(run, leave(argument=1)),
    "a random number": lambda run: changed(run, leave(random=1)),
    "the grad mode": lambda run: changed(run, leave(grad=1)),
}


@pytest.mark.parametrize("name", list(SABOTAGES))
def test_a_sabotaged_copy_is_noticed(name, monkeypatch):
    monkeypatch.setattr(twins, "compiled", lambda run, **options: SABOTAGES[name](run))
    with pytest.raises(AssertionError):
        check(lambda: program, vectors(3))


def test_a_faithful_copy_is_not_noticed(monkeypatch):
    monkeypatch.setattr(twins, "compiled", lambda run, **options: changed(run, nothing))
    check(lambda: program, vectors(3))


@pytest.mark.parametrize("sabotage", [lambda run: lambda x: None, wrapped_error], ids=["swallowed", "other frames"])
def test_a_sabotaged_exception_is_noticed(sabotage, monkeypatch):
    monkeypatch.setattr(twins, "compiled", lambda run, **options: sabotage(run))
    with pytest.raises(AssertionError):
        check(lambda: raising, vectors(2))


def test_sabotaged_module_state_and_gradients_are_noticed(monkeypatch):
    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x)

    def sabotage(module, **options):
        def run(x):
            y = module(x)
            with torch.no_grad():
                module.bias.add_(1e-7)
            return y

        return run

    monkeypatch.setattr(twins, "compiled", sabotage)
    with pytest.raises(AssertionError):
        check(lambda: Scaled(3, 3), vectors(2))
    monkeypatch.setattr(twins, "compiled", lambda module, **options: lambda x: module(x).detach().requires_grad_())
    with pytest.raises(AssertionError):
        check(lambda: Scaled(3, 3), vectors(2), grads=True)
