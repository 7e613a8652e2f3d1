"""What runs a graph: the names and callables that `stator.compile(backend=...)` takes.

`"eager"` is the replay in Rust and needs nothing from here. Every other backend is a function
`(GraphModule, example_inputs) -> callable`, as for `torch.compile`; PyTorch's own are looked up in
its registry.

Functions here import `torch` (and what needs it) when they run: `import stator` works without it,
and the import of `torch._dynamo` takes seconds that users of the default backend need not spend.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import shutil
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from stator._config import config
from stator._internal import is_from_handler, own_error
from stator._stator import _while_signals_wait
from stator._suggest import suggest
from stator._warnings import backend_failed
from stator.errors import BackendError, InternalError, OptionError

if TYPE_CHECKING:
    import torch.fx

    from stator._fx.graphs import Code, Row

__all__ = ["list_backends", "register_backend", "resolve_backend"]

Backend: TypeAlias = "Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]"
"""What users write. The callable it returns takes the graph's inputs and returns its outputs."""

Prepared: TypeAlias = "Callable[[Sequence[Row], Sequence[Any]], Callable[..., Any] | Code | None]"
"""What the native side asks, with a description of the graph (`stator._fx.graphs`) and example
inputs. Code that doesn't serve all inputs that the graph does says so."""

EAGER = "eager"


