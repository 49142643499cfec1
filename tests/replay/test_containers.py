"""Lists, dicts, sets, strings and the iterators over them: made, read, changed, passed in and handed out."""

import bisect
import collections
import collections.abc
import copy
import heapq
import inspect
import itertools
import string

import torch
from twins import ONE_ENTRY, call, check, check_function, rnd, vectors


def test_dicts_lists_enumerate_zip_and_unpacking():
    def f(x, d, items):
        out = []
        for _, v in d.items():
            out.append(v * x)
        for i, (a, b) in enumerate(zip(items, out)):
            out[i] = a + b
        e = {"s": sum(out), "n": len(out), **{k: v for k, v in d.items()}}
        e["t"] = torch.stack(out)
        a, *b = out
        d["new"] = x + 1
        items.append(x)
        return e, (a, b), [o for o in out if o is not None]

    calls = [call(rnd(i, 3), {"a": rnd(i + 5, 3), "b": rnd(i + 6, 3)}, [rnd(7, 3), rnd(8, 3)]) for i in range(4)]
    check_function(f, calls, promise=ONE_ENTRY)


def test_dict_methods():
    def f(x, d):
        got = d.get("a"), d.get("zz", 5), d.setdefault("b", 3), d.setdefault("c", 4)
        popped = d.pop("a"), d.pop("zz", None)
        d.update({"e": 1}, f=2)
        d |= {"g": 3}
        merged = {"x": x} | d
        last = d.popitem()
        copied = d.copy()
        d.clear()
        return (
            x * got[1],
            got,
            popped,
            merged,
            last,
            copied,
            list(copied),
            list(copied.values()),
            dict.fromkeys("ab", 0),
        )

    check_function(f, [call(rnd(i, 3), {"a": i, "b": 2}) for i in range(4)])


def test_dict_views_reflect_changes_and_compare():
    def f(x):
        d = {"a": 1, "b": 2}
        keys, values, items = d.keys(), d.values(), d.items()
        d["c"] = 3
        both = keys & {"a", "c"}
        return x * sum(values), sorted(keys), sorted(both), ("c", 3) in items, len(items), list(reversed(d))

    check_function(f, vectors(4))


def test_dict_order_is_kept_and_matters():
    def f(x, d):
        for k in d:
            x = x * d[k] + len(k)
        return x, list(d)

    check_function(
        f,
        [
            call(rnd(i, 3), d)
            for i, d in enumerate(
                [{"a": 2, "bb": 3}, {"a": 2, "bb": 3}, {"bb": 3, "a": 2}, {"a": 2, "bb": 3}, {"a": 2}]
            )
        ],
    )


def test_missing_keys_raise_and_are_caught():
    def f(x, d, k):
        try:
            return x * d[k]
        except KeyError as e:
            return x, e.args

    check_function(f, [call(rnd(i, 3), {"p": 2}, k) for i, k in enumerate("ppqpq")])


def test_list_methods_and_slices():
    def f(x):
        items = [3, 1, 2]
        items.append(5)
        items.extend((7, 8))
        items.insert(1, 9)
        items.remove(9)
        popped = items.pop(), items.pop(0)
        items.sort(reverse=True)
        sliced = items[1:], items[::-1], items[-2:]
        items[1:2] = [10, 11]
        del items[0]
        items += [4]
        items *= 2
        return x * items[0], items, popped, sliced, items.index(4), items.count(4), items.copy() == items

    check_function(f, vectors(4))


def test_lists_of_tensors_are_reordered_and_shared():
    def f(xs):
        ys = xs[::-1]
        ys.append(ys[0])
        xs.reverse()
        xs[0], xs[1] = xs[1], xs[0]
        return ys, xs, ys[0] is ys[-1], [*xs, *ys]

    check_function(f, [call([rnd(i, 3), rnd(i + 1, 3), rnd(i + 2, 3)]) for i in range(4)], promise=ONE_ENTRY)


def test_a_list_that_only_grows_does_not_record_again():
    def make():
        history = []

        def f(x):
            y = x * 2
            history.append(y)
            return y

        f.history = history
        return f

    check(make, vectors(6), post=lambda f: f.history, promise=ONE_ENTRY)


def test_a_list_that_is_read_as_it_grows():
    def make():
        history = []

        def f(x):
            history.append(x)
            return sum(history), len(history), history[-1]

        return f

    check(make, vectors(5))


