"""`stator.disable`: functions that a trace must not look into."""

from __future__ import annotations

import copyreg
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

from stator._blame import blames_caller
from stator._stator import Compiled, Disabled
from stator._suggest import describe
from stator.errors import NotCompilableError

__all__ = ["MARK", "disable"]

T = TypeVar("T")

# The recorder takes a function with this attribute as opaque; the value is the reason it logs.
MARK = "__stator_disable__"


@overload
def disable(fn: T, /, recursive: bool = True, *, reason: str | None = None) -> T: ...
@overload
def disable(
    fn: None = None, /, recursive: bool = True, *, reason: str | None = None
) -> Callable[[T], T]: ...


@blames_caller
def disable(fn: Any = None, /, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function `fn`, never traced: a compiled function that calls it breaks there.

    Works as a decorator, with and without arguments, on functions, methods, static and class
    methods. `reason` shows up in the `graph_breaks` log. `fn` itself stays as it is.

    recursive: compiled functions that it calls run natively too. With False it is this function
        alone that isn't traced: compiled functions that it calls are traced, each by itself.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, Compiled):
        return disable(fn.__wrapped__, recursive, reason=reason)
    if isinstance(fn, Disabled):
        return disable(fn.__wrapped__, recursive, reason=reason or fn._reason)
    if isinstance(fn, types.FunctionType):
        reason = reason or f"{fn.__qualname__} is under stator.disable"
        # The call of a generator or async function runs none of its body, and frameworks ask
        # whether a function is one: it stays a function.
        if recursive and not fn.__code__.co_flags & _SUSPENDING:
            return Disabled(fn, reason)
        return _marked_copy(fn, reason)
    if isinstance(fn, types.MethodType):
        return types.MethodType(disable(fn.__func__, recursive, reason=reason), fn.__self__)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(disable(fn.__func__, recursive, reason=reason))
    raise NotCompilableError(
        f"stator.disable takes a function or a method, not {describe(fn)}. "
        "For a module: module.forward = stator.disable(module.forward)."
    )


_SUSPENDING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _marked_copy(fn: types.FunctionType, reason: str) -> types.FunctionType:
    """A copy, so that the mark is on this name only; tracebacks show the same code."""
    copy = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copy.__kwdefaults__ = fn.__kwdefaults__ and dict(fn.__kwdefaults__)
    functools.update_wrapper(copy, fn)
    setattr(copy, MARK, reason)
    return copy


def _reduce(disabled: Disabled) -> Any:
    """Pickles by name where the name leads here, as functions do; otherwise as its parts."""
    found: Any = sys.modules.get(disabled.__module__)
    for name in disabled.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is disabled:
        return disabled.__qualname__
    return Disabled, (disabled.__wrapped__, disabled._reason)


copyreg.pickle(Disabled, _reduce)
