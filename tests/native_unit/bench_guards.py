"""Prints what a look at the guards costs: synthetic module trees, with and without stamps, and the dispatcher.

python -m tests.native_unit.bench_guards
"""

from tests.native_unit.builder import Dispatcher, Trace, before, behind, native

try:
    import torch
except ImportError:
    torch = None

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")


def function(x, y=None):
    return x


class Module:
    def __init__(self):
        self._parameters, self._modules, self.training = {}, {}, False
        for name in HOOKS:
            setattr(self, name, {})


def make_tree(children, depth):
    root = Module()
    if depth:
        root._modules = {str(i): make_tree(children, depth - 1) for i in range(children)}
    elif torch:
        root._parameters = {n: torch.nn.Parameter(torch.ones(3)) for n in ("weight", "bias")}
    return root


def guard_module(trace, value, live):
    """What a call of an nn.Module looks at."""
    for name in HOOKS:
        hooks = trace.attribute(value, name, live)
        trace.guard(hooks, "Type", object=dict)
        trace.guard(hooks, "Length", n=0)
    trace.guard(trace.attribute(value, "training"), "Identity", object=live.training)
    parameters = trace.attribute(value, "_parameters")
    trace.guard(parameters, "Type", object=dict)
    used = []
    for name, parameter in live._parameters.items():
        read = trace.node("DictItem", parameters, object=name)
        trace.guard(read, "Type", object=type(parameter))
        trace.meta(read, parameter)
        used.append(read)
    modules = trace.attribute(value, "_modules")
    trace.guard(modules, "Type", object=dict)
    for name, child in live._modules.items():
        read = trace.node("DictItem", modules, object=name)
        trace.guard(read, "Present")
        used += guard_module(trace, read, child)
    return used


def make_entry(root):
    trace = Trace(function)
    used = guard_module(trace, trace.arg(0), root)
    return trace.ret(trace.node("Tuple", *used, pre=False)).entry()


def report(name, entry, *args):
    slots = list(args)
    assert entry.check(*args) and entry.check(*args)
    stamped, ok = native.time_check(entry.capsule, slots, 200, False)
    statistics = entry.statistics()
    full, ok2 = native.time_check(entry.capsule, slots, 5, True)
    assert ok and ok2
    sizes = "  ".join(f"{key} {statistics[key]:5}" for key in ("ops", "words", "tensors", "slow"))
    kilobytes = statistics["bytes"] // 1024
    print(f"{name:14} stamped {stamped:7.2f} us   full + new stamps {full:8.1f} us   {sizes}   {kilobytes} kB")


def main():
    for name, children, depth in (("1 module", 0, 0), ("111 modules", 10, 2), ("601 objects", 24, 2)):
        root = make_tree(children, depth)
        report(name, make_entry(root), root)
    root = make_tree(24, 2)
    entry = make_entry(root)
    entry.check(root)
    counter = root._modules["0"]

    def touched():
        counter.count = object()
        return entry.check(root)

    import timeit

    bare = min(timeit.repeat(lambda: setattr(counter, "other", 1), number=500, repeat=5)) / 500 * 1e6
    moved = min(timeit.repeat(touched, number=500, repeat=5)) / 500 * 1e6
    quiet = min(timeit.repeat(lambda: entry.check(root), number=500, repeat=5)) / 500 * 1e6
    print(f"one dict moved at each call: {moved:.2f} us against {quiet:.2f} us (from Python; the store {bare:.2f})")
    for count in (1, 4, 64):
        entries = []
        for i in range(count):
            trace = Trace(function)
            trace.guard(trace.arg(0), "Type", object=int)
            trace.guard(0, "Equal", object=i)
            entries.append(trace.ret(0).entry())
        handle = Dispatcher(entries)
        time, ok = native.time_look_up(handle.capsule, [[i % count] for i in range(64)], 20_000)
        assert ok
        print(f"look-up among {count:2} entries: {time * 1000:.0f} ns")


def callee(a, b):
    return a + b


def caller(a, b):
    return callee(a, b)


def report_steps():
    def time_of(trace, *args):
        entry = trace.entry()
        return min(native.time_run(entry.capsule, list(args), 200) for _ in range(3))

    def steps(count):
        trace = Trace(function)
        value = trace.arg(0)
        for _ in range(count):
            value = trace.node("TensorBinary", value, trace.const(1), n=0)
        return time_of(trace.ret(value), 0)

    def exit_through(depth):
        trace = Trace(caller)
        a, b = trace.arg(0), trace.arg(1)
        chain = -1
        for _ in range(depth - 1):
            chain = trace.frame(behind(caller, "CALL"), [a, b], caller=chain)
        frame = trace.frame(before(callee, "BINARY_OP"), [a, b, a, b], function=callee, caller=chain)
        return time_of(trace.exit(trace.snapshot(frame)), 1, 2)

    few, many = steps(0), steps(1000)
    print(f"empty entry {few * 1000:.0f} ns   a step (int + 1) {many - few:.0f} ns")
    print("exit through frames: " + "   ".join(f"{depth}: {exit_through(depth):.2f} us" for depth in (1, 2, 5, 20)))


if __name__ == "__main__":
    main()
    report_steps()
