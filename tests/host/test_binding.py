"""Arguments are bound as CPython binds them, over a generated matrix of signatures and calls."""

import itertools
import random
import unittest

import reprise

from tests.host.native import C

# (positional-only, positional, keyword-only), each a list of (name, has default); then *args and **kwargs.
POSITIONAL_ONLY = [[], ["p"], ["p", "q=10"]]
POSITIONAL = [[], ["a"], ["a", "b=20"], ["a=30", "b=40"]]
KEYWORD_ONLY = [[], ["k"], ["k=50"], ["k", "l=60"]]
STAR = [None, "args"]
STARS = [None, "kwargs"]
NAMES = ["p", "q", "a", "b", "k", "l", "x", "args"]


def make_functions():
    """Yield functions of every valid combination; each returns its parameters in the order of its locals."""
    for only, positional, keyword, star, stars in itertools.product(
        POSITIONAL_ONLY, POSITIONAL, KEYWORD_ONLY, STAR, STARS
    ):
        parts = list(only) + (["/"] if only else []) + list(positional)
        defaults = ["=" in part for part in parts if part != "/"]
        if defaults != sorted(defaults):
            continue
        if star or keyword:
            parts.append("*" + (star or ""))
        parts += keyword
        names = [part.split("=")[0] for part in only + positional + keyword]
        names += [star] if star else []
        if stars:
            parts.append("**" + stars)
            names.append(stars)
        scope = {}
        exec(f"def f({', '.join(parts)}):\n    return ({''.join(name + ', ' for name in names)})", scope)
        yield scope["f"], ", ".join(parts)


def make_calls(random_, count):
    """Yield (args, kwargs)."""
    for _ in range(count):
        args = tuple(range(random_.randrange(6)))
        names = random_.sample(NAMES, random_.choice([0, 0, 1, 1, 2, 3]))
        yield args, {name: f"value of {name}" for name in names}


def call(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        return str(error)


class Binding(unittest.TestCase):
    def test_bound_values_are_those_of_a_call(self):
        random_ = random.Random(1)
        wrong = []
        refused = 0
        for function, signature in make_functions():
            for args, kwargs in make_calls(random_, 40):
                expected = call(function, args, kwargs)
                is_refused = isinstance(expected, str)
                refused += is_refused
                bound = C.bind_arguments(function, args, kwargs)
                if bound != (None if is_refused else expected):
                    wrong.append((signature, args, kwargs, bound, expected))
        self.assertEqual(wrong[:3], [])
        self.assertGreater(refused, 100)

    def test_calls_and_their_errors_are_those_of_the_function(self):
        random_ = random.Random(2)
        wrong = []
        for function, signature in make_functions():
            compiled = reprise.compile(function)
            for args, kwargs in make_calls(random_, 15):
                found, expected = call(compiled, args, kwargs), call(function, args, kwargs)
                if found != expected:
                    wrong.append((signature, args, kwargs, found, expected))
        self.assertEqual(wrong[:3], [])

    def test_many_parameters_are_bound(self):
        names = [f"a{i}" for i in range(60)]
        scope = {}
        exec(f"def f({', '.join(names)}, *, z=1): return ({', '.join(names)}, z)", scope)
        kwargs = {name: name for name in reversed(names)}
        self.assertEqual(C.bind_arguments(scope["f"], (), kwargs), scope["f"](**kwargs))

    def test_defaults_are_read_at_the_call(self):
        def f(a, b=1, *, c=2):
            return a, b, c

        compiled = reprise.compile(f)
        self.assertEqual(compiled(0), (0, 1, 2))
        f.__defaults__ = (5,)
        f.__kwdefaults__ = {"c": 6}
        self.assertEqual(compiled(0), (0, 5, 6))
        self.assertEqual(C.bind_arguments(f, (0,), {}), (0, 5, 6))
        compiled.__defaults__ = None
        with self.assertRaisesRegex(TypeError, "missing 1 required positional argument: 'b'"):
            compiled(0)
        f.__defaults__ = (7, 8, 9)  # longer than there are parameters
        self.assertEqual(C.bind_arguments(f, (), {}), f())

    def test_keywords_that_are_no_exact_strings_are_left_to_the_function(self):
        class Text(str):
            pass

        def f(a, **kwargs):
            return a, kwargs

        self.assertIsNone(C.bind_arguments(f, (1,), {Text("b"): 2}))
        self.assertEqual(reprise.compile(f)(1, **{Text("b"): 2}), (1, {"b": 2}))
        with self.assertRaisesRegex(TypeError, "keywords must be strings"):
            reprise.compile(f)(1, **{2: 3})

    def test_the_dict_of_keywords_is_a_new_one(self):
        given = {"b": 2}

        @reprise.compile
        def f(**kwargs):
            kwargs["c"] = 3
            return kwargs

        self.assertEqual(f(**given), {"b": 2, "c": 3})
        self.assertEqual(given, {"b": 2})


if __name__ == "__main__":
    unittest.main()