def test_sets_and_frozensets():
    def f(x, names):
        a, b = set(names), {"b", "c"}
        a.add("z")
        a.discard("nothing")
        b |= {"d"}
        frozen = frozenset(a & b)
        table = {frozen: 3.0}
        return x * table[frozenset({"b"})], sorted(a | b), sorted(a - b), sorted(a ^ b), a >= frozen, "z" in a, len(b)

    check_function(f, [call(rnd(i, 3), ["a", "b"]) for i in range(4)])


def test_comprehensions_of_every_kind():
    def f(x, n):
        squares = [i * i for i in range(n) if i % 2]
        table = {str(i): x * i for i in range(n)}
        unique = {i % 3 for i in range(n)}
        nested = [[i + j for j in range(i)] for i in range(n)]
        lazy = sum(i * 2 for i in range(n))
        shadow = [x for x in (x, x + 1)]
        return squares, table, sorted(unique), nested, lazy, shadow, x, [(a := i) for i in range(2)], a

    check_function(f, [call(rnd(i, 3), 4) for i in range(4)], promise=ONE_ENTRY)


def test_starred_unpacking_and_swaps():
    def f(x):
        a, (b, *c), *d = 1, (2, 3, 4), 5, 6
        a, b = b, a
        first, *_, last = [x, x + 1, x + 2, x + 3]
        x1 = x2 = x * 2
        head = [*range(3), *"ab", *c]
        return a, b, c, d, first, last, x1 is x2, head, {**{"p": 1}, "q": 2, **{"p": 3}}

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_unpacking_errors_are_pythons_own():
    def f(x, items):
        a, b = items
        return x * a + b

    check_function(f, [call(rnd(i, 3), it) for i, it in enumerate([(1, 2), [1, 2], (1, 2, 3), (1,), "ab", 5, (1, 2)])])


def test_collections_types():
    def make():
        counter = collections.Counter()

        def f(x, word):
            counter.update(word)
            ordered = collections.OrderedDict(a=1, b=2, c=3)
            ordered.move_to_end("a")
            ordered["d"] = x
            popped = ordered.popitem(last=False)
            default = collections.defaultdict(list)
            default["k"].append(x)
            default["k"].append(x * 2)
            chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
            return ordered, popped, dict(default), chain["a"] + chain["b"], counter.most_common(1), counter["l"]

        f.counter = counter
        return f

    check(make, [call(rnd(i, 3), "hello") for i in range(4)], post=lambda f: dict(f.counter))


def test_deque_rotates_and_drops():
    def make():
        window = collections.deque(maxlen=3)

        def f(x):
            window.append(x)
            window.rotate(1)
            return sum(window) / len(window), len(window)

        f.window = window
        return f

    check(make, vectors(6), post=lambda f: f.window)


def test_ordered_dict_arguments_keep_their_links():
    def f(d, x):
        d["new"] = x
        d.move_to_end("new", last=False)
        return list(d), d.popitem()

    check_function(f, [call(collections.OrderedDict(a=rnd(i, 3), b=1), rnd(i, 3)) for i in range(4)])


def test_itertools():
    def f(x, xs):
        chained = list(itertools.chain(xs, [x], *[[1], [2]]))
        product = [a * b for a, b in itertools.product([1, 2], [x, x + 1])]
        sums = list(itertools.accumulate([1, 2, 3]))
        running = list(itertools.accumulate(xs, lambda a, b: a + b))
        cut = list(itertools.islice(itertools.count(2), 1, 6, 2))
        groups = [(k, len(list(g))) for k, g in itertools.groupby("aabbb")]
        paired = list(itertools.zip_longest([1, 2, 3], [x], fillvalue=0))
        return (
            chained,
            product,
            sums,
            running,
            cut,
            groups,
            paired,
            list(itertools.repeat(x, 2)),
            list(itertools.pairwise([1, 2, 3])),
        )

    check_function(f, [call(rnd(i, 3), [rnd(i, 3), rnd(i + 1, 3)]) for i in range(4)])


def test_more_itertools():
    def f(x):
        evens, odds = itertools.tee(range(6))
        even = [e for e in evens if e % 2 == 0]
        return (
            x * sum(even),
            list(odds),
            list(itertools.takewhile(lambda v: v < 3, range(9))),
            list(itertools.dropwhile(lambda v: v < 3, range(5))),
            list(itertools.starmap(torch.add, [(x, 1), (x, x)])),
            list(itertools.combinations("abc", 2)),
            list(itertools.compress("abc", [1, 0, 1])),
        )

    check_function(f, vectors(4))


