"""Generators, flows, codes and contrastive learning. A class with `is_step` is a whole training step."""

import torch
from torch import nn
from torch.nn import functional as F


class DcganStep(nn.Module):
    """One generator update of a DCGAN, 32 x 32 pixels; the discriminator only judges."""

    def __init__(self, latent=32, channels=16):
        super().__init__()
        c = channels
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(latent, 4 * c, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * c), nn.ReLU(True),
            nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * c), nn.ReLU(True),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(True),
            nn.ConvTranspose2d(c, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, c, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
            nn.Conv2d(c, 2 * c, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * c), nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * c, 1, 8, 1, 0, bias=False), nn.Flatten(0), nn.Sigmoid(),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def forward(self, noise):
        self.optimizer.zero_grad()
        judged = self.discriminator(self.generator(noise))
        loss = F.binary_cross_entropy(judged, torch.ones_like(judged))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class ActNorm(nn.Module):
    """Scale and shift; the first batch sets them."""

    def __init__(self, channels):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("is_ready", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.is_ready.item() == 0:
            with torch.no_grad():
                self.shift.copy_(-x.mean((0, 2, 3), keepdim=True))
                self.log_scale.copy_(-torch.log(x.std((0, 2, 3), keepdim=True) + 1e-6))
                self.is_ready.fill_(1)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum() * x.shape[2] * x.shape[3]


class GlowBlock(nn.Module):
    def __init__(self, channels, hidden=32):
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0])
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, channels, 3, padding=1)
        )

    def forward(self, x):
        x, log_det = self.norm(x)
        log_det = log_det + torch.slogdet(self.mix)[1] * x.shape[2] * x.shape[3]
        a, b = F.conv2d(x, self.mix[..., None, None]).chunk(2, 1)
        log_scale, shift = self.net(a).chunk(2, 1)
        scale = torch.sigmoid(log_scale + 2)
        return torch.cat([a, (b + shift) * scale], 1), log_det + scale.log().sum((1, 2, 3))


class Glow(nn.Module):
    """A flow: squeezed pixels through blocks; the code and the log likelihood of each image."""

    def __init__(self, blocks=4):
        super().__init__()
        self.blocks = nn.ModuleList(GlowBlock(12) for _ in range(blocks))

    def forward(self, x):
        x, total = F.pixel_unshuffle(x, 2), 0
        for block in self.blocks:
            x, log_det = block(x)
            total = total + log_det
        return x, total - 0.5 * x.square().sum((1, 2, 3))


class Autoregressive(nn.Module):
    """Masked autoregressive flow: masked linear layers, permutations, (z, log determinant)."""

    class Masked(nn.Linear):
        def __init__(self, inputs, outputs, mask):
            super().__init__(inputs, outputs)
            self.register_buffer("mask", mask)

        def forward(self, x):
            return F.linear(x, self.weight * self.mask, self.bias)

    def __init__(self, size=8, hidden=32, layers=3):
        super().__init__()
        order, degrees = torch.arange(size), torch.arange(hidden) % (size - 1)
        first = (degrees[:, None] >= order[None, :]).float()
        second = (order[:, None] > degrees[None, :]).float().repeat(2, 1)
        self.layers = nn.ModuleList(
            nn.Sequential(self.Masked(size, hidden, first), nn.ReLU(), self.Masked(hidden, 2 * size, second))
            for _ in range(layers)
        )

    def forward(self, x):
        total = x.new_zeros(len(x))
        for layer in self.layers:
            shift, log_scale = layer(x).chunk(2, -1)
            log_scale = torch.tanh(log_scale)
            x = ((x - shift) * torch.exp(-log_scale)).flip(-1)
            total = total - log_scale.sum(-1)
        return x, total


class VqVae(nn.Module):
    """Convolutional codes: nearest vectors of a codebook, straight-through gradients."""

    def __init__(self, codes=64, width=16):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1))
        self.codebook = nn.Embedding(codes, width)
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1)
        )

    def forward(self, x):
        z = self.encode(x).permute(0, 2, 3, 1)
        flat, table = z.reshape(-1, z.shape[-1]), self.codebook.weight
        distance = flat.square().sum(1, keepdim=True) - 2 * flat @ table.t() + table.square().sum(1)
        chosen = self.codebook(distance.argmin(1)).view_as(z)
        commitment = F.mse_loss(z, chosen.detach()) * 0.25 + F.mse_loss(chosen, z.detach())
        passed = z + (chosen - z).detach()
        return self.decode(passed.permute(0, 3, 1, 2)), commitment


