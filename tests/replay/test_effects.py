"""What a call leaves behind beside its result: output, logs, warnings, globals, files, the environment, the clock."""

import io
import json
import logging
import os
import sys
import time
import types
import warnings

import torch
from twins import (
    ARE_COUNTS_CHECKED,
    ONE_ENTRY,
    assert_same,
    call,
    check,
    check_function,
    compiled,
    reprise_only,
    rnd,
    vectors,
)

from bench.stats import exit_lines

GLOBAL_SCALE = 2.0
GLOBAL_LOG = []


def test_print_in_a_callee():
    def g(x):
        y = x * 2
        print("hello", x.shape)
        return y + 1

    def f(x):
        a = x.sin()
        b = g(a)
        return b * a

    check_function(f, vectors(4))


def test_print_inside_nested_loops_keeps_the_iterators():
    def f(x, items):
        out = []
        for i, item in enumerate(items):
            x = x * item
            out.append(x)
            for k, name in zip(range(3), "abc"):
                if i == 1:
                    print("mid", len(out), k, name)
                x = x + k
        for k, v in {"a": x, "b": x + 1}.items():
            print(k)
            out.append(v)
        return x, out

    check_function(f, [call(rnd(i, 3), [rnd(j, 3) for j in range(3)]) for i in range(4)])


def test_print_forms():
    def f(x):
        print()
        print("a", 1, 2.5, None, sep="|", end="!\n")
        print("err", file=sys.stderr)
        print(f"{x.shape}", flush=True)
        sys.stdout.write("raw\n")
        return x * 2

    check_function(f, vectors(4))


def test_a_loop_with_print_item_and_branch_in_its_body():
    def f(x, n):
        log = []
        for i in range(n):
            x = x * 1.5
            print("step", i)
            x = x + 1
            if x.sum() > 10:
                x = x / 2
            log.append(x.mean().item())
        return x, log

    check_function(f, [call(rnd(i, 3), 5) for i in range(5)])


@reprise_only
def test_explain_names_the_line_of_a_print():
    def f(x):
        y = x * 2
        print("here")
        return y + 1

    agreed = check_function(f, vectors(4))
    lines = exit_lines(agreed.tested)
    if ARE_COUNTS_CHECKED and lines is not None:
        line = f.__code__.co_firstlineno + 2
        assert any("test_effects.py" in text and str(line) in text for text in lines), lines


def test_logging_and_its_levels():
    def make():
        logger = logging.Logger("own", logging.INFO)
        stream = io.StringIO()
        logger.addHandler(logging.StreamHandler(stream))

        def f(x, n):
            logger.debug("hidden %d", n)
            logger.info("shown %d", n)
            if logger.isEnabledFor(logging.DEBUG):
                x = x + 1
            return x * 2

        f.stream, f.logger = stream, logger
        return f

    check(make, [call(rnd(i, 3), i) for i in range(4)], post=lambda f: f.stream.getvalue())


def test_warnings_are_issued_every_time():
    def f(x, loud):
        if loud:
            warnings.warn("watch out", DeprecationWarning)
            warnings.warn("inner", stacklevel=1)
        return x * 2

    check_function(f, [call(rnd(i, 3), loud) for i, loud in enumerate([True, True, False, True])])


