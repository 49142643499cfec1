"""Exceptions of the public API."""

from ._native import C


class UserError(Exception):
    """Wrong use of the API. Raised as UserValueError or UserTypeError, which are also ValueError and TypeError."""


class UserValueError(UserError, ValueError):
    """An argument has a value that is not allowed; the text says which, and what is."""


class UserTypeError(UserError, TypeError):
    """An argument has a type that is not allowed; the text says which, and what is."""


if C is not None:
    GraphBreak = C.GraphBreak
else:

    class GraphBreak(RuntimeError):
        """fullgraph=True, and the program does something that cannot be compiled."""
