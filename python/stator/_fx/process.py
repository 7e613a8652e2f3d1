"""A graph compiled by Inductor in a process of its own, ahead of time.

What comes back is a library: the program never runs a line of Inductor's Python code, neither while
it is compiled nor when it runs. The process gets the graph as a `torch.fx` module, what its inputs
are like, and the settings of this process; it ends with this one. The library is stored for the
next start (`stator._kept`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import getpass
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.fx

from stator._background import at_end
from stator._fx.aliases import with_views, without_results
from stator._fx.graphs import Code
from stator._fx.libraries import Libraries, Look, Made, NothingToCompileError, code_of
from stator._fx.modes import Modes
from stator._fx.sent import pack
from stator._fx.store import key_of
from stator._fx.tied import Pair, code_of_pair
from stator._kept import store
from stator.errors import BackendError

_PROGRAM = "import os; os.nice(5); from stator._fx.compiler import main; main()"
_WITHOUT = ("STATOR_INSTALL", "STATOR_LOGS")


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """What the process is to do."""

    module: torch.fx.GraphModule | bytes
    """The graph; for the process as `stator._fx.sent` writes it."""
    looks: Sequence[Look]
    sizes: Sequence[tuple[str | None, ...]]
    modes: Modes
    settings: dict[str, Any]
    """Given to `stator.compile` for Inductor."""
    changed: dict[str, Any]
    """Inductor's settings that the program has changed."""
    is_training: bool
    are_sizes_guarded: bool
    """Whether the program looks after sizes and strides that are constants for the code."""
    answer: str


class AheadOfTimeError(BackendError):
    """Inductor can't compile a graph ahead of time. It may be able to compile it as usual."""


def compile_in_process(
    module: torch.fx.GraphModule,
    looks: Sequence[Look],
    sizes: Sequence[tuple[str | None, ...]],
    modes: Modes,
    settings: dict[str, Any],
    changed: dict[str, Any],
    is_training: bool,
    *,
    are_sizes_guarded: bool = True,
) -> Callable[..., Any] | Code:
    """The code of a graph. Waits for the process, without the interpreter's lock.

    Raises AheadOfTimeError with what Inductor has raised there, BackendError if the process dies
    or if what it needs isn't there.
    """
    order = Order(
        module=module,
        looks=looks,
        sizes=sizes,
        modes=modes,
        settings=settings,
        changed=changed,
        is_training=is_training,
        are_sizes_guarded=are_sizes_guarded,
        answer="",
    )
    try:
        made, libraries = _found_or_made(order, module)
    except OSError as error:
        raise BackendError(
            f"Inductor's order or what it has made can't be written: {error}. TMPDIR names another "
            "folder for that"
        ) from error
    if isinstance(made, Pair):
        rest = without_results(module, made.views)
        code = code_of_pair(made, libraries, rest, modes, looks, sizes)
    else:
        code = code_of(made, libraries, looks)
    return with_views(code, module, made.views)


Loaded: TypeAlias = "tuple[Made | Pair, Libraries]"
"""What is known of libraries, and they themselves."""

_loaded: weakref.WeakValueDictionary[str, Libraries] = weakref.WeakValueDictionary()
"""The libraries that code in this process holds, by the names of what they were made of."""


def _found_or_made(order: Order, module: torch.fx.GraphModule) -> Loaded:
    try:
        packed = pack(module)
    except Exception as error:
        raise AheadOfTimeError(f"The graph can't be sent to a process: {error}") from error
    key = key_of(order, module)
    libraries = None if key is None else _loaded.get(key)
    if libraries is not None:
        return libraries.made, libraries
    made, libraries = _stored_or_made(order, packed, key)
    if key is not None:
        _loaded[key] = libraries
    return made, libraries


def _stored_or_made(order: Order, packed: bytes, key: str | None) -> Loaded:
    stored = store()
    if stored is not None and key is not None and (found := stored.find(key, _load)) is not None:
        return found
    with tempfile.TemporaryDirectory(prefix="stator-") as folder:
        bundle = os.path.join(folder, "bundle")
        order = dataclasses.replace(order, module=packed)
        _bundle(_ask(order, Path(folder)), bundle)
        if stored is not None and key is not None:
            stored.keep(key, bundle)
        try:
            return _load(bundle)
        except RuntimeError as error:
            raise BackendError(
                f"What Inductor has made can't be loaded: {error}. Where files of "
                f"{tempfile.gettempdir()} may not be executed, TMPDIR names another folder"
            ) from error


_FACTS = "facts.json"


def _bundle(made: Made | Pair, path: str) -> None:
    """Writes libraries and what is known of them into one file."""
    with zipfile.ZipFile(path, "w") as bundle:
        facts = dataclasses.asdict(made)
        names = [f"{index}.so" for index, _ in enumerate(made.libraries)]
        for name, library in zip(names, made.libraries, strict=True):
            bundle.write(library, name)
            # Operators that it has PyTorch call by name: who loads it looks for them there.
            called = Path(library).with_suffix(".json")
            if called.exists():
                bundle.write(called, str(Path(name).with_suffix(".json")))
        kind = type(made).__name__
        bundle.writestr(_FACTS, json.dumps({"kind": kind, **facts, "libraries": names}))


