"""`python -m bench run | capture | sizes | warm | gate | report | agree | rows`: the commands of the zoo."""

import argparse
import collections
import os
import pathlib
import sys

from bench import zoo

DEFAULT_FILE = "build/bench/{command}-{tier}.jsonl"


def add_selection(parser):
    parser.add_argument("--tier", choices=("small", "full"), default="full", help="which rows")
    parser.add_argument("--rows", help="comma-separated names instead of a tier")
    parser.add_argument("--suites", help="comma-separated suites of the tier")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th job, from the i-th")


def add_running(parser, modes, rounds):
    parser.add_argument("--modes", default=modes, help="comma-separated: inference, bfloat16, training, optimizer")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where models and inputs lie")
    parser.add_argument("--file", type=pathlib.Path, help="the result file; an existing one is gone on with")
    parser.add_argument("--threads", type=int, default=2 if rounds else 1, help="threads of torch in each process")
    parser.add_argument("--parallel", type=int, default=1, help="processes at a time (not for timing)")
    parser.add_argument("--timeout", type=int, default=300, help="seconds a model may take")


def selected(options):
    """Rows that the options name. ValueError for unknown ones."""
    if options.rows:
        return [zoo.find_row(name) for name in options.rows.split(",")]
    found = zoo.small_rows() if options.tier == "small" else [r for r in zoo.all_rows() if "slow" not in r.flags]
    if options.suites:
        wanted = options.suites.split(",")
        found = [row for row in found if row.suite in wanted]
    return found


def shard_of(text):
    index, _, count = text.partition("/")
    return int(index), int(count)


def why_no_device(device):
    """What is missing for a device, or None."""
    if device == "cpu":
        return None
    import torch

    if torch.cuda.is_available():
        return None
    built = f"PyTorch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "this PyTorch knows none"
    return f"no CUDA device ({built}): nothing is run"


def run_rows(options, command, arguments):
    """(path, results), or (None, []) where the device is not there."""
    from bench.harness import driver

    if why := why_no_device(options.device):
        print(f"skipped: {why}")
        return None, []
    name = command if options.device == "cpu" else f"{command}-{options.device}"
    path = options.file or pathlib.Path(DEFAULT_FILE.format(command=name, tier=options.tier))
    arguments = [*arguments, "--device", options.device]
    jobs = driver.jobs_of(selected(options), options.modes.split(","), shard_of(options.shard))
    results = driver.run_jobs(
        jobs, path, arguments, threads=options.threads, timeout_s=options.timeout, parallel=options.parallel,
        peers_from=getattr(options, "peers_from", None), device=options.device,
        processes=getattr(options, "processes", 1),
    )  # fmt: skip
    print(f"written: {path}", file=sys.stderr)
    return path, results


def run(options):
    """Time a tier."""
    from bench.harness.columns import ABLATIONS, PEERS, WITHOUT, find_column

    is_quick = not (options.peers or options.ablation or options.columns) and options.parallel == 1
    options.processes = options.processes or (2 if is_quick else 1)
    columns = ["eager-again", "reprise", *(PEERS if options.peers else ())]
    columns += [WITHOUT + words for words in ABLATIONS] if options.ablation else []
    columns += options.columns.split(",") if options.columns else []
    for column in columns:
        if missing := find_column(column).missing():
            print(f"{column} is left out: it needs {', '.join(missing)}", file=sys.stderr)
    arguments = ["--columns", ",".join(columns), "--rounds", str(options.rounds), "--budget", str(options.budget)]
    arguments += ["--capture"] + ["--peers-capture"] * options.peers
    return report_of(*run_rows(options, "run", arguments))


def capture(options):
    """Capture alone: what is recorded, and what not."""
    arguments = ["--columns", "reprise", "--capture"] + ["--peers-capture"] * options.peers
    if options.peers or options.peers_from:
        options.modes += ",tracers"
    return report_of(*run_rows(options, "capture", arguments))


def sizes(options):
    """Recompiles: one size of the inputs changes from call to call."""
    columns = ["reprise", *(["torch-eager"] if options.peers else [])]
    return report_of(*run_rows(options, "sizes", ["--columns", ",".join(columns)]))


def warm(options):
    """Cold and warm starts: two processes with one cache on disk."""
    columns = ["reprise", *(["torch"] if options.peers else [])]
    return report_of(*run_rows(options, "warm", ["--columns", ",".join(columns)]))


def report_of(path, results):
    """Print the tables; the exit code."""
    from bench.harness.tables import print_report

    if path is None:
        return 0
    print_report(path)
    return 1 if any(is_ours_bad(result) for result in results) else 0


def gate(options):
    """Compare the counts of the small tier with bench/expectations.json; BLESS=1 writes them."""
    from bench.harness.gate import ENVIRONMENT, check_or_bless, read_expectations, without_expectations

    if options.file and options.file.exists():
        options.file.unlink()  # counts of this commit only
    os.environ.update(ENVIRONMENT)
    _, results = run_rows(options, "gate", ["--columns", "reprise", "--capture"])
    found = check_or_bless(results)
    unknown = without_expectations(results, read_expectations())
    found += [f"{key}: nothing is expected of it; BLESS=1 writes what it gave" for key in unknown]
    print("\n".join(found) or f"{len(results)} rows as expected")
    return 1 if found else 0


