import torch


def make():
    def f(x):
        y = x * 2
        print("between")
        return y + 1

    return f


calls = [(torch.ones(2),), (torch.ones(2),), (torch.ones(2),)]
