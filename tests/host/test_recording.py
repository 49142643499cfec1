"""What is recorded without an exit on every Python: models of types whose C definition moved between versions."""

import collections
import unittest

import reprise


def group(words):
    groups = collections.defaultdict(list)
    for word in words:
        groups[len(word)].append(word)
    return {size: groups[size] for size in groups}


def count_nested(words):
    counts = collections.defaultdict(lambda: collections.defaultdict(int))
    for word in words:
        counts[word[0]][word] += 1
    return counts["a"]["ab"] if counts else 0


def order(words):
    ordered = collections.OrderedDict()
    for word in words:
        ordered[word] = len(word)
    return list(ordered.items()) if ordered else []


def choose(words):
    return [word for word in ("a", "c") if word in {"a": 1} or word in words]


class RecordingTest(unittest.TestCase):
    def check(self, function, *args):
        want = function(*args)
        compiled = reprise.compile(function, options={"keep_plain_entries": True})
        for _ in range(4):
            self.assertEqual(compiled(*args), want)
        counters = reprise.explain(compiled).report.counters
        self.assertEqual((counters["recordings"], counters["side_exits"], counters["opaque_calls"]), (1, 0, 0))
        self.assertEqual(counters["refused_recordings"], 0)

    def test_default_dicts(self):
        self.check(group, ["a", "ab", "b"])

    def test_nested_default_dicts(self):
        self.check(count_nested, ["a", "ab", "b", "ab"])

    def test_containment(self):
        self.check(choose, ["b", "c"])

    def test_ordered_dicts(self):
        self.check(order, ["b", "ab", "a"])


if __name__ == "__main__":
    unittest.main()
