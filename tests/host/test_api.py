"""The public API on programs without tensors: what stands in for a callable behaves as the callable does."""

import asyncio
import copy
import functools
import gc
import inspect
import math
import pickle
import subprocess
import sys
import threading
import traceback
import unittest
import warnings
import weakref

import reprise

from tests.host.native import C

SCALE = 3


@reprise.compile
def decorated(x, y=1):
    """Scale and add."""
    return SCALE * x + y


def plain(x):
    return x + 1


compiled_elsewhere = reprise.compile(plain)


@reprise.disable
def disabled(x):
    return x - 1


class Callable:
    """An object with state and a Python __call__."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return self.scale * x

    @reprise.compile
    def method(self, x):
        return self.scale + x

    @reprise.compile
    @classmethod
    def of_class(cls, x):
        return cls.__name__, x

    @staticmethod
    @reprise.compile
    def of_nobody(x):
        return x


class Functions(unittest.TestCase):
    def test_a_decorated_function_looks_like_the_original(self):
        original = decorated.__wrapped__
        for name in ["__name__", "__qualname__", "__doc__", "__module__", "__defaults__", "__code__", "__globals__"]:
            self.assertEqual(getattr(decorated, name), getattr(original, name))
        self.assertIs(decorated.__dict__, original.__dict__)
        self.assertEqual(inspect.signature(decorated), inspect.signature(original))
        self.assertEqual(inspect.getsource(decorated), inspect.getsource(original))
        self.assertIn("function decorated", repr(decorated))
        self.assertEqual([decorated(2) for _ in range(5)], [7] * 5)

    def test_it_decorates_with_and_without_arguments(self):
        @reprise.compile()
        def one():
            return 1

        @reprise.compile(fullgraph=False, mode="default", options={"max_entries": 4})
        def two():
            return 2

        self.assertEqual((one(), two()), (1, 2))
        self.assertIsInstance(one, C.CompiledFunction)

    def test_attributes_are_read_and_written_through(self):
        def f():
            """Doc."""

        f.before = 1
        compiled = reprise.compile(f)
        self.assertEqual(compiled.before, 1)
        compiled.after = 2
        compiled.__doc__ = "New."
        compiled.__name__ = "g"
        self.assertEqual((f.after, f.__doc__, f.__name__), (2, "New.", "g"))
        del compiled.before
        self.assertFalse(hasattr(f, "before"))
        with self.assertRaisesRegex(AttributeError, "no_such"):
            compiled.no_such  # noqa: B018

    def test_identity_decides_equality_and_hash(self):
        other = reprise.compile(plain)
        self.assertNotEqual(other, compiled_elsewhere)
        self.assertEqual(len({other, compiled_elsewhere, plain}), 3)

    def test_code_that_was_replaced_is_what_runs(self):
        def f(x):
            return x

        compiled = reprise.compile(f)
        self.assertEqual([compiled(1) for _ in range(3)], [1, 1, 1])
        f.__code__ = (lambda x, y=5: (x, y)).__code__
        f.__defaults__ = (5,)
        self.assertEqual([compiled(1) for _ in range(3)], [(1, 5)] * 3)

    def test_exceptions_and_their_tracebacks_are_the_users(self):
        @reprise.compile
        def f(x):
            return 1 // x

        for _ in range(4):
            try:
                f(0)
            except ZeroDivisionError as error:
                names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
            self.assertEqual(names, ["test_exceptions_and_their_tracebacks_are_the_users", "f"])

    def test_endless_recursion_is_a_recursion_error(self):
        @reprise.compile
        def f(x):
            return f(x + 1)

        with self.assertRaises(RecursionError):
            f(0)

    def test_recursion_ends(self):
        @reprise.compile
        def f(n):
            return 1 if n == 0 else n * f(n - 1)

        self.assertEqual([f(20) for _ in range(3)], [math.factorial(20)] * 3)

    def test_compiling_twice_wraps_the_original_once(self):
        twice = reprise.compile(compiled_elsewhere)
        self.assertIs(twice.__wrapped__, plain)
        self.assertIsNot(twice, compiled_elsewhere)

    def test_compiled_functions_call_each_other(self):
        @reprise.compile
        def inner(x):
            return x + 1

        @reprise.compile
        def outer(x):
            return inner(x) * inner(x)

        self.assertEqual([outer(1) for _ in range(4)], [4] * 4)


class Kinds(unittest.TestCase):
    def test_methods_bind(self):
        objects = [Callable(2), Callable(5)]
        for _ in range(3):
            self.assertEqual([o.method(1) for o in objects], [3, 6])
        self.assertEqual(Callable.method(objects[0], 1), 3)
        self.assertIs(objects[0].method.__self__, objects[0])
        self.assertEqual(Callable.of_class(1), ("Callable", 1))
        self.assertEqual(objects[0].of_class(1), ("Callable", 1))
        self.assertEqual(objects[0].of_nobody(4), 4)

    def test_bound_methods_are_called_with_their_self(self):
        method = reprise.compile(Callable(7).__call__)
        self.assertEqual([method(2), method(x=3)], [14, 21])
        self.assertEqual(str(inspect.signature(method)), "(x)")
        self.assertEqual(method.__self__.scale, 7)
        many = list(range(20))

        class Many:
            def f(self, *args):
                return self, args

        instance = Many()
        self.assertEqual(reprise.compile(instance.f)(*many), (instance, tuple(many)))

    def test_partials_are_called_with_their_arguments(self):
        def f(a, b, c=0, **kwargs):
            return a, b, c, kwargs

        for partial in [
            functools.partial(f, 1),
            functools.partial(f, 1, c=5),
            functools.partial(f, 1, z=1, y=2),
            functools.partial(functools.partial(f, 1), c=7),
        ]:
            compiled = reprise.compile(partial)
            for args, kwargs in [((2,), {}), ((), {"b": 3}), ((2,), {"c": 9}), ((2,), {"y": 3, "x": 4})]:
                self.assertEqual(compiled(*args, **kwargs), partial(*args, **kwargs))
                self.assertEqual(list(compiled(*args, **kwargs)[3]), list(partial(*args, **kwargs)[3]))
            with self.assertRaisesRegex(TypeError, "missing 1 required positional argument: 'b'"):
                compiled()
        method = reprise.compile(functools.partial(Callable(3).__call__, 4))
        self.assertEqual(method(), 12)

    def test_an_object_with_a_call_keeps_its_class_and_attributes(self):
        original = Callable(2)
        compiled = reprise.compile(original)
        self.assertIsInstance(compiled, Callable)
        self.assertEqual([compiled(4) for _ in range(3)], [8] * 3)
        compiled.scale = 5
        compiled.extra = 1
        self.assertEqual((original.scale, original.extra, original(4), compiled(4)), (5, 1, 20, 20))
        self.assertEqual(type(compiled).__qualname__, "Callable")
        self.assertIs(compiled.__class__, Callable)
        other = type(compiled)(7)
        self.assertEqual((other(2), copy.deepcopy(other).scale, pickle.loads(pickle.dumps(other)).scale), (14, 7, 7))

    def test_an_object_that_shares_nothing_is_wrapped(self):
        class Slots:
            __slots__ = ("scale",)

            def __call__(self, x):
                return self.scale * x

        original = Slots()
        original.scale = 2
        compiled = reprise.compile(original)
        self.assertEqual([compiled(3) for _ in range(3)], [6] * 3)
        compiled.scale = 4
        self.assertEqual((original.scale, compiled(3)), (4, 12))

    def test_builtins_run_as_they_are(self):
        compiled = reprise.compile(math.hypot)
        self.assertEqual(compiled(3, 4), 5)
        self.assertEqual(compiled.__name__, "hypot")
        self.assertEqual(reprise.explain(compiled).report.counters["unsupported_calls"], 1)

    def test_a_class_is_left_as_it_is_with_a_warning(self):
        with self.assertWarnsRegex(RuntimeWarning, "class Callable is left as it is"):
            self.assertIs(reprise.compile(Callable), Callable)

    def test_generator_functions_give_the_originals_generator(self):
        @reprise.compile
        def f(n):
            for i in range(n):
                yield i

        self.assertEqual([list(f(3)) for _ in range(3)], [[0, 1, 2]] * 3)
        self.assertTrue(inspect.isgenerator(f(1)))
        self.assertEqual(reprise.explain(f).report.counters["unsupported_calls"], 4)

    def test_coroutine_functions_give_the_originals_coroutine(self):
        @reprise.compile
        async def f(x):
            await asyncio.sleep(0)
            return x + 1

        self.assertEqual([asyncio.run(f(1)) for _ in range(2)], [2, 2])
        if sys.version_info >= (3, 12):
            self.assertTrue(inspect.iscoroutinefunction(f))

    def test_a_lambda_and_a_closure_are_compiled(self):
        k = 2
        self.assertEqual(reprise.compile(lambda x: x * k)(4), 8)


class Copies(unittest.TestCase):
    def test_a_decorated_function_is_pickled_by_reference(self):
        self.assertIs(pickle.loads(pickle.dumps(decorated)), decorated)
        self.assertIs(pickle.loads(pickle.dumps(disabled)), disabled)

    def test_a_function_compiled_under_another_name_is_compiled_again(self):
        loaded = pickle.loads(pickle.dumps(reprise.compile(plain, options={"max_entries": 3})))
        self.assertIsInstance(loaded, C.CompiledFunction)
        self.assertIs(loaded.__wrapped__, plain)
        self.assertEqual(loaded.__reprise_settings__["options"], {"max_entries": 3})

    def test_copies_of_functions_are_the_function_itself(self):
        self.assertIs(copy.copy(decorated), decorated)
        self.assertIs(copy.deepcopy(decorated), decorated)

    def test_a_deep_copy_of_a_bound_method_has_its_own_self(self):
        method = reprise.compile(Callable(2).__call__)
        copied = copy.deepcopy(method)
        copied.__self__.scale = 10
        self.assertEqual((method(1), copied(1)), (2, 10))

    def test_an_object_is_pickled_as_the_original_and_copied_compiled(self):
        compiled = reprise.compile(Callable(2))
        loaded = pickle.loads(pickle.dumps(compiled))
        self.assertIs(type(loaded), Callable)
        self.assertEqual(loaded(3), 6)
        for copied in [copy.copy(compiled), copy.deepcopy(compiled)]:
            self.assertIsNot(type(copied), Callable)
            copied.scale = 9
            self.assertEqual((copied(1), compiled(1)), (9, 2))


class Errors(unittest.TestCase):
    def test_wrong_arguments_are_user_errors_with_what_is_allowed(self):
        for arguments, kind, text in [
            ({"mode": "fast"}, ValueError, "mode is 'fast'; expected one of default, reduce-overhead"),
            ({"backend": "inductor"}, ValueError, "unknown backend 'inductor'; expected a callable or one of "),
            ({"backend": 3}, TypeError, "backend is a int; expected a str or a callable"),
            ({"options": {"speed": 1}}, ValueError, "unknown option 'speed'; expected one of numerics, "),
            ({"options": {"max_entries": 0}}, ValueError, "option max_entries is '0'; expected a whole number >= 1"),
            ({"options": {"numerics": []}}, TypeError, "option numerics is a list; expected str, int or bool"),
            ({"options": 1}, TypeError, "options is a int; expected a dict"),
            ({"fullgraph": 1}, TypeError, "fullgraph is 1; expected True or False"),
            ({"dynamic": "yes"}, TypeError, "dynamic is 'yes'; expected None, True or False"),
        ]:
            with self.subTest(arguments=arguments), self.assertRaises(kind) as caught:
                reprise.compile(plain, **arguments)
            self.assertIsInstance(caught.exception, reprise.UserError)
            self.assertTrue(str(caught.exception).startswith(text), str(caught.exception))

    def test_what_cannot_be_called_cannot_be_compiled(self):
        for function in [reprise.compile, reprise.disable]:
            with self.assertRaisesRegex(TypeError, "a int cannot be"):
                function(3)

    def test_a_build_that_does_not_load_gives_functions_back_with_one_warning(self):
        program = """
