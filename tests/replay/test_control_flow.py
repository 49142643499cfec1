"""Branches, loops and match statements: on constants, on arguments, and on data."""

import torch
from twins import ONE_ENTRY, call, check, check_function, rnd, vectors


def test_branches_and_loops_on_arguments():
    def f(x, flag, n):
        if flag:
            x = x * 2
        else:
            x = x - 1
        for i in range(n):
            x = x + i
        if n > 2 and not flag:
            return x.relu(), n
        return x, n + 1

    which = [(True, 2), (True, 2), (False, 3), (False, 3), (True, 2), (False, 3), (True, 0), (False, 3)]
    check_function(f, [call(rnd(i, 3), *w) for i, w in enumerate(which)])


def test_both_sides_of_a_branch_keep_their_entries():
    def f(x, flag):
        return x * 2 if flag else x - 1

    flags = [True, False, True, False, True, False, True, False]
    check_function(f, [call(rnd(i, 3), flag) for i, flag in enumerate(flags)], promise={"recordings": 2, "exits": 0})


def test_a_branch_on_data_goes_either_way():
    def g(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    def f(x):
        y = x + 1
        z = g(y)
        return z * y

    ones = torch.ones(3)
    check_function(f, [call(ones * k) for k in (1, 2, -3, 1, -3, -3, 1, -3, 1)])


def test_nested_branches_on_data():
    def f(x):
        if x[0] > 0:
            y = x * 2
            if x[1] > 0:
                return y + 1, "both"
            y = y.sin()
        elif bool(x[1] > 0):
            y = x * 3
        else:
            return x, "none"
        return y, "one"

    signs = [(1, 1), (1, 1), (1, -1), (-1, 1), (-1, -1), (1, 1), (1, -1), (-1, -1), (-1, 1)]
    check_function(f, [call(torch.tensor([float(a), float(b)])) for a, b in signs])


def test_for_else_and_while_else():
    def f(x, items, stop):
        for i in items:
            if i == stop:
                break
            x = x + i
        else:
            x = x * 10
        n = 0
        while n < len(items):
            n += 1
            if n == stop:
                break
        else:
            x = x - 1
        return x, n

    check_function(f, [call(rnd(i, 3), [1, 2, 3], s) for i, s in enumerate([9, 9, 2, 2, 9, 2])])


def test_break_and_continue_in_nested_loops():
    def f(x):
        taken = []
        for i in range(5):
            if i % 2:
                continue
            for j in range(5):
                if j > i:
                    break
                if j == 1:
                    continue
                taken.append((i, j))
                x = x + i * j
        return x, taken

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_while_with_a_walrus_and_pop():
    def f(x, work):
        done = []
        while (item := work.pop() if work else None) is not None:
            done.append(item)
            x = x * item
        if (n := len(done)) > 2:
            x = x + n
        return x, done

    check_function(f, [call(rnd(i, 3), [1.0, 2.0, 3.0]) for i in range(4)])


def test_a_while_loop_that_ends_on_data():
    def f(x):
        steps = 0
        while x.norm() > 1:
            x = x / 2
            steps += 1
        return x, steps

    check_function(f, [call(rnd(i, 3) * k) for i, k in enumerate([4, 4, 9, 1, 0.1, 9, 4])])


def test_a_loop_over_a_tensor_and_over_its_rows():
    def f(x):
        total = 0
        for row in x:
            for v in row:
                total = total + v * 2
        return total, [r.sum() for r in x], len(x)

    check_function(f, vectors(4, (3, 2)), promise=ONE_ENTRY)


def test_match_on_literals_sequences_mappings_and_classes():
    class Point:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def f(x, what):
        match what:
            case 0 | 1:
                return x + 1, "small"
            case int(n) if n > 100:
                return x * n, "large"
            case int():
                return x, "int"
            case "sin" | "cos" as name:
                return getattr(torch, name)(x), name
            case [a, b]:
                return x * a + b, "pair"
            case [first, *rest]:
                return x * first, len(rest)
            case {"scale": s, **others}:
                return x * s, sorted(others)
            case Point(a, b=2):
                return x + a, "point"
            case None:
                return x, "none"
            case _:
                return x, "other"

    whats = [
        0,
        1,
        500,
        7,
        "sin",
        "cos",
        [2, 3],
        (2, 3),
        [5, 6, 7],
        {"scale": 2, "z": 0},
        Point(1, 2),
        Point(1, 3),
        None,
        2.5,
    ]
    check_function(f, [call(rnd(i, 3), w) for i, w in enumerate(whats + whats)])


def test_match_on_tensor_classes_and_nested_patterns():
    def f(item):
        match item:
            case {"kind": "pair", "items": [torch.Tensor() as a, torch.Tensor() as b]}:
                return a + b
            case {"kind": "one", "items": (torch.Tensor() as a, str(op))}:
                return getattr(a, op)()
            case torch.Tensor():
                return item
        return None

    items = [
        {"kind": "pair", "items": [rnd(0, 3), rnd(1, 3)]},
        {"kind": "one", "items": (rnd(2, 3), "sin")},
        rnd(3, 3),
        5,
    ]
    check_function(f, [call(i) for i in items + items])


def test_chained_comparisons_and_short_circuits():
    def f(x, a, b):
        seen = []

        def note(v):
            seen.append(v)
            return v

        r = 0 < note(a) < note(b) < 10
        s = note(a) and note(b) or note(7)
        t = not (a and b)
        return x * (1 if r else 2), r, s, t, seen

    check_function(f, [call(rnd(i, 3), *ab) for i, ab in enumerate([(1, 2), (1, 2), (5, 3), (0, 3), (3, 20), (1, 2)])])


def test_conditional_expressions_over_optional_arguments():
    def f(x, mask=None, bias=None):
        x = x if mask is None else x * mask
        return x + bias if bias is not None else x

    m = torch.tensor([1.0, 0.0, 1.0])
    check_function(
        f, [call(rnd(0, 3)), call(rnd(1, 3), m), call(rnd(2, 3), bias=1), call(rnd(3, 3)), call(rnd(4, 3), m, 2)]
    )


def test_an_assert_that_holds_and_one_that_does_not():
    def f(x, n):
        assert n > 0, f"n is {n}"
        assert x.shape == (3,)
        return x * n

    check_function(
        f, [call(rnd(i, 3), n) for i, n in enumerate([1, 1, 0, 1, -1])] + [call(rnd(0, 4), 1), call(rnd(0, 3), 1)]
    )


def test_early_returns_from_nested_loops_and_try():
    def f(x, limit):
        for i in range(4):
            try:
                for j in range(4):
                    if i * j > limit:
                        return x * i + j, (i, j)
            finally:
                x = x + 1
        return x, None

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([3, 3, 100, 0, 3, 100])])


