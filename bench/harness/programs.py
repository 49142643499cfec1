"""What of a model is run and compiled in each mode: `make_program(row, mode, column)`.

Modes: `inference` is one forward pass in eval mode without gradients, `bfloat16` the same under autocast; `training` is
zero_grad, forward, a loss, backward; `optimizer` is that with AdamW's step behind it. Rows that are whole steps
themselves (flag `step`) run as they are, in training only. Four more are no programs but questions asked of one:
`tracers` (tracers.py), `batches` and `lengths` (sizes.py), `warm` (warm.py).

`reprise` compiles the whole step, as the demo does; the torch.compile columns compile the module and run backward and
optimizer outside, which is how it is used: the breaks that `.backward()` would be are not counted against it. On a GPU
a call ends when the GPU is done.
"""

import contextlib
import dataclasses

import torch

from bench.harness.columns import is_reprise, wrapper
from bench.zoo import rows

MODES = ("inference", "bfloat16", "training", "optimizer")
INFERENCE = ("inference", "bfloat16")


@dataclasses.dataclass
class Program:
    """One twin of a model: `call(*args, **kwargs)`; `compiled` is what the compiler returned."""

    module: torch.nn.Module
    call: object
    compiled: object
    optimizer: object = None


def modes_of(row):
    """The modes and the questions that make sense for the row."""
    if "step" in row.flags:
        return ("training",)
    asked = ("tracers", "warm", *(what for what, size in rows.SIZES.items() if rows.can_vary(row, size)))
    return (INFERENCE if "no-train" in row.flags else MODES) + asked


@contextlib.contextmanager
def autocast_without_gradients(row):
    with torch.set_grad_enabled("grad-inference" in row.flags), torch.autocast(row.device, dtype=torch.bfloat16):
        yield


def surroundings(row, mode):
    """What inference runs in: whether gradients are wanted, and autocast."""
    return (
        autocast_without_gradients(row) if mode == "bfloat16" else torch.set_grad_enabled("grad-inference" in row.flags)
    )


def synchronise(row):
    if row.device == "cuda":
        torch.cuda.synchronize()


def float_tensors(thing):
    """Every floating or complex tensor that needs a gradient in nested containers, in order."""
    if isinstance(thing, torch.Tensor):
        if thing.requires_grad:
            yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from float_tensors(value)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from float_tensors(value)


def loss_of(output):
    """The model's own loss where it has one, else the mean of softplus of every output that needs a gradient.

    A plain mean would be constant behind a layer norm, and its gradients only noise.
    """
    loss = output.get("loss") if isinstance(output, dict) else None
    if loss is not None:
        return loss.sum()
    total = 0
    for tensor in float_tensors(output):
        tensor = tensor.to_dense() if tensor.is_sparse else tensor
        total = total + torch.nn.functional.softplus(tensor.abs() if tensor.is_complex() else tensor).mean()
    return total


def make_step(module, forward, optimizer):
    def step(*args, **kwargs):
        module.zero_grad()
        loss = loss_of(forward(*args, **kwargs))
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss.detach()

    return step


def make_program(row, mode, column="eager", double=False, **options):
    """A fresh twin. double: parameters and buffers in float64, and no autocast, for the referee."""
    module = rows.make_program(row)
    if double:
        module = module.double()
    wrap = wrapper(column, **options)
    if mode in INFERENCE:
        compiled = wrap(module.eval())
        inner_mode = "inference" if double else mode

        def call(*args, **kwargs):
            with surroundings(row, inner_mode):
                result = compiled(*args, **kwargs)
            synchronise(row)
            return result

        return Program(module, call, compiled)
    module.train()
    optimizer = None
    if "step" in row.flags:
        compiled = step = wrap(module)
    else:
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3) if mode == "optimizer" else None
        if is_reprise(column):
            compiled = step = wrap(make_step(module, module, optimizer))
        else:
            compiled = wrap(module)
            step = make_step(module, compiled, optimizer)
    if row.device == "cpu":
        return Program(module, step, compiled, optimizer)

    def synchronised_step(*args, **kwargs):
        result = step(*args, **kwargs)
        synchronise(row)
        return result

    return Program(module, synchronised_step, compiled, optimizer)


def state_of(program):
    """What a call leaves behind: gradients, parameters, buffers, by name."""
    found = {f"parameter {n}": p.detach() for n, p in program.module.named_parameters()}
    found.update({f"gradient {n}": p.grad for n, p in program.module.named_parameters() if p.grad is not None})
    found.update({f"buffer {n}": b for n, b in program.module.named_buffers()})
    return found
