"""Runs workers, one process a model and mode, and appends what they say to a file of JSON lines.

A process that dies or takes too long is a row as well: `status` `crash` (with the signal and the end of its stderr) or
`timeout`. What stands in the file already is not run again, so a run that was stopped goes on where it was.
"""

import concurrent.futures
import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import signal
import subprocess
import sys
import threading
import time

from bench.harness.columns import COLUMNS
from bench.harness.programs import modes_of
from bench.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
PLACE = ("physical_package_id", "core_id")  # of a processor, as Linux tells it


@dataclasses.dataclass(frozen=True)
class Job:
    row: object
    mode: str

    @property
    def key(self):
        return f"{self.row.name} {self.mode}"


def jobs_of(rows, modes, shard=(0, 1)):
    """Jobs of rows in the modes that each has, every n-th of them."""
    jobs = [Job(row, mode) for row in rows for mode in modes if mode in modes_of(row)]
    index, count = shard
    return jobs[index::count]


def facts_of_machine(threads, device="cpu"):
    """What a result depends on beside the program: one line in front of the results."""
    from importlib import metadata

    def version(name):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    return {
        "run": True,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "--short", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "threads": threads,
        "device": facts_of_device(device),
        "python": platform.python_version(),
        "packages": {
            name: version(name)
            for name in ("torch", "torchvision", "transformers", "timm", "torch-geometric", *packages_of_columns())
        },
    }


def packages_of_columns():
    return [name for column in COLUMNS.values() for name in column.packages[:1]]


def facts_of_device(device):
    if device == "cpu":
        return device
    import torch

    tf32 = f"tf32 in products {torch.backends.cuda.matmul.allow_tf32}, convolutions {torch.backends.cudnn.allow_tf32}"
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {tf32}"


def processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def cores_for(threads):
    """One processor of as many cores of one socket as there are threads, or [] where that leaves no choice.

    Threads that the system moves, or puts on two halves of one core, make a process 20 % slower than the next one.
    """
    topology = pathlib.Path("/sys/devices/system/cpu")
    allowed = sorted(os.sched_getaffinity(0))
    sockets = {}
    for cpu in allowed:
        try:
            socket, core = (int((topology / f"cpu{cpu}/topology/{name}").read_text()) for name in PLACE)
        except (OSError, ValueError):
            return []
        sockets.setdefault(socket, {}).setdefault(core, cpu)
    cores = list(max(sockets.values(), key=len).values())
    return cores[-threads:] if len(cores) > threads else []  # the first ones serve the system


def read_results(path):
    """(facts of the first run or {}, rows). The last row of a key counts."""
    facts, rows = {}, {}
    if path.exists():
        for line in path.read_text().splitlines():
            found = json.loads(line)
            if found.get("run"):
                facts = facts or found
            else:
                rows[f"{found['row']} {found['mode']}"] = found
    return facts, list(rows.values())


