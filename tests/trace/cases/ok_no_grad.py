import torch


def make():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return y + x

    return f


calls = [(torch.ones(2),), (torch.ones(2),)]
