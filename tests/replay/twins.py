"""Twins: an eager and a compiled copy of one program, driven through the same calls, must not be told apart.

`check(make, calls)` builds the program twice and compares after every call: the value bit by bit with its types, which
objects and storages are shared among results and arguments (over all calls so far), the arguments after the call, the
exception with its chain, message and the user's own frames with their line numbers, printed text, the user's warnings,
the random state, the grad mode, and a module's state. `promise` adds assertions on Reprise's counters.

`REPRISE_TEST_MODE` says what the compiled copy is (a word of bench/modes.py; `eager` compares the program with itself
and so validates the tests; `reprise`, native code, may differ by a rounding error: see TOLERANCE);
`REPRISE_TEST_COUNTS=0` leaves the assertions on counters out; `REPRISE_TEST_SLOW=1` also runs the tests with slow in
their name.
"""

import collections.abc
import contextlib
import copy
import dataclasses
import gc
import io
import os
import pathlib
import random
import sys
import warnings

import pytest
import torch

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [p for p in (str(TESTS.parent),) if p not in sys.path]

from bench import modes, stats  # noqa: E402
from bench.compare import difference, fields  # noqa: E402

MODE = os.environ.get("REPRISE_TEST_MODE", "reprise-eager")
IS_REPRISE = modes.is_reprise(MODE)
os.environ.setdefault("REPRISE_STRICT", "1")  # a failed CHECK of ours raises instead of falling back
ARE_COUNTS_CHECKED = IS_REPRISE and os.environ.get("REPRISE_TEST_COUNTS", "1") != "0"

#: in machine epsilons (bench/compare.py): native code adds in another order than PyTorch's kernels
TOLERANCE = 100 if MODE == "reprise" else 0
#: where rounding errors are made large: Adam divides a gradient that is 0 but for them by its own size
NOISE = 1e6

#: the promise for inputs like the recorded one: one recording, then replays only
ONE_ENTRY = {"recordings": 1, "exits": 0, "opaque_calls": 0}

bitwise_only = pytest.mark.skipif(TOLERANCE > 0, reason="numbers are compared as text")
reprise_only = pytest.mark.skipif(not IS_REPRISE, reason=f"about Reprise itself; the mode is {MODE}")


def compiled(program, **options):
    """The program under the mode of this run."""
    return modes.compiler(MODE)(program, **options)


def rnd(seed, *shape, dtype=torch.float32, grad=False):
    """Normal numbers that depend on the seed only; the global generator is left alone."""
    t = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return t.requires_grad_() if grad else t


@dataclasses.dataclass
class Call:
    """Arguments of one call. Each twin gets its own deep copy, in which arguments that are one object stay one."""

    args: tuple
    kwargs: dict


def call(*args, **kwargs):
    return Call(args, kwargs)


def vectors(count=4, shape=(3,), start=0, grad=False):
    """`count` calls with one random tensor each."""
    return [call(rnd(start + i, *shape, grad=grad)) for i in range(count)]


def arguments_of(item):
    """Fresh (args, kwargs) from a Call or from a function that makes one."""
    if callable(item):
        made = item()
        return made.args, made.kwargs
    return copy.deepcopy((item.args, item.kwargs))


@dataclasses.dataclass
class Outcome:
    value: object
    error: BaseException | None
    text: str
    warned: list


def is_user_file(filename):
    """Files of the tests and generated programs, but not this one: the frames a user would call his own."""
    if filename.startswith("<program"):
        return True
    return filename.startswith(str(TESTS)) and filename != __file__


def outcome(program, args, kwargs):
    """Call and record the value or the exception, what was printed, and warnings that point at user files."""
    text, value, error = io.StringIO(), None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            try:
                value = program(*args, **kwargs)
            except (Exception, SystemExit) as e:
                error = e
    # torch's own C++ warnings come once a process, so only one twin would see them.
    own = [w for w in caught if is_user_file(w.filename) and "Triggered internally" not in str(w.message)]
    warned = [(w.category.__name__, str(w.message), w.lineno) for w in own]
    return Outcome(value, error, text.getvalue(), warned)