def test_heapq_and_bisect():
    import bisect

    def f(x, items):
        heap = list(items)
        heapq.heapify(heap)
        heapq.heappush(heap, 0)
        smallest = heapq.heappop(heap), heapq.nsmallest(2, heap)
        where = bisect.bisect(sorted(items), 4)
        return x * smallest[1][0] + where, smallest, heap

    check_function(f, [call(rnd(i, 3), [5, 3, 8]) for i in range(4)])


def test_iterators_that_outlive_one_loop():
    def f(x):
        it = iter([1, 2, 3, 4])
        first = next(it)
        for v in it:
            if v == 3:
                break
        rest = list(it)
        sentinel = iter([x].pop, None)
        done = next(iter([]), "empty")
        return x * first + v, rest, done, next(sentinel) is x

    check_function(f, vectors(4))


def test_an_iterator_argument_is_consumed():
    def f(x, it):
        return x * next(it) + sum(it), next(it, None)

    check_function(f, [lambda i=i: call(rnd(i, 3), iter([1, 2, 3])) for i in range(4)])


def test_any_all_sum_min_max_over_mixed_things():
    def f(x, xs):
        return (
            any(v is None for v in xs),
            all(isinstance(v, torch.Tensor) for v in xs),
            sum(xs),
            sum([[1], [2]], []),
            max(1, 2, 3),
            min("abc"),
            sum(len(v) for v in xs),
            max((v.shape[0] for v in xs), default=0),
        )

    check_function(f, [call(rnd(i, 3), [rnd(i, 3), rnd(i + 1, 3)]) for i in range(4)], promise=ONE_ENTRY)


def test_strings_and_formatting():
    def f(x, name, n):
        a = f"{name}:{n:03d}|{n / 3:.2f}|{name!r:>8}|{x.shape}"
        b = "%s-%d" % (name, n) + "{0}/{k}".format(n, k=name)
        c = name.upper().replace("A", "b").split("b"), "x".join(["p", "q"]), name.startswith("a"), name[::-1]
        d = (
            string.Template("$n").substitute(n=n),
            name.encode(),
            bytes([1, 2]).hex(),
            "é".encode("utf-8"),
            name in "xab",
        )
        return x * len(a), a, b, c, d, int("12") + float("1.5"), str(n), repr(name), ord("a"), chr(98)

    check_function(
        f, [call(rnd(i, 3), name, n) for i, (name, n) in enumerate([("ab", 7), ("ab", 7), ("ab", 8), ("abc", 7)])]
    )


def test_formatting_tensor_values():
    def f(x):
        return f"{x.sum().item():.3f} {x.shape[0]} {x}", str(x), repr(x.dtype), "%s" % x

    check_function(f, vectors(5))


def test_tuples_ranges_and_slices_as_values():
    def f(x, t):
        r = range(2, 10, 3)
        s = slice(0, 2)
        return (
            x[s],
            t + (1,),
            t * 2,
            t[1:],
            list(r),
            5 in r,
            r[1],
            len(r),
            t.index(2),
            t < (9,),
            hash(t),
            s.indices(3),
            x[..., None][:, 0],
        )

    check_function(f, [call(rnd(i, 3), (1, 2)) for i in range(4)], promise=ONE_ENTRY)


def test_nested_containers_come_back_whole():
    def f(tree, x):
        def walk(t):
            if isinstance(t, dict):
                return {k: walk(v) for k, v in t.items()}
            if isinstance(t, (list, tuple)):
                return type(t)(walk(v) for v in t)
            return t * 2 if isinstance(t, torch.Tensor) else t

        return walk(tree), tree

    tree = {"a": [rnd(0, 2), (rnd(1, 2), {"b": 3})], "c": None, "d": ()}
    check_function(f, [call(tree, rnd(i, 3)) for i in range(4)])


def test_pytree_maps_over_structures():
    from torch.utils import _pytree as pytree

    def f(tree):
        return pytree.tree_map(lambda v: v * 2 if isinstance(v, torch.Tensor) else v, tree)

    check_function(f, [call({"a": [rnd(i, 2), 1], "b": (rnd(i + 1, 2),)}) for i in range(4)])