def test_a_long_loop_repeats_one_body():
    def f(x, n):
        for _ in range(n):
            x = x * 0.999 + 0.001
        return x

    check_function(f, [call(rnd(i, 3), 300) for i in range(3)])


def test_a_loop_longer_than_the_back_edge_budget():
    def f(x, n):
        total = 0
        for i in range(n):
            x = x + 0.5
            total += i
        return x, total

    check_function(f, [call(rnd(i, 2), 3000) for i in range(3)] + [call(rnd(0, 2), 2500)])


def test_a_loop_whose_length_varies():
    def f(x, n):
        for i in range(n):
            x = x + i
        return x

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([1, 2, 3, 2, 1, 0, 3, 5, 1])])


def test_variables_that_may_be_unbound_raise_as_in_eager():
    def f(x, flag):
        if flag:
            y = x * 2
        del x
        return y + 1

    check_function(f, [call(rnd(i, 3), flag) for i, flag in enumerate([True, True, False, True, False])])


def test_deleted_names_and_rebound_loop_variables():
    def f(xs):
        for i, x in enumerate(xs):  # noqa: B007
            pass
        last, position = x, i
        del x, i
        i = position + 1
        return last * i

    check_function(f, [call([rnd(i, 3), rnd(i + 1, 3)]) for i in range(4)], promise=ONE_ENTRY)