def user_frames(error):
    """(function, line) of the user's own frames in a traceback, outermost first."""
    frames, tb = [], error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if is_user_file(code.co_filename):
            frames.append((code.co_name, tb.tb_lineno))
        tb = tb.tb_next
    return frames


def chain(error):
    """The exception and what it came from, as comparable facts."""
    facts, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        facts.append((type(error).__qualname__, str(error), user_frames(error), getattr(error, "__notes__", [])))
        facts.append(error.__suppress_context__)
        if isinstance(error, BaseExceptionGroup):
            facts += [fact for inner in error.exceptions for fact in chain(inner)]
        error = error.__cause__ or error.__context__
    return facts


class Shape:
    """Numbers objects and storages in the order of first sight, so that two twins' sharing can be compared.

    Keeps everything it has seen alive: an address never stands for two objects.
    """

    def __init__(self):
        self.numbers = {}
        self.kept = []

    def number(self, kind, address):
        return self.numbers.setdefault((kind, address), len(self.numbers))

    def facts(self, tree):
        """Path-ordered list of object numbers, storage numbers and offsets in a tree of results."""
        found = []
        self.kept.append(tree)
        self.visit(tree, found, set())
        return found

    def visit(self, thing, found, active):
        if isinstance(thing, torch.Tensor):
            found.append(self.number("object", id(thing)))
            if thing.layout == torch.strided and thing.device.type == "cpu" and self.has_storage(thing):
                found.append((self.number("storage", thing.untyped_storage().data_ptr()), thing.storage_offset()))
            return
        is_own = "test_" in type(thing).__module__ or dataclasses.is_dataclass(thing)
        is_container = isinstance(thing, (collections.abc.Mapping, list, set, tuple, collections.deque))
        if isinstance(thing, type) or callable(thing) or not (is_own or is_container) or id(thing) in active:
            return
        if not isinstance(thing, tuple):
            found.append(self.number("object", id(thing)))
        active = active | {id(thing)}
        if isinstance(thing, collections.abc.Mapping):
            children = list(thing.values())
        elif isinstance(thing, set):
            children = []
        elif is_container:
            children = list(thing)
        else:
            children = []
        for child in children + list(fields(thing).values()):
            self.visit(child, found, active)

    @staticmethod
    def has_storage(t):
        return type(t) in (torch.Tensor, torch.nn.Parameter) and t.untyped_storage().nbytes() > 0


