"""Python's ways to call: arguments, closures, defaults, partials, recursion, callbacks from C."""

import copy
import functools
import inspect
import operator

import pytest
import torch
from twins import ONE_ENTRY, call, check, check_function, compiled, rnd, vectors


def test_x_plus_one_replays_after_one_recording():
    check_function(lambda x: x + 1, vectors(4), promise=ONE_ENTRY)


def test_a_second_shape_gets_a_second_result():
    check_function(lambda x: x + 1, vectors(3) + vectors(3, (4,)) + vectors(2) + vectors(2, (2, 3)))


def test_a_closure_and_keyword_arguments_keep_their_values():
    def make():
        k, w = 3.5, torch.ones(3)

        def f(x):
            y = x * w

            def g(z, *, a=2, **kw):
                return z * k + a + y + kw.get("b", 0)

            return g(x, a=5, b=1) + g(x)

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_a_cell_that_changes_between_calls_is_seen():
    def make():
        k = 1

        def f(x):
            nonlocal k
            k = k + 1
            return x * k

        return f

    check(make, vectors(5), post=lambda f: f.__closure__[0].cell_contents)


def test_two_closures_over_one_cell_share_it():
    def make():
        def f(x):
            total = x

            def add(v):
                nonlocal total
                total = total + v

            def get():
                return total

            add(1)
            add(x)
            return get(), total

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_positional_keyword_and_star_arguments_bind_alike():
    def f(a, /, b, *rest, c=3, **kw):
        return a * b + c + sum(rest) + sum(kw.values()), len(rest), sorted(kw)

    x, y = rnd(0, 3), rnd(1, 3)
    check_function(
        f,
        [
            call(x, y),
            call(x, b=y),
            call(x, y, 1, 2),
            call(x, y, 1, 2, c=5),
            call(x, y, c=5, d=7, e=8),
            call(x, *[y, 4], **{"z": 1}),
            call(x, y),
            call(x, b=y),
        ],
    )


def test_arguments_that_do_not_bind_raise_pythons_own_errors():
    def f(a, b, *, c):
        return a + b + c

    x = rnd(0, 3)
    good = call(x, x, c=1)
    wrong = [call(x, c=1), call(x, x, x, c=1), call(x, x), call(x, x, c=1, d=2), call(x, x, a=x, c=1)]
    check_function(f, [good, *wrong, good])


def test_defaults_are_evaluated_once_and_mutable_defaults_persist():
    def make():
        def f(x, seen=[], scale=torch.ones(3) * 2):  # noqa: B006, B008
            seen.append(len(seen))
            return x * scale, list(seen)

        return f

    check(make, vectors(4), post=lambda f: f.__defaults__)


def test_default_arguments_can_be_replaced():
    def make():
        def g(x, k=2):
            return x * k

        def f(x, i):
            if i == 2:
                g.__defaults__ = (7,)
            return g(x)

        return f

    check(make, [call(rnd(i, 3), i) for i in range(5)])


def test_star_arguments_are_forwarded_through_layers():
    def inner(*args, **kwargs):
        return torch.stack(args).sum(0) * kwargs["scale"]

    def middle(*args, **kwargs):
        return inner(*args[::-1], **{**kwargs, "scale": kwargs["scale"] + 1})

    def f(*args, **kwargs):
        return middle(args[0], *args[1:], **kwargs), args, kwargs

    check_function(f, [call(rnd(i, 3), rnd(i + 9, 3), scale=2) for i in range(4)], promise=ONE_ENTRY)


def test_partial_and_nested_partial():
    def make():
        add_double = functools.partial(torch.add, alpha=2)
        g = functools.partial(functools.partial(lambda a, b, *, c: a * b + c, 3), c=4)

        def f(x):
            h = functools.partial(add_double, x)
            return h(x), g(x), functools.partial(g, x)()

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_partialmethod_binds():
    class Scaler:
        def scale(self, x, by):
            return x * by

        double = functools.partialmethod(scale, by=2)
        triple = functools.partialmethod(scale, by=3)

    scaler = Scaler()
    check_function(lambda x: scaler.double(x) + scaler.triple(x), vectors(4))


def test_lru_cache_returns_what_it_cached():
    def make():
        @functools.lru_cache
        def k(n):
            return n * 2

        def f(x, n):
            return x * k(n)

        f.k = k
        return f

    calls = [call(rnd(i, 3), 2) for i in range(4)] + [call(rnd(9, 3), 3), call(rnd(9, 3), 2)]
    check(make, calls, post=lambda f: f.k(2))


