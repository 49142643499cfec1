"""`python -m bench [DIR]`: the demo's table and the call-overhead probes as CSV files in DIR (default: build/bench).

`python -m bench run | capture | sizes | warm | gate | report | agree | rows` are the commands of the zoo
(bench/harness/README.md).

Options before DIR reach both parts where both have them: --mode, --threads. `--peers` adds torch.compile to the probes,
`--small` takes tiny models and few blocks.
"""

import argparse
import pathlib
import sys

from bench import demo, modes, overhead


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in ("run", "capture", "sizes", "warm", "gate", "report", "agree", "rows"):
        from bench.harness import commands

        return commands.main(arguments)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", nargs="?", default="build/bench", type=pathlib.Path)
    parser.add_argument("--mode", default="reprise", choices=list(modes.MODES))
    parser.add_argument("--threads", type=int, default=modes.cpu_count(), help="OpenMP threads of the demo's models")
    parser.add_argument("--peers", action="store_true", help="add torch.compile to the probes")
    parser.add_argument("--small", action="store_true", help="tiny models and few blocks")
    options = parser.parse_args(arguments)
    options.directory.mkdir(parents=True, exist_ok=True)
    peers, small, quick = ["--peers"] * options.peers, ["--small"] * options.small, ["--quick"] * options.small
    probes_csv, demo_csv = str(options.directory / "overhead.csv"), str(options.directory / "demo.csv")
    # The probes come first: they want a fresh process and one thread.
    status = overhead.main(["--mode", options.mode, "--csv", probes_csv, *peers, *small])
    print()
    status |= demo.main(["--mode", options.mode, "--threads", str(options.threads), "--csv", demo_csv, *quick])
    print(f"\nwritten: {probes_csv}, {demo_csv}")
    return status


if __name__ == "__main__":
    sys.exit(main())
