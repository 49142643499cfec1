"""The demo's models: real `transformers` code from configs, with random weights and no downloads.

`MODELS` is the table: one row a model. A row makes the full model or a tiny one of the same structure (`tiny=True`,
used by tests), keyword arguments for a forward call that vary with the seed, and labels for training. All makers are
deterministic in the seed, so calling one twice gives two equal twins.

A training step (`make_training_step`) is zero_grad, forward, backward, AdamW step. zero_grad comes first, so that the
gradients of the step can be looked at after it; the loss is returned detached.
"""

import dataclasses
import os
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

transformers.logging.set_verbosity_error()

LABEL_COUNT = 1000


@dataclasses.dataclass(frozen=True)
class ModelRow:
    """One model of the table.

    make_model(tiny) -> nn.Module in training mode; make_inputs(tiny, batch, generator) -> kwargs of forward;
    make_labels(inputs, tiny, generator) -> tensor; batch: the demo's batch size; shape: the demo's input, in words.
    """

    name: str
    shape: str
    batch: int
    make_model: Callable
    make_inputs: Callable
    make_labels: Callable


def tokens(tiny, full_length):
    return 16 if tiny else full_length


def token_ids(vocabulary, batch, length, generator):
    return torch.randint(3, vocabulary, (batch, length), generator=generator)


def bert_config(tiny, **changes):
    small = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=64, vocab_size=100)
    return transformers.BertConfig(**{**(small if tiny else {}), **changes})


def make_bert(tiny):
    return transformers.BertForMaskedLM(bert_config(tiny))


def bert_inputs(tiny, batch, generator):
    length, vocabulary = tokens(tiny, 128), 100 if tiny else 30522
    return {
        "input_ids": token_ids(vocabulary, batch, length, generator),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
    }


def same_as_input_ids(inputs, tiny, generator):
    return inputs["input_ids"].clone()


def make_gpt2(tiny):
    small = dict(n_layer=2, n_embd=32, n_head=4, vocab_size=100, bos_token_id=1, eos_token_id=2)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**(small if tiny else {})))


def gpt2_inputs(tiny, batch, generator, use_cache):
    vocabulary = 100 if tiny else 50257
    return {"input_ids": token_ids(vocabulary, batch, tokens(tiny, 128), generator), "use_cache": use_cache}


def make_t5(tiny):
    small = dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100)
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**(small if tiny else {}), decoder_start_token_id=0)
    )


def t5_inputs(tiny, batch, generator):
    vocabulary, length = 100 if tiny else 32128, tokens(tiny, 64)
    return {
        "input_ids": token_ids(vocabulary, batch, length, generator),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
        "decoder_input_ids": token_ids(vocabulary, batch, length, generator),
    }


def make_llama(tiny):
    sizes = dict(
        hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1376
    )
    if tiny:
        sizes = dict(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64
        )
        sizes["vocab_size"] = 100
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


def llama_inputs(tiny, batch, generator):
    return {"input_ids": token_ids(100 if tiny else 32000, batch, tokens(tiny, 128), generator)}


def make_resnet(tiny):
    sizes = dict(num_labels=LABEL_COUNT)
    if tiny:
        sizes = dict(num_labels=10, embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2])
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes))


def make_vit(tiny):
    sizes = dict(num_labels=LABEL_COUNT, num_hidden_layers=6)
    if tiny:
        sizes = dict(num_labels=10, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=64)
        sizes.update(image_size=32, patch_size=8)
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))


def pixel_inputs(tiny, batch, generator):
    size = 32 if tiny else 224
    return {"pixel_values": torch.randn(batch, 3, size, size, generator=generator)}


def class_labels(inputs, tiny, generator):
    return torch.randint(0, 10 if tiny else LABEL_COUNT, (len(inputs["pixel_values"]),), generator=generator)


def with_cache(use_cache):
    return lambda tiny, batch, generator: gpt2_inputs(tiny, batch, generator, use_cache)


MODELS = {
    row.name: row
    for row in (
        ModelRow("bert", "2x128", 2, make_bert, bert_inputs, same_as_input_ids),
        ModelRow("gpt2", "1x128", 1, make_gpt2, with_cache(False), same_as_input_ids),
        ModelRow("gpt2-cache", "1x128", 1, make_gpt2, with_cache(True), same_as_input_ids),
        ModelRow("t5", "2x64", 2, make_t5, t5_inputs, same_as_input_ids),
        ModelRow("llama", "1x128", 1, make_llama, llama_inputs, same_as_input_ids),
        ModelRow("resnet50", "2x3x224x224", 2, make_resnet, pixel_inputs, class_labels),
        ModelRow("vit", "2x3x224x224", 2, make_vit, pixel_inputs, class_labels),
    )
}


def make_model(name, *, tiny=False, training=False, seed=0):
    """A freshly initialised model; twins from equal arguments are equal."""
    torch.manual_seed(seed)
    return MODELS[name].make_model(tiny).train(training)


def make_inputs(name, *, tiny=False, seed=0, batch=None, labels=False):
    """Keyword arguments of one forward call; `labels=True` adds what the model needs to return a loss."""
    row = MODELS[name]
    generator = torch.Generator().manual_seed(1000 + seed)
    inputs = row.make_inputs(tiny, row.batch if batch is None else batch, generator)
    if labels:
        inputs["labels"] = row.make_labels(inputs, tiny, generator)
        inputs.pop("decoder_input_ids", None)  # T5 shifts the labels to get them
    return inputs


def pad(inputs, length):
    """The same inputs with the last `length` tokens of the first row masked out; batch and shapes stay."""
    mask = inputs["attention_mask"].clone()
    mask[0, -length:] = 0
    return {**inputs, "attention_mask": mask}


def make_optimizer(model, **options):
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, "weight_decay": 0.01, **options})


def make_training_step(model, optimizer):
    """step(**inputs with labels) -> detached loss. The gradients of the step stay on the parameters."""

    def step(**inputs):
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def state_of(model, optimizer=None):
    """Everything a call can leave behind: parameters, gradients, buffers and the optimizer's state, by name."""
    state = {f"parameter {name}": p for name, p in model.named_parameters()}
    state.update({f"gradient {name}": p.grad for name, p in model.named_parameters()})
    state.update({f"buffer {name}": b for name, b in model.named_buffers()})
    if optimizer is not None:
        for index, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            for name, value in optimizer.state.get(p, {}).items():
                state[f"optimizer {index}.{name}"] = value
    return state


def tiny_bert(layers, hidden, **changes):
    """The overhead probe's BertModel: real structure, tensors so small that only Python's cost is left."""
    sizes = dict(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=2, intermediate_size=2 * hidden)
    return transformers.BertModel(transformers.BertConfig(vocab_size=100, **{**sizes, **changes})).eval()
