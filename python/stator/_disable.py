"""`stator.disable`: functions that a trace must not look into."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

from stator._stator import Compiled
from stator._suggest import describe
from stator.errors import NotCompilableError

__all__ = ["MARK", "disable"]

T = TypeVar("T")

# The recorder takes a function with this attribute as opaque; the value is the reason it logs.
MARK = "__stator_disable__"


@overload
def disable(fn: T, /, *, reason: str | None = None) -> T: ...
@overload
def disable(fn: None = None, /, *, reason: str | None = None) -> Callable[[T], T]: ...


def disable(fn: Any = None, /, *, reason: str | None = None) -> Any:
    """The function `fn`, never traced: a compiled function that calls it breaks there.

    Works as a decorator, with and without arguments, on functions, methods, static and class
    methods. `reason` shows up in the `graph_breaks` log. `fn` itself stays as it is, and what it
    calls is disabled with it (`recursive=True` of `torch.compiler.disable`).
    """
    if fn is None:
        return functools.partial(disable, reason=reason)
    if isinstance(fn, Compiled):
        return disable(fn.__wrapped__, reason=reason)
    if isinstance(fn, types.FunctionType):
        return _marked_copy(fn, reason or f"{fn.__qualname__} is under stator.disable")
    if isinstance(fn, types.MethodType):
        return types.MethodType(disable(fn.__func__, reason=reason), fn.__self__)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(disable(fn.__func__, reason=reason))
    raise NotCompilableError(
        f"stator.disable takes a function or a method, not {describe(fn)}. "
        "For a module: module.forward = stator.disable(module.forward)."
    )


def _marked_copy(fn: types.FunctionType, reason: str) -> types.FunctionType:
    """A copy, so that the mark is on this name only; tracebacks show the same code."""
    copy = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copy.__kwdefaults__ = fn.__kwdefaults__ and dict(fn.__kwdefaults__)
    functools.update_wrapper(copy, fn)
    setattr(copy, MARK, reason)
    return copy
