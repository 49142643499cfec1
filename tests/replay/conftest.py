"""Paths, and the fixture and rules that every test of this folder runs under."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from twins import fresh_state, pytest_collection_modifyitems  # noqa: E402, F401
