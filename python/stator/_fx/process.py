"""A graph compiled by Inductor in a process of its own, ahead of time.

What comes back is a library: the program never runs a line of Inductor's Python code, neither while
it is compiled nor when it runs. The process gets the graph as a `torch.fx` module, what its inputs
are like, and the settings of this process; it ends with this one. The library is stored for the
next start (`stator._kept`).
"""

from __future__ import annotations

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
import weakref
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.fx

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
    parent: int
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
        parent=0,
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
    order = dataclasses.replace(order, parent=os.getpid(), answer=str(answer))
    environment = {key: value for key, value in os.environ.items() if key not in _WITHOUT}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, map(str, sys.path)))
    try:
        done = subprocess.run(
            # Modules of the folder that the program happens to be in are none of its own.
            [sys.executable, "-P", "-c", _PROGRAM],
            input=pickle.dumps(order),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
            # An interrupt at the terminal is for the program.
            process_group=0,
        )
    except OSError as error:
        raise BackendError(
            f"No process can be started for Inductor: {error}. With when='second_call' a call "
            "waits while it compiles in this one"
        ) from error
    if not answer.exists():
        raise BackendError(f"Inductor's process has ended early: {_end_of(done)}")
    found = json.loads(answer.read_text())
    if "nothing" in found:
        raise NothingToCompileError(found["nothing"])
    if "hopeless" in found:
        raise BackendError(found["hopeless"])
    if "error" in found:
        raise AheadOfTimeError(f"Inductor can't compile it ahead of time: {found['error']}")
    return Pair(**found["pair"]) if "pair" in found else Made(**found["made"])


def _end_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """How a process has ended that hasn't answered."""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode >= 0:
        return lines[-1] if lines else f"its exit status is {done.returncode}"
    how = f"it was killed by {signal.Signals(-done.returncode).name}"
    if done.returncode == -signal.SIGKILL:
        return f"{how}, as the system does where memory runs out"
    return f"{how}; the last it said is {lines[-1]}" if lines else how


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
