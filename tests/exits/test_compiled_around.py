"""Loops with exits in their bodies stay right and compiled around each exit, and explain names the lines."""

import sys
import zlib

import torch
from twins import ARE_COUNTS_CHECKED, assert_same, compiled, reprise_only, rnd

from bench import stats


def noisy_loop(x, n, log):
    for i in range(n):
        x = torch.sin(x) + 1
        x = x * 0.5 + x.cos()
        print("step", i)
        x = torch.tanh(x) - 0.25
        x = (x * x).sum() * 0.1 + x
        log.append(zlib.crc32(b"data"))
        x = x - x.mean()
        if x.sum() > 0.01:
            x = x * 0.9
        x = torch.relu(x) + 0.1
        log.append(x.mean().item())
    return x * 2


EXIT_TEXTS = ['print("step", i)', "zlib.crc32", "if x.sum() > 0.01"]


def count_opcodes(program):
    """Bytecodes that CPython executes in user code while program() runs."""
    count = 0
    if sys.version_info >= (3, 12):  # opcode events of settrace come only to frames that asked before they began

        def on_instruction(code, offset):
            nonlocal count
            count += 1

        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.PROFILER_ID, "count_opcodes")
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, on_instruction)
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION)
        try:
            program()
        finally:
            monitoring.set_events(monitoring.PROFILER_ID, 0)
            monitoring.free_tool_id(monitoring.PROFILER_ID)
        return count

    def trace(frame, event, arg):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        program()
    finally:
        sys.settrace(None)
    return count


def test_a_loop_of_exits_is_right_on_every_call(capsys):
    tested = compiled(noisy_loop)
    for i in range(8):
        found = []
        for program in (noisy_loop, tested):
            log = []
            found.append((program(rnd(i, 5), 4, log), log, capsys.readouterr().out))
        assert_same(found[1], found[0], f"call {i}")


@reprise_only
def test_a_loop_of_exits_is_compiled_around_them(capsys):
    tested = compiled(noisy_loop)
    total = count_opcodes(lambda: noisy_loop(rnd(0, 5), 6, []))
    for i in range(4):
        tested(rnd(i, 5), 6, [])
    before = stats.stats_of(tested)
    for i in range(4, 9):
        tested(rnd(i, 5), 6, [])
    after = stats.stats_of(tested)
    capsys.readouterr()
    if before is not None and ARE_COUNTS_CHECKED:
        spent = stats.changes(before, after)
        # Plain mode runs the calls that can not be compiled and little else.
        assert spent["plain_instructions"] < 0.4 * 5 * total, (spent, total)
        assert spent["runs"] >= 5 * 6, spent


@reprise_only
def test_explain_names_the_lines_of_a_loop_of_exits(capsys):
    import reprise

    tested = compiled(noisy_loop)
    for i in range(5):
        tested(rnd(i, 5), 4, [])
    lines = stats.exit_lines(tested)
    printed = str(reprise.explain(tested)(rnd(0, 5), 4, []))
    capsys.readouterr()
    with open(__file__) as own:
        source = own.read().splitlines()
    for text in EXIT_TEXTS if ARE_COUNTS_CHECKED else []:
        number = next(i for i, line in enumerate(source, 1) if text in line and "TEXTS" not in line)
        assert any(f"test_compiled_around.py:{number}" in line for line in lines), (text, number, lines)
        assert f"test_compiled_around.py:{number}" in printed, (text, number, printed)


def test_a_print_deep_in_a_call_chain(capsys):
    def inner(x, k):
        y = x * k
        print("inner", k)
        return y + 1

    def middle(x):
        total = 0
        for k, name in enumerate("ab"):
            total = total + inner(x, k) * len(name)
        return total

    def f(x):
        a = middle(x)
        b = middle(a)
        return a * b

    tested = compiled(f)
    for i in range(5):
        found = [(program(rnd(i, 3)), capsys.readouterr().out) for program in (f, tested)]
        assert_same(found[1], found[0], f"call {i}")


def test_a_long_loop_with_a_rare_exit(capsys):
    def f(x):
        for i in range(400):
            x = x * 1.01 - 0.01
            if i % 150 == 149:
                print("at", i)
        return x

    tested = compiled(f)
    for i in range(3):
        found = [(program(rnd(i, 2)), capsys.readouterr().out) for program in (f, tested)]
        assert_same(found[1], found[0], f"call {i}")