def test_cached_property_is_computed_once():
    class Lazy:
        def __init__(self):
            self.computed = 0

        @functools.cached_property
        def weight(self):
            self.computed += 1
            return torch.ones(3) * 2

    def make():
        lazy = Lazy()

        def f(x):
            return x * lazy.weight

        f.lazy = lazy
        return f

    check(make, vectors(4), post=lambda f: (f.lazy.computed, sorted(vars(f.lazy))))


def test_a_decorator_with_wraps_and_state():
    def make():
        counts = {}

        def counted(g):
            @functools.wraps(g)
            def wrapper(*args, **kwargs):
                counts[g.__name__] = counts.get(g.__name__, 0) + 1
                return g(*args, **kwargs)

            return wrapper

        @counted
        def double(x):
            return x * 2

        @counted
        def f(x):
            return double(double(x))

        f.counts = counts
        return f

    check(make, vectors(4), post=lambda f: f.counts)


def test_a_decorator_with_arguments_and_stacked_decorators():
    def scaled(by):
        def decorate(g):
            return lambda x: g(x) * by

        return decorate

    @scaled(2)
    @scaled(by=3)
    def f(x):
        return x + 1

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_recursion_to_a_fixed_depth():
    def power(x, n):
        return torch.ones_like(x) if n == 0 else x * power(x, n - 1)

    check_function(lambda x: power(x, 5), vectors(4), promise=ONE_ENTRY)


def test_mutual_recursion_over_nested_lists():
    def total(tree, x):
        return sum_of(tree, x) if isinstance(tree, list) else x * tree

    def sum_of(trees, x):
        return sum((total(t, x) for t in trees), torch.zeros(3))

    tree = [1, [2, [3, 4], 5], [], [6]]
    check_function(lambda x, t: total(t, x), [call(rnd(i, 3), tree) for i in range(4)])


def test_recursion_that_depends_on_the_data():
    def shrink(x, depth=0):
        if depth > 6 or x.abs().max() < 0.2:
            return x, depth
        return shrink(x * 0.5, depth + 1)

    check_function(shrink, vectors(6))


def test_bound_and_unbound_methods_as_values():
    class Layer:
        def __init__(self, w):
            self.w = w

        def apply(self, x):
            return x * self.w

    a, b = Layer(2.0), Layer(torch.ones(3) * 3)

    def f(x):
        methods = [a.apply, b.apply, functools.partial(Layer.apply, a)]
        for m in methods:
            x = m(x)
        return x, a.apply == a.apply, a.apply == b.apply, a.apply.__self__ is a

    check_function(f, vectors(4))


def test_a_function_passed_as_argument_selects_the_path():
    def twice(g, x):
        return g(g(x))

    def f(x, g):
        return twice(g, x)

    calls = [call(rnd(i, 3), g) for i, g in enumerate([torch.relu, torch.relu, torch.sin, torch.sin, abs, torch.relu])]
    check_function(f, calls)


def test_lambdas_made_in_a_loop_capture_late():
    def f(x):
        late = [lambda v: v * i for i in range(3)]
        early = [lambda v, i=i: v * i for i in range(3)]
        return [g(x) for g in late], [g(x) for g in early]

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_map_filter_reduce_and_sorted_with_python_callbacks():
    def f(x, names):
        doubled = list(map(lambda t: t * 2, [x, x + 1]))
        long = list(filter(lambda n: len(n) > 1, names))
        total = functools.reduce(lambda a, b: a + b, doubled, torch.zeros(3))
        by_length = sorted(names, key=lambda n: (-len(n), n))
        return doubled, long, total, by_length, max(names, key=len), min([3, 1, 2], key=lambda v: -v)

    check_function(f, [call(rnd(i, 3), ["a", "ccc", "bb", "dd"]) for i in range(4)])


def test_a_sort_key_that_reads_tensors():
    def f(xs):
        return sorted(xs, key=lambda t: t.sum().item()), [t.shape for t in sorted(xs, key=len)]

    check_function(f, [call([rnd(i, 3), rnd(i + 1, 2), rnd(i + 2, 4)]) for i in range(5)])