def test_the_same_container_twice_stays_one_object():
    def f(x):
        inner = [x]
        outer = {"a": inner, "b": inner, "c": (inner, inner)}
        inner.append(1)
        cycle = []
        cycle.append(cycle)
        return outer, outer["a"] is outer["c"][1], len(cycle), cycle[0] is cycle

    check_function(f, vectors(4))


def test_tensors_as_dict_keys_and_in_sets():
    def f(x, y):
        d = {x: "x", y: "y"}
        seen = {x, y, x}
        return d[x], x in d, len(seen), [k for k in d][0] is x

    check_function(f, [call(rnd(i, 3), rnd(i + 1, 3)) for i in range(4)])


def test_mutation_while_iterating_raises_as_in_eager():
    def f(x):
        d = {"a": 1}
        for k in d:
            d[k + "b"] = 2
        return x

    check_function(f, vectors(3))


def test_containers_that_are_changed_only_on_some_calls():
    def make():
        cache = {}

        def f(x, key):
            if key not in cache:
                cache[key] = x * 10
            return cache[key] + x

        f.cache = cache
        return f

    check(make, [call(rnd(i, 3), k) for i, k in enumerate("aaabbacba")], post=lambda f: f.cache)


def test_large_dicts_and_lists():
    def f(d, items):
        total = 0
        for k, v in d.items():
            total = total + v * len(k)
        return total, [i * 2 for i in items][-1], dict(list(d.items())[:2])

    calls = [call({f"k{j}": rnd(i + j, 1) for j in range(100)}, list(range(100))) for i in range(3)]
    check_function(f, calls, promise=ONE_ENTRY)


def test_a_set_of_the_module_s_tensors_is_asked_at_entry():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.a, self.b, self.c = (torch.nn.Parameter(torch.randn(3)) for _ in range(3))
            self.twin = self.a

        def forward(self, x, tie):
            seen, names = set(), []
            for name in ("a", "b", "twin", "c"):
                p = getattr(self, name)
                if p in seen:
                    continue
                seen.add(p)
                names.append(name)
                x = x * p
            x = x + len(set(self.parameters())) + len({*(p for p in self.parameters())})
            return x, names, len(seen), self.b in seen

    tied = Tied()
    calls = [call(rnd(i, 3), False) for i in range(4)]
    check(lambda: copy.deepcopy(tied), calls, promise=ONE_ENTRY)


def test_tensors_that_become_one_object_are_noticed():
    def make():
        torch.manual_seed(3)
        model = torch.nn.Module()
        model.a, model.b = torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(3))

        def f(x, step):
            if step == 3:
                model.b = model.a
            for p in model.parameters():
                x = x * p
            return x

        return f

    check(make, [call(rnd(i, 3), i) for i in range(6)])


def test_a_set_of_tensors_of_the_trace():
    def f(x):
        y = x * 2
        s = {x, y} if False else set()
        s.add(x)
        s.add(y)
        s.add(x)
        return y + len(s), x in s, (x + 1) in s

    check_function(f, vectors())


def test_dict_methods_pass_by_the_operators_of_a_subclass():
    class Locked(dict):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

        def __setitem__(self, key, value):
            raise TypeError("locked")

        def __delitem__(self, key):
            raise TypeError("locked")

    class Ordered(collections.OrderedDict):
        def __delitem__(self, key):
            raise TypeError("locked")

    def f(x):
        d = Locked({"a": x}, b=x + 1)
        d.update(c=x * 2)
        popped = d.pop("a")
        d.setdefault("e", x - 1)
        super(Locked, d).__setitem__("f", x)
        super(Locked, d).__delitem__("b")
        o = Ordered(a=x, b=x + 1)
        super(Ordered, o).__delitem__("a")
        return dict(d), popped, dict(o)

    check_function(f, vectors(4))


