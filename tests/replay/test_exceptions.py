"""Exceptions: raised and handled inside, escaping with the user's own frames, and what they leave behind."""

import contextlib
import sys
import traceback
import zlib

import pytest
import torch
from twins import ONE_ENTRY, call, check, check_function, compiled, rnd, vectors


class Mine(ValueError):
    def __init__(self, code, **extra):
        super().__init__(f"code {code}")
        self.code = code
        self.extra = extra


def test_raise_and_except_inside_is_control_flow():
    def make():
        class A:
            y = 1

        a = A()

        def lookup(d, k):
            try:
                return d[k]
            except KeyError:
                return 7

        def f(x):
            r = getattr(a, "zz", None)
            try:
                if hasattr(a, "y"):
                    raise ValueError("x")
            except ValueError:
                r = 3
            return x * r + lookup({"p": 1}, "q")

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_try_except_else_finally_run_in_order():
    def f(x, fail):
        order = []
        try:
            order.append("try")
            if fail == 1:
                raise KeyError("k")
            if fail == 2:
                raise Mine(4, a=1)
            x = x + 1
        except KeyError as e:
            order.append(repr(e))
        except (Mine, TypeError) as e:
            order.append((e.code, e.extra))
        else:
            order.append("else")
        finally:
            order.append("finally")
        return x, order

    check_function(f, [call(rnd(i, 3), k) for i, k in enumerate([0, 0, 1, 1, 2, 2, 0, 1])])


def test_an_exception_out_of_the_root_has_the_users_frames():
    def inner(x, n):
        y = x * 2
        if n > 1:
            raise Mine(n, y=y)
        return y

    def f(x, n):
        z = inner(x, n)
        return z + 1

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([1, 1, 2, 2, 1, 2])])


def test_an_exception_on_every_call_is_right_too():
    def f(x):
        t = x * 2
        raise ValueError(t)

    check_function(f, vectors(4))


def test_a_torch_error_carries_its_message_and_lines():
    def mul(a, b):
        return a @ b

    def f(a, b):
        c = a + 1
        d = mul(c, b)
        return d.relu()

    good, bad = call(rnd(0, 2, 3), rnd(1, 3, 4)), call(rnd(0, 2, 3), rnd(1, 4, 4))
    check_function(f, [good, good, bad, bad, good, bad])


def test_a_torch_error_in_replayed_code_has_the_users_frames():
    def index(x, i):
        picked = x[i]
        return picked * 2

    def f(x, i):
        y = x + 1
        return index(y, i)

    good, bad = torch.tensor([0, 2]), torch.tensor([0, 99])
    check_function(f, [call(rnd(0, 4), i) for i in (good, good, bad, good, bad)])


def test_a_torch_error_that_is_caught():
    def f(x):
        try:
            torch.ones(2) @ torch.ones(3)
        except RuntimeError as e:
            return x * 2, str(e)
        return x

    check_function(f, vectors(4))


def test_effects_before_the_exception_stay():
    def make():
        log = []

        def f(x, n, d):
            log.append(n)
            d["before"] = n
            x.add_(1)
            if n == 2:
                raise Mine(n)
            d["after"] = n
            log.append(-n)
            return x

        f.log = log
        return f

    check(make, [call(rnd(i, 3), n, {}) for i, n in enumerate([1, 1, 2, 1, 2])], post=lambda f: f.log)


def test_raise_from_and_contexts_are_chained():
    def f(x, how):
        try:
            try:
                {}["missing"]
            except KeyError as e:
                if how == 0:
                    raise Mine(1) from e
                if how == 1:
                    raise Mine(2) from None
                if how == 2:
                    raise Mine(3)  # noqa: B904
                raise
        except Mine as e:
            e.add_note("seen")
            if how == 2:
                raise
            return x, type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__, e.__notes__

    check_function(f, [call(rnd(i, 3), h) for i, h in enumerate([0, 0, 1, 2, 3, 1, 0, 2])])


