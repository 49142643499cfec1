import torch


def make():
    return lambda x: x.view(-1) * 2


calls = [(torch.ones(2, 2),), (torch.ones(3, 2),), (torch.ones(2, 2),)]
