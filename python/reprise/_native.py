"""Loads the extension module `reprise._C`, or says why it cannot be used.

One `_C` serves one CPython minor and one torch version. With any other the functions of the API return what they were
given, after one RuntimeWarning.
"""

import sys
import warnings


def _public_version(version):
    """Drop the local part: `2.13.0+cpu` and `2.13.0+cu130` have one ABI."""
    return version.split("+")[0]


def _load():
    """Give (module, "") or (None, why not)."""
    try:
        import torch  # its libraries must be loaded before ours  # noqa: PLC0415
    except ImportError:
        torch = None
    python = ".".join(map(str, sys.version_info[:2]))
    found = f"Python {python}, torch {torch.__version__ if torch else 'not installed'}"
    try:
        from . import _C as native  # noqa: PLC0415
    except ImportError as error:
        return None, f"the extension module of Reprise does not load on {found}: {error}"
    built_for = native.built_for_torch
    if built_for is not None and (torch is None or _public_version(torch.__version__) != _public_version(built_for)):
        return None, f"this build of Reprise is for torch {built_for}; found {found}"
    return native, ""


C, reason = _load()
_has_warned = False


def warn_unusable():
    """Warn once in a process that nothing is compiled."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn(f"{reason}; programs run as they are", RuntimeWarning, stacklevel=3)
