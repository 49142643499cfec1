"""Paths and the fixture that every test of this folder runs under."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from twins import fresh_state  # noqa: E402, F401
