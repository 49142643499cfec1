"""Cost of calling a region by boxed ATen calls, against eager. Run: python -m tests.aot.bench_run"""

import time

import torch

from tests.aot import models
from tests.aot.harness import Compiled, copies, flatten


def best_us(body, count):
    body()
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(count):
            body()
        best = min(best, (time.perf_counter() - start) / count)
    return best * 1e6


def measure(name, function, inputs, count):
    compiled = Compiled(function, inputs)
    tensors = copies(inputs)
    leaves = [x for x in tensors if x.requires_grad]

    def gradients(outputs):
        roots = [y for y in outputs if y.requires_grad]
        tangents = [torch.ones_like(y) for y in roots]
        return lambda: torch.autograd.grad(roots, leaves, tangents, retain_graph=True, allow_unused=True)

    def eager():
        return flatten(function(tensors), [])

    def ours():
        return compiled(*tensors)

    forward = best_us(eager, count), best_us(ours, count)
    backward = best_us(gradients(eager()), count), best_us(gradients(ours()), count)
    with torch.no_grad():
        inference = best_us(eager, count), best_us(ours, count)
    print(
        f"{name}: forward {forward[0]:.1f} -> {forward[1]:.1f} us, backward {backward[0]:.1f} -> {backward[1]:.1f}, "
        f"no_grad {inference[0]:.1f} -> {inference[1]:.1f} ({compiled.counts['inference']} + "
        f"{compiled.counts['backward'][0]} ops, {len(inputs)} inputs, {compiled.counts['saved']} saved)",
        flush=True,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure("x * 2", lambda t: t[0] * 2, [torch.randn(2, 2).requires_grad_()], 5000)
    measure("mlp", *models.mlp(8), 2000)
    measure("bert-2 hidden 8", *models.bert(p=0.0, hidden=8, batch=1, length=4), 100)
    measure("bert-12 hidden 8", *models.bert(p=0.0, layers=12, hidden=8, batch=1, length=4), 20)
