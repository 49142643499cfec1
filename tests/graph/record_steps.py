"""Recorded graphs of real training steps: tests/graph/recorded/*.txt (needs transformers).

    python tests/graph/record_steps.py

Each file is what an aot recorder would hand to the passes, in the text of src/graph/printer.h: the ops of forward,
backward and one optimizer step below autograd, with identities, aliases and writes. passes_recorded_test.cpp runs the
pipeline over them.
"""

import pathlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.graph.rule_cases import Writer, print_type  # noqa: E402
from tests.graph.rule_model_calls import Recorder as CallRecorder  # noqa: E402

HERE = pathlib.Path(__file__).parent / "recorded"
HIDDEN = {"aten::native_batch_norm": (3, 4)}


class StepRecorder(TorchDispatchMode):
    """Values are numbered in order of their making; a tensor that was not made here is an input."""

    def __init__(self, kinds):
        super().__init__()
        self.kinds, self.inputs, self.lines, self.alive = kinds, [], [], []
        self.by_object, self.by_place, self.storages, self.count = {}, {}, {}, 0
        self.writer, self.phase = Writer(), "forward"

    def place_of(self, t):
        storage = t.untyped_storage()._cdata
        return storage, tuple(t.shape), t.stride(), t.storage_offset(), t.dtype

    def number_storage(self, t):
        return self.storages.setdefault(t.untyped_storage()._cdata, len(self.storages))

    def type_of(self, t):
        return print_type(t.shape, t.stride(), t.dtype, t.storage_offset(), self.number_storage(t))

    def make(self, t):
        self.by_object[id(t)] = self.by_place[self.place_of(t)] = self.count
        self.alive += [t, t.untyped_storage()]
        self.count += 1
        return f"%{self.count - 1}"

    def find(self, t):
        if id(t) in self.by_object:
            return f"%{self.by_object[id(t)]}"
        if self.place_of(t) in self.by_place:  # another object for the same contents: a saved tensor
            return f"%{self.by_place[self.place_of(t)]}"
        name = self.make(t)
        self.inputs.append(f"{name} = {self.kinds.get(t.untyped_storage()._cdata, 'input')} : {self.type_of(t)}")
        return name

    def print_arg(self, value, argument):
        if isinstance(value, torch.Tensor):
            return self.find(value)
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.print_arg(v, argument) for v in value) + "]"
        if argument.name == "dtype" and isinstance(value, int) and not isinstance(value, bool):
            value = torch.int64
        text = self.writer.print_arg(value, [])
        is_number = isinstance(value, (int, float, bool)) and str(argument.type) == "Tensor"
        return f"wrapped {text}" if is_number else text

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        schema = func._schema
        bound = CallRecorder.bind(schema, args, kwargs or {})
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if not name.startswith("aten::"):
            return func(*args, **(kwargs or {}))
        texts = []
        for i, (argument, value) in enumerate(zip(schema.arguments, bound)):
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            hidden = i in HIDDEN.get(name, ()) and value is not None and bound[5]
            is_view = name.split(".")[0] in ("aten::t_", "aten::as_strided_", "aten::transpose_", "aten::unsqueeze_")
            texts.append("mut " * ((is_written or hidden) and not is_view) + self.print_arg(value, argument))
        result = func(*args, **(kwargs or {}))
        returns = [] if result is None else list(result) if isinstance(result, tuple) else [result]
        names, kinds = [], []
        written = {}
        if any(r.alias_info is not None and r.alias_info.is_write for r in schema.returns):
            written = {self.place_of(v): self.find(v) for v in bound if isinstance(v, torch.Tensor)}
        for value in returns:
            listed = [self.describe(v, written) for v in (value if isinstance(value, list) else [value])]
            text = [", ".join(p[i] for p in listed) for i in range(2)]
            names.append(f"[{text[0]}]" if isinstance(value, list) else text[0])
            kinds.append(f"[{text[1]}]" if isinstance(value, list) else text[1])
        line = ", ".join(names) + " = " * bool(names) + f"{name}({', '.join(texts)})"
        if any(t.strip("[]_, ") for t in kinds):
            line += " : " + ", ".join(kinds)
        self.lines.append(line)
        return result

    def describe(self, value, written):
        if value is None:
            return "_", "_"
        if not isinstance(value, torch.Tensor):
            self.count += 1
            return f"%{self.count - 1}", type(value).__name__
        if self.place_of(value) in written:  # the argument itself
            return written[self.place_of(value)], "_"
        if id(value) in self.by_object and self.by_place.get(self.place_of(value)) == self.by_object[id(value)]:
            return f"%{self.by_object[id(value)]}", "_"
        return self.make(value), self.type_of(value)

    def enter_backward(self):
        self.lines.append("backward:")

    def print_text(self, outputs):
        names = ", ".join(self.find(t) for t in outputs)
        body = self.inputs + self.lines + [f"return {names}"]
        return "\n".join(["// Written by tests/graph/record_steps.py.", "graph {", *("  " + x for x in body)]) + "\n}\n"


def make_steps():
    import transformers as tf

    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    ids = torch.randint(0, 50, (2, 7))
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 2])
    yield (
        "bert_adamw_fused",
        tf.BertForMaskedLM(tf.BertConfig(vocab_size=50, **small)),
        {"input_ids": ids, "labels": ids},
        lambda p: torch.optim.AdamW(p, fused=True),
    )
    yield (
        "gpt2_adamw_foreach",
        tf.GPT2LMHeadModel(
            tf.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0)
        ),
        {"input_ids": ids, "labels": ids},
        lambda p: torch.optim.AdamW(p, foreach=True),
    )
    resnet = tf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3)
    yield (
        "resnet_sgd_foreach",
        tf.ResNetForImageClassification(resnet),
        {"pixel_values": images, "labels": labels},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    )
    yield (
        "llama_sgd",
        tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=50, num_key_value_heads=1, **small)),
        {"input_ids": ids, "labels": ids},
        lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    )


def main():
    HERE.mkdir(exist_ok=True)
    for name, model, inputs, make_optimizer in make_steps():
        optimizer = make_optimizer(list(model.parameters()))
        model(**inputs).loss.backward()
        optimizer.step()  # its state exists from here on
        optimizer.zero_grad()
        kinds = {p.untyped_storage()._cdata: "parameter" for p in model.parameters()}
        kinds |= {b.untyped_storage()._cdata: "buffer" for b in model.buffers()}
        recorder = StepRecorder(kinds)
        with recorder:
            loss = model(**inputs).loss
            recorder.enter_backward()
            loss.backward()
            optimizer.step()
        (HERE / f"{name}.txt").write_text(recorder.print_text([loss.detach()]))
        print(name, len(recorder.lines), "nodes")


if __name__ == "__main__":
    main()
