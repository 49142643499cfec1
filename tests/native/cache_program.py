"""A program whose kernels are kept in a directory: cache_program.py DIRECTORY GENERATOR; prints counters as JSON."""

import json
import pathlib
import sys
import time

import reprise
import torch

PATIENCE_S = 60


def program(x, y):
    a = torch.softmax(x * 1.25, -1) + torch.tanh(y)
    return a.sum(0), torch.nn.functional.layer_norm(a, (a.shape[-1],)), (x.sigmoid() * y).amax(-1)


def main(folder, generator):
    compiled = reprise.compile(program, options={"cache": folder, "cpu_codegen": generator})
    x, y = torch.randn(33, 65), torch.randn(33, 65)
    for _ in range(3):
        for got, want in zip(compiled(x, y), program(x, y)):
            torch.testing.assert_close(got, want)
    counts = reprise.explain(compiled)(x, y).counters
    # LLVM's full tier is stored by the background thread, one file a kernel.
    wanted = counts["compiled_kernels"] if generator == "llvm" and counts["cache_misses"] > 0 else 0
    end = time.monotonic() + PATIENCE_S
    while len(list(pathlib.Path(folder).rglob("*.code"))) < wanted and time.monotonic() < end:
        time.sleep(0.01)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
