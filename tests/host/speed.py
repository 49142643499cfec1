"""Speed of plain evaluation against CPython's own evaluator. Prints a table; not a test.

python tests/host/speed.py
"""

import math
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.host.build import load  # noqa: E402

frame_tests = load()


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def run_calls():
    fib(19)


def run_loop():
    total = 0
    for i in range(15000):
        total = (total + i * 3) & 0xFFFF
    return total


class Vector:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def add(self, other):
        return Vector(self.x + other.x, self.y + other.y)


def run_objects():
    vector, step = Vector(0, 0), Vector(1, 2)
    for _ in range(4000):
        vector = vector.add(step)


def count_slowly(n):
    for i in range(n):
        yield i


def run_generator():
    return sum(count_slowly(20000))


def run_dict():
    counts = {}
    for word in ("abc def ghi " * 3000).split():
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: item[1])


def run_exceptions():
    caught = 0
    for i in range(8000):
        try:
            if i & 1:
                raise ValueError(i)
        except ValueError:
            caught += 1
    return caught


def run_comprehensions():
    return [sum([x * y for x in range(20)]) for y in range(1500)]


def run_library():
    import json.encoder

    encode = json.encoder._make_iterencode(
        {}, None, json.encoder.py_encode_basestring_ascii, None, float.__repr__, ": ", ", ", False, False, False
    )
    return "".join(encode({f"k{i}": [i, str(i), {"a": None}] for i in range(400)}, 0))


def run_c_code():
    return sum(sorted([i ^ 0x55 for i in range(100)] * 200))


def nothing():
    pass


def run_empty_calls():
    for _ in range(10000):
        nothing()


def measure_ms(function, rounds=40):
    """The best time of a call without hook, with a hook that passes frames on, and evaluated plainly; in turns."""
    modes = [None, frame_tests.HOOK_ONLY, frame_tests.PLAIN]
    best = [math.inf] * len(modes)
    for _ in range(3):
        function()
    for _ in range(rounds):
        for i, mode in enumerate(modes):
            if mode is not None:
                frame_tests.install(mode)
            start = time.perf_counter()
            function()
            time_ms = (time.perf_counter() - start) * 1e3
            frame_tests.uninstall()
            best[i] = min(best[i], time_ms)
    return best


def main():
    benchmarks = [f for name, f in globals().items() if name.startswith("run_") and f is not run_empty_calls]
    print(f"{sys.version.split()[0]:22}{'CPython ms':>12}{'hook':>8}{'plain':>8}")
    logarithms = [0.0, 0.0]
    for function in benchmarks:
        base, *others = measure_ms(function)
        ratios = [other / base for other in others]
        logarithms = [total + math.log(ratio) for total, ratio in zip(logarithms, ratios)]
        print(f"{function.__name__[4:]:22}{base:12.2f}" + "".join(f"{ratio:7.2f}x" for ratio in ratios))
    means = [math.exp(total / len(benchmarks)) for total in logarithms]
    print(f"{'geometric mean':34}" + "".join(f"{mean:7.2f}x" for mean in means))
    base, hook, plain = (time_ms * 100 for time_ms in measure_ms(run_empty_calls))
    print(f"an empty call: {base:.0f} ns, with the hook {hook:.0f}, plain {plain:.0f}")


if __name__ == "__main__":
    main()