def test_integer_arithmetic_decides_the_path():
    def collatz(n):
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    check_function(lambda x, n: x * collatz(n), [call(rnd(i, 3), n) for i, n in enumerate([6, 6, 7, 1, 27, 6])])


def test_truth_of_containers_strings_and_numbers():
    def f(x, thing):
        return x + 1 if thing else x - 1

    things = [[], [0], {}, {"a": 1}, "", "a", 0, 1, 0.0, -0.5, None, (), (1,), set(), {1}, range(0), range(2), 0j]
    check_function(f, [call(rnd(i, 3), t) for i, t in enumerate(things + things)])


def test_state_machine_over_strings():
    def make():
        class Machine:
            def __init__(self):
                self.state = "idle"

            def step(self, x):
                handler = getattr(self, "on_" + self.state)
                return handler(x)

            def on_idle(self, x):
                self.state = "busy"
                return x + 1

            def on_busy(self, x):
                self.state = "done"
                return x * 2

            def on_done(self, x):
                self.state = "idle"
                return x - 3

        return Machine().step

    check(make, vectors(9), post=lambda m: m.__self__.state)


def test_loops_that_are_entered_in_their_middle_go_on():
    """Behind a call that is not recorded the iterator is an object that existed before."""
    import bisect
    import collections

    def make():
        ordered = collections.OrderedDict(a=1.0, b=2.0, c=3.0)

        def f(x, table):
            for a, b in zip([1, 2, 3], (4, 5, 6, 7)):
                bisect.insort([], 1)
                x = x * a + b
            for i, (key, value) in enumerate(table.items()):
                bisect.insort([], 1)
                x = x + i + value + len(key)
            for value in ordered.values():
                bisect.insort([], 1)
                x = x + value
            shared = iter([1, 2, 3])
            for a, b in zip(shared, [5]):
                bisect.insort([], 1)
                x = x + a * b
            return x, list(shared)

        return f

    check(make, [call(rnd(i, 3), {"a": 1, "bb": 2, "c": i}) for i in range(6)])
    check(make, [call(rnd(i, 3), dict.fromkeys("abcdefg"[: 2 + i % 3], 1)) for i in range(9)])


def test_a_dict_that_grows_in_a_loop_raises_as_in_eager():
    import bisect

    def f(x, table):
        for key in table:
            bisect.insort([], 1)
            x = x + 1
            if key == 3:
                table[77] = 1
        return x

    check_function(f, [call(rnd(i, 3), dict.fromkeys(range(2 + i % 3), 1)) for i in range(9)])


def test_the_identity_of_things_of_different_types_needs_no_exit():
    missing = object()

    def f(x):
        y = x * 2
        z = missing if y is missing else y
        return z + 1 if z is not missing else x

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_map_is_taken_from_one_by_one():
    def f(x):
        q, k, v = map(lambda t: t.view(2, -1), (x, x * 2, x + 1))
        total = sum(map(lambda a, b: a * b, (q, k), [k, v, q]))
        texts = map(str, [1, 2, 3])
        first, rest = next(texts), list(texts)
        numbers = iter([1, 2, 3, 4])
        tens = map(lambda i: i * 10, numbers)
        shared = next(tens), next(numbers), list(tens)
        return total, list(map(len, ([1], "ab"))), first, rest, shared, tuple(map(int, ("1", "2")))

    check_function(f, vectors(4, (4,)), promise=ONE_ENTRY)


def test_exits_in_the_middle_of_a_map():
    import bisect

    def f(x):
        found = list(map(lambda t: t * 2 if t.sum() > 0 else t, [x, -x, x + 1]))
        for t in map(lambda t: (bisect.insort([], 1), t * 3)[1], [x, -x]):
            found.append(t)
        left = map(lambda t: t + 1, [x, x * 2])
        bisect.insort([], 1)
        found += left
        try:
            found.append(list(map(lambda t: 1 / 0, [x])))
        except ZeroDivisionError as error:
            found.append(str(error))
        for i, t in enumerate(map(lambda t: t - 1, [x, x * 2])):
            found.append(t * i)
        return found + [a + b for a, b in zip(map(torch.sin, [x, x]), [x, x * 2])]

    check_function(f, vectors(8, (4,)))
