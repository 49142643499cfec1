import torch


def make():
    def f(xs):
        out = []
        for i, x in enumerate(xs):
            out.append(x * i)
        return torch.cat(out), len(out)

    return f


calls = [([torch.ones(2), torch.ones(1)],), ([torch.zeros(2), torch.zeros(1)],)]
