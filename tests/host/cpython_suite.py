"""CPython's own test modules with their frames driven by our evaluator, compared with a run without any hook.

As a module: compare(modules, modes) yields the differences. As a script: one module in one mode, in its own process:

    python -m tests.host.cpython_suite MODULE MODE OUT.json

MODE is base, hook, plain, shadow, or one of hand_over, rebuild, reenter with :probability:seed.
A test that also changes its result under a hook that only passes frames on is not counted: any PEP 523 hook makes
Python calls recurse on the C stack and hides some events of sys.monitoring.
"""

import concurrent.futures
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 600

QUICK = """
test_grammar test_generators test_exceptions test_with test_scope test_dict test_class test_contextlib test_coroutines
test_unpack test_unpack_ex test_functools test_dataclasses test_patma test_except_star test_exception_group
test_asyncgen test_super test_raise test_pep479 test_listcomps test_extcall test_keywordonlyarg test_frame test_code
""".split()
FULL = (
    QUICK
    + """
test_list test_itertools test_enum test_sys_settrace test_sys_setprofile test_exception_variations test_traceback
test_genexps test_syntax test_compile test_inspect test_dis test_builtin test_positional_only_arg test_call
test_decorators test_property test_abc test_collections test_typing test_fstring test_format test_re test_copy
test_weakref test_contextlib_async test_named_expressions test_augassign test_opcodes test_operator test_tuple
test_slice test_range test_int test_float test_complex test_bool test_sort test_heapq test_bisect test_defaultdict
test_deque test_ordered_dict test_userdict test_iter test_ast test_types test_metaclass test_module test_global
test_funcattrs test_string test_print test_pickle test_json test_argparse test_configparser test_bdb test_trace
test_warnings test_gc test_descr test_set test_logging
""".split()
)

# Tests that see our evaluator, and may: it does not specialise the code that it runs, and CPython's throw entry sends
# one event more when a callee switches tracing on and raises.
EXPECTED = {
    "*test_dis.*specializ*": "looks for specialised instructions",
    "*test_dis.*quick*": "looks for specialised instructions",
    "*test_dis.*adaptive*": "looks for specialised instructions",
    "*test_dis.*super*instructions*": "looks for specialised instructions",
    "*test_dis.*show_caches*": "looks at inline caches",
    "*settrace_and_raise": "one event more",
}


# --- in the child process ---------------------------------------------------------------------------------------------


def run_module(module, mode, out):
    import faulthandler
    import unittest

    faulthandler.enable()
    faulthandler.dump_traceback_later(TIMEOUT_S - 10, exit=True)
    sys.argv = [module]
    from test import support

    support.use_resources = []

    class Result(unittest.TextTestResult):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.results = {}

        def note(self, test, result):
            self.results.setdefault(test.id(), result)

        def addSuccess(self, test):
            super().addSuccess(test)
            self.note(test, "ok")

        def addError(self, test, error):
            super().addError(test, error)
            self.results[test.id()] = "error"

        def addFailure(self, test, error):
            super().addFailure(test, error)
            self.results[test.id()] = "failed"

        def addSkip(self, test, reason):
            super().addSkip(test, reason)
            self.note(test, "skipped")

        def addExpectedFailure(self, test, error):
            super().addExpectedFailure(test, error)
            self.note(test, "expected failure")

        def addSubTest(self, test, subtest, error):
            super().addSubTest(test, subtest, error)
            if error is not None:
                self.results[test.id()] = "failed"

    frame_tests = None
    if mode != "base":
        from tests.host.build import load

        frame_tests = load()
        name, probability, seed = (mode.split(":") + ["0", "1"])[:3]
        modes = {"hook": frame_tests.HOOK_ONLY}
        number = modes.get(name) if name in modes else getattr(frame_tests, name.upper())
        frame_tests.install(number, probability=float(probability), seed=int(seed))
    folder = tempfile.mkdtemp(prefix="cpython_suite")
    os.chdir(folder)
    suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    result = unittest.TextTestRunner(resultclass=Result, stream=sys.stderr, verbosity=1).run(suite)
    counters = {}
    if frame_tests is not None:
        frame_tests.uninstall()
        counters = frame_tests.take_counters()
    pathlib.Path(out).write_text(json.dumps({"results": result.results, "counters": counters}))
    sys.stderr.flush()
    os._exit(0)  # threads and children of the tests


# --- in the parent ----------------------------------------------------------------------------------------------------


# 3.13 writes locals through frame.f_locals, which the check of mode shadow rightly dislikes.
LEFT_OUT = {("test_frame", "shadow")} if sys.version_info >= (3, 13) else set()


def limit_stack():
    import resource

    resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def run_child(module, mode):
    """The child's report, or {"crash": last lines of its output}."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.json")
        command = [sys.executable, "-m", "tests.host.cpython_suite", module, mode, str(out)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONWARNINGS", None)
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=TIMEOUT_S, preexec_fn=limit_stack
            )
            output = done.stderr
        except subprocess.TimeoutExpired as error:
            output = (error.stderr or b"") + b"\ntimed out"
        if out.exists():
            return json.loads(out.read_text())
        return {"crash": output.decode(errors="replace")[-3000:]}


def run_base(module):
    """The run without a hook, kept in the build folder: it depends on the Python only."""
    path = ROOT / "build/frame-tests" / "{}.{}.{}".format(*sys.version_info) / f"base_{module}.json"
    if path.exists():
        return json.loads(path.read_text())
    report = run_child(module, "base")
    if "crash" not in report:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report))
    return report


def is_expected(test):
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in EXPECTED)


def compare_module(module, modes):
    """[(module, mode, number of tests, {test: (base, got)}, counters or the crash)]"""
    base = run_base(module)
    if "crash" in base:
        return [(module, "base", 0, {}, base["crash"])]
    rows = []
    hook = None
    for mode in modes:
        if (module, mode) in LEFT_OUT:
            continue
        report = run_child(module, mode)
        if "crash" in report:
            rows.append((module, mode, 0, {}, report["crash"]))
            continue
        got = report["results"]
        different = {
            test: (result, got.get(test, "missing"))
            for test, result in base["results"].items()
            if got.get(test) != result and result in ("ok", "expected failure") and not is_expected(test)
        }
        if different:
            hook = hook or run_child(module, "hook")
            same = hook.get("results", {})
            different = {test: pair for test, pair in different.items() if same.get(test) == pair[0]}
        rows.append((module, mode, len(base["results"]), different, report["counters"]))
    return rows


def compare(modules, modes, jobs=None):
    """Yield the rows of compare_module for all modules, as they are done."""
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as executor:
        futures = [executor.submit(compare_module, module, modes) for module in modules]
        for future in futures:
            yield from future.result()


if __name__ == "__main__":
    run_module(*sys.argv[1:4])
