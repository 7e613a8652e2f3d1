"""`stator.compile` and the questions one can ask about what it made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from stator import _stator
from stator._background import wait as wait_for
from stator._blame import blames_caller
from stator._settings import Settings
from stator._stator import Stats
from stator._targets import compile_target, expect_native

__all__ = ["compile", "reset", "stats", "wait"]

T = TypeVar("T")


@overload
def compile(
    fn_or_module: None = None,
    *,
    backend: str | Callable[..., Any] = "eager",
    when: str | None = None,
    verify: str | None = None,
    tier: str | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    recompile_limit: int | None = None,
    is_compiling: bool | None = None,
    disable: bool = False,
) -> Callable[[T], T]: ...
@overload
def compile(
    fn_or_module: T,
    *,
    backend: str | Callable[..., Any] = "eager",
    when: str | None = None,
    verify: str | None = None,
    tier: str | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    recompile_limit: int | None = None,
    is_compiling: bool | None = None,
    disable: bool = False,
) -> T: ...


@blames_caller
def compile(
    fn_or_module: Any = None,
    *,
    backend: str | Callable[..., Any] = "eager",
    when: str | None = None,
    verify: str | None = None,
    tier: str | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    recompile_limit: int | None = None,
    is_compiling: bool | None = None,
    disable: bool = False,
) -> Any:
    """Compiles a function, a method, a callable object or an `nn.Module`.

    The first call runs as plain Python does, and records the tensor operations it executes. Later
    calls check that what shaped the record is unchanged, and replay it. Where a backend compiles
    for long (`backend="inductor"`, graphs without gradients), no call waits: the replay serves
    until there is code, which some later call compares with the replay and then uses. Nothing
    happens before the first call. Works as a decorator, with and without arguments.

        @stator.compile
        def mse(x, y):
            return ((x - y) ** 2).sum()

    backend: what runs the graph. `"eager"` replays it operation by operation; a name out of
        `stator.list_backends()`, or a callable that takes a `torch.fx.GraphModule` and example
        inputs and returns a callable.
    when: when another backend is asked for a graph's code. `"background"`: beside the program; no
        call waits for it, the graph is replayed meanwhile, and a call takes the code over when it's
        there and has given what the replay gives (docs/background.md says which graphs can be
        compiled so). `"second_call"`: at the second call that the graph serves, which waits; or
        `"call:N"`. `"first_call"`: right behind the recording, so one call warms a program up
        (graphs behind graph breaks are asked for at their second call all the same). None:
        `stator.config.when`, and if that is None too, `"background"` for backends that compile for
        long (those registered with `slow=True`, and Inductor; its graphs that can't be compiled so
        are waited for at their second call), except under
        `torch.use_deterministic_algorithms(True)`, where that is `"first_call"`; `"second_call"`
        for others. `stator.wait()` waits for what is under way.
    verify: whether a backend's code is compared with the replay before it's used. `"first"`: at the
        first call that it could serve, which takes about three times as long (docs/background.md
        has what is compared). `"off"`: never. None: code that was made beside the program is, code
        that a call has waited for isn't.
    tier: `"compiled"` uses a backend's code however quick it is. None keeps the code of backends
        that compile for long only if some timed calls of either find it quicker than the replay,
        except under `torch.use_deterministic_algorithms(True)`, where nothing is timed.
    fullgraph: raise `stator.GraphBreakError` where the function can't be one graph. The call has
        been executed by then, natively from the break on: what it wrote stays written.
    dynamic: True treats tensor sizes as symbols from the start, False never does, None does once
        one has changed.
    mode, options: handed to the backend; one of them at most.
    recompile_limit: how many traces to keep for different inputs. None: that of `stator.config`.
    is_compiling: what `torch.compiler.is_compiling()` and its relatives answer wherever code of the
        call runs, recorded, replayed up to a graph break or natively. False is what plain Python
        answers: results are its results to the bit. True takes the path that libraries keep for
        tracers, as under `torch.compile`: often fewer graph breaks, sometimes other roundings. None
        is True with `fullgraph=True`, else False.
    disable: return `fn_or_module` unchanged.

    The result is of the kind that was given: a bound method of a method, a partial of a partial, a
    module (that shares everything with the one given) of a module. Generator and async functions
    and callables written in C are returned unchanged, and the `graph_breaks` log says so. What is
    compiled already is returned as it is, or compiled anew if other settings are asked for.
    """
    settings = Settings(
        backend=backend,
        when=when,
        verify=verify,
        tier=tier,
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        options=options,
        recompile_limit=recompile_limit,
        is_compiling=is_compiling,
    )

    @blames_caller
    def decorate(target: Any) -> Any:
        return target if disable else compile_target(target, settings)

    return decorate if fn_or_module is None else decorate(fn_or_module)


@blames_caller
def stats(compiled: object) -> Stats:
    """The counters of anything that `stator.compile` returned: traces, hits, native calls, ..."""
    return expect_native(compiled, "stats").stats


@blames_caller
def wait(compiled: object = None, timeout: float | None = None) -> bool:
    """Waits until backends have compiled what they are compiling beside the program.

    The next call of each graph takes its code over, and tells of a failure. The result says whether
    nothing is under way any more; it's False if that took longer than `timeout` seconds.

    compiled: what `stator.compile` returned, to wait for its graphs alone.
    """
    if compiled is None:
        return wait_for(None, timeout)
    return wait_for(expect_native(compiled, "wait")._jobs, timeout)


def reset() -> None:
    """Forgets every trace of every compiled function of the process.

    What is compiled beside the program isn't wanted any more: it is cancelled.
    """
    _stator.reset_all()