def test_warnings_caught_inside():
    def f(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("quiet")
        return x * 2, [str(w.message) for w in caught]

    check_function(f, vectors(3))


def test_globals_are_read_written_and_deleted():
    source = """
count = 0
def f(x, i):
    global count, extra
    count += 1
    if i == 2:
        extra = 5
    if i == 4:
        del extra
    return x * count * globals().get("extra", 1)
"""

    def make():
        scope = {"torch": torch}
        exec(compile(source, "<program globals>", "exec"), scope)
        return scope["f"]

    check(
        make,
        [call(rnd(i, 3), i) for i in range(6)],
        post=lambda f: {k: v for k, v in f.__globals__.items() if k in ("count", "extra")},
    )


def test_a_module_global_changed_outside():
    def f(x):
        return x * GLOBAL_SCALE

    global GLOBAL_SCALE
    tested = compiled(f)
    try:
        for i, scale in enumerate([2.0, 2.0, 3.0, 3.0, torch.ones(3), 2.0]):
            GLOBAL_SCALE = scale
            assert_same(tested(rnd(i, 3)), f(rnd(i, 3)), f"call {i}")
    finally:
        GLOBAL_SCALE = 2.0


def test_builtins_shadowed_by_a_global():
    source = "def f(x):\n    return x * len([1, 2]), max(1, 2)\n"

    def make():
        scope = {}
        exec(compile(source, "<program builtins>", "exec"), scope)

        def drive(x, shadow):
            if shadow:
                scope["len"] = lambda v: 100
            else:
                scope.pop("len", None)
            return scope["f"](x)

        return drive

    check(make, [call(rnd(i, 3), s) for i, s in enumerate([False, False, True, True, False])])


def test_modules_attributes_and_imports_inside():
    def make():
        settings = types.ModuleType("settings")
        settings.scale = 2.0

        def f(x, i):
            import math

            from torch.nn import functional

            if i == 2:
                settings.scale = 4.0
            return functional.relu(x) * settings.scale + math.pi

        return f

    check(make, [call(rnd(i, 3), i) for i in range(4)])


def test_class_level_counters_and_registries():
    def make():
        class Layer:
            made = 0
            registry = {}

            def __init__(self, name):
                Layer.made += 1
                self.registry[name] = Layer.made

        def f(x, name):
            layer = Layer(name)
            return x * layer.made

        f.layer = Layer
        return f

    check(make, [call(rnd(i, 3), "abca"[i]) for i in range(4)], post=lambda f: (f.layer.made, f.layer.registry))


def test_string_io_and_files(tmp_path):
    path = tmp_path / "out.txt"

    def f(x, n):
        buffer = io.StringIO()
        buffer.write(f"n={n};")
        with open(path, "w") as out:
            json.dump({"n": n}, out)
        with open(path) as back:
            text = back.read()
        return x * n, buffer.getvalue(), text

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([1, 1, 2, 3])])


def test_the_environment_and_the_clock():
    def f(x):
        os.environ["REPRISE_TEST_VARIABLE"] = str(x.shape[0])
        before = time.perf_counter()
        y = x * 2
        after = time.monotonic() > 0 and time.perf_counter() >= before
        return y, after, os.environ.get("REPRISE_TEST_VARIABLE"), time.time() > 1e9

    check_function(f, vectors(4))


def test_a_clock_is_read_anew_on_every_call():
    agreed = check_function(lambda x: (x * 2, time.perf_counter_ns() > 0), vectors(3))
    tested = compiled(lambda x: (x + 1, time.perf_counter_ns()))
    times = [tested(rnd(0, 3))[1] for _ in range(5)]
    assert len(set(times)) == 5 and times == sorted(times)
    assert agreed.outcomes[0].error is None


def test_object_identity_numbers_are_true():
    def f(x):
        a, b = [1], [1]
        return id(a) == id(b), id(a) == id(a), id(x) == id(x), x * 2

    check_function(f, vectors(4), promise=ONE_ENTRY)


# `n` is read from the class first and from the instance from then on: two states, two entries.
TWO_STATES = {**ONE_ENTRY, "recordings": 2}


def test_counters_in_closures_lists_and_attributes_together():
    def make():
        counts = {"calls": 0}
        totals = [0.0]

        class State:
            n = 0

        state = State()

        def f(x):
            counts["calls"] += 1
            totals[0] += 0.5
            state.n += 2
            return x * counts["calls"] + totals[0] - state.n

        f.facts = lambda: (counts, totals, state.n)
        return f

    check(make, vectors(6), post=lambda f: f.facts(), promise=TWO_STATES)


