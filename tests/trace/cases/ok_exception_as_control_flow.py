import torch


def make():
    def f(x, table):
        try:
            k = table["missing"]
        except KeyError:
            k = 3
        return x * k

    return f


calls = [(torch.ones(2), {}), (torch.ones(2), {})]
