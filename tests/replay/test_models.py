"""Tiny models of the demo's families through real transformers code: inference, changed shapes, training steps."""

import pytest
import torch
from twins import (
    ARE_COUNTS_CHECKED,
    IS_REPRISE,
    NOISE,
    Call,
    assert_counts,
    assert_same,
    at_most,
    check,
    compiled,
    seed,
)

from bench import stats
from bench.models import MODELS, make_inputs, make_model, make_optimizer, make_training_step, state_of


def inference_twins(name, calls, promise):
    plain, inner = make_model(name, tiny=True), make_model(name, tiny=True)
    tested = compiled(inner)
    with torch.no_grad():
        for i, inputs in enumerate(calls):
            assert_same(tested(**inputs), plain(**inputs), f"{name} call {i}")
    assert_same(state_of(inner), state_of(plain), f"{name} state")
    if IS_REPRISE:
        assert_counts(stats.stats_of(tested), promise)


@pytest.mark.parametrize("name", list(MODELS))
def test_inference_is_bit_equal_with_one_entry_and_no_exit(name):
    calls = [make_inputs(name, tiny=True, seed=i) for i in range(5)]
    inference_twins(name, calls, {"recordings": 1, "entries": 1, "exits": 0, "opaque_calls": 0})


@pytest.mark.parametrize("name", list(MODELS))
def test_inference_is_right_when_the_batch_changes(name):
    batches = [2, 2, 3, 3, 1, 2, 3]
    calls = [make_inputs(name, tiny=True, seed=i, batch=b) for i, b in enumerate(batches)]
    # GPT-2 asks whether the batch is 1, of a tensor that it has computed: that exits, and modules get entries then.
    asks = name == "gpt2"
    inference_twins(name, calls, {"entries": at_most(8 if asks else 3), "exits": at_most(asks), "opaque_calls": 0})


@pytest.mark.parametrize("name", list(MODELS))
def test_gradients_through_a_compiled_model(name):
    calls = [Call((), make_inputs(name, tiny=True, seed=i, labels=True)) for i in range(3)]
    check(lambda: make_model(name, tiny=True, training=True), calls, grads=True)


@pytest.mark.parametrize("name", MODELS)
def test_training_steps_are_bit_equal(name):
    twins = []
    for wrap in (lambda p: p, compiled):
        model = make_model(name, tiny=True, training=True)
        optimizer = make_optimizer(model)
        twins.append((model, optimizer, wrap(make_training_step(model, optimizer))))
    for i in range(5):
        inputs = make_inputs(name, tiny=True, seed=i, labels=True)
        losses = []
        for _, _, step in twins:
            seed(i)
            losses.append(step(**inputs))
        assert_same(losses[1], losses[0], f"{name} loss {i}", noise=100)
        assert_same(state_of(*twins[1][:2]), state_of(*twins[0][:2]), f"{name} state after step {i}", NOISE)
    counts = stats.stats_of(twins[1][2]) if IS_REPRISE else None
    if counts is not None and ARE_COUNTS_CHECKED:
        assert counts["entries"] <= 2 and counts["exits"] == 0 and counts["opaque_calls"] == 0, counts


def test_gpt2_decodes_token_by_token_with_a_growing_cache():
    plain, inner = make_model("gpt2-cache", tiny=True), make_model("gpt2-cache", tiny=True)
    tested = compiled(inner)
    with torch.no_grad():
        for attempt in range(2):
            outs = []
            for model in (plain, tested):
                ids = make_inputs("gpt2-cache", tiny=True, seed=attempt)["input_ids"]
                found, cache = [], None
                for _ in range(5):
                    out = model(input_ids=ids, use_cache=True, past_key_values=cache)
                    cache = getattr(out, "past_key_values", None) or out["cache"]
                    ids = out.logits[:, -1:].argmax(-1)
                    found.append(ids)
                outs.append((found, out.logits, cache))
            assert_same(outs[1], outs[0], f"decoding {attempt}")


def test_bert_with_changing_sequence_lengths():
    calls = []
    for i, length in enumerate([16, 16, 12, 8, 12, 16, 9]):
        inputs = make_inputs("bert", tiny=True, seed=i)
        calls.append({k: v[:, :length] for k, v in inputs.items()})
    inference_twins("bert", calls, {"exits": 0})


def test_optional_arguments_and_outputs_of_bert():
    base = make_inputs("bert", tiny=True)
    ids = base["input_ids"]
    calls = [
        base,
        dict(base, output_hidden_states=True),
        dict(base, token_type_ids=torch.zeros_like(ids)),
        dict(base, return_dict=False),
        {"input_ids": ids},
        base,
        dict(base, output_hidden_states=True),
    ]
    inference_twins("bert", calls, {})


@pytest.mark.parametrize("name", ["bert", "llama", "vit"])
def test_eager_attention_too(name):
    def make():
        model = make_model(name, tiny=True)
        model.set_attn_implementation("eager")
        return model

    calls = [Call((), make_inputs(name, tiny=True, seed=i)) for i in range(3)]
    check(make, calls)


def test_gpt2_generate_runs_through_the_compiled_forward():
    plain, inner = make_model("gpt2-cache", tiny=True), make_model("gpt2-cache", tiny=True)
    tested = compiled(inner)
    ids = make_inputs("gpt2-cache", tiny=True)["input_ids"][:, :6]
    how = dict(max_new_tokens=6, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(ids))
    for _ in range(2):
        assert_same(tested.generate(ids, **how), plain.generate(ids, **how), "generated tokens")
