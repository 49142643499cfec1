"""What of a model is run and compiled in each mode: `make_program(row, mode, column)`.

Modes: `inference` is one forward pass in eval mode without gradients; `training` is zero_grad, forward, a loss,
backward; `optimizer` is that with AdamW's step behind it. Rows that are whole steps themselves (flag `step`) run as
they are, in training only.

Columns: `eager`; `reprise` compiles the whole step, as the demo does; the torch.compile columns compile the module and
run backward and optimizer outside, which is how it is used: the breaks that `.backward()` would be are not counted
against it.
"""

import dataclasses

import torch

from bench.zoo import rows

MODES = ("inference", "training", "optimizer")
#: column -> what it is
COLUMNS = {
    "eager": "PyTorch",
    "eager-again": "PyTorch once more: the noise of the machine",
    "reprise": "reprise.compile",
    "torch": "torch.compile",
    "torch-overhead": 'torch.compile(mode="reduce-overhead")',
    "torch-eager": 'torch.compile(backend="eager"): the capture of torch.compile alone',
}
PEERS = ("torch", "torch-overhead", "torch-eager")


@dataclasses.dataclass
class Program:
    """One twin of a model: `call(*args, **kwargs)`; `compiled` is what the compiler returned."""

    module: torch.nn.Module
    call: object
    compiled: object
    optimizer: object = None


def modes_of(row):
    """The modes that make sense for the row."""
    if "step" in row.flags:
        return ("training",)
    return ("inference",) if "no-train" in row.flags else MODES


def wrapper(column, **options):
    """The compiler of a column, as a function of what it compiles."""
    if column in ("eager", "eager-again"):
        return lambda program: program
    if column == "reprise":
        import reprise

        from bench.stats import require_reprise

        require_reprise()
        return lambda program: reprise.compile(program, **options)
    fixed = {"torch": {}, "torch-overhead": {"mode": "reduce-overhead"}, "torch-eager": {"backend": "eager"}}[column]
    return lambda program: torch.compile(program, **{**fixed, **options})


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
    """A fresh twin. double: parameters and buffers in float64, for the referee."""
    module = rows.make_program(row)
    if double:
        module = module.double()
    wrap = wrapper(column, **options)
    if mode == "inference":
        compiled = wrap(module.eval())
        needs_gradients = "grad-inference" in row.flags

        def call(*args, **kwargs):
            with torch.set_grad_enabled(needs_gradients):
                return compiled(*args, **kwargs)

        return Program(module, call, compiled)
    module.train()
    if "step" in row.flags:
        compiled = wrap(module)
        return Program(module, compiled, compiled)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3) if mode == "optimizer" else None
    if column == "reprise":
        compiled = wrap(make_step(module, module, optimizer))
        return Program(module, compiled, compiled, optimizer)
    compiled = wrap(module)
    return Program(module, make_step(module, compiled, optimizer), compiled, optimizer)


def state_of(program):
    """What a call leaves behind: gradients, parameters, buffers, by name."""
    found = {f"parameter {n}": p.detach() for n, p in program.module.named_parameters()}
    found.update({f"gradient {n}": p.grad for n, p in program.module.named_parameters() if p.grad is not None})
    found.update({f"buffer {n}": b for n, b in program.module.named_buffers()})
    return found
