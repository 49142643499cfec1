"""Exits deep inside real model code: a padded mask, a write to stderr in every module class, loops over layers."""

import sys

import pytest
import torch
import transformers.models.bert.modeling_bert as modeling_bert
from torch import nn
from twins import ARE_COUNTS_CHECKED, assert_same, compiled, rnd

from bench import stats
from bench.models import make_inputs, make_model, pad

BERT_CLASSES = [
    name
    for name in vars(modeling_bert)
    if name.startswith("Bert")
    and isinstance(getattr(modeling_bert, name), type)
    and "forward" in vars(getattr(modeling_bert, name))
]


def twins_of(name="bert"):
    plain, inner = make_model(name, tiny=True), make_model(name, tiny=True)
    return plain, inner, compiled(inner)


def test_a_padded_mask_costs_at_most_two_exits_before_its_path_is_recorded():
    plain, _, tested = twins_of()
    calls = [make_inputs("bert", tiny=True, seed=i) for i in range(12)]
    for i in (3, 4, 5, 7, 8, 9, 11):
        calls[i] = pad(calls[i], 4 + i % 3)
    with torch.no_grad():
        for i, inputs in enumerate(calls):
            assert_same(tested(**inputs), plain(**inputs), f"call {i}")
            if i == 5:
                before = stats.stats_of(tested)
    after = stats.stats_of(tested)
    if after is not None and ARE_COUNTS_CHECKED:
        assert before["exits"] <= 2 and after["exits"] == before["exits"], (before, after)


def test_a_padded_mask_first_and_a_full_one_later():
    plain, _, tested = twins_of()
    with torch.no_grad():
        for i in range(6):
            inputs = make_inputs("bert", tiny=True, seed=i)
            inputs = pad(inputs, 5) if i < 3 or i == 5 else inputs
            assert_same(tested(**inputs), plain(**inputs), f"call {i}")


@pytest.mark.parametrize("name", BERT_CLASSES)
def test_an_exit_in_every_module_class_of_bert(name, monkeypatch):
    cls = getattr(modeling_bert, name)
    forward = cls.forward

    def noisy(self, *args, **kwargs):
        sys.stderr.write("")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(cls, "forward", noisy)
    plain, _, tested = twins_of()
    with torch.no_grad():
        for i in range(4):
            inputs = make_inputs("bert", tiny=True, seed=i)
            assert_same(tested(**inputs), plain(**inputs), f"call {i}")


@pytest.mark.parametrize("name", ["BertSelfAttention", "BertLayer", "BertEncoder"])
def test_a_data_branch_in_a_module_class_of_bert_in_training(name, monkeypatch):
    cls = getattr(modeling_bert, name)
    forward = cls.forward

    def noisy(self, hidden_states, *args, **kwargs):
        if hidden_states[0, 0, 0] > 0:  # not a sum of normed numbers: rounding would decide
            hidden_states = hidden_states * 1.5
        return forward(self, hidden_states, *args, **kwargs)

    monkeypatch.setattr(cls, "forward", noisy)
    found = []
    for wrap in (lambda m: m, compiled):
        model = make_model("bert", tiny=True, training=True)
        tested = wrap(model)
        losses = []
        for i in range(4):
            torch.manual_seed(i)
            loss = tested(**make_inputs("bert", tiny=True, seed=i, labels=True)).loss
            loss.backward()
            losses.append(loss.detach())
        found.append((losses, {k: p.grad for k, p in model.named_parameters()}))
    assert_same(found[1], found[0], "losses and gradients")


class Layer(nn.Module):
    def __init__(self, is_noisy):
        super().__init__()
        self.lin, self.is_noisy = nn.Linear(3, 3), is_noisy

    def forward(self, x):
        y = self.lin(x)
        if self.is_noisy:
            sys.stderr.write("")
        return torch.tanh(y) + x


class Stack(nn.Module):
    """Three layers, run by a loop of the given form."""

    def __init__(self, form, is_noisy):
        super().__init__()
        self.layer = nn.ModuleList([Layer(is_noisy) for _ in range(3)])
        self.form = form

    def forward(self, x):
        if self.form == "for":
            for layer in self.layer:
                x = layer(x)
        elif self.form == "enumerate":
            for i, layer in enumerate(self.layer):
                x = layer(x) + i
        elif self.form == "list":
            for i, layer in enumerate(list(self.layer)):
                x = layer(x) + i
        elif self.form == "zip":
            for layer, k in zip(self.layer, (1, 2, 3)):
                x = layer(x) * k
        elif self.form == "items":
            for name, layer in self.layer.named_children():
                x = layer(x) + int(name)
        elif self.form == "comprehension":
            x = sum([layer(x) for layer in self.layer])
        elif self.form == "generator":
            x = sum(layer(x) for layer in self.layer)
        elif self.form == "reversed":
            for layer in reversed(self.layer):
                x = layer(x)
        else:
            stack = list(self.layer)
            while stack:
                x = stack.pop()(x)
        return x


@pytest.mark.parametrize("is_noisy", [False, True])
@pytest.mark.parametrize(
    "form", ["for", "enumerate", "list", "zip", "items", "comprehension", "generator", "reversed", "while"]
)
def test_an_exit_inside_a_layer_of_a_loop(form, is_noisy):
    torch.manual_seed(0)
    plain = Stack(form, is_noisy)
    torch.manual_seed(0)
    inner = Stack(form, is_noisy)
    tested = compiled(inner)
    for i in range(5):
        assert_same(tested(rnd(i, 2, 3)), plain(rnd(i, 2, 3)), f"call {i}")