def _load(path: str) -> Loaded:
    """Loads what is in such a file. Raises RuntimeError where that can't be."""
    try:
        with tempfile.TemporaryDirectory(prefix="stator-") as folder:
            with zipfile.ZipFile(path) as bundle:
                bundle.extractall(folder)
            facts = json.loads((Path(folder) / _FACTS).read_text())
            made = (Pair if facts.pop("kind") == "Pair" else Made)(**facts)
            run = torch._C._aoti.AOTIModelContainerRunnerCpu
            loaded = [run(os.path.join(folder, name), 1) for name in made.libraries]
            return made, Libraries(made, loaded)
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise RuntimeError(f"it isn't a bundle of libraries ({error})") from error


def _check_cache() -> None:
    """Raises BackendError where Inductor can't write its files."""
    folder = cache_folder()
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BackendError(unwritable(error.errno)) from error


def _ask(order: Order, folder: Path) -> Made | Pair:
    """What Inductor makes in a process, which answers in a file of the folder."""
    _check_cache()
    answer = folder / "answer.json"
    packed = pickle.dumps(dataclasses.replace(order, answer=str(answer)))
    environment = {key: value for key, value in os.environ.items() if key not in _WITHOUT}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, map(str, sys.path)))
    compiler = _compiler_for(environment)
    is_done = compiler.takes(packed)
    if not is_done and compiler.filled > 0:
        # What it kept of other graphs may have been too much.
        compiler.how_it_ends()
        compiler = _compiler_for(environment)
        is_done = compiler.takes(packed)
    if not (is_done and answer.exists()):
        raise BackendError(f"Inductor's process has ended early: {compiler.how_it_ends()}")
    if not at_end(compiler.end):
        # Nobody says when there are no more orders.
        compiler.end()
    found = json.loads(answer.read_text())
    if "nothing" in found:
        raise NothingToCompileError(found["nothing"])
    if "hopeless" in found:
        raise BackendError(found["hopeless"])
    if "error" in found:
        raise AheadOfTimeError(f"Inductor can't compile it ahead of time: {found['error']}")
    return Pair(**found["pair"]) if "pair" in found else Made(**found["made"])


WORD = 8
"""So many bytes say how long an order is."""

DONE = b"."
"""What the process says when an order is filled."""


class _Compiler:
    """A process of Inductor's. It takes one order after the other: to import PyTorch and to find
    out what the processor has takes longer than to compile a small graph."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.has_ended = False
        self.filled = 0
        """Orders so far."""
        # Closed when the process has ended.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._done, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                # Modules of the folder that the program happens to be in are none of its own.
                [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=environment,
                pass_fds=(theirs,),
                # An interrupt at the terminal is for the program.
                process_group=0,
            )
        except BaseException:
            self._said.close()
            os.close(self._done)
            raise
        finally:
            os.close(theirs)

    def takes(self, order: bytes) -> bool:
        """Waits until an order is filled. False: the process has ended before."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(len(order).to_bytes(WORD, "little") + order)
            self._process.stdin.flush()
        is_done = os.read(self._done, len(DONE)) == DONE
        self.filled += is_done
        return is_done

    def end(self) -> None:
        """Ends the process."""
        if not self.has_ended:
            # That there are no more orders it only learns where no forked process may write any.
            self._process.terminate()
            self.how_it_ends()

    def how_it_ends(self) -> str:
        """Waits for its end, in words."""
        self.has_ended = True
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        os.close(self._done)
        with self._said:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").strip().splitlines()
        status = self._process.returncode
        if status >= 0:
            return lines[-1] if lines else f"its exit status is {status}"
        how = f"it was killed by {signal.Signals(-status).name}"
        if status == -signal.SIGKILL:
            return f"{how}, as the system does where memory runs out"
        return f"{how}; the last it said is {lines[-1]}" if lines else how


_own = threading.local()
"""The process of a thread that compiles beside the program, as `compiler`."""


def _compiler_for(environment: dict[str, str]) -> _Compiler:
    """One that was started with this environment."""
    known: _Compiler | None = getattr(_own, "compiler", None)
    if known is not None and not known.has_ended:
        if known.environment == environment:
            return known
        known.end()
    try:
        _own.compiler = _Compiler(environment)
    except OSError as error:
        raise BackendError(
            f"No process can be started for Inductor: {error}. With when='second_call' a call "
            "waits while it compiles in this one"
        ) from error
    return _own.compiler  # type: ignore[no-any-return]


def unwritable(number: int | None) -> str:
    """That Inductor can't write its files, in words."""
    what = os.strerror(number or errno.EIO)
    return (
        f"Inductor can't write to its cache, {cache_folder()}: {what}. TORCHINDUCTOR_CACHE_DIR "
        "names another folder"
    )


def cache_folder() -> str:
    """Where Inductor keeps its files. PyTorch makes the folder when it's asked.

    PyTorch's function that says so isn't imported: the modules of its compilers import each other,
    and if the program imports one of them meanwhile, in another thread, both meet half a module.
    """
    if named := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return named
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return os.path.join(tempfile.gettempdir(), f"torchinductor_{user}")
