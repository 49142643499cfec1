"""Nothing stays: replays, recordings and resets do not grow the process; deleted programs take their entries along."""

import gc
import sys
import weakref

import pytest
import torch
from twins import ARE_COUNTS_CHECKED, MODE, assert_same, compiled, reprise_only, rnd

from bench import modes, stats


def resident_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def growth(step, warm, count):
    """(kB of resident memory, Python blocks, gc-tracked objects) that `count` steps add after `warm` steps."""
    for i in range(warm):
        step(i)
    gc.collect()
    before = resident_kb(), sys.getallocatedblocks(), len(gc.get_objects())
    for i in range(count):
        step(i)
    gc.collect()
    after = resident_kb(), sys.getallocatedblocks(), len(gc.get_objects())
    return tuple(a - b for a, b in zip(after, before))


def assert_flat(grown, per_step_blocks, count):
    kb, blocks, objects = grown
    assert kb < 6_000, f"resident memory grew by {kb} kB in {count} steps"
    assert blocks < 500 + per_step_blocks * count, f"{blocks} Python blocks stayed after {count} steps"
    assert objects < 200, f"{objects} gc-tracked objects stayed after {count} steps"


def test_100000_replays_do_not_grow_the_process():
    tested = compiled(lambda x: x + 1)
    x = torch.ones(1)
    assert_flat(growth(lambda i: tested(x), 2_000, 100_000), 0, 100_000)


def test_replays_with_fresh_containers_do_not_grow_the_process():
    def f(d, items):
        out = [v * 2 for v in d.values()]
        items.append(out)
        return {"a": out, "n": len(items)}

    tested = compiled(f)
    assert_flat(growth(lambda i: tested({"a": torch.ones(1), "b": torch.ones(2)}, []), 500, 5_000), 0, 5_000)


def test_side_exits_do_not_grow_the_process():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return [y, x]

    tested = compiled(f)
    ones = torch.ones(2)
    assert_flat(growth(lambda i: tested(ones if i % 3 else -ones), 300, 3_000), 0, 3_000)


def test_exceptions_do_not_grow_the_process():
    def f(x, n):
        y = x * 2
        if n:
            raise ValueError(y)
        return y @ x

    tested, x, wrong = compiled(f), torch.ones(2), torch.ones(0, 3)

    def step(i):
        try:
            tested(wrong if i % 3 == 2 else x, i % 3 == 1)
        except (ValueError, RuntimeError):
            pass

    assert_flat(growth(step, 300, 3_000), 0, 3_000)


def test_1000_compile_and_reset_cycles_do_not_grow_the_process():
    x = torch.ones(3)

    def step(i):
        scale = float(i)

        def f(x):
            out = [x * scale]
            for k in range(3):
                out.append(out[-1] + k)
            return out

        tested = compiled(f)
        tested(x)
        tested(x)
        if i % 2:
            modes.forget(MODE)

    assert_flat(growth(step, 200, 1_000), 0.1, 1_000)


def test_recordings_that_are_evicted_do_not_grow_the_process():
    tested = compiled(lambda x, word: (x + 1, {"k": word}, word.upper()))
    x = torch.ones(1)
    kb, blocks, objects = growth(lambda i: tested(x, f"word{i % 300}"), 600, 1_200)
    assert kb < 8_000, f"resident memory grew by {kb} kB"
    assert objects < 500, f"{objects} gc-tracked objects stayed"


def test_training_steps_do_not_grow_the_process():
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    tested, x = compiled(step), torch.ones(2, 3)
    assert_flat(growth(lambda i: tested(x), 100, 1_000), 0, 1_000)


@pytest.mark.parametrize("calls", [0, 1, 4])
def test_deleting_the_model_frees_it_and_its_weights(calls):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    refs = [weakref.ref(model), weakref.ref(model[0]), weakref.ref(model[0].weight)]
    tested = compiled(model)
    for i in range(calls):
        tested(rnd(i, 2, 3))
    del model, tested
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_deleting_a_function_frees_its_closure():
    class Held:
        pass

    def make():
        held = Held()
        held.w = torch.ones(3)
        return weakref.ref(held), compiled(lambda x: x * held.w)

    ref, tested = make()
    for i in range(4):
        tested(rnd(i, 3))
    assert ref() is not None
    del tested
    gc.collect()
    assert ref() is None


def test_arguments_and_results_are_not_kept():
    class Arg:
        pass

    tested = compiled(lambda a, x: [a.w * x, x])
    for i in range(5):
        arg, x = Arg(), rnd(i, 3)
        arg.w = rnd(i + 9, 3)
        out = tested(arg, x)
        refs = [weakref.ref(arg), weakref.ref(x), weakref.ref(arg.w), weakref.ref(out[0])]
        del arg, x, out
        gc.collect()
        assert [ref() for ref in refs] == [None] * 4, f"call {i}"


def test_temporaries_die_at_their_last_use():
    """A temporary that the program dropped is gone when a later Python call looks for it, in every call."""
    refs = []

    def look(x):
        refs.append([r() is None for r in list(seen)])
        return x

    seen = []

    def f(x):
        a = x * 2
        seen.append(weakref.ref(a))
        b = a + 1
        del a
        return look(b)

    tested = compiled(f)
    for i in range(4):
        seen.clear()
        tested(rnd(i, 3))
    assert refs == [[True]] * 4


@reprise_only
def test_entries_of_a_dead_submodule_do_not_serve():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    tested = compiled(model)
    for i in range(3):
        tested(rnd(i, 2, 3))
    ref = weakref.ref(model[0])
    model[0] = torch.nn.Linear(3, 3)
    gc.collect()
    for i in range(3):
        x = rnd(i, 2, 3)
        assert_same(tested(x), torch.relu(torch.nn.functional.linear(x, model[0].weight, model[0].bias)), f"call {i}")
    gc.collect()
    assert ref() is None
    counts = stats.stats_of(tested)
    if counts is not None and ARE_COUNTS_CHECKED:
        assert counts["entries"] == 1, counts