def test_reraise_and_finally_that_returns():
    def swallow(x, fail):
        try:
            if fail:
                raise ValueError
            return x + 1
        finally:
            if fail:
                return x - 1  # noqa: B012

    def f(x, fail):
        try:
            y = swallow(x, fail)
            if fail == 2:
                raise IndexError("again")
        except IndexError:
            y = y * 2
            raise
        return y

    check_function(f, [call(rnd(i, 3), k) for i, k in enumerate([0, 0, 1, 2, 1, 0])])


def test_finally_runs_on_break_continue_and_return():
    def f(x):
        log = []
        for i in range(4):
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
                x = x * 2
            finally:
                log.append(i)
        try:
            return x, log
        finally:
            log.append("end")

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_nested_handlers_see_their_own_exception():
    def f(x):
        seen = []
        try:
            raise ValueError("outer")
        except ValueError:
            seen.append(str(sys.exc_info()[1]))
            try:
                raise KeyError("inner")
            except KeyError:
                seen.append(sys.exc_info()[1].args[0])
            seen.append(str(sys.exc_info()[1]))
        seen.append(sys.exc_info()[1])
        return x * 2, seen

    check_function(f, vectors(4))


def test_an_exit_inside_an_except_block_keeps_the_handled_exception():
    def f(x):
        try:
            raise Mine(5)
        except Mine as e:
            print("handling", e.code)
            try:
                raise
            except Mine as again:
                return x * again.code, again is e

    check_function(f, vectors(4))


def test_a_data_dependent_raise():
    def f(x):
        if x.sum() < 0:
            raise Mine(int(x.numel()))
        return x.sqrt()

    check_function(f, [call(torch.ones(3) * k) for k in (1, 2, -1, 1, -1, -1, 2)])


def test_exception_groups():
    def f(x, which):
        caught = []
        try:
            raise ExceptionGroup("all", [ValueError(1), KeyError("k")] + ([OSError(3)] if which else []))
        except* ValueError as g:
            caught.append([str(e) for e in g.exceptions])
        except* KeyError as g:
            caught.append(len(g.exceptions))
        return x, caught

    check_function(f, [call(rnd(i, 3), w) for i, w in enumerate([0, 0, 1, 0])])


def test_stop_iteration_and_generator_exit_meet_their_rules():
    def broken():
        yield 1
        raise StopIteration

    def f(x):
        try:
            list(broken())
        except RuntimeError as e:
            caught = str(e)
        try:
            next(iter([]))
        except StopIteration as e:
            value = e.value
        return x * 2, caught, value

    check_function(f, vectors(4))


def test_tracebacks_read_inside_the_function():
    def fail(n):
        raise Mine(n)

    def f(x):
        try:
            fail(3)
        except Mine as e:
            names = [s.name for s in traceback.extract_tb(e.__traceback__)]
            lines = [s.lineno for s in traceback.extract_tb(e.__traceback__)]
        return x * 2, names, lines

    check_function(f, vectors(4))


def test_exceptions_as_values():
    def f(x):
        errors = [Mine(i) for i in range(2)]
        kinds = {type(e): e.code for e in errors}
        try:
            raise errors[1]
        except ValueError as e:
            same = e is errors[1]
        return x * kinds[Mine], same, isinstance(errors[0], ValueError), str(errors[0]), repr(errors[1])

    check_function(f, vectors(4))


def test_suppress_and_exit_stack():
    def f(x):
        log = []
        with contextlib.suppress(KeyError):
            log.append(1)
            {}["k"]
            log.append(2)
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "callback")
            stack.enter_context(contextlib.suppress(ValueError))
            log.append(3)
            raise ValueError
        return x * 2, log

    check_function(f, vectors(4))


def test_attribute_errors_offer_the_same_message():
    def f(x, name):
        return getattr(x, name)

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate(["shape", "shape", "nothing", "dtype", "nothing"])])


