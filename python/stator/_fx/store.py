"""Compiled code that the next start of a program finds: libraries in a folder of the user's.

A library is stored under a digest of all that its compiler was given, and of what it depends on
besides: the versions, the processor, the compiler's environment. Traces aren't stored. Recording
one takes about as long as two eager calls, and its guards are made of what is there, so nothing of
a trace can be out of date (docs/decisions.md).

No file is trusted for standing there. The folder belongs to the user alone, and each file begins
with a code that only who knows the folder's secret can make; it is checked before the library is
loaded. Nothing is unpickled. What isn't as it should be is compiled again and replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import hmac
import io
import logging
import os
import pickle
import platform
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.fx

from stator._fx.callables import FOLDER, is_pytorchs
from stator._stator import __version__

T = TypeVar("T")

log = logging.getLogger("stator.background")

VARIABLE = "STATOR_CACHE"
"""A folder, or "off"."""

BOUND = 1 << 30
"""Bytes of all libraries together. Those that nobody has used for longest go first."""

_FORMAT = b"1"
_CODE = 32
"""Bytes of the code that a file begins with, and of the secret."""
_SECRET = "secret"
_BEGUN = "new-"
_ABANDONED = 3600
"""Seconds after which a file that somebody was writing is taken for left behind."""


class Store:
    """A folder of libraries. Any number of processes may use one at the same time."""

    def __init__(self, folder: Path, bound: int = BOUND) -> None:
        self.folder = folder
        self.bound = bound

    def is_empty(self) -> bool:
        """Whether there is nothing to be found."""
        return not any(self._kept())

    def find(self, key: str, load: Callable[[str], T]) -> T | None:
        """What `load` makes of the library's file; None if there is none that can be used."""
        path = self.folder / key
        if not path.exists():
            return None
        try:
            secret = self._secret()
            content = path.read_bytes()
            code, library = content[:_CODE], content[_CODE:]
            if not hmac.compare_digest(code, _code(secret, key, library)):
                raise _UnusableError("it isn't what was stored")
            os.utime(path)
            # A copy: a file that others can replace may not be the one that was checked.
            with tempfile.TemporaryDirectory(prefix="stator-") as private:
                copy = os.path.join(private, f"{key}.so")
                Path(copy).write_bytes(library)
                return load(copy)
        except (OSError, RuntimeError, _UnusableError) as error:
            log.warning(f"{path} isn't used, and is compiled again: {_why(error)}")
            return None

    def keep(self, key: str, library: str) -> None:
        """Stores a file. Where that can't be done, a record says why."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = Path(library).read_bytes()
            code = _code(self._secret(), key, content)
            self._written(code + content).replace(self.folder / key)
            self._clear_up()
        except (OSError, _UnusableError) as error:
            _tell_once(
                f"Code isn't kept in {self.folder} for the next start: {_why(error)}. "
                f"Set {VARIABLE} to another folder, or to off."
            )

    def _check(self) -> None:
        """Raises unless the folder is the user's alone."""
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise _UnusableError("it is no folder")
        if hasattr(os, "getuid") and found.st_uid != os.getuid():
            raise _UnusableError("the folder belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _UnusableError("others may use the folder, too; chmod 700 mends it")
        # Whoever may write to a folder above it can put another in its place between two looks.
        named = Path(os.path.abspath(self.folder))
        for above in {*named.parents, *named.resolve().parents}:
            mode = above.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise _UnusableError(f"all users may write to {above}, where it lies")

    def _secret(self) -> bytes:
        """What only the folder's user knows; made by whoever comes first."""
        self._check()
        path = self.folder / _SECRET
        if not path.exists():
            made = self._written(secrets.token_bytes(_CODE))
            try:
                os.link(made, path)
            except FileExistsError:
                pass
            except OSError:
                # File systems without links. Of two that come first, one compiles again.
                made.replace(path)
            made.unlink(missing_ok=True)
        secret = path.read_bytes()
        if len(secret) != _CODE:
            path.unlink(missing_ok=True)
            raise _UnusableError("the folder's secret is damaged, and a new one is made")
        return secret

    def _written(self, content: bytes) -> Path:
        """A new file of the folder, which others don't look at while it is written."""
        descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=_BEGUN)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except BaseException:
            os.unlink(name)
            raise
        return Path(name)

    def _kept(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if path.name != _SECRET and not path.name.startswith(_BEGUN):
                    yield path

    def _clear_up(self) -> None:
        """Removes what is too much, and what processes have left that were killed."""
        for path in self.folder.glob(f"{_BEGUN}*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _ABANDONED:
                    path.unlink()
        kept = []
        for path in self._kept():
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                kept.append((found.st_mtime_ns, found.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept)[:-1]:
            if total <= self.bound:
                break
            path.unlink(missing_ok=True)
            total -= size


class _UnusableError(Exception):
    """Why a folder or a file isn't used."""


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


@functools.cache
def _tell_once(message: str) -> None:
    log.warning(message)


def _code(secret: bytes, key: str, library: bytes) -> bytes:
    """A message authentication code (RFC 7693, section 2.9)."""
    made = hashlib.blake2b(key.encode(), key=secret, digest_size=_CODE)
    made.update(library)
    return made.digest()


def store() -> Store | None:
    """The user's, or the one that `STATOR_CACHE` names; None: nothing is to be kept."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() == "off":
        return None
    if named:
        return Store(Path(named))
    try:
        return Store(_caches() / "stator")
    except RuntimeError:  # There is no home.
        return None


def _caches() -> Path:
    """Where programs keep what can be made again (XDG Base Directory Specification 0.8)."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def key_of(order: object, module: torch.fx.GraphModule) -> str | None:
    """The name of what a compiler makes of a graph; None: it depends on more than can be told.

    order: all that the compiler is given, the graph among it; what pickle can write.
    """
    if not all(map(_is_told, module.graph.nodes)):
        return None
    made = hashlib.blake2b(_FORMAT, digest_size=20)
    written = io.BytesIO()
    _Writer(written).dump(order)
    for part in (written.getvalue(), *_surroundings()):
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()


class _Writer(pickle.Pickler):
    """Writes equal things equally. PyTorch writes of a tensor where it lies, too."""

    def reducer_override(self, value: Any) -> Any:
        if not _is_data(value):
            return NotImplemented
        dense = value.contiguous()
        data = ctypes.string_at(dense.data_ptr(), dense.nbytes)
        facts = (value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
        return tuple, ((data, *facts),)


def _is_data(value: object) -> bool:
    """Whether this is a tensor that says all in its numbers, dtype, sizes and strides."""
    return (
        type(value) is torch.Tensor
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
        and not value.is_quantized
    )


def _is_told(node: torch.fx.Node) -> bool:
    """Whether the name of what a node calls says what it does, given PyTorch's version."""
    if node.op == "get_attr":
        return _is_data(getattr(node.graph.owning_module, str(node.target)))
    if node.op != "call_function":
        return True
    return is_pytorchs(node.target)


_COMPILERS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "LIBRARY_PATH")


def _surroundings() -> Iterator[bytes]:
    """What compiled code depends on besides the order."""
    yield _of_this_process()
    for name in sorted(os.environ):
        if name in _COMPILERS or name.startswith(("TORCH", "CPLUS_", "OMP_")):
            yield f"{name}={os.environ[name]}".encode()


@functools.cache
def _of_this_process() -> bytes:
    libraries = sorted((FOLDER / "lib").glob("*torch*"))
    parts = [
        __version__,
        *(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))),
        torch.__version__,
        str(torch.version.git_version),
        *(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in libraries),
        sys.version,
        platform.platform(),
        *_processor(),
    ]
    return "\n".join(parts).encode()


def _processor() -> Iterator[str]:
    """What compilers ask of the processor: a home may be that of several machines."""
    yield platform.machine()
    yield str(torch.backends.cpu.get_cpu_capability())
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if not line.strip():
                return
            if line.startswith(("model name", "flags", "Features", "CPU ")):
                yield line