def test_operator_module_functions():
    def f(x, pair):
        get, attr, method = operator.itemgetter(1), operator.attrgetter("shape"), operator.methodcaller("sum", 0)
        return operator.add(x, get(pair)), attr(x), method(x), operator.matmul(x, x), operator.neg(x)

    check_function(f, [call(rnd(i, 3), (1, rnd(i + 5, 3))) for i in range(4)])


def test_singledispatch_chooses_by_type():
    @functools.singledispatch
    def apply(op, x):
        return x

    @apply.register
    def _(op: int, x):
        return x * op

    @apply.register
    def _(op: str, x):
        return getattr(torch, op)(x)

    check_function(
        lambda x, op: apply(op, x), [call(rnd(i, 3), op) for i, op in enumerate([2, 2, "sin", "sin", None, 2])]
    )


def test_function_attributes_are_readable_and_writable():
    def make():
        def f(x):
            f.calls = getattr(f, "calls", 0) + 1
            return x * f.calls, f.__name__, f.__doc__

        return f

    check(make, vectors(4), post=lambda f: f.calls)


def test_exec_and_eval_inside():
    def f(x):
        scope = {"x": x, "torch": torch}
        exec("y = x * 2\nz = torch.sin(y)", scope)
        return scope["z"], eval("a + b", {"a": x, "b": 1})

    check_function(f, vectors(4))


def test_locals_globals_and_frames_tell_the_truth():
    import sys

    def where():
        frame = sys._getframe(1)
        return frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno, sorted(frame.f_locals)

    def f(x):
        y = x * 2
        names = sorted(locals())
        return y, names, where(), "torch" in globals()

    check_function(f, vectors(4))


def test_varargs_of_tensors_reach_torch():
    def f(*xs, dim=0):
        return torch.cat(xs, dim=dim), torch.stack([*xs, *xs[:1]])

    check_function(
        f, [call(rnd(i, 3), rnd(i + 1, 3)) for i in range(3)] + [call(rnd(1, 3), rnd(2, 3), rnd(3, 3), dim=0)] * 2
    )


def test_a_callable_object_is_compiled_as_such():
    class Model:
        def __init__(self):
            self.w = torch.ones(3) * 2
            self.calls = 0

        def __call__(self, x, *, bias=0):
            self.calls += 1
            return x * self.w + bias

    check(lambda: Model(), [call(rnd(i, 3), bias=i) for i in range(4)], post=lambda m: m.calls)


def test_a_bound_method_is_compiled_as_such():
    class Model:
        def __init__(self):
            self.w = torch.ones(3) * 2
            self.calls = 0

        def run(self, x):
            self.calls += 1
            return x * self.w

    check(lambda: Model().run, vectors(4), post=lambda m: m.__self__.calls)


def test_many_arguments_and_many_locals():
    names = [f"a{i}" for i in range(60)]
    scope = {}
    lines = [f"    v{i} = a{i} * {i} + {'v%d' % (i - 1) if i else '0'}" for i in range(60)]
    exec(f"def f({', '.join(names)}):\n" + "\n".join(lines) + "\n    return v59, v7", scope)
    check_function(scope["f"], [call(*[rnd(i + j, 2) for j in range(60)]) for i in range(3)], promise=ONE_ENTRY)


def test_an_argument_may_change_its_type():
    def f(x, k):
        return x * k

    ks = [2, 2, 2.5, 2.5, True, rnd(0, 3), rnd(1, 3), 2, None, "a", 2.5]
    check_function(f, [call(rnd(i, 3), k) for i, k in enumerate(ks)])


def test_numbers_that_only_scale_a_tensor_do_not_record_again():
    def f(x, k, s):
        return (x * k + s) / (k + 1)

    check_function(f, [call(rnd(i, 3), 0.5 + i, float(i)) for i in range(6)], promise=ONE_ENTRY)


class Hooked:
    """Attribute hooks in Python that only read, as those of configuration classes; `log` makes them write."""

    names = {"width": "size"}

    def __init__(self, log=None):
        self.size, self.parts, self.log = 2, [1, 2], log

    def __getattribute__(self, key):
        names = super().__getattribute__("__dict__").get("alias", Hooked.names)
        if key in names:
            key = names[key]
        log = super().__getattribute__("__dict__").get("log")
        if log is not None:
            log.append(key)
        return super().__getattribute__(key)


