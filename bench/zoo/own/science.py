"""Physics: potentials, equations of state, stencils, networks whose forward takes derivatives."""

import torch
from torch import nn


def tanh_net(*sizes):
    layers = []
    for size, following in zip(sizes, sizes[1:]):
        layers += [nn.Linear(size, following), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class LennardJones(nn.Module):
    """Energies of distances (count, 1) and their derivatives, one vmap of jacrev."""

    def __init__(self):
        super().__init__()
        self.net = tanh_net(1, 16, 16, 16, 1)

    def forward(self, distances):
        return self.net(distances), torch.vmap(torch.func.jacrev(self.net))(distances)


class EquationOfState(nn.Module):
    """A long chain of pointwise arithmetic: density of sea water from salinity, temperature and pressure.

    Rational functions in the manner of ocean models, with made-up coefficients; float32 and float64 in one program.
    """

    def __init__(self, terms=24):
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.top = torch.randn(terms, generator=generator).tolist()
        self.bottom = torch.randn(terms, generator=generator).tolist()

    def rational(self, salinity, temperature, pressure):
        root = torch.sqrt(torch.abs(salinity) + 1e-6)
        above = below = 0
        for i, (a, b) in enumerate(zip(self.top, self.bottom)):
            kind = i % 4
            factor = (temperature, salinity * root, pressure * temperature, temperature * temperature)[kind]
            above = above * 0.5 + a * factor * (1 + 0.01 * pressure)
            below = below * 0.25 + 0.1 * b * torch.cos(factor)
        return above / (3.0 + below * below)

    def forward(self, salinity, temperature, pressure):
        single = self.rational(salinity, temperature, pressure)
        return single, self.rational(salinity.double(), temperature.double(), pressure.double())


class Isoneutral(nn.Module):
    """Mixing along surfaces of equal density: slopes from differences, written into slices of buffers in place."""

    def forward(self, tracer, density):
        slope = torch.zeros_like(tracer)
        flux = torch.zeros_like(tracer)
        along = (density[1:, :, :] - density[:-1, :, :]) * 0.5
        down = density[:, :, 1:] - density[:, :, :-1]
        slope[:-1, :, :-1] = -along[:, :, :-1] / torch.where(down[:-1].abs() < 1e-3, 1e-3, down[:-1])
        taper = 0.5 * (1 + torch.tanh((0.01 - slope.abs()) / 0.001))
        flux[:-1, :, :] = (tracer[1:] - tracer[:-1]) * taper[:-1]
        flux[:, 1:-1, :] += 0.1 * (tracer[:, 2:, :] - tracer[:, :-2, :])
        out = tracer.clone()
        out[1:-1] += 0.01 * (flux[1:-1] - flux[:-2])
        out[:, :, 0] = torch.maximum(out[:, :, 0], out[:, :, 1])
        return out, slope


class BurgersResidual(nn.Module):
    """u and the residual u_t + u u_x - nu u_xx of Burgers' equation at points (count, 2)."""

    def __init__(self, viscosity=0.01):
        super().__init__()
        self.net, self.viscosity = tanh_net(2, 32, 32, 32, 1), viscosity

    def forward(self, points):
        points = points.detach().requires_grad_()
        u = self.net(points)
        (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
        return u, first[:, 1:] + u * first[:, :1] - self.viscosity * second[:, :1]


class Hamiltonian(nn.Module):
    """Time derivatives of positions and momenta (count, 2n) from a learned energy."""

    def __init__(self, size=4):
        super().__init__()
        self.energy = tanh_net(size, 64, 64, 1)

    def forward(self, state):
        state = state.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.energy(state).sum(), state, create_graph=True)
        by_position, by_momentum = gradient.chunk(2, -1)
        return torch.cat([by_momentum, -by_position], -1)


class FourierOperator(nn.Module):
    """Fourier layers on a grid: the lowest modes are mixed by complex weights."""

    def __init__(self, width=16, modes=8, layers=3):
        super().__init__()
        self.modes = modes
        self.lift, self.project = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1)
        shape = (layers, 2, width, width, modes, modes)
        self.weights = nn.Parameter(torch.randn(*shape, dtype=torch.cfloat) / width**2)
        self.skips = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))

    def forward(self, x):
        batch, _, height, width = x.shape
        rows, columns = torch.linspace(0, 1, height), torch.linspace(0, 1, width)
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(batch, 2, height, width)
        x = self.lift(torch.cat([x, grid], 1))
        for weight, skip in zip(self.weights, self.skips):
            spectrum = torch.fft.rfft2(x)
            mixed = torch.zeros_like(spectrum)
            low, high = slice(0, self.modes), slice(-self.modes, None)
            mixed[:, :, low, low] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, low, low], weight[0])
            mixed[:, :, high, low] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, high, low], weight[1])
            x = torch.nn.functional.gelu(torch.fft.irfft2(mixed, s=(height, width)) + skip(x))
        return self.project(x)


class EquivariantGraph(nn.Module):
    """Messages from distances only; positions move along differences (features and positions of all pairs)."""

    def __init__(self, width=32, layers=3):
        super().__init__()
        self.messages = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers)
        )
        self.moves = nn.ModuleList(nn.Linear(width, 1) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, features, positions):
        for message, move, update in zip(self.messages, self.moves, self.updates):
            difference = positions[:, :, None] - positions[:, None]
            squared = difference.square().sum(-1, keepdim=True)
            count = features.shape[1]
            pairs = [features[:, :, None].expand(-1, -1, count, -1), features[:, None].expand(-1, count, -1, -1)]
            found = message(torch.cat([*pairs, squared], -1))
            positions = positions + (difference * move(found)).mean(2)
            features = features + update(torch.cat([features, found.sum(2)], -1))
        return features, positions