def test_named_fields_star_arguments_and_repeats_are_one_entry():
    Pair = collections.namedtuple("Pair", "first second")

    def f(x):
        def total(*values):
            return sum(values)

        pair = Pair(x, x + 1)
        sizes = list(reversed(x.shape))
        repeated = tuple(itertools.repeat(x, 3))
        keys = {x.shape[0]: 1}.keys()
        return pair.first + pair.second, total(*x.shape), total(*(y for y in (x, x * 2))), total(*keys), sizes, repeated

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_sets_are_combined_and_compared():
    def f(x, d):
        names = {k for k in d}
        both, only, either = names & {"x", "q"}, names - {"x"}, names ^ {"x", "z"}
        flags = [names >= both, d.keys() == {"x", "q"}, names == {"x", "q"}, both < names]
        count = len(both) + 10 * len(only) + 100 * len(d.keys() - {"x"}) + 1000 * len(d.keys() & names)
        for name in sorted(either):
            count += len(name)
        return x + count, flags, both | frozenset("r"), len(frozenset(names) | {"r"}), sorted(only)

    check_function(f, [call(rnd(i, 3), {"x": 1, "q": i}) for i in range(4)], promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), {"x": 1, "q": 2} if i % 2 else {"x": i, "w": 3, "q": 1}) for i in range(6)])


def test_signatures_are_asked_for_their_parameters():
    def target(x, mask=None, *, scale=1.0):
        return x * scale

    def f(x, **options):
        parameters = inspect.signature(target).parameters
        names = set(parameters.keys())
        options = {k: v for k, v in options.items() if k in names}
        defaults = [p.name for p in parameters.values() if p.default is not inspect.Parameter.empty]
        kinds = {k: p.kind.name for k, p in parameters.items()}
        facts = len(parameters), "mask" in parameters, parameters["scale"].default, parameters.get("no") is None
        return target(x, **options), defaults, kinds, facts

    check_function(f, [call(rnd(i, 3), scale=2.0, other=1) for i in range(4)], promise=ONE_ENTRY)


def test_a_dict_whose_values_were_replaced_still_has_its_keys():
    def make():
        table = {"a": torch.ones(3), "b": torch.zeros(3)}

        def f(x, more):
            old = table["a"]
            table["a"] = x
            table["b"] = table["b"] + 1
            if more:
                table[f"c{len(table)}"] = x
            names = list(table.keys())
            total = sum(table.values())
            table["a"] = old
            return total, names, len(table), sorted(table)

        f.table = table
        return f

    check(make, [call(rnd(i, 3), False) for i in range(4)], promise=ONE_ENTRY, post=lambda f: f.table)
    check(make, [call(rnd(i, 3), i in (2, 4)) for i in range(6)], post=lambda f: f.table)


def test_a_dict_with_tensors_as_keys_shows_its_values():
    def f(x, y):
        names = {}
        for name, tensor in (("x", x), ("y", y), ("again", x)):
            names.setdefault(tensor, []).append(name) if tensor in names else names.update({tensor: [name]})
        return x + y, [len(group) for group in names.values()]

    check_function(f, [call(rnd(i, 3), rnd(i + 9, 3)) for i in range(4)])


class Named(collections.OrderedDict):
    pass


def test_an_ordered_dict_is_read_in_its_own_order():
    def make():
        moved = Named(a=1.0, b=2.0, c=3.0)
        moved.move_to_end("a")
        return lambda x, d: (x * sum(moved.values()), list(moved), list(d.items()), [k for k in d], len(d))

    def given(i, is_moved):
        d = Named(p=i, q=2)
        if is_moved:
            d.move_to_end("p")
        return call(rnd(i, 3), d)

    check(make, [given(i, False) for i in range(4)], promise=ONE_ENTRY)
    check(make, [given(i, i > 2) for i in range(6)])


def test_dict_fromkeys_and_starred_unpacking_of_sizes():
    def f(x):
        batch, *rest = x[None].shape
        first, *middle, last = x[None, None].size()
        return dict.fromkeys(("u", "v", "u"), x), dict.fromkeys([1, True, 2]), batch, rest, first, middle, last

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_filter_asks_its_function_about_each_element():
    def f(x, *shapes):
        kept = [s for s in filter(lambda s: s is not None, shapes)]
        return x + len(kept), kept, list(filter(None, [0, 1, "", "a"]))

    check_function(f, [call(rnd(i, 3), (1,), None, (2, 3)) for i in range(4)], promise=ONE_ENTRY)


def test_a_filter_that_an_exit_finds_half_used_goes_on():
    def f(x):
        odd = filter(lambda n: n % 2, range(8))
        first = next(odd)
        print(first)
        return x + first + sum(odd)

    check_function(f, vectors(5))


