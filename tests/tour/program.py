"""The function of docs/tour, called twice with a backward each, and what explain says. The log goes to stderr.

`python tests/tour/program.py`, with REPRISE_LOG set, prints what the tour shows.
"""

import reprise
import torch


def f(x, scale, bias):
    return torch.sigmoid(x * scale + bias).sum(-1)


def main():
    torch.manual_seed(0)
    x = torch.randn(4, 1000)
    scale = torch.randn(1000, requires_grad=True)
    bias = torch.randn(1000, requires_grad=True)
    compiled = reprise.compile(f)
    for _ in range(2):
        compiled(x, scale, bias).sum().backward()
    print(reprise.explain(compiled).report)


if __name__ == "__main__":
    main()
