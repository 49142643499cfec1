import torch


def make():
    def f(a, b):
        seen = set()
        for t in (a, b, a):
            if t not in seen:
                seen.add(t)
        return a * len(seen)

    return f


calls = [(torch.ones(2), torch.ones(2)), (torch.zeros(2), torch.ones(2))]
