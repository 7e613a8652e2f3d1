"""What a program says of its functions and to the compiler: marks, substitutes, stances.

A Python function bears its mark as an attribute whose value is its code, so that `functools.wraps`,
which copies attributes, doesn't mark the wrapper too. C functions bear none and are registered.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar

from stator import _stator
from stator._blame import blames_caller
from stator._stator import Compiled
from stator._suggest import describe, suggest
from stator.errors import NotCompilableError, StanceError, SubstituteError

__all__ = ["allow_in_graph", "assume_constant_result", "set_stance", "substitute_in_graph"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# The recorder looks for these attributes: `crates/tracer/src/marks.rs`.
IN_GRAPH = "__stator_in_graph__"
CONSTANT = "__stator_constant__"


@blames_caller
def allow_in_graph(fn: T, /) -> T:
    """Makes each call of `fn` one operation of the graph, whose Python isn't traced.

    A replay calls `fn` again. So it may do anything that a trace can't follow, as long as the
    shapes and types of its results follow from those of its arguments, and it changes nothing that
    the compiled function reads. It takes tensors, constants and containers of them, and returns
    tensors that it made and containers of them; a method's `self` may be any object. A list or
    tuple of functions marks each of them.
    """
    if isinstance(fn, list | tuple):
        return type(fn)(allow_in_graph(each) for each in fn)
    _mark(fn, "stator.allow_in_graph", IN_GRAPH, _stator._register_in_graph)
    return fn


@blames_caller
def assume_constant_result(fn: T, /) -> T:
    """Makes the result of each call of `fn` a constant of the trace.

    `fn` runs natively while a call is recorded. Replays don't call it: they use the very object
    that it returned. What it reads is guarded by nothing.
    """
    _mark(fn, "stator.assume_constant_result", CONSTANT, _stator._register_constant)
    return fn


def _mark(fn: Any, caller: str, mark: str, register: Callable[[Any], None]) -> None:
    if isinstance(fn, Compiled):
        _mark(fn.__wrapped__, caller, mark, register)
    elif isinstance(fn, staticmethod | classmethod | types.MethodType):
        _mark(fn.__func__, caller, mark, register)
    elif isinstance(fn, types.FunctionType):
        setattr(fn, mark, fn.__code__)
    elif inspect.isroutine(fn):
        register(fn)
    else:
        raise NotCompilableError(f"{caller} takes a function or a method, not {describe(fn)}.")


@blames_caller
def substitute_in_graph(
    original: Callable[..., Any],
    /,
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[T], T]:
    """A decorator: calls of `original`, a C function, are traced as calls of the function below it.

        @stator.substitute_in_graph(operator.indexOf)
        def index_of(a, b, /):
            for i, item in enumerate(a):
                if item is b or item == b:
                    return i
            raise ValueError("sequence.index(x): x not in sequence")

    It must do what `original` does; outside of traces `original` itself is called. A later
    substitute replaces an earlier one in traces that are still to be made.

    can_constant_fold_through: call `original` where all arguments are constants, because its
        result depends on them alone.
    skip_signature_check: accept other parameters than those of `original`.
    """
    if not inspect.isroutine(original):
        raise SubstituteError(
            f"stator.substitute_in_graph takes a function, not {describe(original)}."
        )

    @blames_caller
    def decorate(polyfill: T) -> T:
        if not isinstance(polyfill, types.FunctionType):
            raise SubstituteError(
                f"A substitute is a function written in Python, not {describe(polyfill)}."
            )
        if not skip_signature_check:
            _check_signatures(original, polyfill)
        _stator._register_substitute(original, polyfill, can_constant_fold_through)
        return polyfill

    return decorate


def _check_signatures(original: Callable[..., Any], polyfill: types.FunctionType) -> None:
    try:
        wanted = inspect.signature(original)
    except ValueError:
        return  # C functions needn't say what they take
    found = inspect.signature(polyfill)
    if _shape(wanted) != _shape(found) and _ANYTHING not in (_shape(wanted), _shape(found)):
        raise SubstituteError(
            f"{polyfill.__name__}{found} can't stand for {original.__name__}{wanted}: the names, "
            "kinds or defaults of the parameters differ. With skip_signature_check=True they may."
        )


def _shape(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """What callers depend on: annotations aside, and the names of `*args` and `**kwargs`."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        (p.kind,) if p.kind in variadic else (p.kind, p.name, p.default)
        for p in signature.parameters.values()
    ]


_ANYTHING = _shape(inspect.signature(lambda *args, **kwargs: None))


class set_stance(contextlib.ContextDecorator):  # noqa: N801 (mostly called like a function)
    """Says what the compiled functions of the process do with calls that no trace fits.

    A call (`stator.set_stance("force_eager")`) holds until the next one, a `with` block until its
    end, a decorated function (`@stator.set_stance("force_eager")`) while it runs.

    * `"default"`: they are recorded.
    * `"force_eager"`: every call runs natively, also one that a trace fits.
    * `"eager_on_recompile"`: calls that no trace fits run natively.
    * `"fail_on_recompile"`: they raise `stator.RecompileError`, the first call of a function too.
    """

    @blames_caller
    def __init__(self, stance: str = "default", /) -> None:
        known = _stator._stances()
        if stance not in known:
            raise StanceError(f"There is no stance {stance!r}. {suggest(stance, known)}")
        self.stance = stance
        self._before = [_stator._set_stance(stance)]
        self._called = True

    def __call__(self, func: F) -> F:
        self._undo_call()
        return super().__call__(func)

    def __enter__(self) -> set_stance:
        self._undo_call()
        self._before.append(_stator._set_stance(self.stance))
        return self

    def __exit__(self, *exception: object) -> None:
        _stator._set_stance(self._before.pop())

    def _undo_call(self) -> None:
        """As a context manager or decorator it isn't meant to hold from here on."""
        if self._called:
            self._called = False
            _stator._set_stance(self._before.pop())
