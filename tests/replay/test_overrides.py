"""Classes of the program that override what containers and numbers do, and call the base's method past that."""

import collections
import typing

import torch
from twins import ONE_ENTRY, call, check, check_function, rnd, vectors


class Shouting(list):
    def __getitem__(self, i):
        return ("item", super().__getitem__(i))

    def __len__(self):
        return super().__len__() + 10

    def __contains__(self, value):
        return "yes" if super().__contains__(value) else ""

    def __iter__(self):
        self.log.append("iter")
        return super().__iter__()

    def __setitem__(self, i, value):
        super().__setitem__(i, (value,))


class Pair(tuple):
    def __new__(cls, *args):
        return super().__new__(cls, args)

    def __getitem__(self, i):
        return super().__getitem__(1 - i) if isinstance(i, int) else super().__getitem__(i)

    def __len__(self):
        return super().__len__() + 10

    def __iter__(self):
        return reversed([*super().__iter__()])

    def __add__(self, other):
        return Pair(*super().__add__(other))


class Table(dict):
    def __getitem__(self, key):
        return ("got", super().__getitem__(key))

    def __len__(self):
        return super().__len__() + 10

    def __iter__(self):
        return super().__iter__()

    def __contains__(self, key):
        return not super().__contains__(key)

    def keys(self):
        return ["b", *super().keys()]

    def __missing__(self, key):
        return key * 2


def test_lists_call_the_method_that_they_override():
    def f(x):
        values = Shouting()
        for value in (1, 2, 4):
            values.append(value)
        values.log = []
        values[0] = 5
        parts = values[1], values[0:2], len(values), 2 in values, 7 in values
        return parts, [*values], [v for v in values], values.log, bool(values), x + 1

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_tuples_call_the_method_that_they_override():
    def f(x):
        pair = Pair(x, 2)
        a, b = pair
        return pair[0], pair[0:2], len(pair), [*pair], a, b, bool(pair), x + 1

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_a_tuple_that_adds_keeps_its_class():
    def f(x):
        longer = Pair(x, 2) + (3,)
        return type(longer).__name__, longer, (1,) + longer, x + 1

    check_function(f, vectors())


def test_dicts_call_the_method_that_they_override():
    def f(x):
        table = Table(a=x)
        return table["a"], table["q"], len(table), "a" in table, [*table], {**table}, dict(table), dict.__len__(table)

    check_function(f, vectors())


def test_ordered_dicts_and_sets_call_the_method_that_they_override():
    class Ordered(collections.OrderedDict):
        def __len__(self):
            return super().__len__() + 10

        def __iter__(self):
            return super().__iter__()

        def __setitem__(self, key, value):
            super().__setitem__(key, (value,))
            self.move_to_end(key, last=False)

    class Mirrored(set):
        def add(self, value):
            super().add(value)
            super().add(-value)

        def __contains__(self, value):
            return super().__contains__(value)

        def __iter__(self):
            raise AssertionError("set() takes the elements themselves")

    def f(x):
        ordered = Ordered()
        ordered["a"] = x
        ordered["b"] = 1
        mirrored = Mirrored([1])
        mirrored.add(3)
        return len(ordered), [*ordered], -3 in mirrored, sorted(set(mirrored)), sorted(frozenset(mirrored))

    check_function(f, vectors())


