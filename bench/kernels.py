"""`python -m bench.kernels`: single kernels of 256 k elements, called from Python, against eager and torch.compile.

One row a kernel of `KERNELS`: fused chains of pointwise ops, normalisations, reductions along rows, columns and
everything, a transpose, an embedding, half and integer types. Results are compared first (float64 decides), then all
contestants run interleaved. Columns: minimum of eager in us, and of the others as times eager's speed. The last line is
the geometric mean. Regions of a single call are compiled here (`min_region_nodes=1`), which by default they are not.
"""

import argparse
import faulthandler
import statistics
import sys

from bench import modes
from bench.progress import Progress
from bench.table import text_table, write_csv
from bench.timing import calls_for, interleaved_ns

ROWS, WIDTH, SIDE = 256, 1024, 512
BLOCK_NS = 2_000_000
#: kernel -> (function of torch, how its arguments are made); see `make`
KERNELS = {
    "chain": lambda t, F: (
        lambda x: t.tanh(x) * t.sigmoid(x) + t.log(t.exp(x) + 1) * t.erf(x),
        (t.randn(ROWS * WIDTH),),
    ),
    "add_relu": lambda t, F: (lambda x, y: t.relu(x + y), (t.randn(ROWS * WIDTH), t.randn(ROWS * WIDTH))),
    "bias_gelu": lambda t, F: (lambda x, b: F.gelu(x + b), (t.randn(ROWS, WIDTH), t.randn(WIDTH))),
    "layer_norm": lambda t, F: (
        lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b),
        (t.randn(ROWS, WIDTH), t.randn(WIDTH), t.randn(WIDTH)),
    ),
    "rms_norm": lambda t, F: (
        lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-5),
        (t.randn(ROWS, WIDTH), t.randn(WIDTH)),
    ),
    "softmax": lambda t, F: (lambda x: t.softmax(x, -1), (t.randn(ROWS, WIDTH),)),
    "softmax_columns": lambda t, F: (lambda x: t.softmax(x, 0), (t.randn(SIDE, SIDE),)),
    "cross_entropy": lambda t, F: (
        lambda x, labels: F.cross_entropy(x, labels, reduction="none"),
        (t.randn(ROWS, WIDTH), t.randint(0, WIDTH, (ROWS,))),
    ),
    "sum_rows": lambda t, F: (lambda x: x.sum(1), (t.randn(ROWS, WIDTH),)),
    "sum_columns": lambda t, F: (lambda x: x.sum(0), (t.randn(ROWS, WIDTH),)),
    "sum_all": lambda t, F: (lambda x: x.sum(), (t.randn(ROWS * WIDTH),)),
    "channel_statistics": lambda t, F: (
        lambda x: sum(t.var_mean(x, (0, 2, 3), unbiased=False)),
        (t.randn(8, 32, 32, 32),),
    ),
    "transpose_add": lambda t, F: (lambda x, y: x + y.t(), (t.randn(SIDE, SIDE), t.randn(SIDE, SIDE))),
    "embedding_add_layer_norm": lambda t, F: (
        lambda ids, table, p, w, b: F.layer_norm(F.embedding(ids, table) + p, (WIDTH,), w, b),
        (
            t.randint(0, 8000, (ROWS,)),
            t.randn(8000, WIDTH),
            t.randn(ROWS, WIDTH),
            t.randn(WIDTH),
            t.randn(WIDTH),
        ),
    ),
    "bfloat16_pointwise": lambda t, F: (
        lambda x, y, z: t.relu(x * y + z),
        tuple(t.randn(ROWS * WIDTH).bfloat16() for _ in range(3)),
    ),
    "uint8_normalise": lambda t, F: (
        lambda x, mean, deviation: (x.float() / 255 - mean.view(1, 3, 1, 1)) / deviation.view(1, 3, 1, 1),
        (
            t.randint(0, 256, (8, 3, 104, 104), dtype=t.uint8),
            t.tensor([0.48, 0.45, 0.4]),
            t.tensor([0.22, 0.23, 0.24]),
        ),
    ),
    "integer_wrap": lambda t, F: (
        lambda x, y: (x * y + x) ^ y,
        tuple(t.randint(-(2**31), 2**31 - 1, (ROWS * WIDTH,)).int() for _ in range(2)),
    ),
}


def widened(args):
    return [a.double() if a.is_floating_point() else a for a in args]


def problem_of(got, want, exact):
    from bench.harness.referee import problem, snapshot

    return problem(snapshot(got, {}), snapshot(want, {}), snapshot(exact, {}), 1e-5)


def measure(name, contestants, blocks):
    """A row of the table. RuntimeError if a result of ours is wrong."""
    import torch

    torch.manual_seed(0)
    function, args = KERNELS[name](torch, torch.nn.functional)
    want, exact = function(*args), function(*widened(args))
    calls = {}
    for mode in contestants:
        options = {"options": {"min_region_nodes": 1}} if modes.is_reprise(mode) else {}
        compiled = modes.compiler(mode)(function, **options)
        for _ in range(4):
            got = compiled(*args)
        wrong = problem_of(got, want, exact)
        if wrong and modes.is_reprise(mode):
            raise RuntimeError(f"{name}: {wrong}")
        calls[mode] = lambda compiled=compiled: compiled(*args)
    for _ in range(200):  # the second tier of our code comes from the background
        for call in calls.values():
            call()
    times = interleaved_ns(calls, blocks, calls_for(calls["eager"], BLOCK_NS, 1000))
    best = {mode: min(times[mode]) for mode in contestants}
    row = {"kernel": name, "eager_us": best["eager"] / 1e3}
    row.update({f"speed {mode}": best["eager"] / best[mode] for mode in contestants[1:]})
    for mode in contestants:
        modes.forget(mode)
    return row


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernels", help="comma-separated names (default: all)")
    parser.add_argument("--blocks", type=int, default=30, help="timed blocks of each contestant")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads")
    parser.add_argument("--peers", action="store_true", help="add torch.compile")
    parser.add_argument("--csv", help="also write the rows to this file")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    faulthandler.enable()
    modes.set_threads(options.threads)
    names = modes.chosen(options.kernels, KERNELS, "kernel")
    contestants = ["eager", "reprise"] + ["torch"] * options.peers
    rows = []
    with Progress(len(names)) as bar:
        for name in names:
            bar.begin(name)
            rows.append(measure(name, contestants, options.blocks))
            bar.end(f"{rows[-1]['speed reprise']:.2f} x eager's speed")
    means = {"kernel": "geometric mean"}
    for mode in contestants[1:]:
        means[f"speed {mode}"] = statistics.geometric_mean(row[f"speed {mode}"] for row in rows)
    columns = {"kernel": "kernel", "eager_us": "eager us", **{f"speed {m}": f"{m} / eager" for m in contestants[1:]}}
    print(text_table([*rows, means], columns))
    if options.csv:
        write_csv(options.csv, [*rows, means])
    return 0


if __name__ == "__main__":
    sys.exit(main())
