"""Recurrent and convolutional sequence models."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class LstmLm(nn.Module):
    """Word model: embedding, LSTM, linear. Takes ids (time, batch) and the hidden state, gives logits and the next."""

    def __init__(self, vocabulary=2000, width=200, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=0.2)
        self.head = nn.Linear(width, vocabulary)
        self.drop = nn.Dropout(0.2)

    def forward(self, ids, hidden):
        found, hidden = self.rnn(self.drop(self.embed(ids)), hidden)
        return self.head(self.drop(found)), tuple(h.detach() for h in hidden)


class CrfTagger(nn.Module):
    """Bidirectional LSTM with a conditional random field; a negative log likelihood, or in eval the best paths."""

    def __init__(self, vocabulary=500, width=64, tags=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width // 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(width, tags)
        self.transitions = nn.Parameter(0.1 * torch.randn(tags, tags))

    def forward(self, ids, tags, mask):
        scores = self.head(self.rnn(self.embed(ids))[0])
        if not self.training:
            return self.best_paths(scores, mask)
        total = scores[:, 0]
        for t in range(1, scores.shape[1]):
            step = torch.logsumexp(total[:, :, None] + self.transitions + scores[:, t, None, :], 1)
            total = torch.where(mask[:, t, None], step, total)
        chosen = scores.gather(2, tags[..., None])[..., 0]
        moves = self.transitions[tags[:, :-1], tags[:, 1:]]
        path = (chosen * mask).sum(1) + (moves * mask[:, 1:]).sum(1)
        return (torch.logsumexp(total, 1) - path).mean()

    def best_paths(self, scores, mask):
        """Viterbi: lists of Python numbers, one a sequence."""
        total, history = scores[:, 0], []
        for t in range(1, scores.shape[1]):
            best, from_tag = (total[:, :, None] + self.transitions + scores[:, t, None, :]).max(1)
            total = torch.where(mask[:, t, None], best, total)
            history.append(from_tag)
        paths = []
        for row in range(len(scores)):
            length = int(mask[row].sum())
            path = [total[row].argmax().item()]
            for from_tag in reversed(history[: length - 1]):
                path.append(from_tag[row][path[-1]].item())
            paths.append(path[::-1])
        return paths


class Sru(nn.Module):
    """Simple recurrent units: one matrix product, then an elementwise loop over time. (batch, time, width)."""

    def __init__(self, width=64, layers=2):
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))

    def forward(self, x):
        for gates in self.gates:
            candidate, forget, reset = gates(x).chunk(3, -1)
            forget, reset = torch.sigmoid(forget), torch.sigmoid(reset)
            state, out = torch.zeros_like(x[:, 0]), []
            for t in range(x.shape[1]):
                state = forget[:, t] * state + (1 - forget[:, t]) * candidate[:, t]
                out.append(reset[:, t] * torch.tanh(state) + (1 - reset[:, t]) * x[:, t])
            x = torch.stack(out, 1)
        return x


class Tree:
    """A node of a tree: the index of its word and its children."""

    def __init__(self, word, children=()):
        self.word, self.children = word, list(children)


def trees(count, vocabulary=100):
    """One argument: a list of small trees of different shapes with random words."""

    def word():
        return int(torch.randint(0, vocabulary, ()))

    shapes = [
        lambda: Tree(word(), [Tree(word()), Tree(word(), [Tree(word()), Tree(word())])]),
        lambda: Tree(word(), [Tree(word()), Tree(word()), Tree(word())]),
        lambda: Tree(word(), [Tree(word(), [Tree(word())])]),
    ]
    return ([shapes[i % len(shapes)]() for i in range(count)],)


class TreeLstm(nn.Module):
    """Child-sum LSTM: recursion over Python objects. Gives one vector a tree."""

    def __init__(self, vocabulary=100, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.inputs, self.states = nn.Linear(width, 4 * width), nn.Linear(width, 3 * width)
        self.forgets = nn.Linear(width, width)

    def visit(self, node):
        x = self.inputs(self.embed.weight[node.word])
        found = [self.visit(child) for child in node.children]
        total = sum((h for h, c in found), torch.zeros(self.embed.embedding_dim))
        i, o, u = (x[: 3 * len(total)] + self.states(total)).chunk(3)
        cell = torch.sigmoid(i) * torch.tanh(u)
        for h, c in found:
            cell = cell + torch.sigmoid(x[3 * len(total) :] + self.forgets(h)) * c
        return torch.sigmoid(o) * torch.tanh(cell), cell

    def forward(self, roots):
        return torch.stack([self.visit(root)[0] for root in roots])


class Retention(nn.Module):
    """Chunkwise retention: inside a chunk in parallel with a decay mask, between chunks by a recurrent state."""

    def __init__(self, width=64, heads=4, chunk=16):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.qkvg, self.out = nn.Linear(width, 4 * width), nn.Linear(width, width)
        self.norm = nn.GroupNorm(heads, width)
        decay = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float32))
        steps = torch.arange(chunk, dtype=torch.float32)
        power = decay[:, None, None] ** (steps[:, None] - steps[None, :]).clamp(min=0)
        self.register_buffer("mask", power * (steps[:, None] >= steps[None, :]))
        self.register_buffer("inner", decay[:, None] ** (steps + 1))
        self.register_buffer("outer", decay[:, None] ** (chunk - 1 - steps))
        self.register_buffer("chunk_decay", decay**chunk)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v, gate = self.qkvg(x).chunk(4, -1)
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        k = k / math.sqrt(k.shape[-1])
        state, out = torch.zeros(batch, self.heads, k.shape[-1], v.shape[-1]), []
        for start in range(0, time, self.chunk):
            part = slice(start, start + self.chunk)
            qs, ks, vs = q[:, :, part], k[:, :, part], v[:, :, part]
            inside = (qs @ ks.transpose(-1, -2) * self.mask) @ vs
            out.append(inside + (qs * self.inner[..., None]) @ state)
            state = self.chunk_decay[:, None, None] * state + (ks * self.outer[..., None]).transpose(-1, -2) @ vs
        found = torch.cat(out, 2).transpose(1, 2).reshape(batch * time, width)
        return self.out(self.norm(found).view(batch, time, width) * F.silu(gate))


class WaveNet(nn.Module):
    """Dilated gated convolutions with a sum of skips; (batch, 1, samples)."""

    def __init__(self, channels=16, skips=32, layers=20, cycle=10):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        dilations = [2 ** (i % cycle) for i in range(layers)]
        self.gated = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=d) for d in dilations)
        self.residual = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in dilations)
        self.skip = nn.ModuleList(nn.Conv1d(channels, skips, 1) for _ in dilations)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skips, skips, 1), nn.ReLU(), nn.Conv1d(skips, 64, 1))

    def forward(self, wave):
        x, skipped = self.first(wave), []
        for gated, residual, skip in zip(self.gated, self.residual, self.skip):
            a, b = gated(F.pad(x, (gated.dilation[0], 0))).chunk(2, 1)
            found = torch.tanh(a) * torch.sigmoid(b)
            skipped.append(skip(found))
            x = x + residual(found)
        return self.last(sum(skipped))


class SpeakerLstm(nn.Module):
    """Three LSTMs with projections, the last frame normalised to length one."""

    def __init__(self, inputs=40, hidden=64, projected=32):
        super().__init__()
        sizes = [inputs, projected, projected]
        self.rnns = nn.ModuleList(nn.LSTM(size, hidden, batch_first=True) for size in sizes)
        self.linears = nn.ModuleList(nn.Linear(hidden, projected) for _ in sizes)

    def forward(self, x):
        for rnn, linear in zip(self.rnns, self.linears):
            rnn.flatten_parameters()
            x = linear(rnn(x)[0])
        return F.normalize(x[:, -1], p=2, dim=1)


class SelectiveScan(nn.Module):
    """A selective state space layer with a parallel scan by doubling, strided slices updated in place."""

    def __init__(self, width=32, states=8):
        super().__init__()
        self.steps, self.bc = nn.Linear(width, width), nn.Linear(width, 2 * states)
        self.log_a = nn.Parameter(torch.log(torch.arange(1, states + 1, dtype=torch.float32)).repeat(width, 1))

    def forward(self, x):
        delta = F.softplus(self.steps(x))[..., None]
        b, c = self.bc(x).chunk(2, -1)
        decay = torch.exp(-delta * self.log_a.exp())
        state = delta * b[:, :, None] * x[..., None]
        distance = 1
        while distance < x.shape[1]:
            earlier_state, earlier_decay = state[:, :-distance], decay[:, :-distance]
            later = state[:, distance:] + decay[:, distance:] * earlier_state
            later_decay = decay[:, distance:] * earlier_decay
            state = torch.cat([state[:, :distance], later], 1)
            decay = torch.cat([decay[:, :distance], later_decay], 1)
            distance *= 2
        return (state * c[:, :, None]).sum(-1)
