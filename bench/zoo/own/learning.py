"""Reinforcement and meta learning; a class with `is_step` is a whole training step that updates its parameters."""

import copy

import torch
from torch import nn
from torch.distributions import (
    Categorical,
    Independent,
    Normal,
    OneHotCategorical,
    TanhTransform,
    TransformedDistribution,
)
from torch.distributions.kl import kl_divergence
from torch.nn import functional as F


def mlp(*sizes):
    layers = []
    for size, following in zip(sizes, sizes[1:]):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class SacStep(nn.Module):
    is_step = True
    """One update of soft actor-critic: critics, actor, temperature, and the target networks moved a little."""

    def __init__(self, observed=3, actions=1, hidden=64):
        super().__init__()
        self.actor = mlp(observed, hidden, hidden, 2 * actions)
        self.critics = nn.ModuleList(mlp(observed + actions, hidden, hidden, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.target_entropy = -float(actions)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=1e-3)
        self.temperature_optimizer = torch.optim.Adam([self.log_temperature], lr=1e-3)

    def policy(self, observed):
        mean, log_std = self.actor(observed).chunk(2, -1)
        base = Normal(mean, log_std.clamp(-10, 2).exp())
        return TransformedDistribution(base, [TanhTransform(cache_size=1)])

    def act(self, observed):
        distribution = self.policy(observed)
        action = distribution.rsample()
        return action, distribution.log_prob(action).sum(-1, keepdim=True)

    def values(self, critics, observed, action):
        pair = torch.cat([observed, action], -1)
        return [critic(pair) for critic in critics]

    def forward(self, observed, action, reward, following, alive):
        temperature = self.log_temperature.detach().exp()
        with torch.no_grad():
            next_action, next_log = self.act(following)
            next_value = torch.min(*self.values(self.targets, following, next_action)) - temperature * next_log
            target = reward + 0.99 * alive * next_value
        critic_loss = sum(F.mse_loss(value, target) for value in self.values(self.critics, observed, action))
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        new_action, log = self.act(observed)
        actor_loss = (temperature * log - torch.min(*self.values(self.critics, observed, new_action))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        temperature_loss = -(self.log_temperature * (log.detach() + self.target_entropy)).mean()
        self.temperature_optimizer.zero_grad()
        temperature_loss.backward()
        self.temperature_optimizer.step()

        with torch.no_grad():
            for target_parameter, parameter in zip(self.targets.parameters(), self.critics.parameters()):
                target_parameter.lerp_(parameter, 0.005)
        return critic_loss.detach(), actor_loss.detach(), temperature_loss.detach()


def transitions(batch=256, observed=3, actions=1):
    return (
        torch.randn(batch, observed),
        torch.rand(batch, actions) * 2 - 1,
        torch.randn(batch, 1),
        torch.randn(batch, observed),
        (torch.rand(batch, 1) > 0.1).float(),
    )


class PpoPolicy(nn.Module):
    """Values, log probabilities and entropy of given actions; the distribution is kept on the module."""

    def __init__(self, observed=8, actions=4):
        super().__init__()
        self.shared, self.actor, self.critic = mlp(observed, 64, 64), nn.Linear(64, actions), nn.Linear(64, 1)
        self.distribution = None

    def forward(self, observed, actions):
        hidden = torch.tanh(self.shared(observed))
        self.distribution = Categorical(logits=self.actor(hidden))
        log = self.distribution.log_prob(actions)
        return self.critic(hidden)[..., 0], log, self.distribution.entropy(), self.distribution.probs.argmax(-1)


class DrqActor(nn.Module):
    """Pixels shifted at random by padding and grid_sample, a convolutional encoder, and a squashed Gaussian's mean."""

    def __init__(self, channels=9, size=84, actions=2, pad=4):
        super().__init__()
        self.pad = pad
        layers = [nn.Conv2d(channels, 32, 3, stride=2), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv2d(32, 32, 3), nn.ReLU()]
        self.encoder = nn.Sequential(*layers)
        self.trunk = nn.Sequential(nn.Linear(32 * 35 * 35, 50), nn.LayerNorm(50), nn.Tanh())
        self.head = mlp(50, 64, 2 * actions)

    def shift(self, x):
        count, _, height, _ = x.shape
        padded = F.pad(x, (self.pad,) * 4, "replicate")
        size = height + 2 * self.pad
        line = torch.linspace(-1 + 1 / size, 1 - 1 / size, size)[:height]
        grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)[None].repeat(count, 1, 1, 1)
        moved = torch.randint(0, 2 * self.pad + 1, (count, 1, 1, 2)) * (2 / size)
        return F.grid_sample(padded, grid + moved, padding_mode="zeros", align_corners=False)

    def forward(self, pixels):
        x = pixels / 255.0 - 0.5
        if self.training:
            x = self.shift(x)
        mean, log_std = self.head(self.trunk(self.encoder(x).flatten(1))).chunk(2, -1)
        return torch.tanh(mean), -5 + 3.5 * (torch.tanh(log_std) + 1)


class Rssm(nn.Module):
    """Latent dynamics: a GRU cell and categorical latents, straight-through samples, KL of posterior and prior."""

    def __init__(self, observed=32, actions=4, hidden=64, groups=8, kinds=8):
        super().__init__()
        self.groups, self.kinds = groups, kinds
        self.cell = nn.GRUCell(groups * kinds + actions, hidden)
        self.prior, self.posterior = mlp(hidden, 64, groups * kinds), mlp(hidden + observed, 64, groups * kinds)
        self.decode = mlp(hidden + groups * kinds, 64, observed)

    def latent(self, logits):
        return Independent(OneHotCategorical(logits=logits.unflatten(-1, (self.groups, self.kinds))), 1)

    def forward(self, observed, actions):
        state = observed.new_zeros(len(observed), self.cell.hidden_size)
        sample = observed.new_zeros(len(observed), self.groups * self.kinds)
        decoded, divergence = [], []
        for t in range(observed.shape[1]):
            state = self.cell(torch.cat([sample, actions[:, t]], -1), state)
            prior = self.latent(self.prior(state))
            posterior = self.latent(self.posterior(torch.cat([state, observed[:, t]], -1)))
            probs = posterior.base_dist.probs
            sample = (posterior.sample() + probs - probs.detach()).flatten(1)
            divergence.append(kl_divergence(posterior, prior))
            decoded.append(self.decode(torch.cat([state, sample], -1)))
        return torch.stack(decoded, 1), torch.stack(divergence, 1)


class Maml(nn.Module):
    """The loss of queries after inner steps of gradient descent on each task: gradients of gradients."""

    def __init__(self, ways=5, steps=3, rate=0.1):
        super().__init__()
        layers = []
        for inputs in (1, 16, 16):
            layers += [nn.Conv2d(inputs, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 16, ways))
        self.steps, self.rate = steps, rate

    def forward(self, support, labels, query, answers):
        losses = []
        for task in range(len(support)):
            fast = dict(self.net.named_parameters())
            for _ in range(self.steps):
                found = torch.func.functional_call(self.net, fast, (support[task],))
                loss = F.cross_entropy(found, labels[task])
                gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=self.training)
                fast = {name: p - self.rate * g for (name, p), g in zip(fast.items(), gradients)}
            losses.append(F.cross_entropy(torch.func.functional_call(self.net, fast, (query[task],)), answers[task]))
        return torch.stack(losses).mean()


def tasks(count=2, ways=5, shots=2, size=28):
    def half():
        return torch.randn(count, ways * shots, 1, size, size), torch.arange(ways).repeat(count, shots)

    return (*half(), *half())
