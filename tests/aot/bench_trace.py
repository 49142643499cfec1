"""Cost of tracing: microseconds a node by source of metadata. Run: python -m tests.aot.bench_trace"""

import sys
import time

import torch

from tests.aot import models
from tests.aot.harness import Compiled, native, trace

CASES = {
    "bert-12": lambda: models.bert(layers=12, hidden=256, length=32),
    "resnet": models.resnet,
    "lstm": models.lstm,
    "mlp": models.mlp,
}
SOURCES = {"rules": (True, True, True), "memo": (False, True, True), "zeros": (False, False, True)}


def measure(function, inputs, rounds=4):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        traced = trace(function, inputs)
        best = min(best, time.perf_counter() - start)
    return best, native.node_count(traced)


def main():
    for name, make in CASES.items():
        function, inputs = make()
        trace(function, inputs)
        modules = set(sys.modules)
        line = []
        for title, options in SOURCES.items():
            native.set_options(*options, False, True)
            seconds, nodes = measure(function, inputs)
            fallback = native.statistics()["fallback_ns"] / 4 / nodes / 1e3
            each = seconds * 1e6 / nodes
            line.append(f"{title} {seconds * 1e3:.1f} ms, {each:.1f} us a node, fallback {fallback:.1f}")
        native.set_options(True, True, True, False, False)
        start = time.perf_counter()
        Compiled(function, inputs)
        whole = time.perf_counter() - start
        print(f"{name}: {nodes} nodes; " + "; ".join(line) + f"; whole {whole * 1e3:.1f} ms", flush=True)
        assert set(sys.modules) == modules


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
