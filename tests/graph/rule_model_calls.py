"""The calls that training small models makes, with the metadata that eager gives: more expectations for the rules.

    python tests/graph/rule_model_calls.py     write tests/graph/rule_expectations_models.txt again (needs transformers)

One node for each different call of forward, backward and optimizer steps of tiny BERT, GPT-2, T5, Llama, ViT and ResNet
models, in the text of src/graph/printer.h. graph_rules_test.cpp asks the rules for every node.
"""

import pathlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.graph.rule_cases import T, Writer, print_type  # noqa: E402

HERE = pathlib.Path(__file__).parent
HIDDEN_WRITES = {"native_batch_norm": ("running_mean", "running_var")}


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.writer, self.seen, self.next_id, self.skipped = Writer(), set(), 100_000, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        bound = self.bind(func._schema, args, kwargs)
        specs = {}
        texts = [self.print_argument(a, v, specs) for a, v in zip(func._schema.arguments, bound)]
        result = func(*args, **kwargs)
        name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
        key = (name, tuple(texts))
        if key not in self.seen and name.startswith("aten::"):
            self.seen.add(key)
            self.write(name, texts, result, specs)
        return result

    @staticmethod
    def bind(schema, args, kwargs):
        bound = list(args)
        for argument in schema.arguments[len(args) :]:
            bound.append(kwargs.get(argument.name, argument.default_value))
        return [None if a.name == "generator" else v for a, v in zip(schema.arguments, bound)]

    def print_argument(self, argument, value, specs):
        writes = argument.alias_info is not None and argument.alias_info.is_write
        made = []
        spec = self.make_spec(value, specs)
        if isinstance(spec, int) and not isinstance(spec, bool) and argument.name == "dtype":
            spec = torch.int64
        text = self.writer.print_arg(spec, made, writes)
        is_number = isinstance(value, (int, float, bool))
        return f"wrapped {text}" if is_number and str(argument.type) == "Tensor" else text

    def make_spec(self, value, specs):
        if isinstance(value, torch.Tensor):
            spec = T(*value.shape, dtype=value.dtype, strides=tuple(value.stride()), offset=value.storage_offset())
            specs.setdefault(id(value), (value, self.writer.input_of(spec), (value.shape, value.stride())))
            return spec
        if isinstance(value, (list, tuple)):
            return [self.make_spec(v, specs) for v in value]
        return value

    def write(self, name, texts, result, specs):
        returns = [] if result is None else list(result) if isinstance(result, tuple) else [result]
        if any(not isinstance(r, (torch.Tensor, list, type(None))) for r in returns):
            self.skipped.add(name)  # a number of Python
            return
        names, types = [], []
        for value in returns:
            pairs = [self.describe(v, specs) for v in value] if isinstance(value, list) else self.describe(value, specs)
            if isinstance(value, list):
                names.append("[" + ", ".join(p[0] for p in pairs) + "]")
                types.append("[" + ", ".join(p[1] for p in pairs) + "]")
            else:
                names.append(pairs[0])
                types.append(pairs[1])
        line = ", ".join(names) + " = " * bool(names) + f"{name}({', '.join(texts)})"
        if any(t.strip("[]_, ") for t in types):
            line += " : " + ", ".join(types)
        self.writer.lines.append(line)

    def describe(self, value, specs):
        if value is None:
            return "_", "_"
        if id(value) in specs and specs[id(value)][2] == (value.shape, value.stride()):
            return f"%{specs[id(value)][1]}", "_"
        storage = None
        for tensor, number, _ in specs.values():
            if value.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
                storage = number
        self.next_id += 1
        text = print_type(value.shape, value.stride(), value.dtype, value.storage_offset(), storage)
        return f"%{self.next_id}", text

    def print_text(self):
        inputs = [
            f"%{number} = input : {print_type(sizes, strides, dtype, offset, number)}"
            for (sizes, dtype, strides, offset), number in self.writer.inputs.items()
        ]
        lines = ["// Written by tests/graph/rule_model_calls.py with eager PyTorch on the CPU.", "graph {"]
        return "\n".join(lines + ["  " + line for line in inputs + self.writer.lines]) + "\n}\n"


def make_models():
    import transformers as tf

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    ids = torch.randint(0, 50, (2, 7))
    images = torch.randn(2, 3, 32, 32)
    yield tf.BertForMaskedLM(tf.BertConfig(vocab_size=50, **small)), {"input_ids": ids, "labels": ids}
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[0, 5:] = 0
    masked = {"input_ids": ids, "attention_mask": mask, "labels": ids}
    yield tf.BertForMaskedLM(tf.BertConfig(vocab_size=50, **small)), masked
    yield (
        tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16)),
        {"input_ids": ids, "labels": ids},
    )
    yield (
        tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
        ),
        {"input_ids": ids, "labels": ids},
    )
    yield (
        tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=50, num_key_value_heads=1, **small)),
        {"input_ids": ids, "labels": ids},
    )
    yield (
        tf.ViTForImageClassification(tf.ViTConfig(image_size=32, patch_size=8, num_labels=3, **small)),
        {"pixel_values": images, "labels": torch.tensor([0, 2])},
    )
    resnet = tf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3)
    yield tf.ResNetForImageClassification(resnet), {"pixel_values": images, "labels": torch.tensor([0, 2])}
    last = {"pixel_values": images.to(memory_format=torch.channels_last), "labels": torch.tensor([0, 2])}
    yield tf.ResNetForImageClassification(resnet).to(memory_format=torch.channels_last), last


def make_optimizers(parameters):
    for options in [{"foreach": False}, {"foreach": True}, {"fused": True}]:
        yield torch.optim.AdamW(parameters, lr=1e-3, **options)
        yield torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=0.1, **options)
    yield torch.optim.Adam(parameters, lr=1e-3, amsgrad=True, foreach=True)


def main():
    torch.manual_seed(0)
    recorder = Recorder()
    for model, inputs in make_models():
        model.train()
        with recorder:
            model(**inputs).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in make_optimizers(list(model.parameters())[:6]):
                optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        model.eval()
        with recorder, torch.no_grad():
            model(**inputs)
        with recorder, torch.autocast("cpu", dtype=torch.bfloat16):
            model(**inputs).loss.backward()
    (HERE / "rule_expectations_models.txt").write_text(recorder.print_text())
    print(f"{len(recorder.writer.lines)} calls; of numbers, not written: {sorted(recorder.skipped)}")


if __name__ == "__main__":
    main()
