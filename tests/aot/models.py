"""Models as callables on a flat list of tensors: parameters, buffers, then what is given."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


def as_function(model, extra, post=lambda output: output, call=None):
    """The callable and its inputs."""
    names = [name for name, _ in model.named_parameters()] + [name for name, _ in model.named_buffers()]
    inputs = [p for _, p in model.named_parameters()] + [b for _, b in model.named_buffers()] + list(extra)

    def function(tensors):
        state = dict(zip(names, tensors))
        rest = tensors[len(names) :]
        if call is not None:
            return post(call(model, state, rest))
        return post(functional_call(model, state, tuple(rest)))

    return function, inputs


def mlp(width=16):
    torch.manual_seed(0)
    return as_function(nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 4)), [torch.randn(2, 8)])


def cross_entropy():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10))
    target = torch.randint(0, 10, (6,))
    return as_function(
        model,
        [torch.randn(6, 8), target],
        call=lambda m, state, rest: F.cross_entropy(
            functional_call(m, state, tuple(rest[:1])), rest[1], label_smoothing=0.1
        ),
    )


def lstm():
    torch.manual_seed(0)
    model = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
    return as_function(model, [torch.randn(3, 5, 8, requires_grad=True)], lambda o: [o[0], o[1][0], o[1][1]])


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.down = None
        if inputs != outputs or stride != 1:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 2 * width, 1),
            Block(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x):
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


def resnet():
    torch.manual_seed(0)
    return as_function(ResNet().train(), [torch.randn(2, 3, 64, 64)])


class Attention(nn.Module):
    """A BERT layer by hand: post-norm, GELU, dropout."""

    def __init__(self, hidden, heads, p):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.p = p

    def forward(self, x, mask):
        def split(y):
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5) + mask
        weights = F.dropout(scores.softmax(-1), self.p)
        y = (weights @ v).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + F.dropout(self.out(y), self.p))
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), self.p))


def checkpoint_layer(layer, x, mask):
    # The parameters as arguments: those that functional_call() put there are gone when the backward runs.
    names, parameters = zip(*layer.named_parameters())

    def run(x, mask, *parameters):
        return functional_call(layer, dict(zip(names, parameters)), (x, mask))

    return checkpoint(run, x, mask, *parameters, use_reentrant=False)


class Bert(nn.Module):
    def __init__(self, layers=2, hidden=64, heads=4, vocab=100, p=0.1, is_checkpointed=False):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(64, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(Attention(hidden, heads, p) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)
        self.p, self.is_checkpointed = p, is_checkpointed

    def forward(self, ids):
        positions = torch.arange(ids.shape[1])
        x = F.dropout(self.norm(self.words(ids) + self.positions(positions)), self.p)
        mask = (1.0 - torch.ones_like(ids, dtype=x.dtype))[:, None, None, :] * -10000.0
        for layer in self.layers:
            if self.is_checkpointed:
                x = checkpoint_layer(layer, x, mask)
            else:
                x = layer(x, mask)
        return [x, torch.tanh(self.pooler(x[:, 0]))]


def bert(p=0.1, is_checkpointed=False, layers=2, hidden=64, batch=2, length=16):
    torch.manual_seed(0)
    model = Bert(layers, hidden, 4, p=p, is_checkpointed=is_checkpointed).train()
    return as_function(model, [torch.randint(0, 100, (batch, length))])
