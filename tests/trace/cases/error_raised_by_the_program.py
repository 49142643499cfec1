import torch


def make():
    def f(x):
        y = x + 1
        if y.shape[0] == 2:
            raise ValueError("two")
        return y

    return f


calls = [(torch.ones(2),), (torch.ones(2),)]
