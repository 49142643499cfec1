"""Input makers: what the `inputs` column of a table may call. Each returns a tuple of arguments or a dict of keywords.

All draw from torch's default generator, which `rows.make_inputs` seeds.
"""

import math

import torch


def images(batch, size, channels=3):
    """One batch of normalised images, `size` pixels high and wide."""
    return (torch.randn(batch, channels, size, size),)


def normal(*shape):
    """One float32 tensor of normal numbers."""
    return (torch.randn(*shape),)


def ids(batch, length, vocabulary=1000):
    return torch.randint(3, vocabulary, (batch, length))


def tokens(batch, length, vocabulary=1000, mask=True, **more):
    """input_ids (and an attention mask of ones, the last row padded) for encoders."""
    found = {"input_ids": ids(batch, length, vocabulary)}
    if mask:
        found["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
        if batch > 1:
            found["attention_mask"][-1, -(length // 4) :] = 0
    return {**found, **more}


def language_model(batch, length, vocabulary=1000, **more):
    """input_ids and labels of their kind, for models that return their loss."""
    found = tokens(batch, length, vocabulary, mask=False)
    return {**found, "labels": found["input_ids"].clone(), **more}


def span(batch, length, vocabulary=1000, **more):
    """Question answering: ids with start and end positions."""
    found = tokens(batch, length, vocabulary)
    return {
        **found,
        "start_positions": torch.randint(0, length, (batch,)),
        "end_positions": torch.randint(0, length, (batch,)),
        **more,
    }


def classes(batch, count):
    return torch.randint(0, count, (batch,))


def pixels(batch, size, channels=3, **more):
    """pixel_values of transformers' image models."""
    return {"pixel_values": torch.randn(batch, channels, size, size), **more}


def waves(batch, samples, **more):
    """input_values of transformers' speech models."""
    return {"input_values": torch.randn(batch, samples), **more}


def graph(nodes, channels, edges):
    """(features, edge_index) of a random directed graph."""
    return torch.randn(nodes, channels), torch.randint(0, nodes, (2, edges))


def atoms(count, kinds=10, box=6.0):
    """(atomic numbers, positions) of one molecule, no two atoms close."""
    side = math.ceil(count ** (1 / 3))
    grid = torch.cartesian_prod(*[torch.arange(side, dtype=torch.float32)] * 3)[:count]
    return torch.randint(1, kinds, (count,)), grid * (box / side) + 0.3 * torch.rand(count, 3)


def detection_images(*sizes):
    """One argument: a list of images of different sizes, values in [0, 1)."""
    return ([torch.rand(3, height, width) for height, width in sizes],)