def test_callbacks_given_by_the_caller():
    def make():
        seen = []

        def f(x, callback):
            for i in range(3):
                x = x * 2
                callback(seen, i)
            return x

        f.seen = seen
        return f

    def note(seen, i):
        seen.append(i)

    def other(seen, i):
        seen.append(-i)

    check(make, [call(rnd(i, 3), c) for i, c in enumerate([note, note, other, note, other])], post=lambda f: f.seen)


def test_a_growing_cache_with_eviction():
    def make():
        cache = {}

        def f(x, key):
            if key in cache:
                value = cache.pop(key)
            else:
                value = x * key
            cache[key] = value
            if len(cache) > 2:
                cache.pop(next(iter(cache)))
            return value + x, list(cache)

        return f

    check(make, [call(rnd(i, 3), k) for i, k in enumerate([1, 1, 2, 3, 1, 2, 2, 3])])


def test_unknown_c_calls_between_tensor_calls():
    import zlib

    def f(x, data):
        y = x * 2
        n = zlib.crc32(data)
        y = y + n % 7
        packed = zlib.compress(data)
        return y * len(packed), zlib.decompress(packed)

    check_function(f, [call(rnd(i, 3), d) for i, d in enumerate([b"ab", b"ab", b"abc", b"ab"])])


def test_profilers_and_record_function():
    def f(x):
        with torch.profiler.record_function("mine"):
            y = x * 2
        with torch.autograd.profiler.profile() as p:
            z = y + 1
        return z, any(e.name == "aten::add" for e in p.function_events)

    check_function(f, vectors(3))


def test_tracing_and_profiling_functions_are_called():
    def make():
        log = []

        def tracer(frame, event, arg):
            if frame.f_code.co_name == "traced":
                log.append(event)
            return tracer

        def traced(x):
            y = x * 2
            return y

        def f(x):
            sys.settrace(tracer)
            try:
                return traced(x)
            finally:
                sys.settrace(None)

        f.log = log
        return f

    check(make, vectors(3), post=lambda f: f.log)


def test_global_log_of_the_test_module():
    def f(x, n):
        GLOBAL_LOG.append(n)
        return x * len(GLOBAL_LOG)

    tested = compiled(f)
    for i in range(4):
        GLOBAL_LOG.clear()
        want, log = f(rnd(i, 3), i), list(GLOBAL_LOG)
        GLOBAL_LOG.clear()
        assert_same((tested(rnd(i, 3), i), list(GLOBAL_LOG)), (want, log), f"call {i}")


def test_warnings_are_given_again_for_their_line():
    def old(x, k):
        warnings.warn(f"{k} is old", FutureWarning, stacklevel=2)
        warnings.warn("here", category=UserWarning)
        return x * k

    def f(x, k):
        y = old(x, k)
        y = y + 1
        return old(y, k)

    check_function(f, [call(rnd(i, 3), 2) for i in range(4)], promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), k) for i, k in enumerate([2, 3, 4, 2])])


def test_a_warning_about_the_caller_of_the_function_is_given_by_python():
    def f(x):
        warnings.warn("for my caller", stacklevel=2)
        return x + 1

    check_function(f, vectors(4))


def test_a_warning_that_is_an_error_is_raised_where_it_was_given():
    def f(x, category):
        y = x + 1
        warnings.warn("now and then", category)
        return y * 2

    def g(x, is_strict):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if is_strict else "ignore")
            try:
                return f(x, UserWarning)
            except UserWarning as error:
                return str(error), error.__traceback__.tb_next.tb_lineno

    check_function(f, [call(rnd(i, 3), UserWarning) for i in range(3)] + [call(rnd(0, 3), DeprecationWarning)])
    check_function(g, [call(rnd(i, 3), s) for i, s in enumerate([False, False, True, True, False])])
