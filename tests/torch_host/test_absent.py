"""The build without torch gives trivial answers."""

import pytest

from tests.torch_host import build


@pytest.fixture(scope="module")
def absent():
    return build.load(absent=True)


def test_nothing_is_a_tensor(absent):
    torch = pytest.importorskip("torch")
    for thing in [1, None, torch.ones(2)]:
        assert not absent.is_tensor(thing)
        assert not absent.is_plain_tensor(thing)
        assert absent.classify(thing) == (False, "unknown", "")


def test_all_states_are_equal(absent):
    assert absent.is_equal_state(absent.capture_state(), absent.capture_state())
    assert absent.describe_state_difference(absent.capture_state(), absent.capture_state()) == ""
    assert absent.check_recorded(absent.capture_recorded())
    assert not absent.has_user_modes(absent.capture_state())


def test_an_empty_array_passes(absent):
    array = absent.array_new()
    assert not absent.array_add(array, 1)
    assert absent.array_check(array)
