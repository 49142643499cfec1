import torch


def make():
    return lambda x: x + 1


calls = [(torch.ones(3),), (torch.zeros(3),)]
