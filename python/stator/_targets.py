"""What `stator.compile` does with each kind of object it is given.

The native side compiles Python functions, nothing else. Every other kind is taken apart here, down
to the function it ends in, and put together again around the compiled function: a bound method
becomes a bound method of the compiled function, a partial a partial of it. So a compiled object is
of the kind it was (it binds, copies and pickles like one), and no Python frame of Stator's stands
between caller and function.

What has no Python function inside, or one that can't be traced, is returned unchanged, with the
reason in the `graph_breaks` log.

A new kind is one more function registered with `compile_target`, and one with `native_of`.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import sys
import types
from typing import Any, NoReturn

from stator import _logs
from stator._settings import Settings, settings_of
from stator._stator import Compiled, Disabled
from stator._suggest import describe
from stator.errors import GraphBreakError, NotCompilableError


@functools.singledispatch
def compile_target(target: Any, settings: Settings) -> Any:
    """`target` compiled: an object of the same kind."""
    if _is_torch_compiled(target):
        return _run_natively(target, settings, _MACHINERY, "is under torch.compile", _BEFORE)
    torch_nn = sys.modules.get("torch.nn")
    if torch_nn is not None and isinstance(target, torch_nn.Module):
        # Here and not at the top: Stator can be imported, and compile, without torch.
        from stator._module import wrap_module

        if isinstance(target, sys.modules["torch"].jit.ScriptModule):
            return _run_natively(target, settings, _MACHINERY, "is compiled by torch.jit", _BEFORE)
        return wrap_module(target, settings)
    if not callable(target):
        _fail(target)
    call = _bound_call(target)
    if call is None:
        return _run_natively(target, settings, _UNSUPPORTED, "isn't written in Python", _CALLED)
    if native_of(call) is not None:
        return target
    return compile_target(call, settings)


@compile_target.register
def _(target: types.FunctionType, settings: Settings) -> Any:
    for flag, kind in _SUSPENDING.items():
        if target.__code__.co_flags & flag:
            return _run_natively(target, settings, _SUSPENDABLE, f"is {kind}", _CALLS)
    if _is_torch_compiled(target):
        return _run_natively(target, settings, _MACHINERY, "is under torch.compile", _BEFORE)
    return settings.apply(target)


@compile_target.register
def _(target: Compiled, settings: Settings) -> Any:
    if settings in (settings_of(target), Settings()):
        return target
    return compile_target(target.__wrapped__, settings)


@compile_target.register
def _(target: Disabled, settings: Settings) -> Any:
    predicate = f"is not to be traced ({target._reason})"
    return _run_natively(target, settings, _DISABLED, predicate, _CALLS)


@compile_target.register
def _(target: types.MethodType, settings: Settings) -> Any:
    return types.MethodType(compile_target(target.__func__, settings), target.__self__)


@compile_target.register
def _(target: staticmethod, settings: Settings) -> Any:  # type: ignore[type-arg]
    return staticmethod(compile_target(target.__func__, settings))


@compile_target.register
def _(target: classmethod, settings: Settings) -> Any:  # type: ignore[type-arg]
    return classmethod(compile_target(target.__func__, settings))


@compile_target.register
def _(target: functools.partial, settings: Settings) -> Any:  # type: ignore[type-arg]
    function = compile_target(target.func, settings)
    compiled = type(target)(function, *target.args, **target.keywords)
    return functools.update_wrapper(compiled, target)


@compile_target.register
def _(target: property, settings: Settings) -> NoReturn:
    _fail(target, "Put @stator.compile under @property, on the function itself.")


@compile_target.register
def _(target: type, settings: Settings) -> NoReturn:
    _fail(target, "Compile its methods, or an instance of it.")


@compile_target.register
def _(target: str, settings: Settings) -> NoReturn:
    _fail(target, f"Did you mean stator.compile(backend={target!r})?")


def expect_native(target: object, asked: str) -> Compiled:
    """As `native_of`, for the function of `stator`'s that `asked` names."""
    native = native_of(target)
    if native is None:
        raise NotCompilableError(
            f"stator.{asked} takes what stator.compile returned, not {describe(target)}."
        )
    return native