def is_ours_bad(result):
    if result["mode"] == "tracers":
        return False
    ours = result["columns"].get("reprise", {}).get("status")
    return result["status"] in ("crash", "timeout") or ours in ("wrong", "raises")


def list_rows(options):
    """List the rows; with names, build each and run it once."""
    from bench.zoo import rows

    if not options.names:
        found = selected(options)
        for row in found:
            print(f"{row.suite:18} {row.name:34} {'' if row.is_installed() else 'missing: ' + row.package}")
        print(f"{len(found)} rows, {sum(not r.is_installed() for r in found)} of them without their package")
        return 0
    for name in options.names:
        module, args, kwargs = rows.make_case(zoo.find_row(name))
        print(f"{name}: {sum(p.numel() for p in module.parameters()):,} parameters")
        module(*args, **kwargs)
    return 0


def report(options):
    from bench.harness.tables import print_report

    print_report(options.results)
    if options.html:
        from bench.harness.dashboard import write_dashboard

        write_dashboard(options.results, options.html)
        print(f"written: {options.html}", file=sys.stderr)
    if options.history:
        from bench.harness.tables import append_history

        append_history(options.results, options.history)
    return 0


def agree(options):
    """Whether two runs of the same rows agree within what a run calls noise; 1 if a row that no run flags does not."""
    from bench.harness import summary
    from bench.harness.driver import read_results
    from bench.table import text_table

    found = summary.agreement(read_results(options.first)[1], read_results(options.second)[1])
    shown = [{**row, **{key: f"{row[key]:.3f}" for key in ("first", "second", "ratio")}} for row in found]
    print(text_table(shown, {name: name for name in ("model", "mode", "first", "second", "ratio", "verdict", "notes")}))
    verdicts = collections.Counter(row["verdict"] for row in found)
    print("\n" + ", ".join(f"{verdicts[word]} {word}" for word in ("agree", "flagged", "apart")))
    return 1 if verdicts["apart"] or not found else 0


COMMANDS = ("run", "capture", "sizes", "warm", "gate", "report", "agree", "rows")


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(required=True)

    part = commands.add_parser("run", help="time a tier", description=run.__doc__)
    add_selection(part)
    add_running(part, "inference,training", rounds=True)
    part.set_defaults(function=run, tier="small")
    part.add_argument("--peers", action="store_true", help="torch.compile beside us")
    part.add_argument("--ablation", action="store_true", help="Reprise without its parts, one column each (table 4)")
    part.add_argument(
        "--columns", help="comma-separated further columns: onnxruntime, openvino, tvm, reprise-without-X"
    )
    part.add_argument("--rounds", type=int, default=20, help="timed rounds of each column")
    part.add_argument("--budget", type=float, default=5, help="seconds of timing, at most")
    part.add_argument("--processes", type=int, choices=(1, 2), help="that time a row (2; 1 where others compile, too)")

    part = commands.add_parser("capture", help="what is captured", description=capture.__doc__)
    add_selection(part)
    add_running(part, "inference,training", rounds=False)
    part.set_defaults(function=capture)
    part.add_argument("--peers", action="store_true", help="count what torch.compile captures, too")
    part.add_argument("--peers-from", type=pathlib.Path, help="take torch.compile's counts from this result file")

    part = commands.add_parser("sizes", help="recompiles over sizes", description=sizes.__doc__)
    add_selection(part)
    add_running(part, "batches,lengths", rounds=False)
    part.set_defaults(function=sizes, tier="small")
    part.add_argument("--peers", action="store_true", help="torch.compile beside us")

    part = commands.add_parser("warm", help="cold and warm starts", description=warm.__doc__)
    add_selection(part)
    add_running(part, "warm", rounds=False)
    part.set_defaults(function=warm, tier="small", timeout=900)
    part.add_argument("--peers", action="store_true", help="torch.compile beside us")

    part = commands.add_parser("gate", help="counts against bench/expectations.json", description=gate.__doc__)
    add_selection(part)
    add_running(part, "inference,training", rounds=False)
    part.set_defaults(function=gate, tier="small", file=pathlib.Path("build/bench/gate.jsonl"))

    part = commands.add_parser("report", help="tables of a result file")
    part.add_argument("results", type=pathlib.Path)
    part.add_argument("--html", type=pathlib.Path, help="write the dashboard to this file")
    part.add_argument("--history", type=pathlib.Path, help="append the summary line to this CSV file")
    part.set_defaults(function=report)

    part = commands.add_parser("agree", help="whether two runs agree", description=agree.__doc__)
    part.add_argument("first", type=pathlib.Path)
    part.add_argument("second", type=pathlib.Path)
    part.set_defaults(function=agree)

    part = commands.add_parser("rows", help="list rows, or build some")
    add_selection(part)
    part.add_argument("names", nargs="*")
    part.set_defaults(function=list_rows)

    options = parser.parse_args(arguments)
    return options.function(options)
