"""Differential equations with learned right-hand sides."""

import torch
from torch import nn


class Field(nn.Module):
    """dy/dt of a spiral: a small network of y^3. Counts its evaluations, as the papers' examples do."""

    def __init__(self, size=2, hidden=50):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, size))
        self.evaluations = 0

    def forward(self, t, y):
        self.evaluations += 1
        return self.net(y**3)


class NeuralOde(nn.Module):
    """The solution at the end of [0, 1], by torchdiffeq."""

    def __init__(self, method, steps, adjoint=False):
        super().__init__()
        self.field, self.method, self.adjoint = Field(), method, adjoint
        self.register_buffer("times", torch.linspace(0, 1, steps + 1))

    def forward(self, y):
        import torchdiffeq

        solve = torchdiffeq.odeint_adjoint if self.adjoint else torchdiffeq.odeint
        return solve(self.field, y, self.times, method=self.method)[-1]


class NeuralSde(nn.Module):
    """A diffusion with a learned drift and diagonal noise, by torchsde."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, steps, size=2):
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, size))
        self.scale = nn.Parameter(torch.full((size,), 0.1))
        self.steps = steps

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return self.scale.expand_as(y)

    def forward(self, y):
        import torchsde

        times = torch.linspace(0, 1, 2)
        noise = torchsde.BrownianInterval(0.0, 1.0, size=tuple(y.shape), entropy=7)
        return torchsde.sdeint(self, y, times, dt=1 / self.steps, method="euler", bm=noise)[-1]