@pytest.mark.parametrize(
    "expression",
    [
        "x + 'a'",
        "None + x",
        "x[5]",
        "x['a']",
        "undefined",
        "1 / 0",
        "[][0]",
        "x.nothing",
        "int('z')",
        "x(1)",
        "len(5)",
        "f(1)",
        "x.view(7)",
        "torch.cat([])",
        "a, b = 1",
        "import nothing_here",
        "x.sum(3)",
    ],
)
def test_common_errors_after_good_calls(expression):
    scope = {"torch": torch}
    source = f"def f(x, fail):\n    y = x * 2\n    if fail:\n        {expression}\n    return y\n"
    exec(compile(source, "<program error>", "exec"), scope)
    check_function(scope["f"], [call(rnd(i, 3), k) for i, k in enumerate([False, False, True, False, True])])


def test_recursion_error_is_survived():
    def down(x):
        return down(x) + 1

    def f(x):
        try:
            down(x)
        except RecursionError:
            return x * 2

    check_function(f, vectors(2))


def test_system_exit_passes_through():
    def f(x, n):
        y = x * 2
        if n:
            sys.exit(n)
        return y

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([0, 0, 3, 0])])


def test_the_program_goes_on_after_an_error():
    def make():
        weights = [torch.ones(3)]

        def f(x, w):
            weights[0] = weights[0] * 2
            return x @ weights[0] + x @ w

        return f

    good, bad = rnd(5, 3), rnd(6, 4)
    check(make, [call(rnd(i, 3), w) for i, w in enumerate([good, bad, good, good, bad, good])])


@pytest.mark.parametrize("name", ["_cuda_isInBadFork", "_cuda_getDeviceCount", "is_current_stream_capturing"])
def test_a_question_about_a_device_that_is_not_there(name):
    """Builds for a device raise where there is no driver; others have a stand-in that raises, or nothing."""
    ask = getattr(torch.cuda if name[0] != "_" else torch._C, name, None)
    if ask is None:
        pytest.skip(f"this build of torch has no torch._C.{name}")

    def f(x):
        try:
            found = ask()
        except Exception as error:
            return x + 1, type(error).__name__, error.args, getattr(error, "error_code", None)
        return x * int(found), found

    check_function(f, vectors(4), promise=ONE_ENTRY)


def links_of(error, depth=0):
    """Classes of what an exception came from, as far as it goes."""
    if error is None or depth > 3:
        return None
    return (
        type(error).__name__,
        links_of(error.__cause__, depth + 1),
        links_of(error.__context__, depth + 1),
        error.__suppress_context__,
    )


def raised_from(x):
    try:
        try:
            raise ValueError("a")
        except ValueError as error:
            raise KeyError("b") from error
    except KeyError as error:
        return x * 2, links_of(error), error


