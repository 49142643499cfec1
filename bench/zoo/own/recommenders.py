"""Models of recommender systems."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp(*sizes):
    layers = []
    for size, following in zip(sizes, sizes[1:]):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """Bags of embeddings and dense features, interacting by dot products of all pairs."""

    def __init__(self, tables=8, rows=1000, width=16, dense=16):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = mlp(dense, 64, width)
        pairs = (tables + 1) * tables // 2
        self.top = mlp(width + pairs, 64, 1)

    def forward(self, dense, offsets, ids):
        x = self.bottom(dense)
        vectors = torch.stack([x] + [bag(i, o) for bag, i, o in zip(self.bags, ids, offsets)], 1)
        products = vectors @ vectors.transpose(1, 2)
        count = vectors.shape[1]
        rows = torch.tensor([i for i in range(count) for j in range(i)])
        columns = torch.tensor([j for i in range(count) for j in range(i)])
        return torch.sigmoid(self.top(torch.cat([x, products[:, rows, columns]], 1)))


def dlrm_inputs(batch=128, tables=8, rows=1000, lookups=10):
    offsets = [torch.arange(0, batch * lookups, lookups) for _ in range(tables)]
    return torch.randn(batch, 16), offsets, [torch.randint(0, rows, (batch * lookups,)) for _ in range(tables)]


class XDeepFm(nn.Module):
    """Compressed interaction network beside an MLP; ids (batch, fields)."""

    def __init__(self, fields=10, rows=1000, width=16, maps=(32, 32)):
        super().__init__()
        self.embed, self.linear = nn.Embedding(rows, width), nn.Embedding(rows, 1)
        sizes = [fields, *maps]
        self.filters = nn.ModuleList(nn.Conv1d(fields * size, out, 1) for size, out in zip(sizes, maps))
        self.deep, self.head = mlp(fields * width, 64, 1), nn.Linear(sum(maps), 1)

    def forward(self, ids):
        base = self.embed(ids)
        x, pooled = base, []
        for conv in self.filters:
            x = F.relu(conv(torch.einsum("bid,bjd->bijd", x, base).flatten(1, 2)))
            pooled.append(x.sum(-1))
        return self.linear(ids).sum((1, 2))[:, None] + self.head(torch.cat(pooled, 1)) + self.deep(base.flatten(1))


class Dice(nn.Module):
    """An activation gated by batch-normalised inputs."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.alpha = nn.BatchNorm1d(width, affine=False), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        gate = torch.sigmoid(self.norm(x))
        return gate * x + (1 - gate) * self.alpha * x


class Din(nn.Module):
    """Interest network: the history of ids (batch, length, padded by 0) is weighted by the target (batch)."""

    def __init__(self, rows=1000, width=32):
        super().__init__()
        self.embed = nn.Embedding(rows, width, padding_idx=0)
        self.attend = nn.Sequential(nn.Linear(4 * width, 36), nn.Sigmoid(), nn.Linear(36, 1))
        self.head = nn.Sequential(nn.Linear(2 * width, 64), Dice(64), nn.Linear(64, 1))

    def forward(self, history, target):
        past, now = self.embed(history), self.embed(target)
        repeated = now[:, None].expand_as(past)
        weights = self.attend(torch.cat([past, repeated, past - repeated, past * repeated], -1))[..., 0]
        weights = weights.masked_fill(history == 0, 0.0)
        return self.head(torch.cat([torch.einsum("bl,bld->bd", weights, past), now], 1))


class AutoInt(nn.Module):
    """Self-attention between fields."""

    def __init__(self, fields=10, rows=1000, width=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(rows, width)
        self.layers = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(layers))
        self.skips = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(fields * width, 1)

    def forward(self, ids):
        x = self.embed(ids)
        for layer, skip in zip(self.layers, self.skips):
            x = F.relu(layer(x, x, x, need_weights=False)[0] + skip(x))
        return self.head(x.flatten(1))


class DeepRecommender(nn.Module):
    """An autoencoder of ratings, SELU between layers, dropout in the middle."""

    def __init__(self, items=2000, sizes=(128, 128, 256)):
        super().__init__()
        all_sizes = [items, *sizes, *reversed(sizes[:-1]), items]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(all_sizes, all_sizes[1:]))
        self.middle, self.drop = len(sizes), nn.Dropout(0.5)

    def forward(self, ratings):
        x = ratings
        for i, layer in enumerate(self.layers):
            x = F.selu(layer(x))
            if i + 1 == self.middle:
                x = self.drop(x)
        return x


class SasRec(nn.Module):
    """Next item from a sequence of items: causal attention; ids (batch, length) padded by 0 in front."""

    def __init__(self, items=1000, width=64, length=50, layers=2):
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        layer = [nn.TransformerEncoderLayer(width, 4, 128, batch_first=True, norm_first=True) for _ in range(layers)]
        self.layers, self.norm = nn.ModuleList(layer), nn.LayerNorm(width)

    def forward(self, ids, positive, negative):
        x = self.items(ids) * self.items.embedding_dim**0.5 + self.places(torch.arange(ids.shape[1]))
        mask = torch.triu(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool), 1)
        for layer in self.layers:
            x = layer(x * (ids != 0)[..., None], src_mask=mask)
        x = self.norm(x)
        return (x * self.items(positive)).sum(-1), (x * self.items(negative)).sum(-1)


class Sparsemax(torch.autograd.Function):
    """Projection on the simplex along the last dimension."""

    @staticmethod
    def forward(ctx, x):
        x = x - x.amax(-1, keepdim=True)
        ordered = x.sort(-1, descending=True).values
        ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        sums = ordered.cumsum(-1) - 1
        support = (ranks * ordered > sums).sum(-1, keepdim=True)
        threshold = sums.gather(-1, support - 1) / support
        found = (x - threshold).clamp(min=0)
        ctx.save_for_backward(found, support)
        return found

    @staticmethod
    def backward(ctx, gradient):
        found, support = ctx.saved_tensors
        inside = gradient.masked_fill(found == 0, 0)
        return (inside - inside.sum(-1, keepdim=True) / support).masked_fill(found == 0, 0)


class TabNet(nn.Module):
    """Steps of attention over features with sparsemax masks and ghost batch norm."""

    def __init__(self, features=32, width=16, steps=3, ghost=64):
        super().__init__()
        self.ghost, self.steps = ghost, steps
        self.norm = nn.BatchNorm1d(features)
        self.shared = nn.Linear(features, 2 * width)
        self.blocks = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(steps))
        self.attend = nn.ModuleList(nn.Linear(width, features) for _ in range(steps))
        self.norms = nn.ModuleList(nn.BatchNorm1d(features) for _ in range(steps))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.norm(x)
        prior, total, entropy = torch.ones_like(x), 0, 0
        hidden = F.glu(self.shared(x))
        for block, attend, norm in zip(self.blocks, self.attend, self.norms):
            scores = torch.cat([norm(part) for part in attend(hidden).split(self.ghost)])
            mask = Sparsemax.apply(scores * prior)
            entropy = entropy + (mask * torch.log(mask + 1e-10)).sum(1).mean()
            prior = prior * (1.3 - mask)
            hidden = F.glu(block(F.glu(self.shared(mask * x)))) * 0.5**0.5
            total = total + F.relu(hidden)
        return self.head(total), entropy
