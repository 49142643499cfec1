"""Seeded random programs over tensors: the same seed always gives the same text and arguments.

A statement is a form of `FORMS` with its holes filled by variables and numbers. It is kept if it runs: the writer runs
each one at once, on the arguments of the first call, so that most programs get to their end. Some that raise are kept.
"""

import contextlib
import random
import re
import warnings

import torch
from inputs import DTYPES, LAYOUTS, make

# Holes: T any tensor, F floating, I whole numbers, B bool, C complex, X an argument, D a dimension, N a small number,
# S a number of either kind, Y a dtype, P a float dtype.
VIEWS = """
T[D_IDX] ; T[..., 0] ; T[None] ; T[:, None] ; T[1:] ; T[::2] ; T[..., 1:] ; T[..., :-1] ; T[:, ::2] ; T[-1] ; T[0] ; T[..., ::3]
T.t() ; T.mT ; T.transpose(D, D) ; T.movedim(D, D) ; T.permute(*reversed(range(T1.dim()))) ; T.swapaxes(0, -1)
T.reshape(-1) ; T.view(-1) ; T.flatten() ; T.flatten(0, 1) ; T.unsqueeze(D) ; T.squeeze() ; T.squeeze(D)
T.reshape(T1.shape[0], -1) ; T.view(T1.size(0), -1) ; T.unflatten(D, (-1, 2)) ; T.reshape(-1, 2) ; T.view(2, -1)
T.expand(2, *T1.shape) ; T.expand_as(T) ; T.broadcast_to((N, *T1.shape)) ; T.unfold(D, 2, 1) ; T.diagonal() ; T.diagonal(1, -2, -1)
T.as_strided((2,), (1,)) ; T.as_strided((2, 2), (1, 1), 1) ; T.narrow(D, 0, 1) ; T.select(D, -1) ; T.detach() ; T.data
T.view_as(T) ; T.real ; torch.view_as_real(C) ; C.imag ; C.conj() ; T.view(torch.int32) ; T.view(torch.uint8) ; T.view(torch.int64)
T.split(1, D)[-1] ; T.chunk(2, D)[0] ; T.unbind(D)[-1] ; T.tensor_split(3, D)[1] ; torch.atleast_2d(T) ; T.alias() ; T.mH ; T.adjoint()
torch.movedim(T, 0, -1) ; T.hsplit(1)[0] ; T.ravel() ; torch.squeeze(T, (0, 1)) ; T.contiguous() ; T.clone() ; T.clone(memory_format=torch.contiguous_format)
"""
PLAIN = """
T + T ; T - T ; T * T ; F / T ; T // 2 ; T % 3 ; -T ; T ** 2 ; F ** 0.5 ; S - T ; S * T ; T + S ; S / F ; T.add(T, alpha=2) ; T.sub(S, alpha=N) ; torch.rsub(T, 1)
F.sin() ; F.cos() ; F.exp() ; F.tanh() ; F.sigmoid() ; F.relu() ; F.abs() ; F.sqrt() ; F.log1p() ; F.erf() ; F.floor() ; F.round() ; F.ceil() ; F.trunc() ; F.sign() ; T.neg() ; F.reciprocal() ; F.rsqrt() ; F.frac() ; T.square() ; F.expm1() ; F.atan() ; F.logit(1e-3) ; F.sinc() ; F.sgn() ; C.abs() ; C.angle() ; C * C ; C.exp() ; C + F ; torch.polar(F.abs(), F)
T.clamp(-1, 1) ; T.clamp(min=0) ; T.clamp(max=T) ; T.clip(0, 1) ; torch.maximum(T, T) ; torch.minimum(T, T) ; torch.fmax(F, F) ; torch.atan2(F, F) ; torch.hypot(F, F) ; torch.lerp(F, F, 0.25) ; torch.lerp(F, F, F) ; torch.addcmul(F, F, F, value=0.5) ; torch.addcdiv(F, F, F) ; torch.copysign(F, F) ; torch.fmod(T, 2) ; torch.remainder(T, T) ; torch.floor_divide(F, F) ; torch.div(T, 2, rounding_mode='floor') ; torch.div(T, T, rounding_mode='trunc') ; torch.xlogy(F, F) ; torch.nextafter(F, F) ; torch.heaviside(F, F) ; torch.ldexp(F, I) ; torch.logaddexp(F, F) ; F.nan_to_num() ; torch.float_power(F, 2) ; torch.gcd(I, I) ; I & I ; I | 1 ; I ^ I ; ~I ; I << 1 ; I >> 1 ; ~B ; B & B ; B | B ; B ^ B ; torch.logical_not(T) ; torch.logical_and(T, T)
T > T ; T <= S ; T == T ; T != 0 ; F < F ; torch.isnan(F) ; torch.isfinite(F) ; torch.signbit(F) ; torch.isclose(F, F) ; torch.isin(I, I)
torch.where(T > 0, T, T) ; torch.where(B, T, S) ; torch.where(B, 1.0, 0.0) ; torch.where(B, F, 0) ; T.masked_fill(T > 1, 2) ; T.masked_fill(B, S) ; torch.where(B, S, T)
T.to(Y) ; T.float() ; T.double() ; T.long() ; T.bool() ; T.half() ; T.int() ; T.to(T) ; T.type_as(T) ; T.bfloat16() ; T.to(Y, copy=True) ; T.byte()
torch.zeros_like(T) ; torch.ones_like(T, dtype=Y) ; torch.full_like(T, S) ; torch.zeros(T1.shape) ; torch.ones(T.shape[0], 2, dtype=Y) ; T.new_zeros(2, 3) ; T.new_full(T1.shape, N) ; torch.arange(T.shape[0]) ; torch.arange(T.shape[-1], dtype=P) ; torch.linspace(0, 1, T.shape[0]) ; torch.eye(T.shape[-1]) ; torch.tensor(S) ; torch.tensor([1, 2, 3]) ; torch.tensor([0.5, S], dtype=Y) ; T.new_tensor([1, 2]) ; torch.full((2, 1), N) ; torch.scalar_tensor(S)
"""
REDUCE = """
T.sum() ; T.sum(D) ; T.sum(D, keepdim=True) ; F.mean() ; F.mean(D) ; F.mean((0, -1)) ; T.sum((0, 1), keepdim=True) ; T.prod() ; T.prod(D) ; T.amax() ; T.amax(D, keepdim=True) ; T.amin(D) ; T.max() ; T.max(D)[0] ; T.max(D).indices ; T.min(D, keepdim=True).values ; T.any() ; T.all(D) ; T.any(D, keepdim=True) ; F.var() ; F.var(D, unbiased=False) ; F.std(D) ; F.norm() ; F.norm(dim=D) ; torch.linalg.vector_norm(F, 1, D) ; F.logsumexp(D) ; T.argmax() ; T.argmax(D) ; T.argmin(D, keepdim=True) ; T.count_nonzero() ; T.count_nonzero(D) ; torch.var_mean(F, D)[1] ; torch.aminmax(T)[0] ; T.sum(dtype=Y) ; F.nansum(D) ; F.median() ; F.median(D)[0] ; F.mode(D)[0] ; F.kthvalue(1, D)[0] ; F.quantile(0.5) ; torch.std_mean(F)[0] ; F.nanmean()
T.cumsum(D) ; T.cumprod(D) ; F.logcumsumexp(D) ; T.cummax(D)[0] ; T.cummin(D)[1] ; T.cumsum(D, dtype=Y) ; F.diff(dim=D)
T.sort(D)[0] ; T.sort(D, descending=True)[0] ; T.sort(D, stable=True)[1] ; T.argsort(D, stable=True) ; T.topk(1, D)[0] ; T.topk(2, D).values ; T.unique() ; T.flip(D) ; T.roll(1, D) ; T.roll(N) ; T.rot90() ; T.tril() ; T.triu(1) ; T.repeat(2, *[1] * T1.dim()) ; T.tile((2,)) ; T.repeat_interleave(2, D) ; torch.diag(T) ; torch.diag_embed(T) ; torch.trace(T) ; T.nonzero() ; torch.nonzero(T)[:, 0] ; T[T > 0] ; T[B] ; torch.searchsorted(F.sort(-1)[0], F) ; torch.bucketize(F, torch.tensor([-1.0, 0.0, 1.0])) ; torch.bincount(I.clamp(min=0)) ; torch.histc(F, 4) ; torch.masked_select(T, B)
"""
JOIN = """
torch.cat([T, T]) ; torch.cat([T, T], D) ; torch.cat([T, T.flip(0), T], D) ; torch.stack([T, T]) ; torch.stack([T, T], D) ; torch.hstack([T, T]) ; torch.vstack((T, T)) ; torch.cat(T.split(1, D), D) ; torch.stack(T.unbind(D), D) ; torch.cat([c * k for k, c in enumerate(T.chunk(2, D))], D) ; torch.cartesian_prod(torch.arange(2), torch.arange(T.shape[0])) ; torch.meshgrid(torch.arange(T.shape[0]), torch.arange(2), indexing='ij')[0] ; torch.block_diag(T, T) ; torch.broadcast_tensors(T, T)[0] ; torch.cat([T.reshape(-1), T.reshape(-1)]) ; torch.nn.functional.pad(T, (1, 1)) ; torch.nn.functional.pad(T, (0, 1), value=S) ; torch.nn.functional.pad(F, (1, -1)) ; torch.nn.functional.one_hot(I.clamp(0, 4), 5) ; torch.column_stack([T, T])
"""
INDEX = """
T[I.clamp(0, T1.shape[0] - 1)] ; T[:, I.remainder(T1.shape[1])] ; T[torch.arange(T1.shape[0] - 1, -1, -1)] ; T[[0, -1]] ; T[[0], 1:] ; T[..., torch.tensor([0, 0])] ; T.index_select(D, torch.tensor([0, 0])) ; T.gather(D, torch.zeros_like(T1, dtype=torch.long)) ; T.gather(D, T1.argsort(D, stable=True)) ; torch.take_along_dim(T, T1.argsort(D, stable=True), D) ; T.take(torch.tensor([0, -1])) ; T[T1.shape[0] // 2] ; T[:, T1.shape[1] // 2 :] ; T[: T1.shape[0] // 2] ; T[torch.tensor(0)] ; T[I.clamp(0, 0)] ; T[torch.arange(2)[:, None], torch.arange(2)] ; T[True] ; T[T1.long().flatten()[0].clamp(0, 0).item()]
T.scatter(D, torch.zeros_like(T1, dtype=torch.long), 1) ; T.scatter_add(D, torch.zeros_like(T1, dtype=torch.long), T1) ; T.scatter_add(D, T1.argsort(D, stable=True), T1) ; T.scatter(D, T1.argsort(D, stable=True), T1) ; T.index_add(D, torch.tensor([0]), T1.narrow(D1, 0, 1)) ; T.index_add(0, torch.arange(T1.shape[0]), T1, alpha=2) ; T.index_fill(D, torch.tensor([0]), S) ; T.index_copy(0, torch.tensor([0]), T1[-1:]) ; T.index_put((torch.tensor([0]),), T1[-1:]) ; T.index_put((torch.tensor([0, 0]),), T1[-1:].expand(2, *T1.shape[1:]), accumulate=True) ; F.scatter_reduce(0, torch.zeros_like(F1, dtype=torch.long), F1, 'amax') ; F.scatter_reduce(D, torch.zeros_like(F1, dtype=torch.long), F1, 'mean') ; T.masked_scatter(T1 > 0, T1.flip(0)) ; torch.select_scatter(T, T1[0], 0, -1) ; torch.slice_scatter(T, T1[1:], 0, 1) ; torch.diagonal_scatter(T, T1.diagonal()) ; torch.index_reduce(F, 0, torch.zeros(F1.shape[0], dtype=torch.long), F1, 'amax')
"""
HEAVY = """
F @ F.t() ; F @ F.mT ; torch.mm(F.t(), F) ; torch.bmm(F, F.mT) ; torch.matmul(F, F.mT.contiguous()) ; torch.einsum('ij,kj->ik', F, F1) ; torch.einsum('...i,...i->...', F, F1) ; torch.outer(F.flatten()[:3], F.flatten()[:2]) ; torch.dot(F.flatten(), F1.flatten()) ; torch.addmm(F.sum(), F1, F1.t(), beta=0.5) ; torch.baddbmm(F.sum(), F1, F1.mT) ; torch.tensordot(F, F1, dims=F1.dim()) ; torch.kron(F, F1)[0] ; torch.cdist(F, F1) ; torch.linalg.norm(F) ; F.softmax(D) ; F.log_softmax(D) ; torch.nn.functional.gelu(F) ; torch.nn.functional.gelu(F, approximate='tanh') ; torch.nn.functional.silu(F) ; torch.nn.functional.leaky_relu(F, 0.1) ; torch.nn.functional.elu(F) ; torch.nn.functional.softplus(F) ; torch.nn.functional.hardtanh(F) ; torch.nn.functional.mish(F) ; torch.nn.functional.glu(torch.cat([F, F1], -1), -1) ; torch.nn.functional.layer_norm(F, F1.shape[-1:]) ; torch.nn.functional.rms_norm(F, F1.shape[-1:]) ; torch.nn.functional.batch_norm(F, None, None, training=True) ; torch.nn.functional.normalize(F, dim=D) ; torch.nn.functional.linear(F, F1.reshape(-1, F1.shape[-1])) ; torch.nn.functional.mse_loss(F, F) ; torch.nn.functional.l1_loss(F, F1 * 2, reduction='none') ; torch.nn.functional.smooth_l1_loss(F, F) ; torch.nn.functional.cross_entropy(F, torch.zeros(F1.shape[0], dtype=torch.long)) ; torch.nn.functional.nll_loss(F.log_softmax(1), F1.argmax(1)) ; torch.nn.functional.binary_cross_entropy_with_logits(F, (F1 > 0).to(F1.dtype)) ; torch.nn.functional.kl_div(F.log_softmax(-1), F1.softmax(-1), reduction='sum') ; torch.nn.functional.cosine_similarity(F, F, dim=D) ; torch.nn.functional.scaled_dot_product_attention(F, F1, F1) ; torch.nn.functional.embedding(I.clamp(0, 1), F[:2]) ; torch.nn.functional.conv1d(F.reshape(1, 1, -1), torch.ones(1, 1, 2, dtype=F1.dtype)) ; torch.nn.functional.conv2d(F[None, None], torch.ones(2, 1, 2, 2, dtype=F1.dtype), padding=1) ; torch.nn.functional.max_pool1d(F.reshape(1, 1, -1), 2) ; torch.nn.functional.avg_pool2d(F[None], 2) ; torch.nn.functional.max_pool2d(F[None], 2, return_indices=True)[1] ; torch.nn.functional.adaptive_avg_pool1d(F.reshape(1, -1), 2) ; torch.nn.functional.interpolate(F[None], scale_factor=2.0) ; torch.nn.functional.unfold(F[None, None], 2) ; torch.cross(torch.ones(3), F.flatten()[:3], dim=0) ; torch.fft.fft(F) ; torch.fft.rfft(F).abs() ; torch.linalg.det(F @ F1.mT + torch.eye(F1.shape[0])) ; torch.triu(F @ F1.mT) ; torch.cov(F) ; torch.renorm(F, 2, 0, 1.0)
torch.randn(T.shape) ; torch.rand_like(F) ; torch.randint(0, 5, T.shape) ; torch.randperm(T.shape[0]) ; torch.nn.functional.dropout(F, 0.5) ; torch.bernoulli(F.sigmoid()) ; torch.randn(2, T.shape[-1], dtype=P) ; torch.normal(F, 1.0) ; torch.multinomial(F.softmax(-1), 1) ; LINEAR(F.reshape(-1, 4)) ; NORM(F.reshape(-1, 4)) ; DROP(F)
"""
WRITES = """
T.add_(S) ; T.mul_(T) ; T.mul_(2) ; T.sub_(T) ; T.zero_() ; T.fill_(N) ; F.div_(2) ; F.sin_() ; F.relu_() ; T.clamp_(-1, 1) ; T.neg_() ; T.copy_(T) ; T[0] = S ; T[..., 0] = T[..., -1] ; T[1:] = S ; T[:, ::2] += 1 ; T[T > 0] = S ; T[B] = S ; T[..., 1:] *= 2 ; T += T ; T -= S ; T *= S ; F /= 2 ; T **= 2 ; T.index_add_(0, torch.tensor([0]), T1[:1].clone()) ; T.scatter_(D, torch.zeros_like(T1, dtype=torch.long), 1) ; T.index_fill_(D, torch.tensor([0]), S) ; T.masked_fill_(T > 1, S) ; T.index_put_((torch.tensor([0, 0]),), torch.ones((), dtype=T1.dtype), accumulate=True) ; T.transpose_(0, 1) ; T.unsqueeze_(0) ; T.squeeze_() ; T.t_() ; F.uniform_() ; F.normal_() ; T.set_(T) ; T.diagonal().add_(1) ; T.fill_diagonal_(S) ; T.view(-1)[0] = S ; T.t().mul_(2) ; T.detach().add_(1) ; T.data.mul_(2) ; F.requires_grad_() ; F.detach_() ; T.unbind(0)[-1].add_(1) ; T.select(D, 0).copy_(T) ; T[I.clamp(0, 0)] += 1 ; T.cumsum_(D) ; T.swapaxes_(0, -1) ; T.random_(0, 3) ; F.exponential_() ; F.bernoulli_(0.5) ; T.as_strided_((2,), (1,)) ; T.tril_() ; T.logical_not_() ; T.eq_(T) ; F.lerp_(F, 0.5) ; F.addcmul_(F, F) ; T.index_copy_(0, torch.tensor([0]), T1[-1:].clone()) ; T.masked_scatter_(T1 > 0, T1.flip(0)) ; T.data = T.data.clone() ; T.expand(2, *T1.shape)[0].add_(1)
torch.add(T, T, out=T) ; torch.mul(T, S, out=T) ; torch.sum(T, D, out=T) ; torch.cat([T, T], out=T) ; torch.sin(F, out=F) ; torch.matmul(F, F1.mT, out=F) ; torch.where(B, T, T, out=T) ; torch.gt(T, 0, out=B) ; torch.sort(T, out=(T, I)) ; torch.max(T, D, out=(T, I)) ; torch.clamp(T, 0, 1, out=T) ; torch.index_select(T, 0, torch.tensor([0]), out=T) ; torch.arange(3, out=T) ; torch._foreach_add_([T, T], 1) ; torch._foreach_mul_([F, F], [F, F]) ; torch.abs(T, out=T) ; torch.stack([T, T], out=T)
"""
GRAD = """
F.sum().backward() ; F.sum().backward(retain_graph=True) ; F.square().mean().backward() ; F.backward(torch.ones_like(F1)) ; F.retain_grad() ; F.register_hook(lambda g: g * 2) ; F.register_hook(lambda g: SEEN.append(g.sum())) ; F.register_post_accumulate_grad_hook(lambda p: SEEN.append(p.grad.sum())) ; F.requires_grad_(False) ; F.grad = None ; F.grad.zero_() ; F.grad.mul_(2)
"""
GRAD_VALUES = """
torch.autograd.grad(F.sum(), F, allow_unused=True, retain_graph=True)[0] ; torch.autograd.grad(F.sum(), [F, F], allow_unused=True, create_graph=True)[0] ; torch.autograd.grad(F.square().sum(), F, create_graph=True)[0] ; torch.autograd.grad(F, F, torch.ones_like(F1), allow_unused=True)[0] ; F.grad ; F.detach().requires_grad_() ; F.grad.clone() ; torch.utils.checkpoint.checkpoint(lambda v: v.sin() * v, F, use_reentrant=False) ; Double.apply(F) ; torch.autograd.grad(F.sin().sum(), F, create_graph=True)[0].sum() ; torch.func.grad(lambda v: v.sin().sum())(F) ; torch.func.vmap(lambda v: v * 2 + v.sum())(T)
"""
PYTHON = """
T.shape[0] ; T.dim() ; T.numel() ; T.size(D) ; T.stride(D) ; T.is_contiguous() ; T.requires_grad ; T.dtype ; T.storage_offset() ; len(T) ; T.shape ; T.stride() ; T.sum().item() ; T.amax().item() ; bool((T > 0).any()) ; T.flatten().tolist() ; T.is_leaf ; T.element_size() ; T.shape.numel() ; T.data_ptr() == T1.data_ptr() ; T is T1 ; float(T.sum()) ; int(T.sum()) ; torch.equal(T, T) ; torch.allclose(F, F) ; T.is_floating_point() ; T.nelement() * 2 ; T._is_view() ; T._base is None ; F.grad is None ; T.grad_fn is None ; T._version ; torch.is_grad_enabled() ; torch.result_type(T, T) ; torch.broadcast_shapes(T.shape, T.shape) ; T.numpy(force=True).sum() ; (T.shape[0] + 1) // 2 * T.shape[-1] ; min(T.shape) ; max(T.shape[0], 3) ; T.untyped_storage().nbytes() ; T.is_conj() ; T.output_nr ; [r.shape for r in T] ; sum(T.shape) ; T.is_set_to(T)
"""


