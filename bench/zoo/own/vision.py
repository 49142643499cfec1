"""Rendering, point clouds, detection heads, and a few small programs that are hard for compilers."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Nerf(nn.Module):
    """Colours of rays: points along them, encoded positions, an MLP, volume rendering; (rays, 3) twice."""

    def __init__(self, width=64, depth=4, frequencies=6, samples=32):
        super().__init__()
        self.samples, inputs = samples, 3 * 2 * frequencies
        sizes = [inputs] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.skip = nn.Linear(width + inputs, width)
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width + 3, 3)
        self.register_buffer("bands", 2.0 ** torch.arange(frequencies))

    def forward(self, origins, directions):
        depth = torch.linspace(0.5, 2.0, self.samples)
        points = origins[:, None] + directions[:, None] * depth[:, None]
        scaled = (points[..., None] * self.bands).flatten(-2)
        code = torch.cat([scaled.sin(), scaled.cos()], -1)
        x = code
        for layer in self.layers:
            x = F.relu(layer(x))
        x = F.relu(self.skip(torch.cat([x, code], -1)))
        sigma = F.relu(self.density(x))[..., 0]
        towards = directions[:, None].expand(-1, self.samples, -1)
        colours = torch.sigmoid(self.colour(torch.cat([x, towards], -1)))
        alpha = 1 - torch.exp(-sigma * (depth[1] - depth[0]))
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        weights = alpha * through
        cumulative = torch.cumsum(weights / (weights.sum(1, keepdim=True) + 1e-6), 1)
        middle = torch.searchsorted(cumulative.detach().contiguous(), torch.full((len(origins), 1), 0.5))
        return (weights[..., None] * colours).sum(1), depth[middle.clamp(max=self.samples - 1)]


class Siren(nn.Module):
    """Sines between linear layers."""

    def __init__(self, sizes=(2, 128, 128, 128, 3)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        for i, layer in enumerate(self.layers):
            bound = 1 / layer.in_features if i == 0 else math.sqrt(6 / layer.in_features) / 30
            nn.init.uniform_(layer.weight, -bound, bound)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.sin(30.0 * layer(x))
        return self.layers[-1](x)


def farthest_points(points, count):
    """Indices (batch, count) of points far from each other, by a loop."""
    batch, total, _ = points.shape
    chosen = torch.zeros(batch, count, dtype=torch.long)
    distance = torch.full((batch, total), 1e10)
    last, rows = torch.zeros(batch, dtype=torch.long), torch.arange(batch)
    for i in range(count):
        chosen[:, i] = last
        new = (points - points[rows, last][:, None]).square().sum(-1)
        closer = new < distance
        distance[closer] = new[closer]
        last = distance.argmax(-1)
    return chosen


class PointSets(nn.Module):
    """Two levels of sampled centres, the points around each, and a maximum; (batch, points, 3)."""

    def __init__(self, counts=(32, 8), neighbours=16, widths=(32, 64)):
        super().__init__()
        self.counts, self.neighbours = counts, neighbours
        inputs = [3, 3 + widths[0]]
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 1))
            for i, o in zip(inputs, widths)
        )
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, points):
        features = None
        for count, net in zip(self.counts, self.nets):
            rows = torch.arange(len(points))[:, None]
            centres = points[rows, farthest_points(points, count)]
            near = torch.cdist(centres, points).topk(self.neighbours, largest=False).indices
            grouped = points[rows[..., None], near] - centres[:, :, None]
            if features is not None:
                grouped = torch.cat([grouped, features[rows[..., None], near]], -1)
            features = net(grouped.permute(0, 3, 1, 2)).amax(-1).transpose(1, 2)
            points = centres
        return self.head(features.amax(1))


class BiFpn(nn.Module):
    """Levels of features joined up and down with learned positive weights, then shared heads on each level."""

    def __init__(self, width=16, levels=3, repeats=2):
        super().__init__()
        self.stem = nn.ModuleList(nn.Conv2d(3 if i == 0 else width, width, 3, 2, 1) for i in range(levels))
        self.weights = nn.Parameter(torch.ones(repeats, 2 * levels, 3))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, groups=width) for _ in range(2 * levels))
        self.classes, self.boxes = nn.Conv2d(width, 9 * 4, 3, padding=1), nn.Conv2d(width, 9 * 4, 3, padding=1)

    def fuse(self, weights, *maps):
        weights = F.relu(weights[: len(maps)])
        return sum(w * m for w, m in zip(weights / (weights.sum() + 1e-4), maps))

    def forward(self, x):
        levels = []
        for conv in self.stem:
            x = F.silu(conv(x))
            levels.append(x)
        for weights in self.weights:
            down = [levels[-1]]
            for i in range(len(levels) - 2, -1, -1):
                up = F.interpolate(down[0], size=levels[i].shape[-2:], mode="nearest")
                down.insert(0, self.convs[i](F.silu(self.fuse(weights[i], levels[i], up))))
            out = [down[0]]
            for i in range(1, len(levels)):
                pooled = F.max_pool2d(out[-1], 3, 2, 1)
                fused = self.fuse(weights[len(levels) + i], levels[i], down[i], pooled)
                out.append(self.convs[len(levels) + i](F.silu(fused)))
            levels = out
        return [{"classes": self.classes(level), "boxes": self.boxes(level)} for level in levels]


class CifarDenseNet(nn.Module):
    """Layers that each read everything made so far."""

    def __init__(self, growth=8, layers=(3, 3)):
        super().__init__()
        self.first = nn.Conv2d(3, 2 * growth, 3, padding=1)
        width, self.blocks, self.shrinks = 2 * growth, nn.ModuleList(), nn.ModuleList()
        for count in layers:
            block = nn.ModuleList()
            for _ in range(count):
                block.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, growth, 3, padding=1)))
                width += growth
            self.blocks.append(block)
            self.shrinks.append(nn.Sequential(nn.Conv2d(width, width // 2, 1), nn.AvgPool2d(2)))
            width //= 2
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.first(x)
        for block, shrink in zip(self.blocks, self.shrinks):
            for layer in block:
                x = torch.cat([x, layer(x)], 1)
            x = shrink(x)
        return self.head(x.mean((2, 3)))


class SlotAttention(nn.Module):
    """Slots compete for inputs (batch, count, width); random first slots, GRU updates."""

    def __init__(self, slots=5, width=64, steps=3):
        super().__init__()
        self.slots, self.steps, self.scale = slots, steps, width**-0.5
        self.mean, self.log_std = nn.Parameter(torch.randn(width)), nn.Parameter(torch.zeros(width))
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.cell, self.mlp = (
            nn.GRUCell(width, width),
            nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x):
        batch, _, width = x.shape
        slots = self.mean + self.log_std.exp() * torch.randn(batch, self.slots, width)
        x = self.norms[0](x)
        k, v = self.k(x), self.v(x)
        for _ in range(self.steps):
            before = slots
            scores = torch.einsum("bid,bjd->bij", self.q(self.norms[1](slots)), k) * self.scale
            attention = scores.softmax(1) + 1e-8
            updates = torch.einsum("bjd,bij->bid", v, attention / attention.sum(-1, keepdim=True))
            slots = self.cell(updates.reshape(-1, width), before.reshape(-1, width)).view(batch, -1, width)
            slots = slots + self.mlp(self.norms[2](slots))
        return slots


class TopTwoExperts(nn.Module):
    """Mixture of experts with capacities: one-hot dispatch and combine, a balance loss; (batch, length, width)."""

    def __init__(self, width=64, experts=4, capacity=1.25):
        super().__init__()
        self.gate, self.capacity = nn.Linear(width, experts, bias=False), capacity
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)

    def forward(self, x):
        batch, length, _ = x.shape
        probs = self.gate(x).softmax(-1)
        experts = probs.shape[-1]
        room = max(int(self.capacity * 2 * length / experts), 4)
        combine = x.new_zeros(batch, length, experts, room)
        taken, rest = x.new_zeros(batch, 1, experts), probs
        for _ in range(2):
            chosen = F.one_hot(rest.argmax(-1), experts).type_as(x)
            place = ((chosen.cumsum(1) - 1 + taken) * chosen).sum(-1)
            fits = (place < room).type_as(x)
            slot = F.one_hot(place.long().clamp(max=room - 1), room).type_as(x)
            weight = (probs * chosen).sum(-1) * fits
            combine = combine + weight[..., None, None] * chosen[..., None] * slot[:, :, None]
            taken, rest = taken + chosen.sum(1, keepdim=True), rest * (1 - chosen)
        inputs = torch.einsum("blec,bld->ebcd", (combine > 0).type_as(x), x)
        hidden = F.gelu(torch.einsum("ebcd,edh->ebch", inputs, self.up))
        out = torch.einsum("ebch,ehd->ebcd", hidden, self.down)
        return torch.einsum("ebcd,blec->bld", out, combine), (probs.mean(1) ** 2).sum() * experts


class Perceiver(nn.Module):
    """Latents that attend to pixels with Fourier positions, the same weights at each depth; channels last."""

    def __init__(self, latents=32, width=64, depth=2, bands=4):
        super().__init__()
        self.depth, self.bands = depth, bands
        inputs = 3 + 2 * (2 * bands + 1)
        self.latents = nn.Parameter(torch.randn(latents, width) * 0.02)
        self.project = nn.Linear(inputs, width)
        self.cross = nn.MultiheadAttention(width, 1, batch_first=True)
        self.inner = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
        self.head, self.cache = nn.Linear(width, 10), {}

    def positions(self, height, width):
        if (height, width) not in self.cache:
            grid = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
            places = torch.stack(grid, -1)
            scaled = places[..., None] * torch.linspace(1, 5, self.bands) * math.pi
            code = torch.cat([scaled.sin(), scaled.cos(), places[..., None]], -1).flatten(2)
            self.cache[height, width] = code
        return self.cache[height, width]

    def forward(self, images):
        code = self.positions(*images.shape[1:3]).expand(len(images), -1, -1, -1)
        inputs = self.project(torch.cat([images, code], -1).flatten(1, 2))
        x = self.latents.expand(len(images), -1, -1)
        for _ in range(self.depth):
            x = x + self.cross(x, inputs, inputs, need_weights=False)[0]
            x = self.inner(x)
        return self.head(x.mean(1))


class ToList(nn.Module):
    """Numbers read out of tensors one by one."""

    def forward(self, counts, values):
        total = 0
        for i, count in enumerate(counts.tolist()):
            total += count * values[i].item()
        return torch.tensor(total), values.sum() * total


class PackedLstm(nn.Module):
    """Sequences of given lengths, packed, through a bidirectional LSTM, and back."""

    def __init__(self, inputs=16, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(inputs, hidden, bidirectional=True, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, (hidden, _) = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0], hidden
