import torch


def make():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    return f


calls = [(torch.ones(2),), (-torch.ones(2),), (torch.ones(2),)]
