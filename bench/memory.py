"""Peak of live tensor bytes of a first call and of a replay, the same program in every mode.

Tensor bytes are counted from torch's own allocator events (`torch.profiler`, profile_memory): the running sum of
allocations and frees, so nothing of the program or of the dispatcher changes. Beside it stands the growth of the
process's peak resident set over the same calls (`VmHWM`, reset between calls), taken without the profiler; glibc is
told to give every large block its own mapping, so freed tensors leave the resident set at once. Each mode runs in a
process of its own.
"""

import json
import os
import subprocess
import sys

LAYERS = 40
ELEMENTS = 4 << 20  # 16 MB of float32
COLUMNS = {
    "mode": "mode",
    "first_bytes": "first call MB",
    "replay_bytes": "later call MB",
    "first_rss": "first RSS +MB",
    "replay_rss": "later RSS +MB",
}


def make_program():
    import torch

    return torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(LAYERS)]).eval()


def peak_live_bytes(call, device="cpu"):
    """Peak of bytes allocated minus freed by torch's allocator of the device while call() runs."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def resident_kb(name):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    raise OSError(f"no {name} in /proc/self/status")


def peak_resident_growth(call):
    """Bytes by which the peak resident set of call() exceeds what was resident before, or None if it can't be reset."""
    try:
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
    except OSError:
        return None
    before_kb = resident_kb("VmRSS")
    call()
    return (resident_kb("VmHWM") - before_kb) * 1024


def measure_here(mode, measure):
    """[first call, fourth call] as measured by `measure`."""
    import torch

    from bench import modes

    program, x = modes.compiler(mode)(make_program()), torch.randn(ELEMENTS)
    with torch.no_grad():
        make_program()(x)  # torch's own start-up costs
        measure(lambda: None)
        first = measure(lambda: program(x))
        program(x)
        program(x)
        return [first, measure(lambda: program(x))]


def measure(contestants):
    """One row per mode: dicts with the keys of COLUMNS in MB."""
    rows = []
    environment = dict(os.environ, MALLOC_MMAP_THRESHOLD_=str(1 << 20), MALLOC_TOP_PAD_="0")
    for mode in contestants:
        row = {"probe": "memory", "mode": mode}
        for what in ("bytes", "rss"):
            command = [sys.executable, "-m", "bench.memory", mode, what]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.stderr.write(done.stderr[-2000:])
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            for name, value in zip(("first", "replay"), found):
                row[f"{name}_{what}"] = None if value is None else round(value / 2**20, 1)
        rows.append(row)
    return rows


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], {"bytes": peak_live_bytes, "rss": peak_resident_growth}[sys.argv[2]])))
