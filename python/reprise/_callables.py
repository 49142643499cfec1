"""The half of compiled callables that is written in Python: modules, and how copies and pickles are made.

The C types call `reduce`, `copy` and `deepcopy` by name.
"""

import copy as _copy
import functools
import sys
import types
import weakref

from ._native import C

# Every CompiledFunction that lives: for reset().
_all = weakref.WeakSet()


def make_function(callable_, options, backend, settings, type_=None):
    """A CompiledFunction that reset() knows."""
    compiled = C.make_compiled(callable_, options, backend, settings, type_)
    _all.add(compiled)
    return compiled


def list_compiled():
    return list(_all)


def find_compiled(object_):
    """The CompiledFunction behind what reprise.compile returned, or None."""
    if C is None:
        return None
    if isinstance(object_, (C.CompiledFunction, C.DisabledFunction)):
        return object_ if isinstance(object_, C.CompiledFunction) else None
    if isinstance(object_, types.MethodType):
        return find_compiled(object_.__func__)
    if isinstance(object_, (staticmethod, classmethod)):
        return find_compiled(object_.__func__)
    call = type(object_).__dict__.get("__call__") if _is_stand_in(object_) else None
    return call if isinstance(call, C.CompiledFunction) else None


# --- modules: an object of a subclass, with the original's __dict__ ---------------------------------------------------


def _is_stand_in(object_):
    return "__reprise_original__" in type(object_).__dict__


def find_original(object_):
    """The module that a compiled or disabled module stands in for; other objects as they are."""
    return type(object_).__dict__["__reprise_original__"] if _is_stand_in(object_) else object_


def make_stand_in(module, make_call, remake):
    """An object that is `module` in all but its `__call__`.

    It is of a new subclass of the module's class and shares its `__dict__`. `make_call(cls)` gives the `__call__`,
    `remake(module)` a stand-in for another module, for copies.
    """

    def view(self):
        """The original; for other objects that the program made of the subclass, one of its class that shares all."""
        if self.__dict__ is module.__dict__:
            return module
        other = object.__new__(type(module))
        object.__setattr__(other, "__dict__", self.__dict__)
        return other

    def copy_with(self, copy_function):
        copied = copy_function(view(self))
        return remake(copied) if self.__dict__ is module.__dict__ else copied

    def make_type():
        cls = type(module)
        names = {
            "__call__": make_call(cls),
            "__reprise_original__": module,
            # Called when the program has given the original another class.
            "__reprise_follow__": staticmethod(lambda self: set_class(self, make_type())),
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            # What pickle compares with, and what the program names or calls to make another of its kind.
            "__class__": property(lambda self: cls, set_class),
            "__reduce_ex__": lambda self, protocol: view(self).__reduce_ex__(protocol),
            "__copy__": lambda self: copy_with(self, _copy.copy),
            "__deepcopy__": lambda self, memo: copy_with(self, lambda original: _copy.deepcopy(original, memo)),
        }
        return type(cls)(cls.__name__, (cls,), names)

    set_class = object.__dict__["__class__"].__set__
    stand_in = object.__new__(make_type())
    object.__setattr__(stand_in, "__dict__", module.__dict__)
    return stand_in


# --- copies and pickles of CompiledFunction and DisabledFunction ------------------------------------------------------


def _remaker(wrapped):
    from . import compile, disable  # noqa: PLC0415

    if isinstance(wrapped, C.DisabledFunction):
        return disable
    return functools.partial(compile, **wrapped.__reprise_settings__)


def reduce(wrapped, _=None):
    """By reference where the original's name leads here (a decorated function), else as the original, wrapped again."""
    original = wrapped.__wrapped__
    name = getattr(original, "__qualname__", None)
    found = sys.modules.get(getattr(original, "__module__", None))
    for part in name.split(".") if isinstance(name, str) else ():
        found = getattr(found, part, None)
    if found is wrapped:
        return name
    return _remaker(wrapped), (original,)


def copy(wrapped, _=None):
    return wrapped if isinstance(wrapped.__wrapped__, types.FunctionType) else _remaker(wrapped)(wrapped.__wrapped__)


def deepcopy(wrapped, memo):
    original = wrapped.__wrapped__
    copied = _copy.deepcopy(original, memo)
    return wrapped if copied is original else _remaker(wrapped)(copied)
