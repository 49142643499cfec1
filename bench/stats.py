"""Every access to Reprise's statistics, in one place, so that only this file knows their names.

`stats_of(compiled)` takes what `bench.modes.compiler` returned. For programs that Reprise did not wrap (eager,
torch.compile) it returns None, and callers leave those columns empty or skip the assertion.
"""

#: our name -> the name in src/runtime/counters.def
COUNTERS = {
    "calls": "calls",
    "runs": "entry_runs",
    "recordings": "recordings",
    "failed_recordings": "failed_recordings",
    "exits": "side_exits",
    "opaque_calls": "opaque_calls",
    "evictions": "evicted_entries",
    "guard_failures": "guard_misses",
    "plain_instructions": "plain_instructions",
}


def require_reprise():
    """RuntimeError where this Python or torch is not supported: reprise.compile would return programs as they are."""
    from reprise import _native

    if _native.C is None:
        raise RuntimeError(f"Reprise can't be used here: {_native.reason}")


def report_of(compiled):
    """The engine's report of a compiled callable as dicts and lists, without calling it; None if it has none."""
    try:
        from reprise import _callables, _native
    except ImportError:
        return None
    found = _callables.find_compiled(compiled)
    return None if found is None else _native.C.report(found)


def entries_of(report):
    return [entry for place in report["places"] for entry in place["entries"]]


def named_counts(counters):
    """The engine's counters (also those of an Explanation) under our names."""
    return {name: counters.get(theirs, 0) for name, theirs in COUNTERS.items()}


def stats_of(compiled):
    """Counters since the callable was made: dict of int with the keys of COUNTERS, and `entries` that exist now."""
    report = report_of(compiled)
    if report is None:
        return None
    return {**named_counts(report["counters"]), "entries": len(entries_of(report))}


def changes(before, after):
    """after - before per counter, or None where there are no statistics."""
    if before is None or after is None:
        return None
    return {name: after[name] - before[name] for name in after}


def exit_lines(compiled):
    """`file:line in function: reason` of every exit, taken or not, or None."""
    report = report_of(compiled)
    if report is None:
        return None
    return [f"{e['place']}: {e['reason']}" for entry in entries_of(report) for e in entry["exits"]]


def why_not_recorded(compiled):
    """Texts of failed recordings, for messages of failing tests; empty if there are none."""
    report = report_of(compiled)
    failures = [] if report is None else [(p["last_failure"], f"{p['file']}:{p['line']}") for p in report["places"]]
    return [f"{where}: {text}" for text, where in failures if text]


def guard_check_ns(compiled, args, kwargs, checks):
    """Median time of one guard check on these arguments with nothing changed, or None if the engine can't tell."""
    try:
        from reprise import _callables, _native
    except ImportError:
        return None
    measure = getattr(_native.C, "measure_guards_ns", None)
    found = _callables.find_compiled(compiled)
    if _callables.find_original(compiled) is not compiled:  # a module: its __call__ takes it first
        args = (compiled, *args)
    return None if measure is None or found is None else measure(found, args, kwargs, checks)
