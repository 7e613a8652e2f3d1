"""A folder of the user's for what the next start of a program finds again.

No file is trusted for standing there. The folder belongs to the user alone, and each file begins
with a code that only who knows the folder's secret can make; it is checked before anybody looks at
the rest. Nothing is unpickled. What isn't as it should be is made again and replaced.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

__all__ = ["BOUND", "VARIABLE", "Store", "store"]

T = TypeVar("T")

log = logging.getLogger("stator.background")

VARIABLE = "STATOR_CACHE"
"""A folder, or "off"."""

BOUND = 1 << 30
"""Bytes of all files together. Those that nobody has used for longest go first."""

_CODE = 32
"""Bytes of the code that a file begins with, and of the secret."""
_SECRET = "secret"
_BEGUN = "new-"
_ABANDONED = 3600
"""Seconds after which a file that somebody was writing is taken for left behind."""


class Store:
    """Any number of processes may use a folder at the same time."""

    def __init__(self, folder: Path, bound: int = BOUND) -> None:
        self.folder = folder
        self.bound = bound

    def is_empty(self) -> bool:
        """Whether there is nothing to be found."""
        return not any(self._kept())

    def find(self, key: str, load: Callable[[str], T]) -> T | None:
        """What `load` makes of the library's file; None if there is none that can be used."""

        def loaded(library: bytes) -> T:
            # A copy: a file that others can replace may not be the one that was checked.
            with tempfile.TemporaryDirectory(prefix="stator-") as private:
                copy = os.path.join(private, f"{key}.so")
                Path(copy).write_bytes(library)
                return load(copy)

        return self.read(key, loaded)

    def read(self, key: str, take: Callable[[bytes], T]) -> T | None:
        """What `take` makes of a file's content; None if there is none that can be used."""
        path = self.folder / key
        if not path.exists():
            return None
        try:
            secret = self._secret()
            kept = path.read_bytes()
            code, content = kept[:_CODE], kept[_CODE:]
            if not hmac.compare_digest(code, _code(secret, key, content)):
                raise _UnusableError("it isn't what was stored")
            os.utime(path)
            return take(content)
        except (OSError, RuntimeError, ValueError, _UnusableError) as error:
            log.warning(f"{path} isn't used, and is made again: {_why(error)}")
            return None

    def keep(self, key: str, library: str) -> None:
        """Stores a library's file. Where that can't be done, a record says why."""
        try:
            content = Path(library).read_bytes()
        except OSError as error:
            self._refuse(error)
        else:
            self.write(key, content)

    def write(self, key: str, content: bytes) -> bool:
        """Stores a content; False: that can't be done, and a record says why."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            code = _code(self._secret(), key, content)
            self._written(code + content).replace(self.folder / key)
            self._clear_up()
        except (OSError, _UnusableError) as error:
            self._refuse(error)
            return False
        return True

    def _refuse(self, error: Exception) -> None:
        _tell_once(
            f"Nothing is kept in {self.folder} for the next start: {_why(error)}. "
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
                if path.name == _SECRET or path.name.startswith(_BEGUN):
                    continue
                if path.is_file():
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