def _fx(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph module itself: its generated Python code runs the graph."""
    return graph_module


_registered: dict[str, Backend] = {"fx": _fx}


def list_backends() -> list[str]:
    """The names that `backend=` takes: Stator's own, those that were registered, PyTorch's."""
    own = [EAGER, *_registered]
    others = set(_torch_backends()) - set(own)
    return own + sorted(name for name in others if not name.endswith("_TESTING_ONLY"))


@overload
def register_backend(fn: Backend, *, name: str | None = None) -> Backend: ...
@overload
def register_backend(
    fn: None = None, *, name: str | None = None
) -> Callable[[Backend], Backend]: ...


def register_backend(
    fn: Backend | None = None, *, name: str | None = None
) -> Backend | Callable[[Backend], Backend]:
    """Makes a backend known under a name (its own, unless another is given). Usable as a decorator.

    A name hides PyTorch's backend of the same name. Stator's own can't be replaced.
    """
    if fn is None:
        return functools.partial(register_backend, name=name)
    if not callable(fn):
        raise BackendError(f"A backend is a callable, not {fn!r}.")
    key = name or getattr(fn, "__name__", None)
    if not isinstance(key, str) or not key:
        raise BackendError(f"{fn!r} has no name of its own: pass name=... to register_backend.")
    known = _fx if key == "fx" else _registered.get(key)
    if key == EAGER or (known is not None and known is not fn):
        raise BackendError(
            f"There is a backend {key!r} already. Register this one by another name."
        )
    _registered[key] = fn
    return fn


def resolve_backend(
    backend: str | Callable[..., Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Prepared | None:
    """The function that the native side calls to compile a graph; None for the replay in Rust.

    It returns None where the backend has failed, and the graph is to be replayed.
    """
    if mode == "default":
        mode = None
    if backend == EAGER:
        if mode is not None or options:
            raise OptionError('backend="eager" replays the graph as it is: no mode, no options.')
        return None
    name, fn, is_torch = _find(backend)
    arguments = _arguments(name, mode, options)
    _check_signature(name, fn, arguments)
    return functools.partial(_compile_graph, name, fn, is_torch, arguments)


def _find(backend: str | Callable[..., Any]) -> tuple[str, Backend, bool]:
    """Name, function, and whether it's one of PyTorch's."""
    if not isinstance(backend, str):
        if not callable(backend):
            raise BackendError(f"A backend is a name or a callable, not {backend!r}.")
        return getattr(backend, "__qualname__", repr(backend)), backend, False
    if fn := _registered.get(backend):
        return backend, fn, False
    if backend not in _torch_backends():
        raise BackendError(f"There is no backend {backend!r}. {suggest(backend, list_backends())}")
    if (missing := _missing(backend)) is not None:
        raise BackendError(f"The backend {backend!r} needs {missing}, which isn't installed here.")
    from torch._dynamo.backends.registry import lookup_backend

    found: Any = lookup_backend(backend)
    return backend, found, True


_PACKAGES = {"tvm": "tvm", "openxla": "torch_xla", "openxla_eval": "torch_xla"}
"""What backends of PyTorch's import when they are asked for a graph."""

_COMPILERS = ("g++", "clang++", "c++", "gcc", "clang", "cc", "cl")


def _missing(backend: str) -> str | None:
    """What a backend of PyTorch's can't do without, and isn't there."""
    package = _PACKAGES.get(backend)
    if package is not None and importlib.util.find_spec(package) is None:
        return f"the package {package}"
    if backend == "inductor":
        compilers = (*filter(None, [os.environ.get("CXX")]), *_COMPILERS)
        if not any(map(shutil.which, compilers)):
            return "a C++ compiler (g++ or clang++ on the PATH, or one that CXX names)"
    return None


def _torch_backends() -> list[str]:
    """PyTorch's backends, or none where there is no PyTorch."""
    try:
        from torch._dynamo.backends.registry import list_backends as list_torch_backends
    except ModuleNotFoundError:
        return []
    return [str(name) for name in list_torch_backends(())]


def _arguments(name: str, mode: str | None, options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Keyword arguments for the backend, as `torch.compile` hands `mode` and `options` on."""
    given = {"mode": mode, "options": dict(options) if options else None}
    arguments = {key: value for key, value in given.items() if value is not None}
    if name != "inductor" or not arguments:
        return arguments
    from torch._inductor import list_mode_options, list_options

    settings: dict[str, Any] = dict(options or {})
    if mode is not None:
        modes = list_mode_options()
        if mode not in modes:
            raise OptionError(f"Inductor has no mode {mode!r}. {suggest(mode, modes)}")
        settings = dict(modes[mode])
    # Inductor's own spelling has underscores; users may write its options with dashes.
    patches = {key.replace("-", "_"): value for key, value in settings.items()}
    known = set(list_options())
    for key in patches:
        if key not in known:
            raise OptionError(f"Inductor has no option {key!r}. {suggest(key, sorted(known))}")
    return {"config_patches": patches}


def _check_signature(name: str, fn: Backend, arguments: Mapping[str, Any]) -> None:
    """Raises where the backend doesn't take what it will be given, or asks for more."""
    if not isinstance(fn, types.FunctionType):
        return  # Others needn't say what they take, or say it wrongly (a static `__call__`).
    try:
        inspect.signature(fn).bind(None, None, **arguments)
    except TypeError as error:
        given = ", ".join(("a graph", "example inputs", *arguments))
        raise BackendError(f"The backend {name} can't be given {given}: {error}.") from None


def _compile_graph(
    name: str,
    fn: Backend,
    is_torch: bool,
    arguments: Mapping[str, Any],
    description: Sequence[Row],
    example_inputs: Sequence[Any],
) -> Callable[..., Any] | Code | None:
    theirs: list[BaseException] = []

    def compile_module(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            compiled = fn(module, inputs, **arguments)
        except BaseException as error:
            theirs.append(error)
            raise
        if not callable(compiled):
            raise BackendError(
                f"The backend {name} returned {compiled!r}. A backend takes a torch.fx.GraphModule "
                "and example inputs, and returns a callable that takes the graph's inputs."
            )
        return compiled

    try:
        return _compile(name, is_torch, compile_module, description, example_inputs)
    except Exception as error:
        # What is done around the backend is Stator's own.
        what = None if any(error is one for one in theirs) else own_error(error)
        if what is not None:
            raise InternalError(what) from error
        if config.strict or isinstance(error, MemoryError) or is_from_handler(error):
            raise
        operations = [row for row in description if row[0] not in ("placeholder", "output")]
        trace = next((row[5] for row in operations if row[5] is not None), None)
        backend_failed(name, error, len(operations), trace)
        return None


def _compile(
    name: str,
    is_torch: bool,
    compile_module: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    description: Sequence[Row],
    example_inputs: Sequence[Any],
) -> Callable[..., Any] | Code:
    from stator._fx.graphs import graph_module

    if is_torch:
        from stator._fx.symbolic import compile_symbolic, is_symbolic

        if is_symbolic(description):
            return compile_symbolic(name, compile_module, description, example_inputs)
    module = _while_signals_wait(graph_module, description, example_inputs)
    return compile_module(module, example_inputs)


def decide(value: object, expected: object, *_kept: object) -> None:
    """A decision of a trace, where its graph is a `torch.fx` module: there is no way out of one.

    Raises `BackendError` where the value isn't the one that the trace was recorded for.
    """
    if value is not expected:
        raise BackendError(f"This graph is for {expected!r}, where its inputs give {value!r}.")


def catch(*_kept: object) -> None:
    """Where a trace is left if the operation before raises; a `torch.fx` module has no way out."""


def wrong_outputs(prepared: functools.partial[Any], expected: int, returned: object) -> Exception:
    """The error of a backend (as `resolve_backend` made it) whose code returned something else than
    a tuple or list of the graph's outputs."""
    if isinstance(returned, tuple | list):
        types = ", ".join(type(value).__name__ for value in returned)
        found = f"a {type(returned).__name__} of {len(returned)} ({types})"
    else:
        found = f"a {type(returned).__name__}"
    return BackendError(
        f"What the backend {prepared.args[0]} returned gave back {found}, where the graph has "
        f"{expected} output{'s' * (expected != 1)}. It has to return a tuple or list of them: "
        "tensors where the graph has tensors."
    )