@pytest.mark.parametrize("writes", [False, True])
def test_attribute_hooks_behind_a_deep_copy(writes):
    def make():
        log = [] if writes else None
        hooked, table = Hooked(log), [1.0, 2.0, 3.0]

        def f(x):
            twin = copy.deepcopy(hooked)
            total = 0.0
            for k in table:  # lists are read at entry unless the hooks may have written them
                if k > 1.5:
                    total = total + k
            return x * total + twin.width, twin.parts, len(log or ())

        return f

    check(make, vectors(4), promise=None if writes else ONE_ENTRY)


def test_functions_that_are_wrapped_in_the_call():
    def decorated(function):
        @functools.wraps(function)
        def inner(x, *more):
            return function(x, *more) * 2

        return inner

    def base(x, k=1):
        """A text."""
        return x + k

    def f(x):
        g = decorated(base)
        h = decorated(lambda t: t * 3)
        return g(x), h(x, *()), g.__name__, g.__doc__, g.__qualname__, g.__wrapped__ is base

    check_function(f, vectors(4), promise=ONE_ENTRY)

    def gives(x):
        return decorated(lambda t: t * x)

    tested = compiled(gives)
    for seed in range(4):
        x = rnd(seed, 3)
        made = tested(x)
        assert made.__name__ == "<lambda>"
        assert torch.equal(made(x), x * x * 2) and torch.equal(made.__wrapped__(x), x * x)


def test_arguments_are_bound_by_a_signature_made_outside():
    def wrap(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return function(**bound.arguments), sorted(bound.arguments)

        return wrapper

    @wrap
    def f(x, scale=2.0, *, shift=1):
        return x * scale + shift

    x = rnd(0, 3)
    check_function(f, [call(x), call(x), call(x, 3.0), call(x, shift=2), call(x), call(x, 3.0)])
    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_a_wrapper_reads_the_code_of_what_it_wraps():
    """transformers' decorators look for the names of arguments."""

    def make():
        def first(x, scale=2.0, shift=1.0):
            return x * scale

        def second(x, shift=3.0, scale=2.0):
            return x + shift

        def wrap(function):
            def wrapper(x, **kwargs):
                names = function.__code__.co_varnames[: function.__code__.co_argcount]
                return function(x) + len(names) + names.index("shift") + len(kwargs)

            return wrapper

        wrapped = wrap(first)

        def f(x, i):
            if i == 4:
                first.__code__ = second.__code__
            made = lambda v, w: v  # noqa: E731
            return wrapped(x, i=i) + made.__code__.co_argcount

        return f

    check(make, [call(rnd(i, 3), i) for i in (1, 1, 1, 4, 1, 1)])
    check(make, [call(rnd(i, 3), 1) for i in range(3)], promise=ONE_ENTRY)


def test_a_frame_is_asked_for_its_line_when_it_is_there():
    """Code behind the call that gave the frame is entered with the frame where that call was."""
    import sys

    def f(x):
        frame = sys._getframe()
        y = x + frame.f_lineno - frame.f_code.co_firstlineno
        first = frame.f_lineno
        y = y * 2
        return y, frame.f_lineno - first, frame.f_code.co_name, frame.f_globals is globals()

    check_function(f, vectors(4))


def test_functions_of_operator_write_as_the_signs_do():
    def f(x, numbers, table, group):
        same = operator.iadd(numbers, [9]) is numbers, operator.iconcat(numbers, [8]) is numbers
        operator.delitem(numbers, 0)
        operator.ior(table, {"k": 1})
        operator.delitem(table, "a")
        operator.isub(group, {1})
        y = operator.iadd(x, 1)
        total = functools.reduce(operator.add, [x, y, x * 2])
        operator.call(numbers.append, 3)
        return same, len(numbers), y is x, total, operator.add(numbers, [1]), operator.mul((1,), 2)

    check_function(f, [call(rnd(i, 3), [i, 1], {"a": 1}, {1, 2}) for i in range(4)])


def test_operators_by_name_are_recorded_as_signs():
    class Vector:
        def __init__(self, data):
            self.data = data

        def __add__(self, other):
            return Vector(self.data + other.data)

    def f(x, count):
        both = operator.add(Vector(x), Vector(x * 2)).data
        return operator.matmul(both, x), functools.reduce(operator.mul, [x, both, count]), operator.iadd([], [1])

    check_function(f, [call(rnd(i, 3), 3) for i in range(4)], promise=ONE_ENTRY)