def split(text):
    return [form.strip() for line in text.strip().splitlines() for form in line.split(" ; ")]


KINDS = [
    (20, "value", split(VIEWS)),
    (24, "value", split(PLAIN)),
    (12, "value", split(REDUCE)),
    (7, "value", split(JOIN)),
    (8, "value", split(INDEX)),
    (10, "value", split(HEAVY)),
    (14, "write", split(WRITES)),
    (4, "grad", split(GRAD)),
    (4, "value", split(GRAD_VALUES)),
    (5, "python", split(PYTHON)),
]
MODES = [
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.autocast('cpu', dtype=torch.bfloat16)",
    "torch.set_grad_enabled(False)",
    "torch.autocast('cpu', enabled=False)",
]
HEADER = """
import torch
SEEN = []
torch.manual_seed(3)
LINEAR = torch.nn.Linear(4, 3)
NORM = torch.nn.BatchNorm1d(4)
DROP = torch.nn.Dropout(0.25)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]
"""
HOLE = re.compile(r"\b(T1|F1|D1|D_IDX|[TFIBCXDNSYP])\b")
MAX_ELEMENTS = 3000
VARIATIONS = ["same", "sizes", "layout", "dtype", "grad", "alias", "no_grad", "inference"]


BRANCHES = [
    "if T.sum() > S:",
    "if T.shape[0] > 2:",
    "if F.requires_grad:",
    "if T.amax() > 0.5:",
    "if bool((T > 0).any()):",
    "if T.dim() == 2:",
    "if T.sum().item() > 0:",
    "if T.numel() > N:",
    "if T.dtype == torch.float32:",
]
LOOPS = ["for k in range(2):", "for k in range(T.shape[0]):", "for row in T:", "for k, row in enumerate(T.unbind(0)):"]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0
        self.body = []  # (indent, text)

    # --- arguments

    def arguments(self):
        r = self.random
        self.sizes = {name: r.choice([1, 2, 2, 3, 3, 4, 4, 5, 6, 0, 7]) for name in "abc"}
        self.is_overlapping = r.random() < 0.1  # writes to elements that share memory mean nothing
        layouts = self.layouts = LAYOUTS if self.is_overlapping else LAYOUTS[:-1]
        count = r.randint(1, 4)
        self.templates = []
        for i in range(count):
            rank = r.choice([0, 1, 2, 2, 2, 3, 3])
            dims = [r.choice(["a", "b", "c", "a", "b", 1, 4]) for _ in range(rank)]
            if i and r.random() < 0.4 and self.templates[0][0] != "alias":
                dims = self.templates[0][1]
            dtype = r.choices(list(DTYPES), [1, 1, 1, 2, 1, 1, 9, 2, 1])[0]
            layout = r.choice(layouts) if r.random() < 0.4 else "plain"
            self.templates.append([r.randrange(1000), dims, dtype, layout, r.random() < 0.5])
            if i and r.random() < 0.08:
                view = r.choice(["x", "x[1:]", "x.view(-1)", "x.t()", "x[..., 0]", "x.detach()"])
                self.templates[-1] = ["alias", r.randrange(i), view]
        if r.random() < 0.3:
            self.templates.append(["value", r.choice([0, 1, 2, 3, -1, 0.5, 2.0, True])])
        self.parameters = [f"p{i}" for i in range(len(self.templates))]

    @staticmethod
    def spec(templates, sizes):
        return [
            row if isinstance(row[0], str) else [row[0], tuple(sizes.get(d, d) for d in row[1]), *row[2:]]
            for row in templates
        ]

    def call(self, variation):
        """One call: (specification of the arguments, whether gradients are on)."""
        r = self.random
        templates = [list(row) for row in self.templates]
        sizes = dict(self.sizes)
        rows = [row for row in templates if not isinstance(row[0], str)]
        if variation == "sizes":
            for name in sizes:
                if r.random() < 0.6:
                    sizes[name] = r.choice([0, 1, 2, 3, 4, 5, 8, 9])
        for row in rows:
            row[0] += r.randrange(5)
            if variation == "layout" and r.random() < 0.7:
                row[3] = r.choice(self.layouts)
            if variation == "dtype" and r.random() < 0.5:
                row[2] = r.choice(list(DTYPES))
            if variation == "grad" and r.random() < 0.7:
                row[4] = not row[4]
        if variation == "alias" and len(rows) > 1:
            i = r.randrange(1, len(templates))
            if not isinstance(templates[i][0], str):
                templates[i] = [
                    "alias",
                    r.randrange(i),
                    r.choice(["x", "x", "x.view(x.shape)", "x.detach()", "x[1:]", "x.t()"]),
                ]
                if isinstance(templates[templates[i][1]][0], str):
                    templates[i] = list(self.templates[i])
        for row in templates:
            if row[0] == "value" and r.random() < 0.3:
                row[1] = r.choice([0, 1, 2, 3, -1, 0.5, 2.0, True])
        return self.spec(templates, sizes), {"no_grad": False, "inference": "inference"}.get(variation, True)

    # --- statements

    def fill(self, form):
        """The form with its holes filled, or None if there is no variable for one."""
        r = self.random
        tensors = {k: v for k, v in self.env.items() if isinstance(v, torch.Tensor)}
        recent = list(tensors)
        chosen = {}

        def pick(test):
            names = [n for n in recent if test(tensors[n])]
            if not names:
                raise LookupError
            return r.choice(names[-8:] if r.random() < 0.7 else names)

        def fill_one(match):
            hole = match.group(1)
            if hole in ("T1", "F1"):
                return chosen.get("first") or pick(lambda t: True)
            if hole == "D1":
                return chosen["D"]
            if hole in "TX":
                name = None
                if "first" in chosen and r.random() < 0.5:  # one that it goes together with
                    shape = tensors[chosen["first"]].shape
                    with contextlib.suppress(LookupError):
                        name = pick(lambda t: t.shape == shape)
                name = name or pick(lambda t: True)
            elif hole == "F":
                if "first" in chosen and r.random() < 0.6:
                    shape = tensors[chosen["first"]].shape
                    with contextlib.suppress(LookupError):
                        return pick(lambda t: t.is_floating_point() and t.shape == shape)
                name = pick(lambda t: t.is_floating_point())
            elif hole == "I":
                name = pick(lambda t: not t.is_floating_point() and not t.is_complex() and t.dtype != torch.bool)
            elif hole == "B":
                name = pick(lambda t: t.dtype == torch.bool)
            elif hole == "C":
                name = pick(lambda t: t.is_complex())
            elif hole == "D":
                chosen["D"] = str(r.choice([0, -1, -1, 1, 0, -2, 2]))
                return chosen["D"]
            elif hole == "D_IDX":
                parts = [r.choice([":", "0", "-1", "1:", "::2", "None", ":-1", "..."]) for _ in range(r.randint(1, 3))]
                return ", ".join(parts) if parts.count("...") < 2 else "..."
            elif hole == "N":
                return str(r.randint(0, 3))
            elif hole == "S":
                numbers = [k for k, v in self.env.items() if type(v) in (int, float, bool)]
                return r.choice([*numbers, "2", "0.5", "-1", "1.5", "0", "3"])
            elif hole == "Y":
                return str(DTYPES[r.choice(list(DTYPES))])
            elif hole == "P":
                return r.choice(["torch.float32", "torch.float64", "torch.bfloat16"])
            chosen.setdefault("first", name)
            return name

        # a form's T1 means its first tensor, also where that stands behind it
        try:
            first = re.search(r"\b([TFIBC])\b", form)
            if first:
                name = fill_one(first)
                form = form[: first.start()] + name + form[first.end() :]
            return HOLE.sub(fill_one, form)
        except (LookupError, KeyError):
            return None

    def run(self, text, env):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(text, self.scope, env)
        for value in env.values():
            if isinstance(value, torch.Tensor) and value.numel() > MAX_ELEMENTS:
                raise ValueError("too large")

    def one(self):
        """The text of a statement that runs, and its effect on the environment."""
        r = self.random
        for _ in range(30):
            _, kind, forms = r.choices(KINDS, [k[0] for k in KINDS])[0]
            if kind == "write" and self.is_overlapping:
                continue
            text = self.fill(r.choice(forms))
            if text is None:
                continue
            new = f"t{self.names}"
            if kind == "value":
                tensors = [k for k, v in self.env.items() if isinstance(v, torch.Tensor)]
                name = new if r.random() < 0.85 else r.choice(tensors)
                text = f"{name} = {text}"
            elif kind == "python":
                text = f"{new} = {text}"
            env = dict(self.env)
            try:
                self.run(text, env)
            except Exception:
                if r.random() > 0.004:
                    continue
                env = dict(self.env)
            self.env = env
            self.names += 1
            return text
        return "pass"

    def block(self, indent, head, size, before):
        self.env = dict(before)
        self.body.append((indent, head))
        self.statements(indent + 1, size)

    def leave(self, before):
        """Behind a block that may not have run: only the variables that were there in front of it."""
        self.env = {k: self.env[k] for k in before if k in self.env}

    def statements(self, indent, count):
        r = self.random
        while count > 0:
            roll = r.random()
            size = r.randint(1, 4)
            if indent < 3 and roll < 0.05:
                mode = r.choice(MODES)
                self.body.append((indent, f"with {mode}:"))
                scope = eval(mode, self.scope)
                with scope:
                    self.statements(indent + 1, size)
                count -= size
            elif indent < 3 and roll < 0.12:
                is_branch = roll < 0.09
                head = self.fill(r.choice(BRANCHES if is_branch else LOOPS))
                if head is None:
                    continue
                before = dict(self.env)
                self.block(indent, head, size if is_branch else min(size, 2), before)
                if is_branch and r.random() < 0.4:
                    self.block(indent, "else:", size, before)
                self.leave(before)
                count -= size
            elif indent < 3 and roll < 0.14:
                before = dict(self.env)
                self.block(indent, "try:", size, before)
                self.leave(before)
                self.body.append((indent, "except (RuntimeError, IndexError, ValueError, TypeError) as e:"))
                self.body.append((indent + 1, "SEEN.append(type(e).__name__)"))
                count -= size
            else:
                self.body.append((indent, self.one()))
                count -= 1

    def program(self):
        r = self.random
        self.arguments()
        self.scope = {}
        exec(HEADER, self.scope)
        torch.manual_seed(0)
        self.env = None
        for _ in range(10):
            try:
                self.env = dict(zip(self.parameters, make(self.spec(self.templates, self.sizes))))
                break
            except Exception:
                self.arguments()
        if self.env is None:
            return None
        self.statements(1, r.randint(3, 22))
        names = [n for n in self.env]
        r.shuffle(names)
        results = [n for n in names if r.random() < 0.6][:6] or names[:1]
        self.body.append((1, f"return {', '.join(results)},"))
        calls = []
        for i in range(r.randint(3, 5)):
            calls.append(self.call("same" if i < 2 and r.random() < 0.85 else r.choice(VARIATIONS)))
        options = {}
        if r.random() < 0.1:
            options["dynamic"] = r.choice([True, False])
        return {"parameters": self.parameters, "body": self.body, "calls": calls, "options": options}


def make_program(seed):
    """{"parameters", "body": [(indent, text)], "calls": [(spec, grad)], "options"} or None."""
    return Writer(seed).program()


def source(program):
    lines = [f"def f({', '.join(program['parameters'])}):"]
    lines += ["    " * indent + text for indent, text in program["body"]]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"
