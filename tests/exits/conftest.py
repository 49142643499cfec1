"""Paths, and the fixture and rules that every test of this folder runs under."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "replay")]

from twins import fresh_state, pytest_collection_modifyitems  # noqa: E402, F401
