"""Types of the public API; the documentation stands at the functions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar, overload

__version__: str

_T = TypeVar("_T")
_Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
_Backend = Callable[[Any, list[Any]], Callable[..., Any]]

class GraphBreak(RuntimeError): ...
class UserError(Exception): ...

@overload
def compile(
    fn_or_module: _T,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | _Backend = "native",
    mode: _Mode | None = None,
    options: dict[str, str | int | bool] | None = None,
) -> _T: ...
@overload
def compile(
    fn_or_module: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | _Backend = "native",
    mode: _Mode | None = None,
    options: dict[str, str | int | bool] | None = None,
) -> Callable[[_T], _T]: ...

class _Disable(AbstractContextManager[None, None]):
    def __call__(self, fn: _T) -> _T: ...
    def __exit__(self, *args: object) -> None: ...

@overload
def disable(fn: _T) -> _T: ...
@overload
def disable(fn: None = None) -> _Disable: ...
def reset() -> None: ...
def is_compiling() -> bool: ...
def list_backends() -> list[str]: ...
@overload
def register_backend(compiler_fn: _Backend, name: str | None = None) -> _Backend: ...
@overload
def register_backend(compiler_fn: None = None, name: str | None = None) -> Callable[[_Backend], _Backend]: ...

class Explanation:
    name: str
    places: list[dict[str, Any]]
    counters: dict[str, int]
    seconds: dict[str, float]
    notes: list[str]
    result: Any
    @property
    def entries(self) -> list[dict[str, Any]]: ...
    @property
    def exits(self) -> list[dict[str, Any]]: ...

class _Explain(Protocol):
    def __call__(self, *args: Any, **kwargs: Any) -> Explanation: ...
    @property
    def report(self) -> Explanation: ...

def explain(fn: Callable[..., Any]) -> _Explain: ...
