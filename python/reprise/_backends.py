"""Backends: who makes a program of a recorded region."""

from ._errors import UserTypeError, UserValueError

# What a name stands for; None: built in.
_backends = {"native": None, "eager": None, "aot_eager": None}


def list_backends():
    """The names that `backend=` takes, sorted. A callable is taken as well."""
    return sorted(_backends)


def register_backend(compiler_fn=None, name=None):
    """Give a backend a name; also a decorator, `@register_backend` or `@register_backend(name="mine")`.

    `compiler_fn(graph_module, example_inputs)` takes a torch.fx.GraphModule and a list of tensors, and returns a
    callable with the signature of the graph: the contract of torch.compile's backends. The name is the function's by
    default.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name)
    if not callable(compiler_fn):
        raise UserTypeError(f"a backend is called with a graph; found a {type(compiler_fn).__name__}")
    name = name or getattr(compiler_fn, "__name__", None)
    if not isinstance(name, str):
        raise UserTypeError(f"the name of a backend is {name!r}; expected a str")
    if _backends.get(name, name) is None:
        raise UserValueError(f"backend {name!r} is built in")
    _backends[name] = compiler_fn
    return compiler_fn


def find_backend(backend):
    """A built-in name, or the callable that `backend` is or names."""
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise UserTypeError(f"backend is a {type(backend).__name__}; expected a str or a callable")
    if backend not in _backends:
        raise UserValueError(f"unknown backend {backend!r}; expected a callable or one of {', '.join(list_backends())}")
    return _backends[backend] or backend