@functools.singledispatch
def native_of(target: object) -> Compiled | None:
    """The compiled function inside whatever `compile_target` returned; None if there is none."""
    call = getattr(type(target), "_stator_call", None)
    if call is not None:
        return native_of(call.__get__(target))
    call = _bound_call(target)
    native = None if call is None else native_of(call)
    torch_nn = sys.modules.get("torch.nn")
    if native is None and torch_nn is not None and isinstance(target, torch_nn.Module):
        # `module.forward = stator.compile(module.forward)`, or `module.compile()` by Stator.
        for name in ("forward", "_compiled_call_impl"):
            own = inspect.getattr_static(target, name, None)
            native = native or (None if own is None else native_of(own))
    return native


@native_of.register
def _(target: Compiled) -> Compiled | None:
    return target


@native_of.register
def _(target: types.FunctionType) -> Compiled | None:
    return None


@native_of.register(types.MethodType)
@native_of.register(staticmethod)
@native_of.register(classmethod)
def _(target: Any) -> Compiled | None:
    return native_of(target.__func__)


@native_of.register
def _(target: functools.partial) -> Compiled | None:  # type: ignore[type-arg]
    return native_of(target.func)


# Rows of the break table, `crates/tracer/src/breaks.rs`.
_UNSUPPORTED = ("SB012", "an object that Stator does not trace")
_SUSPENDABLE = ("SB013", "a generator or coroutine function")
_DISABLED = ("SB016", "a function that is not to be traced")

_MACHINERY = (
    "SB024",
    "a part of PyTorch that traces, transforms or differentiates what it is given",
)

# What to do about them.
_BEFORE = "Give what the other compiler was given."
_CALLED = "Give a Python function that calls it."
_CALLS = "Give the functions that it calls."

_SUSPENDING = {
    inspect.CO_GENERATOR: "a generator function",
    inspect.CO_COROUTINE: "an async function",
    inspect.CO_ASYNC_GENERATOR: "an async generator function",
}


def _is_torch_compiled(target: object) -> bool:
    """Whether PyTorch's own tracer runs it: a wrapper that `torch.compile` returned."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        return False
    if isinstance(target, types.FunctionType):
        code = target.__code__
        return code.co_name == "compile_wrapper" and code.co_filename == dynamo.__file__
    return isinstance(target, dynamo.OptimizedModule)


def _bound_call(target: object) -> Any:
    """What calling `target` runs, if that is a Python function or compiled; otherwise None."""
    call = inspect.getattr_static(type(target), "__call__", None)
    if isinstance(call, types.FunctionType | Compiled):
        return types.MethodType(call, target)
    if isinstance(call, classmethod):
        return types.MethodType(call.__func__, type(target))
    return call.__func__ if isinstance(call, staticmethod) else None


def _run_natively(
    target: Any, settings: Settings, row: tuple[str, str], predicate: str, hint: str
) -> Any:
    id, what = row
    name = getattr(target, "__qualname__", None) or describe(target)
    if settings.fullgraph:
        code = getattr(target, "__code__", None)
        stack = [(code.co_filename, code.co_firstlineno, name)] if code else []
        raise GraphBreakError(id, f"{name} {predicate}.", hint, stack)
    if _logs.is_enabled("graph_breaks"):
        _logs.emit("graph_breaks", f"{id} {what}\n  What: {name} {predicate}, so it runs natively")
    return target


def _fail(target: object, hint: str = "") -> NoReturn:
    raise NotCompilableError(
        "stator.compile takes a function, a method, an object with a __call__ or an nn.Module, "
        f"not {describe(target)}.{' ' * bool(hint)}{hint}"
    )


def _restore(function: Any, settings: Settings) -> Any:
    return compile_target(function, settings)


def _reduce(compiled: Compiled) -> Any:
    """Pickles by name where the name leads here, as functions do; otherwise as its parts."""
    found: Any = sys.modules.get(compiled.__module__)
    for name in compiled.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is compiled:
        return compiled.__qualname__
    return _restore, (compiled.__wrapped__, settings_of(compiled))


copyreg.pickle(Compiled, _reduce)
