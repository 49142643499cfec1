"""The ways to run a program: one word on the command line names what is wrapped around it.

A mode is a function that takes a function or module and returns what is called instead. Nothing is imported before
`compiler` is asked for, so that thread counts set in the environment still reach torch.
"""

import os
import sys

#: mode -> what it is
MODES = {
    "eager": "the program itself",
    "reprise": "reprise.compile",
    "reprise-eager": 'reprise.compile(backend="eager"): replay of the recorded torch calls',
    "torch": "torch.compile",
    "torch-eager": 'torch.compile(backend="eager")',
}


#: what `compare.difference` allows: native code adds in another order than eager (docs/numerics.md)
TOLERANCES = {"reprise": 100, "torch": 1000}


def is_reprise(mode):
    return mode.startswith("reprise")


def compiler(mode):
    """`wrap(program, **options)` of the mode. ValueError for an unknown word, RuntimeError if Reprise can't run."""
    if mode == "eager":
        return lambda program, **options: program
    if mode in ("reprise", "reprise-eager"):
        import reprise

        from bench.stats import require_reprise

        require_reprise()
        fixed = {"backend": "eager"} if mode == "reprise-eager" else {}
        return lambda program, **options: reprise.compile(program, **{**fixed, **options})
    if mode in ("torch", "torch-eager"):
        import torch

        fixed = {"backend": "eager"} if mode == "torch-eager" else {}
        return lambda program, **options: torch.compile(program, **{**fixed, **options})
    raise ValueError(f"unknown mode {mode!r}: expected one of {', '.join(MODES)}")


def forget(mode):
    """Drop everything that the mode's compiler has compiled so far in this process."""
    if is_reprise(mode):
        import reprise

        reprise.reset()
    elif mode.startswith("torch"):
        import torch

        torch._dynamo.reset()


def chosen(text, table, what):
    """The names in a comma-separated option, all of the table without one; exits if one is not in it."""
    names = text.split(",") if text else list(table)
    if unknown := [name for name in names if name not in table]:
        sys.exit(f"unknown {what} {', '.join(unknown)}: expected {', '.join(table)}")
    return names


def cpu_count():
    return len(os.sched_getaffinity(0))


def set_threads(count):
    """Fix the OpenMP thread count for this process and its children; call before the first import of torch."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    torch.set_num_threads(count)
