"""Seeded functions whose results are used afterwards in ways that depend on their history: hooks, kept gradients, writes to
results and arguments, backwards of some results, gradients of results, one backward behind another.

All tensors are 3 x 3 doubles, so that most forms fit and rounding stays small. In `f`, V is any tensor so far; in `use`, R is
a result, A an argument.
"""

import random
import re

VALUES = """
V.sin() ; V.exp() ; V.tanh() ; V.sigmoid() ; V.relu() ; V.softmax(-1) ; V * 2 ; V + 1 ; V.clone() ; V.detach() ; V * V ; V + V ; V - V ; V @ V ; V @ V.t() ; V.t() ; V.view(3, 3) ; V.cumsum(0) ; V.flip(0) ; V.square() ; V.t().contiguous() ; torch.where(V > 0, V, V) ; V.clamp(-1, 1) ; V * V.detach() ; torch.cat([V[:1], V[1:]]) ; torch.stack(V.unbind(0)[::-1]) ; V.sum(0, keepdim=True).expand(3, 3) ; torch.dropout(V, 0.5, True) ; Double.apply(V) ; Two.apply(V)[1] ; checkpoint(lambda v: v.sin() * v, V, use_reentrant=False) ; torch.nn.functional.layer_norm(V, (3,)) ; V.sort(0)[0] ; V.max(0, keepdim=True)[0] * V ; V.scatter_add(0, torch.zeros(3, 3, dtype=torch.long), V) ; V[torch.tensor([0, 0, 2])] ; LINEAR(V) ; V.view_as(V) ; V.T.T ; V / (V.abs() + 1) ; torch.autograd.grad(V.sin().sum(), V, create_graph=True, allow_unused=True)[0] ; torch.func.vmap(lambda v: v * v.sum())(V) ; torch.view_as_real(torch.complex(V, V).exp())[..., 0] ; V.prod(0, keepdim=True) + V ; V.logsumexp(0, keepdim=True) * V ; torch.lerp(V, V, 0.3) ; V.sub(V, alpha=0.5) ; V.float().double() ; torch.baddbmm(V[None], V[None], V[None])[0] ; V.norm(dim=1, keepdim=True) + V
"""
WRITES = """
V.mul_(2) ; V.add_(V) ; V[0].mul_(3) ; V[0] = V[1] ; V.relu_() ; V.t().add_(1) ; V.copy_(V) ; V.sin_() ; V.detach().mul_(1) ; V[V > 0.5] = 0.25 ; V.zero_() ; torch.sin(V.detach(), out=V.detach()) ; V.clamp_(-1, 1) ; V.unsqueeze_(0).squeeze_(0)
"""
RESULTS = """
V ; V ; V ; V ; V ; V.t() ; V[0] ; V[1:] ; V.view(-1) ; V.detach() ; V.sum() ; V[..., None] ; V.unbind(0)[1] ; V.sum(0) ; V.diagonal()
"""
USES = """
R.mul_(2) ; R.add_(1) ; R[:1].mul_(2) ; R.detach().mul_(2) ; A.detach().add_(0.5) ; write(A) ; write(R) ; A.mul_(2)
R.register_hook(lambda g: LOG.append(g)) and None ; R.register_hook(lambda g: g * 2) and None ; R.retain_grad() ; A.retain_grad() ; A.register_hook(lambda g: LOG.append(g)) and None ; R.register_hook(lambda g: LOG.append(g)) and None ; R.retain_grad() ; R.retain_grad()
R.sum().backward() ; R.sum().backward(retain_graph=True) ; (R.sum() + R.square().sum()).backward(retain_graph=True) ; (R.sum() * R.sum()).backward() ; R.sin().sum().backward(retain_graph=True) ; R.sum().backward(retain_graph=True) ; R.backward(torch.ones_like(R), inputs=leaves(A), retain_graph=True)
torch.autograd.grad(R.sum(), [A, R], allow_unused=True, retain_graph=True) ; torch.autograd.grad(R.square().sum(), [A, R, R], allow_unused=True, retain_graph=True) ; torch.autograd.grad(torch.autograd.grad(R.square().sum(), R, create_graph=True, allow_unused=True)[0].sum(), A, allow_unused=True, retain_graph=True) ; torch.autograd.grad(R.sum(), A, allow_unused=True) ; torch.autograd.grad(R.square().sum(), A, create_graph=True, allow_unused=True)
R.grad if R.retains_grad else None ; R.clone() ; clear(A) ; R.requires_grad ; R.is_leaf ; R.grad_fn is None ; R.stride() ; grads() ; grads() ; R.sum() ; drop(R) ; again() ; again()
"""
HEADER = """
import torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(3)
LINEAR = torch.nn.Linear(3, 3).double()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * 2 * x + 0 * y


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        return mask, x * mask

    @staticmethod
    def backward(ctx, _, g):
        return g * (ctx.saved_tensors[0] > 0)
"""


def split(text):
    return [form.strip() for line in text.strip().splitlines() for form in line.split(" ; ")]


VALUES, WRITES, RESULTS, USES = (split(text) for text in (VALUES, WRITES, RESULTS, USES))


def make_program(seed):
    r = random.Random(seed)
    names = ["x", "y", "w"][: r.randint(1, 3)]
    arguments = list(names)

    def fill(form, letter, options):
        return re.sub(rf"\b{letter}\b", lambda _: r.choice(options), form)

    body = []
    for i in range(r.randint(1, 9)):
        recent = names + names[-3:] * 2
        if r.random() < 0.15:
            body.append(fill(r.choice(WRITES), "V", names[len(arguments) :] * 2 + names))
            continue
        text = f"v{i} = {fill(r.choice(VALUES), 'V', recent)}"
        if r.random() < 0.06:
            text = "with torch.no_grad(): " + text
        body.append(text)
        names.append(f"v{i}")
    results = [fill(r.choice(RESULTS), "V", names[len(arguments) :] * 3 + names) for _ in range(r.randint(1, 4))]
    uses = []
    for _ in range(r.randint(1, 8)):
        text = fill(r.choice(USES), "R", [f"r[{i}]" for i in range(len(results))])
        uses.append(fill(text, "A", [f"a[{i}]" for i in range(len(arguments))]))
    inputs = [r.choice(["leaf", "leaf", "made", "plain", "view"]) for _ in arguments]
    return {"arguments": arguments, "body": body, "results": results, "uses": uses, "inputs": inputs}


def smaller(program):
    for part in ("uses", "body", "results"):
        rows = program[part]
        for i in range(len(rows)):
            if len(rows) > 1 or part == "body":
                candidate = {**program, part: rows[:i] + rows[i + 1 :]}
                if part == "results":  # numbers of results move
                    if any(f"r[{i}]" in use for use in program["uses"]):
                        continue
                    move = lambda m, i=i: f"r[{int(m[1]) - (int(m[1]) > i)}]"  # noqa: E731
                    candidate["uses"] = [re.sub(r"\br\[(\d)\]", move, use) for use in program["uses"]]
                yield candidate


def source_of(program):
    lines = [f"def f({', '.join(program['arguments'])}):"]
    lines += ["    " + text for text in program["body"]]
    return "\n".join([*lines, f"    return {', '.join(program['results'])},"])


def show(program):
    return "\n".join([source_of(program), f"# inputs {program['inputs']}", *("# " + use for use in program["uses"])])
