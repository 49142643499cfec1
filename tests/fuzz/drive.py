"""Runs seeds in forked processes, so that a crash is a failure like others, and makes failing programs small.

python tests/fuzz/drive.py tensor|python|use --seeds 0:1000 [--backend native|eager] [--validate off|first] [--out DIR]
"""

import argparse
import os
import pathlib
import pickle
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch  # noqa: E402


def in_child(function, timeout):
    """("ok", result), ("crash", text) or ("timeout", ""): of the function in a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(timeout)
        try:
            result = function()
        except BaseException as e:
            result = ("harness", f"{type(e).__name__}: {e}")
        with os.fdopen(write, "wb") as f:
            pickle.dump(result, f)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        data = f.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("timeout", "") if number == signal.SIGALRM else ("crash", signal.Signals(number).name)
    if not data:
        return "crash", f"ended with {status}"
    return "ok", pickle.loads(data)


def check_one(kind, program, backend, options):
    outcome, result = in_child(lambda: kind.find_difference(program, backend, options), 60)
    if outcome == "ok":
        return result
    return outcome, result


def minimise(kind, program, backend, options, category, seconds=60):
    """The program with statements and calls dropped while the failure stays of its kind."""
    end = time.time() + seconds

    def fails(candidate):
        found = check_one(kind, candidate, backend, options)
        return found is not None and found[0] == category

    changed = True
    while changed and time.time() < end:
        changed = False
        for candidate in kind.smaller(program):
            if time.time() > end:
                break
            if fails(candidate):
                program, changed = candidate, True
                break
    return program


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["tensor", "python", "use"])
    parser.add_argument("--seeds", default="0:200")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--validate", default="off")
    parser.add_argument("--out", default=None)
    parser.add_argument("--no-minimise", action="store_true")
    parser.add_argument("--chunk", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    import kinds  # noqa: PLC0415

    kind = kinds.ALL[args.kind]
    first, last = map(int, args.seeds.split(":"))
    options = {"validate": args.validate} if args.backend == "native" else {}
    out = pathlib.Path(args.out) if args.out else None
    if out:
        out.mkdir(parents=True, exist_ok=True)
    failures = 0
    start = time.time()

    def chunk(seeds):
        found = []
        for seed in seeds:
            signal.alarm(60)
            position.seek(0)
            position.write(f"{seed:12d}")
            position.flush()
            program = kind.make_program(seed)
            if program is None:
                continue
            result = kind.find_difference(program, args.backend, options)
            if result is not None:
                found.append((seed, result))
        return found

    position = open(f"/tmp/fuzz-position-{os.getpid()}", "w+")  # noqa: SIM115
    seed = first
    while seed < last:
        seeds = range(seed, min(seed + args.chunk, last))
        outcome, result = in_child(lambda: chunk(seeds), 60)
        if outcome == "ok":
            found, seed = result, seeds[-1] + 1
            if isinstance(found, tuple):
                print("harness:", found, flush=True)
                position.seek(0)
                seed = int(position.read().strip()) + 1
                continue
        else:
            position.seek(0)
            bad = int(position.read().strip())
            found, seed = [(bad, (outcome, result))], bad + 1
        for bad, (category, text) in found:
            program = kind.make_program(bad)
            if category in ("crash", "timeout") and in_child(lambda p=program: kind.run_eager(p), 20)[0] != "ok":
                continue  # eager does the same
            if bad in kinds.KNOWN.get((args.kind, args.backend), ()):
                continue
            failures += 1
            alone = check_one(kind, program, args.backend, options)
            if not args.no_minimise and alone is not None:
                category = alone[0]
                program = minimise(kind, program, args.backend, options, category)
                text = (check_one(kind, program, args.backend, options) or ("", text))[1]
            name = f"{args.kind}-{args.backend}-{bad}"
            note = "" if alone is not None else " (not alone)"
            report = f"=== {name} {category}{note}\n{text}\n{kind.show(program)}\n"
            print(report, flush=True)
            if out:
                (out / name).write_text(report)
                (out / f"{name}.pkl").write_bytes(pickle.dumps((args.kind, program, args.backend, options)))
    print(f"{last - first} programs, {failures} failures, {time.time() - start:.0f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
