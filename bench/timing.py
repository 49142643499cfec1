"""Interleaved timing: every round runs each contestant once, in rotating order, so that drift hits all alike."""

import statistics
import time


def interleaved_ns(contestants, rounds, calls=1, before=None):
    """Time `rounds` rounds of `calls` calls of each contestant.

    contestants: dict name -> function without arguments. before(name): called untimed in front of each block.
    Returns dict name -> list of nanoseconds a call, one item a round.
    """
    names = list(contestants)
    times_ns = {name: [] for name in names}
    span = range(calls)
    clock = time.perf_counter_ns
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call = contestants[name]
            if before is not None:
                before(name)
            start = clock()
            for _ in span:
                call()
            times_ns[name].append((clock() - start) / calls)
    return times_ns


def calls_for(call, block_ns, most):
    """How many calls fill about `block_ns` nanoseconds, at least 1 and at most `most`."""
    clock = time.perf_counter_ns
    call()
    start = clock()
    count = 0
    while clock() - start < block_ns / 4 and count < most:
        call()
        count += 1
    per_call = max((clock() - start) / count, 1)
    return max(1, min(most, round(block_ns / per_call)))


def once_ns(call):
    """(result, nanoseconds) of one call."""
    start = time.perf_counter_ns()
    result = call()
    return result, time.perf_counter_ns() - start


def median(values):
    return statistics.median(values)


def paired_ratio(times, others):
    """How many times as long `times` are as `others`, two contestants of one interleaved run: the median over rounds.

    A machine that gets slower or faster on the way moves both of a round, but not the two medians alike.
    """
    return statistics.median(a / b for a, b in zip(times, others, strict=True))