def raised_from_none(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise KeyError("b") from None
    except KeyError as error:
        return x * 2, links_of(error), error


def raised_while_handling(x):
    try:
        try:
            {}["missing"]
        except KeyError:
            getattr(x, "no_such_attribute")  # noqa: B009
    except AttributeError as error:
        return x * 2, links_of(error)


def raised_again(x):
    kept = None
    try:
        try:
            raise ValueError("a")
        except ValueError as error:
            kept = error
            raise TypeError("b")  # noqa: B904
    except TypeError as error:
        second = links_of(error)
    try:
        raise kept
    except ValueError as error:
        return x * 2, second, links_of(error)


@pytest.mark.parametrize("f", [raised_from, raised_from_none, raised_while_handling, raised_again])
def test_what_an_exception_came_from(f):
    def make():
        def g(x):
            y, links, *rest = f(x)
            return y, links, [links_of(error) if isinstance(error, BaseException) else error for error in rest]

        return g

    check(make, vectors(4))
    tested = compiled(f)
    for i in range(4):
        results = [program(rnd(i, 3)) for program in (tested, f)]
        assert [links_of(e) for e in results[0][2:] if isinstance(e, BaseException)] == [
            links_of(e) for e in results[1][2:] if isinstance(e, BaseException)
        ]


class Bare:
    pass


def test_attribute_errors_say_of_what_and_which():
    class Child(Bare):
        def missing(self):
            return super().nothing

    def f(x, o):
        found = []
        for read in (lambda: o.foo, lambda: Bare.foo, Child().missing, lambda: f.foo):
            try:
                read()
            except AttributeError as error:
                found += [error.name, type(error.obj).__name__, str(error)]
        return x * 2, found

    check_function(f, [call(rnd(i, 2), Bare()) for i in range(3)])

    def g(x, o):
        return x * 2 + o.bar

    tested = compiled(g)
    for _ in range(3):
        o = Bare()
        with pytest.raises(AttributeError) as info:
            tested(torch.ones(2), o)
        assert info.value.name == "bar" and info.value.obj is o


class Quiet:
    """A context manager that does nothing. What is raised inside of it ends a recording."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None


class Batches:
    """As a data loader: its end comes through `with` and `finally`, where it is not recorded."""

    def __init__(self, n, how):
        self.source, self.how, self.asked = iter(range(n)), how, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.how == "with":
            with Quiet():
                return next(self.source)
        if self.how == "finally":
            try:
                return next(self.source)
            finally:
                self.asked += 1
        if self.how == "print":
            print("asked")
            return next(self.source)
        try:
            return next(self.source)
        except StopIteration as e:
            raise StopIteration(5) from e


@pytest.mark.parametrize("how", ["with", "finally", "print", "again"])
def test_the_end_of_an_iterator_that_is_not_recorded_ends_the_loop(how):
    def f(x):
        batches = Batches(3, how)
        for k in batches:
            x = x * 2 + k
        a, b = Batches(2, how)
        pairs = list(zip(Batches(2, how), Batches(3, how), strict=False))
        return x, a, b, pairs, [k for k in Batches(3, how)], next(Batches(0, how), 7), batches.asked

    check_function(f, vectors(4))


class Computed:
    """Attributes whose own code raises an AttributeError, in ways that end a recording, and what stands in for them."""

    @property
    def left(self):
        with Quiet():
            raise AttributeError("left")

    @property
    def printed(self):
        print("printed")
        y = self.x * 2
        print(float(y.max()))
        raise AttributeError("printed")

    @property
    def by_data(self):
        y = self.x * 2
        if float(y.sum()) > 1:
            raise AttributeError("by_data")
        return y

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name + "!"


class Hooked(Computed):
    def __getattribute__(self, name):
        if name.startswith("z"):
            with Quiet():
                raise AttributeError(name)
        return super().__getattribute__(name)


class Descriptor:
    def __get__(self, instance, owner):
        with Quiet():
            raise AttributeError("described")


class Described(Computed):
    described = Descriptor()


@pytest.mark.parametrize("name", ["left", "printed", "by_data", "zero", "described"])
@pytest.mark.parametrize("make", [Computed, Hooked, Described])
def test_getattr_stands_in_for_an_attribute_error_that_is_not_recorded(make, name):
    def f(x):
        o = make()
        o.x = x
        y = x + 1
        return getattr(o, name), y * 2, getattr(o, name, 3), hasattr(o, name)

    check_function(f, vectors(6))


def test_an_entry_inside_of_a_handler_ends_where_the_exception_goes_on():
    """The recording ended in front of RERAISE, whose operand was gone: the rebuilt frame raised None."""
    found = {}

    def f(x):
        try:
            raise ValueError("own")
        finally:
            zlib.crc32(b"a")  # an exit: what follows is an entry of its own
            found["y"] = torch.sin(x) * 2

    def nested(x):
        try:
            try:
                raise ValueError("own")
            except KeyError:
                pass
            finally:
                zlib.crc32(b"a")
                found["y"] = torch.sin(x) * 2
        except ValueError as error:
            return str(error), found["y"]

    check_function(f, vectors(6))
    check_function(nested, vectors(6))
