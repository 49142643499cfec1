"""The functions of the public API."""

import functools
import inspect
import types
import warnings

from . import _callables, _native
from ._backends import find_backend
from ._errors import UserTypeError
from ._native import C
from ._options import make_options
from ._report import Explanation


def compile(fn_or_module=None, *, fullgraph=False, dynamic=None, backend="native", mode=None, options=None):
    """Make a function or a module fast: its first call is recorded, later ones replay what was recorded.

    Also a decorator, with or without arguments.

    fn_or_module: a function, method, functools.partial, callable object or torch.nn.Module. What is returned behaves
        as the original: name, signature, attributes, `isinstance` of a module, its state_dict, pickles and copies.
    fullgraph: raise GraphBreak, before the offending operation runs, where the program would leave compiled code.
    dynamic: sizes are left open from the second value on (None), at once (True) or never (False).
    backend: "native"; "eager": recorded PyTorch calls are replayed one by one; "aot_eager": runs of them become
        graphs, forward and backward, of PyTorch's kernels; a name given by register_backend, or a callable that takes
        (torch.fx.GraphModule, example_inputs) and returns a callable on the same tensors.
    mode: torch.compile's words "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs".
    options: a dict of the options in docs/options.md; they override `mode`.

    Raises UserError for wrong arguments. On a Python or PyTorch that this build does not support the argument is
    returned as it is, with one RuntimeWarning.
    """
    settings = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options}
    if fn_or_module is None:
        return functools.partial(compile, **settings)
    if not callable(fn_or_module) and not isinstance(fn_or_module, (staticmethod, classmethod)):
        raise UserTypeError(f"a {type(fn_or_module).__name__} cannot be compiled; expected a callable")
    if C is None:
        _native.warn_unusable()
        return fn_or_module
    core_options = make_options(fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=options)
    make = functools.partial(
        _callables.make_function, options=core_options, backend=find_backend(backend), settings=settings
    )
    return _wrap(fn_or_module, make, functools.partial(compile, **settings))


def disable(fn=None):
    """Switch Reprise off: for a function (also a decorator, `@disable` or `@disable()`), or `with disable():`.

    Inside, on the same thread, compiled callables run as the originals do and nothing is recorded. To a recording that
    meets it, a disabled function is an unknown call: compiled code stops in front of it and goes on behind it.
    """
    if fn is None:
        return _Disable()
    if not callable(fn) and not isinstance(fn, (staticmethod, classmethod)):
        raise UserTypeError(f"a {type(fn).__name__} cannot be disabled; expected a callable")
    if C is None:
        return fn
    return _wrap(fn, lambda function, type_=None: C.make_disabled(type_.__call__ if type_ else function), disable)


if C is not None:

    class _Disable(C.DisableContext):
        """What `disable()` returns."""

        __call__ = staticmethod(disable)

else:

    class _Disable:
        """What `disable()` returns."""

        __call__ = staticmethod(disable)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass


def _wrap(target, make, remake):
    """What stands in for `target`. `make(callable)` and `make(object, type_=cls)` give the C callable."""
    if isinstance(target, (staticmethod, classmethod)):
        return type(target)(_wrap(target.__func__, make, remake))
    if isinstance(target, (C.CompiledFunction, C.DisabledFunction)):
        target = target.__wrapped__
    target = _callables.find_original(target)
    if isinstance(target, type):
        text = f"class {target.__qualname__} is left as it is; compile its methods or its objects"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return target
    if isinstance(type(target).__call__, types.FunctionType):
        try:
            return _callables.make_stand_in(target, lambda cls: make(target, type_=cls), remake)
        except Exception:  # a class that has no subclasses or no __dict__: a callable that stands for the object
            pass
    if inspect.iscoroutinefunction(target) and hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(target)  # seen through the attributes of what is returned
    return make(target)


def reset():
    """Drop everything that was recorded and compiled, for all compiled callables. They start anew."""
    for compiled in _callables.list_compiled():
        C.reset(compiled)


def is_compiling():
    """Whether this thread is recording: true in the first call of a compiled function, and in what replays it."""
    return C is not None and C.is_recording()


def explain(fn):
    """Explain what became of a compiled callable: `explain(fn)(*args, **kwargs)` calls it and returns an Explanation.

    A callable that is not compiled is compiled first. `str()` of the Explanation is the report: entries, guards with
    source paths, exits with file:line, reason and hint, counts and seconds per phase. `explain(fn).report`, without a
    call, is the state as it is.
    """
    if C is None:
        _native.warn_unusable()
        return _Explain(None, fn)
    compiled = _callables.find_compiled(fn)
    if compiled is None:
        fn = compile(fn)
        compiled = _callables.find_compiled(fn)
    return _Explain(compiled, fn)


class _Explain:
    """What `explain(fn)` returns."""

    def __init__(self, compiled, fn):
        self._compiled = compiled
        self._fn = fn

    def __call__(self, *args, **kwargs):
        result = self._fn(*args, **kwargs)
        report = self.report
        report.result = result
        return report

    @property
    def report(self):
        if self._compiled is None:
            name = getattr(self._fn, "__qualname__", type(self._fn).__qualname__)
            return Explanation.make_empty(name, _native.reason or "this is not compiled")
        return Explanation(C.report(self._compiled), self._compiled.__reprise_settings__)