def tensors_in(tree):
    """Tensor leaves of nested containers, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, collections.abc.Mapping):
        tree = list(tree.values())
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        tree = [getattr(tree, f.name) for f in dataclasses.fields(tree)]
    if isinstance(tree, (list, tuple, collections.deque)):
        return [t for x in tree for t in tensors_in(x)]
    return []


def backprop(value):
    """Back-propagate a weighted sum of every differentiable output, no two elements with the same weight."""
    total = 0
    for t in tensors_in(value):
        if t.requires_grad and t.numel():
            total = total + (t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).view(t.shape)).sum()
    if isinstance(total, torch.Tensor):
        total.backward()


def seed(n):
    torch.manual_seed(n)
    random.seed(n)


def torch_state():
    """Global state that a call may change, as comparable values."""
    return {
        "random state": torch.get_rng_state(),
        "python random": hash(random.getstate()),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default dtype": torch.get_default_dtype(),
    }


@dataclasses.dataclass
class Agree:
    """What `check` learned: the twins, outcomes of the compiled one, and its counters (None without statistics)."""

    plain: object
    inner: object
    tested: object
    outcomes: list
    counts: dict | None


def assert_same(got, want, at, noise=1):
    """noise: factor of the tolerance, where there is one."""
    found = difference(got, want, at, TOLERANCE * noise)
    assert found is None, str(found)


def assert_same_outcome(got, want, at):
    """Value or exception (chain, message, user frames), printed text and warnings."""
    if got.error is not None and want.error is None:
        raise AssertionError(f"{at}: raised {got.error!r:.400}, eager did not") from got.error
    assert got.error is not None or want.error is None, f"{at}: did not raise {want.error!r:.400}"
    if want.error is not None:
        assert chain(got.error) == chain(want.error), f"{at}: {chain(got.error)} instead of {chain(want.error)}"
        assert_same(got.error.args, want.error.args, f"{at} exception")
    assert got.text == want.text, f"{at}: printed {got.text!r:.400} instead of {want.text!r:.400}"
    assert got.warned == want.warned, f"{at}: warned {got.warned} instead of {want.warned}"
    assert_same(got.value, want.value, at)


def check(make, calls, *, post=None, promise=None, grads=False, options=None):
    """Drive both twins of make() through `calls` and assert that nothing visible differs.

    make: returns a fresh function or module; called twice under equal seeds. calls: Call objects, or functions that
    make one. post(program): what else to compare after the last call (called on the uncompiled object of each twin).
    promise: counter -> exact int or range, over all calls. grads: back-propagate and compare gradients.
    options: passed to reprise.compile.
    """
    seed(0)
    plain = make()
    seed(0)
    inner = make()
    tested = compiled(inner, **(options or {}) if IS_REPRISE else {})
    shape_plain, shape_tested = Shape(), Shape()
    outcomes = []
    for i, item in enumerate(calls):
        at = f"call {i}"
        (args_p, kwargs_p), (args_t, kwargs_t) = arguments_of(item), arguments_of(item)
        seed(i)
        want = outcome(plain, args_p, kwargs_p)
        state_p = torch_state()
        seed(i)
        got = outcome(tested, args_t, kwargs_t)
        state_t = torch_state()
        outcomes.append(got)
        assert_same_outcome(got, want, at)
        assert_same(state_t, state_p, f"global state after {at}")
        assert_same((args_t, kwargs_t), (args_p, kwargs_p), f"arguments after {at}")
        facts_p = shape_plain.facts((args_p, kwargs_p, want.value))
        facts_t = shape_tested.facts((args_t, kwargs_t, got.value))
        assert facts_t == facts_p, f"{at}: identity and sharing {facts_t} instead of {facts_p}"
        if grads:
            backprop(want.value)
            backprop(got.value)
            grads_p = [t.grad for t in tensors_in((args_p, kwargs_p))]
            assert_same([t.grad for t in tensors_in((args_t, kwargs_t))], grads_p, f"argument gradients of {at}")
        if isinstance(plain, torch.nn.Module):
            assert_same(dict(inner.state_dict()), dict(plain.state_dict()), f"module state after {at}")
            if grads:
                grads_p = {k: p.grad for k, p in plain.named_parameters()}
                grads_t = {k: p.grad for k, p in inner.named_parameters()}
                assert_same(grads_t, grads_p, f"parameter gradients of {at}")
    if post is not None:
        assert_same(post(inner), post(plain), "state after all calls")
    counts = stats.stats_of(tested) if IS_REPRISE else None
    if promise is not None:
        assert_counts(counts, promise, stats.why_not_recorded(tested) if IS_REPRISE else [])
    return Agree(plain, inner, tested, outcomes, counts)


def assert_counts(counts, promise, reasons=()):
    """Each promised counter is exactly the int, or inside the range; `reasons` go into the message."""
    if counts is None or not ARE_COUNTS_CHECKED:
        return
    for name, wanted in promise.items():
        is_kept = counts[name] in wanted if isinstance(wanted, range) else counts[name] == wanted
        assert is_kept, f"counter {name} is {counts[name]}, promised {wanted}; {counts} {list(reasons)}"


def check_function(function, calls, **how):
    """`check` for a function that keeps no state of its own: both twins are the same function."""
    return check(lambda: function, calls, **how)


def at_most(count):
    """For a promise: any number up to `count`."""
    return range(count + 1)


def pytest_collection_modifyitems(items):
    """Tests with slow in their name run only under REPRISE_TEST_SLOW=1. Imported by conftest files."""
    if os.environ.get("REPRISE_TEST_SLOW", "0") == "0":
        for item in items:
            if "_slow" in item.name:
                item.add_marker(pytest.mark.skip(reason="slow: set REPRISE_TEST_SLOW=1"))


@pytest.fixture(autouse=True)
def fresh_state():
    """Each test starts and ends with nothing compiled and torch's state as it was. Imported by conftest files."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seed(0)
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)
    modes.forget(MODE)
    gc.collect(0)