def run_job(job, arguments, threads, timeout_s, is_alone=False):
    """The worker's result, or the row that says how it ended."""
    result = {"row": job.row.name, "suite": job.row.suite, "mode": job.mode, "hard": job.row.hard, "columns": {}}
    if not job.row.is_installed():
        return {**result, "status": "missing", "error": f"needs {job.row.package}"}
    # Threads that sleep between parallel sections cost 90 us each time on two virtual cores; no user asks for it.
    waiting = "active" if is_alone else "passive"
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY=waiting, HF_HUB_OFFLINE="1")
    command = [sys.executable, "-m", "bench.harness.worker", job.row.name, job.mode, "--threads", str(threads)]
    cores = cores_for(threads) if is_alone else []
    if cores:
        command += ["--cpus", ",".join(map(str, cores))]
    start = time.perf_counter()
    worker = subprocess.Popen(
        command + arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        out, err = worker.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        out, err = worker.communicate()
        return {**result, "status": "timeout", "error": f"more than {timeout_s} s", "stderr": err[-3000:]}
    for line in reversed(out.splitlines()):
        if line.startswith("RESULT "):
            found = json.loads(line[len("RESULT ") :])
            # A process that measured everything and then died at its end crashed as well.
            if worker.returncode:
                found.update(
                    status="crash", error=f"exit code {worker.returncode} after the result", stderr=err[-3000:]
                )
            elif "reprise" in err:
                found["stderr"] = "\n".join(line for line in err.splitlines() if "reprise" in line)[-3000:]
            return found
    how = f"signal {signal.Signals(-worker.returncode).name}" if worker.returncode < 0 else f"exit {worker.returncode}"
    seconds = time.perf_counter() - start
    return {**result, "status": "crash", "error": how, "stderr": err[-3000:], "seconds": seconds}


def is_timed(result):
    return result["status"] == "ok" and any("ms" in facts for facts in result["columns"].values())


def run_again(result, job, arguments, threads, timeout_s):
    """The result with times of one more process: what a process gets of the machine (its memory, its neighbours)
    differs more from the next one's than two columns inside of it do. A row that fails the second time is that row."""
    other = run_job(job, [word for word in arguments if not word.endswith("capture")], threads, timeout_s, True)
    return with_times(result, other) if other["status"] == "ok" else other


def with_times(result, other):
    """Times of several processes as one: geometric means of medians, minima of minima, speed-ups one a process."""
    count = result["processes"] = result.get("processes", 1) + 1
    for column, facts in result["columns"].items():
        again = other["columns"].get(column, {})
        if "ms" in facts and "ms" in again:
            facts["ms"] = math.exp(((count - 1) * math.log(facts["ms"]) + math.log(again["ms"])) / count)
            facts["min_ms"] = min(facts["min_ms"], again["min_ms"])
            facts["times_ms"] = facts["times_ms"] + again["times_ms"]
            facts["speedups"] = facts["speedups"] + again["speedups"]
        if again.get("status", "pass") != "pass":
            facts.update(status=again["status"], error=again["error"])
    return result


def outcome_of(result):
    """A few words for the progress bar."""
    if result["status"] != "ok":
        return f"{result['status']}: {result.get('error', '')[:80]}"
    words = []
    for column, facts in result["columns"].items():
        if facts["status"] != "pass":
            words.append(f"{column} {facts['status']}: {(facts['error'] or '')[:80]}")
        elif "ms" in facts:
            words.append(f"{column} {facts['ms']:.1f} ms")
        elif "warm_s" in facts:
            words.append(f"{column} {facts['cold_s']:.2f} s cold, {facts['warm_s']:.2f} warm")
        elif "recompiles" in facts:
            words.append(f"{column} {facts['recompiles']} recompiles")
    ours = result["columns"].get("reprise", {})
    if "steady" in ours:
        words.append(f"{ours['total']['entries']} entries, {ours['steady']['exits']} exits")
    return ", ".join(words)


def with_peers(result, peers):
    """The result with TorchDynamo's counts of the same row and mode in another file: they do not depend on us."""
    theirs = (peers.get(f"{result['row']} {result['mode']}") or {}).get("capture") or {}
    if theirs.get("torch") and result.get("capture"):
        result["capture"].setdefault("torch", theirs["torch"])
    return result


def run_jobs(
    jobs, path, arguments, *, threads=2, timeout_s=TIMEOUT_S, parallel=1, peers_from=None, device="cpu", processes=1
):  # fmt: skip
    """Run what the file does not have yet; returns all its rows. peers_from: see `with_peers`; what tracers gave is
    taken from there as well. processes: how many time a row, the second ones behind the first ones of all rows, since
    what slows a machine lasts minutes."""
    peers = {f"{row['row']} {row['mode']}": row for row in read_results(peers_from)[1]} if peers_from else {}
    have = {f"{row['row']} {row['mode']}": row for row in read_results(path)[1]}
    begun = [have[job.key] for job in jobs if job.key in have]
    left = sum(max(processes - row.get("processes", 1), 0) for row in begun if is_timed(row))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()
    with open(path, "a") as out, Progress((len(jobs) - len(begun)) * processes + left) as bar:
        print(json.dumps({**facts_of_machine(threads, device), "arguments": arguments}), file=out, flush=True)

        def work(job):
            with lock:
                bar.begin(job.key)
            is_theirs = job.mode == "tracers" and job.key in peers
            if job.key in have:
                result = run_again(have[job.key], job, arguments, threads, timeout_s)
            else:
                result = peers[job.key] if is_theirs else run_job(job, arguments, threads, timeout_s, parallel == 1)
                result = with_peers(result, peers)
            with lock:
                have[job.key] = result
                print(json.dumps(result), file=out, flush=True)
                bar.text = job.key
                bar.end(outcome_of(result))

        def is_todo(job, number):
            row = have.get(job.key)
            return row is None or (is_timed(row) and row.get("processes", 1) < number)

        for number in range(1, processes + 1):
            todo = [job for job in jobs if is_todo(job, number)]
            if parallel == 1:
                for job in todo:
                    work(job)
            else:
                with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
                    list(pool.map(work, todo))
    return read_results(path)[1]
