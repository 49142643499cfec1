"""Reprise: a just-in-time compiler for unmodified PyTorch programs.

    @reprise.compile
    def step(model, x): ...

The first call runs live and is recorded; later calls replay it.
"""

from ._api import compile, disable, explain, is_compiling, reset
from ._backends import list_backends, register_backend
from ._errors import GraphBreak, UserError
from ._report import Explanation

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "GraphBreak",
    "UserError",
    "compile",
    "disable",
    "explain",
    "is_compiling",
    "list_backends",
    "register_backend",
    "reset",
]
