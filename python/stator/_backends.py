"""What runs a graph: the names and callables that `stator.compile(backend=...)` takes.

`"eager"` is the replay in Rust and needs nothing from here. Every other backend is a function
`(GraphModule, example_inputs) -> callable`, as for `torch.compile`; PyTorch's own are looked up in
its registry.

Functions here import `torch` (and what needs it) when they run: `import stator` works without it,
and the import of `torch._dynamo` takes seconds that users of the default backend need not spend.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from stator._background import ended, left, submit
from stator._blame import blames_caller
from stator._config import config
from stator._internal import from_handler, own_error
from stator._progress import log, shown
from stator._stator import Declined, Job, _while_signals_come
from stator._suggest import suggest
from stator._warnings import backend_differs, backend_failed, code_failed, error_text, place_of
from stator.errors import BackendError, InternalError, OptionError

if TYPE_CHECKING:
    import torch.fx

    from stator._fx.graphs import Code, Row

__all__ = ["Prepared", "list_backends", "register_backend", "resolve_backend"]

Backend: TypeAlias = "Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]"
"""What users write. The callable it returns takes the graph's inputs and returns its outputs."""

Made: TypeAlias = "Callable[..., Any] | Code | Declined"
"""Code that doesn't serve all inputs that the graph does says so."""

T = TypeVar("T")

EAGER = "eager"


