"""Which objects are one: arguments given twice, storages shared between inputs, results that are inputs."""

import pytest
import torch
from twins import assert_same, call, check, check_function, compiled, rnd


def arguments(kind, is_one):
    """Two arguments of one kind: one object twice, or two equal ones."""
    make = {
        "dict": lambda: {"n": 1},
        "list": lambda: [1],
        "tensor": lambda: torch.ones(3),
        "set": lambda: {1},
    }[kind]
    a = make()
    return a, a if is_one else make()


PROGRAMS = {
    "dict": lambda a, b: (a.update(n=a["n"] + 1), torch.ones(3) * b["n"])[1],
    "list": lambda a, b: (a.append(7), torch.ones(3) * len(b), len(a))[1:],
    "tensor": lambda a, b: (a.add_(1), a + b)[1],
    "set": lambda a, b: (a.add(7), torch.ones(3) * len(b))[1],
}


@pytest.mark.parametrize("order", ["apart first", "one first", "in turn"])
@pytest.mark.parametrize("kind", list(PROGRAMS))
def test_arguments_that_become_one_object(kind, order):
    turns = {"apart first": [0, 0, 0, 1, 1, 0], "one first": [1, 1, 1, 0, 0, 1], "in turn": [0, 1, 0, 1, 0, 1]}[order]
    check_function(PROGRAMS[kind], [lambda t=t: call(*arguments(kind, t)) for t in turns])


def test_an_argument_that_is_also_a_global_or_an_attribute():
    class Holder:
        pass

    def make():
        holder = Holder()
        holder.d = {"n": 1}

        def f(d, x):
            d["n"] += 1
            return x * holder.d["n"]

        f.holder = holder
        return f

    tested_by_hand = [False, False, True, True, False]
    plain, inner = make(), make()
    tested = compiled(inner)
    for i, is_own in enumerate(tested_by_hand):
        results = []
        for program, f in ((plain, plain), (tested, inner)):
            d = f.holder.d if is_own else {"n": 1}
            results.append((program(d, rnd(i, 3)), d, f.holder.d))
        assert_same(results[1], results[0], f"call {i}")


def test_overlapping_views_as_arguments():
    def f(a, b):
        a.mul_(2)
        return a + b, b.sum()

    def one():
        base = rnd(0, 6)
        return call(base[:4], base[2:])

    def apart():
        return call(rnd(1, 4), rnd(2, 4))

    check_function(f, [apart, apart, one, one, apart, one])


def test_a_view_of_an_argument_mutated_then_the_argument_read():
    def f(x):
        v = x.view(-1)
        w = x[0]
        v[0] = 10
        w.add_(1)
        return x.sum(), v, x

    check_function(f, [call(rnd(i, 2, 3)) for i in range(4)])


def test_results_that_are_one_object_or_views_of_one():
    def f(x):
        y = x * 2
        return y, y, y.view(3, 1), [y, [y]], y.detach()

    check_function(f, [call(rnd(i, 3)) for i in range(4)])


def test_a_result_kept_from_an_earlier_call():
    def make():
        kept = []

        def f(x):
            if not kept:
                kept.append(x * 2)
            return kept[0], kept[0] + x

        return f

    check(make, [call(rnd(i, 3)) for i in range(4)])


def test_fresh_results_on_every_call():
    def f(x):
        return torch.ones(2), [], {"a": []}, x.new_zeros(1), (torch.arange(3), [1])

    agreed = check_function(f, [call(rnd(i, 3)) for i in range(4)])
    firsts = [o.value[0] for o in agreed.outcomes]
    assert len({id(t) for t in firsts}) == 4 and len({t.data_ptr() for t in firsts}) == 4


def test_constants_made_outside_are_not_copied():
    def make():
        table = {"w": torch.ones(3), "l": [1]}

        def f(x):
            table["w"].add_(1)
            return table["w"], table["l"], x * table["w"]

        return f

    check(make, [call(rnd(i, 3)) for i in range(4)])


def test_list_aliasing_inside_a_structure():
    def f(tree, x):
        tree["a"].append(x)
        return len(tree["b"]), tree["a"] is tree["b"]

    def one():
        inner = [1]
        return call({"a": inner, "b": inner}, rnd(0, 3))

    def apart():
        return call({"a": [1], "b": [1]}, rnd(0, 3))

    check_function(f, [apart, apart, one, apart, one, one])


def test_parameters_shared_by_two_modules():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 3)
            self.b = torch.nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x, untie):
            if untie:
                self.b.weight = torch.nn.Parameter(torch.ones(3, 3))
            return self.b(self.a(x)), self.a.weight is self.b.weight

    check(Tied, [call(rnd(i, 2, 3), i == 3) for i in range(6)], grads=True)


def test_identity_of_small_ints_strings_and_none_in_results():
    def f(x, s):
        return s, None, True, 5, "const", s + "b", (s, s)

    check_function(f, [call(rnd(i, 3), s) for i, s in enumerate(["a", "a", "q", "a"])])


def test_an_output_argument_that_aliases_an_input():
    def f(x, out):
        torch.mul(x, 2, out=out)
        return x + out, out is x

    def one():
        x = rnd(0, 3)
        return call(x, x)

    check_function(f, [lambda: call(rnd(1, 3), torch.empty(3)), lambda: call(rnd(1, 3), torch.empty(3)), one, one])


def test_sizes_written_in_place_of_an_argument_that_is_two():
    def f(x, y):
        x.unsqueeze_(0)
        z = y * 2
        return z, y.shape, y.diagonal(), x.t_() if y.dim() == 2 else x

    def apart():
        return call(rnd(1, 4, 4), rnd(2, 4, 4))

    def twice():
        x = rnd(3, 4, 4)
        return call(x, x)

    check_function(f, [apart, apart, twice, twice, apart, twice])