def test_a_filter_on_data_follows_the_data():
    def f(x):
        return [t * 2 for t in filter(lambda t: bool(t > 0), x)]

    check_function(f, vectors(6))


def test_a_chain_of_iterators_takes_from_one_after_the_other():
    def f(x):
        numbers = iter({"a": 1, "b": 2, "c": 3}.values())
        first = next(numbers)
        return [x * n for n in itertools.chain((first,), numbers, (n for n in (7, 8)))]

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_a_chain_that_an_exit_finds_half_used_goes_on():
    def f(x):
        numbers = itertools.chain((1, 2), iter([3, 4]))
        total = next(numbers) + next(numbers) + next(numbers)
        print(total)
        return x * (total + next(numbers)), list(numbers)

    check_function(f, vectors(5))


def test_a_dict_is_made_of_pairs_that_are_any_iterables():
    class Pair:
        def __init__(self, *parts):
            self.parts = parts

        def __iter__(self):
            return iter(self.parts)

    def f(x, *more):
        return dict([Pair("a", x), ["b", x + 1], *more])

    good = [call(rnd(i, 3), Pair("c", 2)) for i in range(3)]
    bad = [call(rnd(0, 3), Pair("c")), call(rnd(0, 3), 7), call(rnd(0, 3), ("a", 1, 2))]
    check_function(f, good + bad)


def test_a_set_made_of_one_that_existed_holds_what_that_holds_now():
    def make():
        names = {"a", "b"}

        def f(x, name):
            seen = set()
            seen.update(names)
            result = x + ("c" in seen)
            names.add(name)
            return result

        return f

    check(make, [call(rnd(i, 3), n) for i, n in enumerate(["a", "a", "b", "c", "c"])])


def test_slices_of_lists_are_replaced_and_deleted():
    def f(x, n):
        sizes = [-1] * 5
        kept = list(sizes)
        sizes[1:3] = x.shape
        sizes[n:] = []
        del kept[:2]
        kept[1:1] = [x, 7]
        return x.expand(2, *x.shape), sizes, kept

    check_function(f, [call(rnd(i, 3, 4), 4) for i in range(4)], promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3, 4), n) for i, n in enumerate([4, 2, -1, 4, 9, 2])])


def test_a_slice_of_a_list_that_existed_is_replaced():
    def make():
        kept = [1, 2, 3, 4]

        def f(x):
            kept[1:3] = [x.sum().item(), 5]
            print(len(kept))
            del kept[3:]
            kept.append(7)
            return x + kept[2], list(kept)

        return f

    check(make, vectors(5), post=lambda f: f.__closure__[0].cell_contents)


def test_places_are_found_by_bisection():
    def f(x, k):
        borders = [0.5, 1.5, 2.5]
        return x[bisect.bisect(borders, k) :], bisect.bisect_left(x.sort().values.tolist(), x[0])

    check_function(f, [call(rnd(i, 6), k) for i, k in enumerate([1.0, 1.0, 2.0, 0.1, 1.5, 1.0])])


def test_a_loop_over_a_list_goes_on_behind_code_that_may_have_written_it():
    class Unchecked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.scale, None

    def make():
        scales = [1.0, 2.0, 3.0]

        def f(x):
            for i, (scale, shift) in enumerate(zip(scales, (1, 2, 3))):
                x = Unchecked.apply(x, scale) + i * shift
            return x

        return f

    check(make, vectors(5), promise={"exits": 0, "opaque_calls": 0})


def test_containers_that_contain_themselves():
    def f(x):
        numbers = [1]
        numbers.append(numbers)
        table = {}
        table["table"] = table
        return x + 1, repr(numbers), numbers[1][1][0], numbers, repr(table), table["table"] is table

    check_function(f, vectors())


def test_an_iterator_that_has_ended_stays_so():
    def f(x):
        numbers = [1, 2]
        rest = iter(numbers)
        numbers.append(3)
        first = [*rest]
        numbers.append(4)
        return first, [*rest], next(rest, "end"), x + 1

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_sum_refuses_texts_and_adds_floats_in_its_own_way():
    def f(x, values):
        try:
            text = sum(["a", "b"], "")
        except TypeError as error:
            text = str(error)
        return text, sum(values), sum([0.1] * 10), sum(values, 0.5), sum([x, 1.0, 2.0]), sum([x.sum().item(), 0.1, 0.2])

    check_function(f, [call(rnd(i, 3), [0.1 * (i + 1)] * 7) for i in range(4)])


