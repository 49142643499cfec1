"""Graph networks around torch_geometric's layers, for what needs a callable, a wrapper or several inputs."""

import torch
from torch import nn


def all_pairs(positions, batch):
    """Edges between all atoms that are not the same, and their lengths: stands in for a neighbour search in C++."""
    count = positions.shape[0]
    rows, columns = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
    keep = rows != columns
    edges = torch.stack([rows[keep], columns[keep]])
    return edges, (positions[edges[0]] - positions[edges[1]]).norm(dim=-1)


class SchNetForces(nn.Module):
    """SchNet's energy of one molecule and the forces, minus its gradient by the positions."""

    def __init__(self, hidden, filters, blocks):
        super().__init__()
        from torch_geometric.nn.models import SchNet

        self.net = SchNet(hidden, filters, blocks, 50, interaction_graph=all_pairs)

    def forward(self, kinds, positions):
        positions = positions.detach().requires_grad_()
        energy = self.net(kinds, positions)
        (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=self.training)
        return energy, -gradient


class ViSNetEnergy(nn.Module):
    """ViSNet, with edges of all pairs instead of the neighbour search that needs a compiled extension."""

    def __init__(self):
        super().__init__()
        from torch_geometric.nn.models import ViSNet

        self.net = ViSNet(lmax=1, num_layers=2, hidden_channels=32, num_heads=4, num_rbf=8, derivative=False)
        self.net.representation_model.distance = PairDistance()

    def forward(self, kinds, positions, batch):
        return self.net(kinds, positions, batch)[0]


class PairDistance(nn.Module):
    def forward(self, positions, batch):
        count = positions.shape[0]
        rows, columns = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
        edges = torch.stack([rows.reshape(-1), columns.reshape(-1)])
        vectors = positions[edges[0]] - positions[edges[1]]
        is_other = edges[0] != edges[1]
        lengths = torch.zeros(count * count)
        lengths[is_other] = vectors[is_other].norm(dim=-1)
        return edges, lengths, vectors


class Polynormer(nn.Module):
    """torch_geometric's Polynormer on one graph, local attention only as in its warm-up."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        from torch_geometric.nn.models import Polynormer as Net

        self.net = Net(inputs, hidden, outputs)

    def forward(self, x, edges):
        return self.net(x, edges, torch.zeros(len(x), dtype=torch.long))


class TwoRelations(nn.Module):
    """Two relational graph convolutions."""

    def __init__(self, inputs, hidden, relations):
        super().__init__()
        from torch_geometric.nn import RGCNConv

        self.first = RGCNConv(inputs, hidden, relations)
        self.second = RGCNConv(hidden, inputs, relations)

    def forward(self, x, edges, kinds):
        return self.second(self.first(x, edges, kinds).relu(), edges, kinds)


METADATA = (["user", "item"], [("user", "buys", "item"), ("item", "bought_by", "user")])


class HeteroSage(nn.Module):
    """GraphSAGE made heterogeneous by torch_geometric's fx transformation: dicts in, dict out."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        from torch_geometric.nn import to_hetero
        from torch_geometric.nn.models import GraphSAGE

        self.net = to_hetero(GraphSAGE((inputs, inputs), hidden, 2, outputs), METADATA)

    def forward(self, features, edges):
        return self.net(features, edges)


def hetero_inputs(users=60, items=40, edges=200):
    features = {"user": torch.randn(users, 16), "item": torch.randn(items, 16)}
    forward = torch.stack([torch.randint(0, users, (edges,)), torch.randint(0, items, (edges,))])
    return features, {METADATA[1][0]: forward, METADATA[1][1]: forward.flip(0)}


class ReversibleGraph(nn.Module):
    """Grouped reversible blocks: activations are recomputed in the backward pass."""

    def __init__(self, width, depth):
        super().__init__()
        from torch_geometric.nn import GroupAddRev, SAGEConv

        self.embed = nn.Linear(width, width)
        self.blocks = nn.ModuleList(GroupAddRev(SAGEConv(width // 2, width // 2), num_groups=2) for _ in range(depth))

    def forward(self, x, edges):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, edges)
        return x