import sys, warnings
sys.modules["reprise._C"] = None
import reprise
def f(x): return x
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert reprise.compile(f) is f
    assert reprise.compile(fullgraph=True)(f) is f
    assert reprise.disable(f) is f
    with reprise.disable(): pass
    reprise.reset()
    print(reprise.explain(f)(1))
assert len(caught) == 1 and caught[0].category is RuntimeWarning, caught
assert "programs run as they are" in str(caught[0].message)
assert caught[0].filename == "<string>", caught[0].filename
"""
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))


class Rest(unittest.TestCase):
    def test_disabled_code_runs_and_compiled_callables_in_it_run_plainly(self):
        def count():
            return reprise.explain(compiled).report.counters["disabled_calls"]

        compiled = reprise.compile(plain)

        @reprise.disable
        def f(x):
            self.assertTrue(C.is_disabled())
            return compiled(x)

        before = count()
        self.assertEqual(f(1), 2)
        with reprise.disable():
            compiled(1)
            with reprise.disable():
                compiled(1)
            compiled(1)
        self.assertEqual(count() - before, 4)
        self.assertFalse(C.is_disabled())
        compiled(1)
        self.assertEqual(count() - before, 4)

        @reprise.disable()
        def fails():
            raise KeyError

        with self.assertRaises(KeyError):
            fails()
        self.assertFalse(C.is_disabled())
        self.assertEqual((disabled(3), disabled.__name__), (2, "disabled"))

    def test_disable_is_of_one_thread(self):
        seen = []
        with reprise.disable():
            thread = threading.Thread(target=lambda: seen.append(C.is_disabled()))
            thread.start()
            thread.join()
        self.assertEqual(seen, [False])

    def test_a_disabled_object_keeps_its_class(self):
        original = Callable(2)
        off = reprise.disable(original)
        self.assertIsInstance(off, Callable)
        self.assertEqual(off(4), 8)
        self.assertEqual(Callable(1).method(1), 2)

    def test_backends_are_listed_and_registered(self):
        @reprise.register_backend
        def my_backend(graph_module, example_inputs):
            return graph_module

        reprise.register_backend(lambda graph_module, example_inputs: graph_module, name="other")
        self.assertEqual(reprise.list_backends(), ["aot_eager", "eager", "my_backend", "native", "other"])
        compiled = reprise.compile(plain, backend="my_backend")
        self.assertEqual(compiled(1), 2)
        self.assertIn("backend my_backend", str(reprise.explain(compiled)(1)))
        with self.assertRaisesRegex(ValueError, "backend 'native' is built in"):
            reprise.register_backend(my_backend, name="native")

    def test_reset_starts_anew(self):
        compiled = reprise.compile(lambda x: x)
        for _ in range(5):
            compiled(1)
        before = reprise.explain(compiled).report
        reprise.reset()
        compiled(1)
        after = reprise.explain(compiled).report
        self.assertEqual(after.counters["recordings"], before.counters["recordings"] + 1)
        self.assertEqual(after.places[0]["attempts"], 1)

    def test_explain_says_what_became_of_the_calls(self):
        explanation = reprise.explain(decorated)(2)
        self.assertEqual(explanation.result, 7)
        self.assertEqual(explanation.name, "decorated")
        text = str(explanation)
        self.assertIn("test_api.py", text)
        self.assertIn("calls of the compiled callable", text)
        self.assertIn("decorated", repr(explanation))
        self.assertGreater(explanation.counters["calls"], 0)

    def test_it_is_not_compiling_outside_of_a_recording(self):
        self.assertFalse(reprise.is_compiling())

    def test_the_command_line_prints_what_it_was_built_for(self):
        run = subprocess.run([sys.executable, "-m", "reprise"], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("max_entries", run.stdout)
        self.assertIn(f"built for Python {sys.version_info[0]}.{sys.version_info[1]}", run.stdout)


class Lifetime(unittest.TestCase):
    def check_freed(self, make):
        """`make` returns objects; all must die when they are dropped."""
        made = make()
        references = [weakref.ref(o) for o in made]
        del made
        gc.collect()
        self.assertEqual([r() for r in references if r() is not None], [])

    def test_a_compiled_function_dies_with_its_last_reference(self):
        def make():
            def f(x):
                return x

            compiled = reprise.compile(f)
            for _ in range(3):
                compiled(1)
            return f, compiled

        self.check_freed(make)

    def test_cycles_through_compiled_callables_are_collected(self):
        def make():
            instance = Callable(1)
            instance.compiled = reprise.compile(instance.__call__)
            instance.me = reprise.compile(instance)
            instance.me(2), instance.compiled(2)

            def f(x):
                return f if x else f.other

            f.other = reprise.compile(f)
            f.other(0)
            return instance, instance.compiled, f, f.other

        self.check_freed(make)

    def test_many_compilations_leave_nothing(self):
        def cycle():
            compiled = reprise.compile(lambda x: x + 1)
            compiled(1)
            compiled(1)
            reprise.reset()

        for _ in range(20):
            cycle()
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(200):
            cycle()
        gc.collect()
        self.assertLess(abs(len(gc.get_objects()) - before), 50)

    def test_threads_call_the_same_function(self):
        @reprise.compile
        def f(x, *, y=2):
            return [x * i + y for i in range(10)]

        failures = []

        def run(seed):
            for i in range(500):
                if f(seed + i, y=i) != [(seed + i) * j + i for j in range(10)]:
                    failures.append((seed, i))

        threads = [threading.Thread(target=run, args=(1000 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertFalse(C.is_hook_installed())

    def test_no_hook_is_left_behind(self):
        with warnings.catch_warnings():
            decorated(1)
        self.assertFalse(C.is_hook_installed())


if __name__ == "__main__":
    unittest.main()
