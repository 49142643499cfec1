"""From the arguments of `reprise.compile` to options of the core."""

from ._errors import UserTypeError, UserValueError
from ._native import C

# torch.compile's words; later options override them.
MODES = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": "auto"},
    "max-autotune": {"cuda_graphs": "auto", "gpu_codegen": "triton"},
    "max-autotune-no-cudagraphs": {"cuda_graphs": "off", "gpu_codegen": "triton"},
}

# Arguments of reprise.compile of their own.
_NOT_IN_OPTIONS = {"fullgraph", "dynamic"}


def _to_text(name, value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, (str, int)):
        return str(value)
    raise UserTypeError(f"option {name} is a {type(value).__name__}; expected str, int or bool")


def make_options(*, fullgraph, dynamic, mode, options):
    """Build `_C.Options`. Raises UserError for what is not allowed."""
    if not isinstance(fullgraph, bool):
        raise UserTypeError(f"fullgraph is {fullgraph!r}; expected True or False")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise UserTypeError(f"dynamic is {dynamic!r}; expected None, True or False")
    if mode is not None and (not isinstance(mode, str) or mode not in MODES):
        raise UserValueError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
    if options is not None and not isinstance(options, dict):
        raise UserTypeError(f"options is a {type(options).__name__}; expected a dict")
    merged = {**MODES[mode or "default"], **(options or {})}
    allowed = [name for name in C.list_option_names() if name not in _NOT_IN_OPTIONS]
    result = C.Options()
    for name, value in merged.items():
        if name not in allowed:
            raise UserValueError(f"unknown option {name!r}; expected one of {', '.join(allowed)}")
        _set(result, name, value)
    if fullgraph:
        _set(result, "fullgraph", True)
    if dynamic is not None:
        _set(result, "dynamic", dynamic)
    return result


def _set(options, name, value):
    try:
        options.set(name, _to_text(name, value))
    except ValueError as error:
        if isinstance(error, UserValueError):
            raise
        raise UserValueError(str(error)) from None