def _fx(graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph module itself: its generated Python code runs the graph."""
    return graph_module


_registered: dict[str, Backend] = {"fx": _fx}

_OWN = {"stator": EAGER, "stator_inductor": "inductor"}
"""Names for those who can only say a name, to `torch.compile` say, while Stator is installed."""

_GRAPHS = "cudagraphs"
"""Stator's own, in the place of PyTorch's backend of this name. Each function has its own."""

_slow = {"inductor"}
"""Names of backends that compile for seconds: no call waits for them unless it is to."""


def list_backends() -> list[str]:
    """The names that `backend=` takes: Stator's own, those that were registered, PyTorch's."""
    own = [EAGER, *_registered, *_OWN, _GRAPHS]
    others = set(_torch_backends()) - set(own)
    return own + sorted(name for name in others if not name.endswith("_TESTING_ONLY"))


@overload
def register_backend(fn: Backend, *, name: str | None = None, slow: bool = False) -> Backend: ...
@overload
def register_backend(
    fn: None = None, *, name: str | None = None, slow: bool = False
) -> Callable[[Backend], Backend]: ...


@blames_caller
def register_backend(
    fn: Backend | None = None, *, name: str | None = None, slow: bool = False
) -> Backend | Callable[[Backend], Backend]:
    """Makes a backend known under a name (its own, unless another is given). Usable as a decorator.

    A name hides PyTorch's backend of the same name. Stator's own can't be replaced.

    slow: it compiles for seconds. Then it's called in a thread beside the program, and no call
        waits for it unless `stator.compile(when=...)` says so. It must bear other threads:
        AOTAutograd, Inductor and `torch.fx`'s tracers don't.
    """
    if fn is None:
        return functools.partial(register_backend, name=name, slow=slow)
    if not callable(fn):
        raise BackendError(f"A backend is a callable, not {fn!r}.")
    key = name or getattr(fn, "__name__", None)
    if not isinstance(key, str) or not key:
        raise BackendError(f"{fn!r} has no name of its own: pass name=... to register_backend.")
    known = _fx if key == "fx" else _registered.get(key)
    if key == EAGER or key in _OWN or (known is not None and known is not fn):
        raise BackendError(
            f"There is a backend {key!r} already. Register this one by another name."
        )
    _registered[key] = fn
    (_slow.add if slow else _slow.discard)(key)
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
    if isinstance(backend, str):
        backend = _OWN.get(backend, backend)
    if mode == "default":
        mode = None
    if backend == EAGER:
        if mode is not None or options:
            raise OptionError('backend="eager" replays the graph as it is: no mode, no options.')
        return None
    name, fn, is_torch = _find(backend)
    takes_parts = backend == _GRAPHS and not is_torch and backend not in _registered
    if takes_parts and (mode is not None or options):
        raise OptionError('backend="cudagraphs" captures what runs: no mode, no options.')
    arguments = _arguments(name, mode, options)
    _check_signature(name, fn, arguments)
    prepared = Prepared(name, fn, is_torch, arguments, takes_parts=takes_parts)
    if prepared.is_slow:
        _prepare_process()
    return prepared


_NEEDED = ("stator._fx.graphs", "stator._fx.beside", "stator._fx.comparison")


@functools.cache
def _prepare_process() -> None:
    """What calls would wait for otherwise, once for the process.

    They need these modules of Stator's own. Then importing PyTorch and models has left so many
    objects that the interpreter is about to look through all of them (0.2 s), and what the thread
    beside the calls makes of Python objects would have it do so within one of them.
    """
    for module in _NEEDED:
        importlib.import_module(module)
    if gc.isenabled():
        gc.collect()


def _find(backend: str | Callable[..., Any]) -> tuple[str, Backend, bool]:
    """Name, function, and whether it's one of PyTorch's."""
    if not isinstance(backend, str):
        if not callable(backend):
            raise BackendError(f"A backend is a name or a callable, not {backend!r}.")
        return getattr(backend, "__qualname__", repr(backend)), backend, False
    if fn := _registered.get(backend):
        return backend, fn, False
    if backend == "inductor" and importlib.util.find_spec("torch") is not None:
        _check_missing(backend)
        return backend, _inductor, True
    if backend == _GRAPHS and importlib.util.find_spec("torch") is not None:
        from stator._cudagraphs.backend import Backend as Graphs

        return backend, Graphs(), False
    if backend not in _torch_backends():
        raise BackendError(f"There is no backend {backend!r}. {suggest(backend, list_backends())}")
    _check_missing(backend)
    from torch._dynamo.backends.registry import lookup_backend

    found: Any = lookup_backend(backend)
    return backend, found, True


def _inductor(graph_module: torch.fx.GraphModule, inputs: Sequence[Any], **arguments: Any) -> Any:
    """PyTorch's. It takes seconds to import, and isn't needed where code is found in the store."""
    from torch._dynamo.backends.registry import lookup_backend

    backend: Any = lookup_backend("inductor")
    return backend(graph_module, inputs, **arguments)


_PACKAGES = {"tvm": "tvm", "openxla": "torch_xla", "openxla_eval": "torch_xla"}
"""What backends of PyTorch's import when they are asked for a graph."""

_COMPILERS = ("g++", "clang++", "c++", "gcc", "clang", "cc", "cl")


def _check_missing(backend: str) -> None:
    """Raises where a backend can't do anything here."""
    if (missing := _missing(backend)) is not None:
        raise BackendError(f"The backend {backend!r} needs {missing}, which isn't installed here.")


def _missing(backend: str) -> str | None:
    """What a backend of PyTorch's can't do without, and isn't there."""
    package = _PACKAGES.get(backend)
    if package is not None and importlib.util.find_spec(package) is None:
        return f"the package {package}"
    if backend == "inductor":
        import shutil

        compilers = (*filter(None, [os.environ.get("CXX")]), *_COMPILERS)
        if not any(map(shutil.which, compilers)) and not _has_stored():
            return "a C++ compiler (g++ or clang++ on the PATH, or one that CXX names)"
    return None


def _has_stored() -> bool:
    """Whether there is code of earlier starts, which no compiler is needed for."""
    from stator._kept import store

    stored = store()
    return stored is not None and not stored.is_empty()


def _torch_backends() -> list[str]:
    """PyTorch's backends, or none where there is no PyTorch."""
    try:
        from torch._dynamo.backends.registry import list_backends as list_torch_backends
    except ModuleNotFoundError:
        return []
    except OSError as error:
        raise BackendError(
            f"PyTorch's compilers can't make their cache folder: {error}. The environment variable "
            "TORCHINDUCTOR_CACHE_DIR names another."
        ) from error
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


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """What came of a graph that a backend couldn't compile."""

    error: Exception
    internal: str | None
    """What a report says of it, if it's an error of Stator's own."""
    operations: int
    trace: str | None
    waits: Sequence[Row] | None = None
    """The graph's description, if a call that waits can have it compiled as usual."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A backend as the native side asks it, with a description of the graph (`stator._fx.graphs`)
    and example inputs. Called, it gives code, or says how the backend has failed."""

    name: str
    fn: Backend
    is_torch: bool
    arguments: Mapping[str, Any]
    compilations: dict[str, Any] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )
    """For the ids of its compilations (`stator._fx.metadata`)."""
    takes_parts: bool = False
    """Whether it's given parts of graphs alone: operations on tensors that give tensors."""

    @property
    def is_slow(self) -> bool:
        """Whether it compiles for long."""
        if self.is_torch:
            return self.name in _slow
        return any(self.fn is _registered.get(name) for name in _slow)

    @property
    def compiler(self) -> str:
        """Whose compilers it is made of, where there are operations that these refuse."""
        if not self.is_torch:
            return ""
        return "inductor" if self.name == "inductor" else "torch"

    def __call__(
        self, description: Sequence[Row], inputs: Sequence[Any], known: Sequence[str] = ()
    ) -> Made | str:
        handled = sys.exception()
        made = self._shown(description, lambda: self._compile(description, inputs))
        if isinstance(made, Failed):
            # These came to the call that waits.
            if (raised := from_handler(made.error, handled)) is not None:
                raise raised
            if made.internal is None and isinstance(made.error, MemoryError):
                raise made.error
        return self._code(made, known)

    def beside(
        self,
        description: Sequence[Row],
        inputs: list[Any],
        is_new: bool,
        may_write: bool,
        is_told: bool,
        says_sizes: bool,
    ) -> Job | str | None:
        """Has the graph compiled beside the program. A text: that can't be, for this reason, and a
        call is to wait, the second one of the graph; `is_new`: this is the first. None: the process
        ends.

        Where it was asked for (`is_told`), it's an error that it can't be. `says_sizes`: see there.
        """
        from stator._fx.beside import begin, begin_inductor, unsuitable

        def task() -> Any:
            if self.is_torch:
                return begin_inductor(description, inputs, dict(self.arguments), says_sizes)
            compile_module = functools.partial(self._compile_module, description)
            return begin(compile_module, description, inputs)

        why = None
        if self.is_torch:
            why = unsuitable(self.name, description, inputs, may_write, self.arguments)
        if why is None:
            begun = self._tried(description, task)
        elif is_told:
            begun = Failed(_refused(why), None, *_extent(description))
        else:
            return _say_wait(_words(description), why, "the next call" if is_new else "this call")
        if isinstance(begun, Failed):
            return ended(begun)
        operations, _ = _extent(description)
        compiling = functools.partial(self._shown, description, begun)
        job = self._tried(description, lambda: submit(compiling, operations))
        return ended(job) if isinstance(job, Failed) else job

    def says_sizes(self, description: Sequence[Row], inputs: list[Any]) -> bool:
        """Of a part of a graph, whose sizes vary without a guard that says how: whether code that
        is made beside the program says which it is for. Else it is for those of `inputs`."""
        from stator._fx.beside import is_training

        return not is_training(description, inputs)

    def settle(
        self,
        made: Made | Failed | BaseException,
        inputs: Sequence[Any],
        is_told: bool,
        known: Sequence[str] = (),
    ) -> tuple[Made | str, str | None]:
        """What was made beside the program: as when the backend is called. A graph that couldn't be
        compiled there is compiled here, for these inputs, unless the program has told that no call
        is to wait; why this one has waited comes second. `known`: failures on other parts of the
        same graph, which the user has been told of."""
        if isinstance(made, BaseException):
            # It has ended the thread that it ran in.
            made = Failed(BackendError(f"The backend has raised {made!r}."), None, 0, None)
        if isinstance(made, Failed) and made.waits is not None and not is_told:
            why = _say_wait(_words(made.waits), str(made.error), "this call")
            return self(made.waits, inputs, known), why
        return self._code(made, known), None

    def _code(self, made: Made | Failed, known: Sequence[str] = ()) -> Made | str:
        """The code, or why there is none, which the user is told; raises if that is asked for."""
        if not isinstance(made, Failed):
            return made
        error = made.error
        if made.internal is not None:
            raise InternalError(made.internal) from error
        if config.strict:
            raise error
        text = error_text(error)
        if text not in known:
            backend_failed(self.name, error, made.operations, made.trace)
        return text

    def swapped(
        self,
        operations: int,
        trace: str | None,
        call: int,
        difference: float | None,
        untold: str | None,
    ) -> str:
        """The code serves from this call of the graph on. Returns how its results were checked."""
        checked = (
            f"unchecked, because {untold}"
            if difference is None
            else f"its results differ from the replay's by {difference:.2g} at most, relative to "
            "the largest value"
        )
        log.info(
            f"from call {call} on the code of {self.name} serves {_words_of(operations, trace)}: "
            f"{checked}{_at_first()}"
        )
        return checked

    def slower(self, operations: int, trace: str | None, measured: str) -> None:
        """The code isn't used any more, because the replay is as quick."""
        log.info(
            f"the code of {self.name} for {_words_of(operations, trace)} isn't used any more, "
            f"because the replay is as quick; {measured}. stator.compile(tier='compiled') uses it "
            "all the same"
        )

    def differs(self, operations: int, trace: str | None, how: str) -> None:
        """The code isn't used, because it does something else than the graph."""
        backend_differs(self.name, how, operations, trace)

    def code_failed(self, error: Exception, operations: int, trace: str | None) -> None:
        """The code has raised what the function doesn't raise: it isn't used any more."""
        code_failed(self.name, error, operations, trace)

    def _shown(self, description: Sequence[Row], compile: Callable[[], T]) -> T | Failed:
        """As `_tried`; who looks on is told if it's a backend that compiles for long."""
        if not (self.is_slow or self.is_torch):
            return self._tried(description, compile)
        with shown(f"{_words(description)}, by {self.name}", left):
            return self._tried(description, compile)

    def _tried(self, description: Sequence[Row], compile: Callable[[], T]) -> T | Failed:
        """What `compile` returns, or how it has failed. Interrupts of a call are the program's."""
        from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

        from stator._fx.process import AheadOfTimeError

        waits: Sequence[Row] | None = None
        try:
            return compile()
        except _TheirError as raised:
            error, what = raised.error, None
        except AheadOfTimeError as raised:
            error, what = raised, None
            waits = description
        except UnsupportedFakeTensorException as raised:
            # PyTorch has nothing that stands for such a tensor while code is made.
            error, what = raised, None
        except Exception as raised:
            # What is done around the backend is Stator's own.
            error, what = raised, own_error(raised)
        return Failed(error, what, *_extent(description), waits)

    def _compile_module(
        self, description: Sequence[Row], module: torch.fx.GraphModule, inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        from stator._fx.metadata import add_metadata, compilation, next_compile_id

        compile_id = next_compile_id(self.compilations)
        # Without a context, Inductor makes such a one, and AOTAutograd the other.
        takes_constants = self.name == "inductor" and self.is_torch
        with compilation(compile_id, takes_constants=takes_constants):
            add_metadata(module, description, inputs, compile_id)
            return self._called(module, inputs)

    def _called(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What the backend makes of a module."""
        from stator._fx.graphs import without_report

        try:
            compiled = _while_signals_come(self.fn, module, inputs, **self.arguments)
        except Exception as error:
            raise _TheirError(error) from error
        if isinstance(compiled, Declined):
            return compiled
        if not callable(compiled):
            raise BackendError(
                f"The backend {self.name} returned {compiled!r}. A backend takes a "
                "torch.fx.GraphModule and example inputs, and returns a callable that takes the "
                "graph's inputs."
            )
        return without_report(compiled)

    def _compile(self, description: Sequence[Row], inputs: Sequence[Any]) -> Made:
        from stator._fx.graphs import graph_module, is_symbolic

        if self.is_torch and is_symbolic(description):
            from stator._fx.symbolic import compile_symbolic

            compile_module = functools.partial(self._compile_module, description)
            return compile_symbolic(self.name, compile_module, description, inputs)
        module = graph_module(description, inputs)
        if self.takes_parts:
            return self._called(module, inputs)
        return self._compile_module(description, module, inputs)


def _extent(description: Sequence[Row]) -> tuple[int, str | None]:
    """How many operations a graph has, and where the first one stands, as in a traceback."""
    operations = [row for row in description if row[0] not in ("placeholder", "output")]
    return len(operations), next((row[5] for row in operations if row[5] is not None), None)


def _words(description: Sequence[Row]) -> str:
    """A graph, as users are told of it."""
    return _words_of(*_extent(description))


def _words_of(operations: int, trace: str | None) -> str:
    return f"a graph of {operations} operations that begins in {place_of(trace)[2]}"


def _say_wait(graph: str, why: str, which: str) -> str:
    """A call waits for code, though others are compiled beside the program; who looks on is told
    why."""
    log.info(
        f"{graph} isn't compiled beside the program: {why}. So {which} of it waits for its code; "
        "with stator.compile(when='background') none does"
    )
    return why


_has_swapped = False


def _at_first() -> str:
    """What is said at the first swap of a process."""
    global _has_swapped
    if _has_swapped:
        return ""
    _has_swapped = True
    return (
        ". Results may round otherwise from here on; stator.compile(when='first_call') makes that "
        "the same in each run"
    )


def _refused(why: str) -> BackendError:
    return BackendError(
        f"It can't be compiled beside the program: {why}. With when='second_call' a call waits."
    )


class _TheirError(Exception):
    """A backend has raised this error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def wrong_outputs(prepared: Prepared, expected: int, returned: object) -> Exception:
    """The error of a backend whose code returned something else than
    a tuple or list of the graph's outputs."""
    if isinstance(returned, tuple | list):
        types = ", ".join(type(value).__name__ for value in returned)
        found = f"a {type(returned).__name__} of {len(returned)} ({types})"
    else:
        found = f"a {type(returned).__name__}"
    return BackendError(
        f"What the backend {prepared.name} returned gave back {found}, where the graph has "
        f"{expected} output{'s' * (expected != 1)}. It has to return a tuple or list of them: "
        "tensors where the graph has tensors."
    )