def test_a_named_tuple_that_adds_is_not_concatenated():
    class Vector(typing.NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

        def __add__(self, other):
            return Vector(self.x + other.x, self.y + other.y)

        def __radd__(self, other):
            return self if other == 0 else other + self

        def __iadd__(self, other):
            return Vector(self.x - other.x, self.y - other.y)

    def f(x):
        a = Vector(x, x + 1)
        b = a + a
        c = a
        c += b
        return b, c, sum([a, b])

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_a_torch_size_that_is_added_or_sliced_stays_a_torch_size():
    def f(x):
        return x.shape + (1,), (1,) + x.shape, x.shape + x.shape, x.shape[:1], x.shape * 2, x.new_zeros(x.shape + (2,))

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_a_number_that_repeats_a_sequence_in_its_own_way():
    class Count(int):
        def __rmul__(self, other):
            return ("repeated", other)

    def f(x):
        return [1] * Count(2), (x,) * 2, [x] * True

    check_function(f, vectors())


def test_comparisons_ask_a_subclass_first_and_each_side_once():
    log = []

    class A:
        __hash__ = None

        def __eq__(self, other):
            log.append("A.eq")
            return NotImplemented

        def __lt__(self, other):
            log.append("A.lt")
            return "A.lt"

    class B(A):
        def __eq__(self, other):
            log.append("B.eq")
            return "B.eq"

        def __gt__(self, other):
            return "B.gt"

    class C:
        def __lt__(self, other):
            log.append("C.lt")
            return NotImplemented

    def f(x):
        log.clear()
        a, b, c = A(), B(), C()
        found = [a == b, b == a, a < b, a == a, a == 1, 1 == a, a != a, [1] == a, (a,) == b]
        try:
            c < c  # noqa: B015
        except TypeError as error:
            found.append(str(error))
        return found, x + 1, list(log)

    check_function(f, vectors())


def test_a_len_that_gives_no_length():
    class Sized:
        def __init__(self, size):
            self.size = size

        def __len__(self):
            return self.size

    def f(x, size):
        return x + 1, len(Sized(size))

    check_function(f, [call(rnd(i, 3), size) for i, size in enumerate([3, -1, True, 2.5, 4, -1, 2])])


def test_a_module_that_takes_the_place_of_another():
    import sys
    import types

    def make():
        names = [f"replay_module_{i}" for i in range(2)]

        def f(x, scale):
            import replay_module

            return x * replay_module.SCALE, names[0]

        def enter(x, scale):
            if scale is not None:
                module = types.ModuleType("replay_module")
                module.SCALE = scale
                sys.modules["replay_module"] = module

        return f, enter

    f, enter = make()

    def g(x, scale):
        enter(x, scale)
        return f(x, scale)

    try:
        check_function(g, [call(rnd(i, 3), scale) for i, scale in enumerate([2, None, None, 5, None, 7])])
    finally:
        sys.modules.pop("replay_module", None)


def test_iterators_are_taken_once_by_calls_that_are_not_recorded():
    def f(x):
        print(*iter([1, 2]))
        print(*zip("ab", [1, 2], strict=False), sep="-")
        print(*(v * 2 for v in [1, 2]), **{"sep": "+"})
        found = "{} {}".format(*iter([1, 2]))
        return x + 1, found, max(*iter([1, 5]))

    check_function(f, vectors())


def test_sorted_takes_an_iterator_once():
    def f(x):
        rest = iter([3, 1, 2])
        next(rest)
        late = sorted(zip([x.sum().item(), 2.0], "ab", strict=False))
        return sorted(zip([2, 1], "ab", strict=False)), sorted(rest), [*rest], sorted(map(str, [2, 1])), late, x * 2

    check_function(f, vectors())


def test_an_iterator_in_python_is_asked_once_for_itself():
    class Count:
        def __init__(self, n, log):
            self.n, self.i, self.log = n, 0, log

        def __iter__(self):
            self.log.append("iter")
            return self

        def __next__(self):
            self.log.append("next")
            if self.i == self.n:
                raise StopIteration
            self.i += 1
            return self.i

    def f(x):
        log = []
        pairs = [*zip(Count(2, log), Count(3, log), strict=False)]
        more = [*enumerate(Count(2, log))], [*map(str, Count(2, log))], [*filter(None, Count(2, log))]
        print(pairs)
        half = zip(Count(2, log), [1, 2], strict=False)
        next(half)
        print(len(log))
        return pairs, more, log, x + 1, [*half], sorted(Count(2, log)), any(Count(2, log))

    check_function(f, vectors())


def test_what_is_known_of_a_container_ends_with_a_change():
    def make():
        numbers, table = [], {}

        def f(x):
            seen = [bool(numbers), bool(table)]
            numbers.insert(0, 1)
            dict.__setitem__(table, "a", x)
            seen += [bool(numbers), bool(table)]
            numbers.pop()
            table.clear()
            seen += [bool(numbers), bool(table)]
            numbers.append(1)
            numbers.clear()
            return seen, bool(numbers), x + 1

        return f

    check(make, vectors())


def test_results_of_special_methods_are_checked():
    class Odd:
        def __init__(self, truth, items):
            self.truth, self.items = truth, items

        def __bool__(self):
            return self.truth

        def __iter__(self):
            return self.items

    def f(x, truth, items):
        odd = Odd(truth, items)
        found = []
        for what in (
            bool,
            list,
            iter,
            lambda odd: [*odd],
            lambda odd: 1 if odd else 2,
            lambda odd: (lambda *a: a)(*odd),
        ):
            try:
                found.append(what(odd))
            except TypeError as error:
                found.append(str(error))
        return x + 1, [part for part in found if not hasattr(part, "__next__")]

    check_function(f, [call(rnd(i, 3), i % 2 == 0 or 5, [1]) for i in range(5)])


def test_a_sequence_that_is_subscripted_by_something_else():
    def f(x, key):
        try:
            return x + 1, (1, 2)[key]
        except TypeError as error:
            return x * 2, str(error)

    check_function(f, [call(rnd(i, 3), key) for i, key in enumerate(["a", 1, 1.5, None, 0])])


def test_classes_that_decide_in_python_who_their_instances_are():
    log = []

    class Meta(type):
        def __instancecheck__(cls, instance):
            log.append("instance")
            return instance == 3

        def __subclasscheck__(cls, subclass):
            log.append("subclass")
            return subclass is int

        def __bool__(cls):
            return False

        def __eq__(cls, other):
            log.append("eq")
            return False

        __hash__ = type.__hash__

    class Three(metaclass=Meta):
        pass

    def f(x, n):
        log.clear()
        found = [isinstance(n, Three), isinstance(n, (str, Three)), issubclass(int, Three), isinstance(Three(), Three)]
        return found, bool(Three), 1 if Three else 2, Three == Three, x + 1, list(log)  # noqa: PLR0124

    check_function(f, [call(rnd(i, 3), n) for i, n in enumerate([3, 4, 3, 3, 4])])


def test_a_class_that_an_object_names_itself():
    class Proxy:
        __class__ = property(lambda self: int)

    def f(x):
        return x + 1, Proxy().__class__, isinstance(Proxy(), int), type(Proxy()).__name__

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_an_import_of_a_name_that_is_not_there():
    def f(x):
        try:
            from os import no_such_name
        except ImportError as error:
            no_such_name = error.name, str(error)[:40], type(error).__name__
        return no_such_name, x + 1

    check_function(f, vectors())


def test_containers_that_are_known_by_identity_are_read():
    import functools

    def make():
        seen, tags = [], {"start"}

        def note(store, names, x, tag):
            store.append(tag)
            names.add(len(store))
            return x + len(store), len(names), tag in names, [len(store)] == [1], bool(store)

        first = functools.partial(note, seen, tags, tag="a")
        second = functools.partial(first, tag="b")

        def f(x):
            y, *more = first(x)
            return second(y), more, len(seen)

        return f

    check(make, vectors())


def test_a_compiled_module_is_of_its_class_inside():
    def make():
        class Counted(torch.nn.Module):
            count = 0

            def forward(self, x):
                type(self).count += 1
                self.__class__.last = x.ndim
                return x * Counted.count, type(self) is Counted, self.__class__ is Counted, Counted.last

        return Counted()

    agree = check(make, vectors())
    assert type(agree.inner).count == 4


def test_attributes_of_super_itself():
    class A:
        def go(self):
            return "A"

    class B(A):
        def go(self):
            above = super()
            return above.go(), above.__thisclass__ is B, above.__self__ is self, above.__self_class__ is B

    def f(x):
        return B().go(), x + 1

    check_function(f, vectors())


def test_list_classes_made_from_an_iterable():
    class Plain(list):
        pass

    class Tagged(list):
        def __init__(self, *values):
            super().__init__(*values)
            self.tag = "t"

    def f(x):
        plain = Plain([x, 1])
        tagged = Tagged(v * 2 for v in plain)
        return plain, tagged, tagged.tag, Tagged(), type(plain).__name__, len(tagged), Plain("ab")

    check_function(f, vectors(), promise=ONE_ENTRY)


def test_operators_ask_each_side_once():
    log = []

    class A:
        def __add__(self, other):
            log.append("add")
            return NotImplemented

        def __radd__(self, other):
            log.append("radd")
            return NotImplemented

        def __iadd__(self, other):
            log.append("iadd")
            return NotImplemented

        def __or__(self, other):
            log.append("or")
            print("or")
            return NotImplemented

    class B:
        def __ror__(self, other):
            log.append("ror")
            return "B"

    def f(x):
        log.clear()
        found = []
        for left, right in ((A(), 5), (5, A()), (A(), [1]), ([1], A()), (A(), A()), ("a", A())):
            try:
                found.append(left + right)
            except TypeError as error:
                found.append(str(error))
        try:
            a = A()
            a += 1
        except TypeError as error:
            found.append(str(error))
        return found, A() | B(), x + 1, list(log)

    check_function(f, vectors())


def test_a_metaclass_initialises_the_classes_that_it_makes():
    log = []

    class Meta(type):
        def __new__(cls, name, bases, namespace, **options):
            log.append("new")
            return super().__new__(cls, name, bases, namespace)

        def __init__(self, name, bases, namespace, tag=None):
            log.append(("init", tag))
            super().__init__(name, bases, namespace)
            self.tag = tag

    def f(x):
        log.clear()
        made = Meta("Made", (), {"value": 3}, tag="t")
        return made.tag, made().value, list(log), x + 1

    check_function(f, vectors())


class Counted:
    """Every question is counted."""

    def __init__(self, log):
        self.log = log
        self.asked = 0

    def __iter__(self):
        self.log.append("iter")
        return iter([1.0, 2.0])

    def __len__(self):
        self.log.append("len")
        return 2

    def __index__(self):
        self.asked += 1
        return self.asked % 2


class Hinted:
    def __init__(self, log):
        self.log = log

    def __iter__(self):
        self.log.append("iter")
        return iter([1.0, 2.0])

    def __length_hint__(self):
        self.log.append("hint")
        return 2


class Endless(Counted):
    def __len__(self):
        self.log.append("len")
        raise TypeError("no length")


def test_containers_are_asked_for_their_length_where_lists_are_made():
    def f(x, which):
        log = []
        box = which(log)
        first, second = box
        made = list(box), tuple(box), [*box], sorted(box), sum(box), (lambda *a: a)(*box)
        grown = [0]
        grown.extend(box)
        grown += box
        log.append(",".join(str(v) for v in box))
        return x * first + second, made, grown, log, max(box), list(zip(box, box))

    check_function(f, [call(rnd(i, 3), which) for which in (Counted, Hinted, Endless) for i in range(3)])


def test_what_python_writes_inside_of_an_index_is_seen():
    def f(x, box, numbers):
        y = x * 2
        y[box] = 5
        return box.asked, [3, 4][box], box.asked, y.view(-1)[box:], box.asked, numbers[box], y[box], box.asked

    check_function(f, [call(rnd(i, 3), Counted([]), [7, 8]) for i in range(4)])