class EmaQuantizer(nn.Module):
    """A codebook moved by averages of what it is given, in place, while training; (batch, length, width)."""

    def __init__(self, codes=64, width=32, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        flat = x.detach().reshape(-1, x.shape[-1])
        found = torch.cdist(flat, self.codes).argmin(-1)
        if self.training:
            one_hot = F.one_hot(found, len(self.codes)).type_as(flat)
            self.counts.mul_(self.decay).add_(one_hot.sum(0), alpha=1 - self.decay)
            self.sums.mul_(self.decay).add_(one_hot.t() @ flat, alpha=1 - self.decay)
            self.codes.copy_(self.sums / (self.counts[:, None] + 1e-5))
        chosen = self.codes[found].view_as(x)
        return x + (chosen - x).detach(), found.view(x.shape[:-1]), F.mse_loss(x, chosen)


class ResidualGenerator(nn.Module):
    """Image to image: reflection padding, instance norm, residual blocks."""

    def __init__(self, width=16, blocks=3):
        super().__init__()

        def conv(inputs, outputs, size, stride=1):
            padding = [nn.ReflectionPad2d(size // 2), nn.Conv2d(inputs, outputs, size, stride)]
            return [*padding, nn.InstanceNorm2d(outputs, affine=True, track_running_stats=True), nn.ReLU(True)]

        self.down = nn.Sequential(*conv(3, width, 7), *conv(width, 2 * width, 3, 2))
        self.blocks = nn.ModuleList(nn.Sequential(*conv(2 * width, 2 * width, 3)) for _ in range(blocks))
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2), *conv(2 * width, width, 3), nn.Conv2d(width, 3, 7, padding=3)
        )

    def forward(self, x):
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return torch.tanh(self.up(x))


def small_encoder(width=32, outputs=32):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1),
        nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs),
    )  # fmt: skip


class Moco(nn.Module):
    """Momentum contrast: a slow key encoder without gradients, a queue of keys written at a pointer."""

    def __init__(self, width=32, length=64):
        super().__init__()
        self.query, self.key = small_encoder(outputs=width), small_encoder(outputs=width)
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(width, length), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def keys_of(self, images):
        for slow, fast in zip(self.key.parameters(), self.query.parameters()):
            slow.data = slow.data * 0.99 + fast.data * 0.01
        return F.normalize(self.key(images), dim=1)

    @torch.no_grad()
    def enqueue(self, keys):
        start = int(self.pointer)
        self.queue[:, start : start + len(keys)] = keys.t()
        self.pointer[0] = (start + len(keys)) % self.queue.shape[1]

    def forward(self, images, others):
        queries, keys = F.normalize(self.query(images), dim=1), self.keys_of(others)
        positive = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([positive, queries @ self.queue.clone().detach()], 1) / 0.07
        self.enqueue(keys)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


class SimClr(nn.Module):
    """Normalised temperature-scaled cross entropy of two views."""

    def __init__(self):
        super().__init__()
        self.encoder = small_encoder()

    def forward(self, first, second):
        z = F.normalize(self.encoder(torch.cat([first, second])), dim=1)
        similar = z @ z.t() / 0.5
        similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        partner = torch.arange(len(z)).roll(len(first))
        return (torch.logsumexp(similar, 1) - similar[torch.arange(len(z)), partner]).mean()


class Spike(torch.autograd.Function):
    """A step forward, a smooth gradient backward."""

    @staticmethod
    def forward(ctx, voltage):
        ctx.save_for_backward(voltage)
        return (voltage > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        (voltage,) = ctx.saved_tensors
        return gradient / (1 + 10 * voltage.abs()) ** 2


class SpikingNet(nn.Module):
    """Two layers of leaky neurons over time; (time, batch, inputs)."""

    def __init__(self, inputs=64, hidden=32, outputs=10, leak=0.9):
        super().__init__()
        self.first, self.second, self.leak = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs), leak

    def forward(self, x):
        voltages, spikes = [0, 0], []
        for frame in x:
            for i, layer in enumerate((self.first, self.second)):
                voltages[i] = self.leak * voltages[i] + layer(frame)
                frame = Spike.apply(voltages[i] - 1.0)
                voltages[i] = voltages[i] - frame.detach()
            spikes.append(frame)
        return torch.stack(spikes), voltages[1]


class HyperNetwork(nn.Module):
    """Convolutions whose weights another network makes from learned codes."""

    def __init__(self, width=16, layers=3, code=8):
        super().__init__()
        self.width, self.codes = width, nn.Parameter(torch.randn(layers, code))
        self.make = nn.Sequential(nn.Linear(code, 32), nn.ReLU(), nn.Linear(32, width * width * 9))
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Linear(width, 10)

    def forward(self, x):
        x = self.first(x)
        for code in self.codes:
            weight = self.make(code).view(self.width, self.width, 3, 3)
            x = x + F.relu(F.conv2d(x, weight / 12, padding=1))
        return self.last(x.mean((2, 3)))
