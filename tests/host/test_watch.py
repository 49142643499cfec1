"""Stamps and watchers notice every change of dicts and types."""

import unittest

from tests.host.build import load

frame_tests = load()


class Plain:
    def __init__(self, x=1):
        self.x = x


def set_attribute(o, value):
    o.x = value


def set_item(d, value):
    d["x"] = value


DICT_CHANGES = {
    "set an item": lambda d: set_item(d, object()),
    "add an item": lambda d: d.update(y=1),
    "delete an item": lambda d: d.pop("x"),
    "clear": lambda d: d.clear(),
    "setdefault": lambda d: d.setdefault("z", 1),
    "popitem": lambda d: d.popitem(),
    "merge": lambda d: d.__ior__({"x": object()}),
}


@unittest.skipUnless(frame_tests.has_tags(), "dicts have no version tags")
class Tags(unittest.TestCase):
    def test_changes_of_a_dict(self):
        for name, change in DICT_CHANGES.items():
            with self.subTest(change=name):
                d = {"x": 1}
                stamp = frame_tests.make_stamp(d)
                d.get("x"), len(d), list(d)
                self.assertTrue(frame_tests.check_stamp(stamp))
                change(d)
                self.assertFalse(frame_tests.check_stamp(stamp))

    def test_attribute_stores_of_specialised_code(self):
        for _ in range(100):
            set_attribute(Plain(), 2)
            o = Plain()
            o.__dict__
            set_attribute(o, 2)
            set_item({"x": 1}, 2)
        o = Plain()
        stamp = frame_tests.make_stamp(o.__dict__)
        set_attribute(o, object())
        self.assertFalse(frame_tests.check_stamp(stamp))

    def test_another_dict_at_the_same_address(self):
        d = {"x": 1}
        stamp = frame_tests.make_stamp(d)
        for _ in range(10):
            d = None
            d = {"x": 1}
            if frame_tests.make_stamp(d) is not stamp:
                continue
        self.assertFalse(frame_tests.check_stamp(stamp))


class TypeStamps(unittest.TestCase):
    def test_changes_of_a_type_and_its_bases(self):
        class Base:
            pass

        class Derived(Base):
            pass

        changes = {
            "set": lambda: setattr(Derived, "a", 1),
            "set in the base": lambda: setattr(Base, "b", 1),
            "delete": lambda: delattr(Derived, "a"),
            "other bases": lambda: setattr(Derived, "__bases__", (Plain,)),
        }
        for name, change in changes.items():
            with self.subTest(change=name):
                stamp = frame_tests.make_stamp(Derived)
                Derived.__name__, Derived()
                self.assertTrue(frame_tests.check_stamp(stamp))
                change()
                self.assertFalse(frame_tests.check_stamp(stamp))
                Derived.__name__, hasattr(Derived, "a")  # a version is assigned again, another one
                frame_tests.make_stamp(Derived)
                self.assertFalse(frame_tests.check_stamp(stamp))


@unittest.skipUnless(frame_tests.has_watchers(), "nothing can be watched")
class Watchers(unittest.TestCase):
    def assert_bumps(self, change):
        epoch = frame_tests.watch_epoch()
        change()
        self.assertGreater(frame_tests.watch_epoch(), epoch)

    def test_changes_of_a_dict(self):
        for name, change in DICT_CHANGES.items():
            with self.subTest(change=name):
                d = {"x": 1}
                self.assertTrue(frame_tests.watch(d))
                epoch = frame_tests.watch_epoch()
                d.get("x"), len(d), list(d), {"other": 1}.update(x=2)
                self.assertEqual(frame_tests.watch_epoch(), epoch)
                self.assert_bumps(lambda c=change, d=d: c(d))

    def test_attribute_stores_of_specialised_code(self):
        for _ in range(100):
            set_attribute(Plain(), 2)
            o = Plain()
            o.__dict__
            set_attribute(o, 2)
        changes = [
            lambda o: set_attribute(o, object()),
            lambda o: setattr(o, "y", 1),
            lambda o: delattr(o, "x"),
            lambda o: o.__init__(object()),
        ]
        for change in changes:
            o = Plain()
            o.z = 1
            items = list(o.__dict__.items())
            self.assertTrue(frame_tests.watch(o.__dict__))
            self.assertEqual(list(o.__dict__.items()), items)
            self.assert_bumps(lambda change=change, o=o: change(o))

    def test_globals(self):
        frame_tests.watch(globals())
        self.assert_bumps(lambda: exec("global_of_test_watch = 1", globals()))

    def test_the_end_of_a_dict(self):
        holder = [{"x": 1}]
        frame_tests.watch(holder[0])
        self.assert_bumps(holder.clear)

    def test_changes_of_a_type_and_its_bases(self):
        class Base:
            pass

        class Derived(Base):
            pass

        for change in (lambda: setattr(Derived, "a", 1), lambda: setattr(Base, "a", 1), lambda: delattr(Derived, "a")):
            self.assertTrue(frame_tests.watch(Derived))
            self.assert_bumps(change)


if __name__ == "__main__":
    unittest.main()