def test_sorts_by_keys():
    def f(x, names):
        pairs = [(2, x), (1, x + 1)]
        pairs.sort(key=lambda pair: pair[0])
        mixed = sorted(names, key=len, reverse=True), sorted("bca"), sorted([3, 1, 2], key=lambda v: -v)
        numbers = [3, 1, 2]
        numbers.sort(reverse=True)
        by_value = sorted({"b": 1, "a": 2}.items(), key=lambda item: item[1])
        stable = sorted([(1, "a"), (0, "b"), (1, "c")], key=lambda pair: pair[0], reverse=True)
        return pairs, mixed, numbers, by_value, stable, x.relu()

    check_function(f, [call(rnd(i, 3), ["a", "ccc", "bb"]) for i in range(4)], promise=ONE_ENTRY)
    check_function(f, [call(rnd(i, 3), ["a" * (i % 3), "ccc", "bb"]) for i in range(4)])


def test_sorts_by_keys_that_are_known_late_or_fail():
    def make():
        calls, kept = [], [3, 1, 2]

        def by_sum(t):
            calls.append(1)
            return t.sum().item()

        def f(x, bad):
            kept.sort(key=lambda v: -v if len(calls) % 2 else v)
            ordered = sorted([x, x * 2, -x], key=by_sum)
            inner = [x, -x]
            inner.sort(key=by_sum)
            try:
                sorted([1, bad])
            except TypeError as error:
                return str(error), ordered, inner, len(calls), [*kept]
            return ordered, inner, len(calls), [*kept]

        return f

    check(make, [call(rnd(i, 3), bad) for i, bad in enumerate([0, "a", 2, "b", 3])])


class Pair:
    def __init__(self, key):
        self.key = key

    def __eq__(self, other):
        return self.key == other.key if isinstance(other, Pair) else NotImplemented


def test_objects_that_define_equality_are_compared_one_by_one():
    def f(x, key):
        left, right = [Pair(1), Pair(key)], [Pair(1), Pair(2)]
        found = left == right, left != right, (Pair(key),) == (Pair(2),), Pair(key) != Pair(2), Pair(key) != 2
        return x * sum(found), found, [Pair(1)] == [Pair(1), Pair(2)], [left] == [left]

    check_function(f, [call(rnd(i, 3), key) for i, key in enumerate([2, 2, 3, 2, 3])])


def test_an_iterator_is_exhausted():
    def f(x):
        seen = []
        collections.deque(map(seen.append, (x, x * 2)), maxlen=0)
        return seen

    check_function(f, vectors(4), promise=ONE_ENTRY)


def test_classes_subscripted_by_lists():
    def f(x):
        def inner(g: collections.abc.Callable[[int, str], bool] | None = None) -> list[int]:
            return x * 2

        return inner(), inner.__annotations__

    check_function(f, vectors(4), promise=ONE_ENTRY)


class Loud:
    """What it is compared with goes into a log; `act` may do anything, such as what nothing records."""

    def __init__(self, key, log, act=None):
        self.key, self.log, self.act = key, log, act

    def __eq__(self, other):
        self.log.append((self.key, other.key))
        if self.act is not None:
            self.act()
        return self.key == other.key


def test_each_element_is_compared_once_where_the_recording_ends_on_the_way():
    def f(x):
        log = []
        left = [Loud(i, log, (lambda: print("two", end="")) if i == 2 else None) for i in range(4)]
        right = [Loud(i, log) for i in range(4)]
        return x * 2, left == right, log

    check_function(f, vectors(4))


def test_a_list_that_shrinks_while_it_is_compared():
    def f(x, last):
        log, left = [], []
        left += [Loud(i, log, left.pop if i == 1 else None) for i in range(4)]
        right = [Loud(i, log) for i in range(last)]
        return x * 2, left == right, log, len(left)

    check_function(f, [call(rnd(i, 3), last) for i, last in enumerate([4, 4, 3, 4])])


def test_a_key_that_was_taken_out_comes_back_where_it_is_put():
    table = {"a": 0, "c": 3}

    def f(x):
        table["a"]
        del table["a"]
        y = x * 2 + 1
        table["a"] = y
        table["b"] = y
        table["a"] = 2
        names = list(table)
        del table["b"]
        return y.relu(), names

    check_function(f, vectors(5))
