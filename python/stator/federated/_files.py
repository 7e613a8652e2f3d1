"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO


def directory(root: str | os.PathLike[str], prefix: str) -> Path:
    """The directory of files whose names begin with `prefix`; it is made if it isn't there."""
    if not os.fspath(root):
        raise ValueError("`root_dir` is to be the path of a directory, and is empty.")
    if os.sep in prefix:
        raise ValueError(
            f"`prefix` is to be the beginning of a file's name, without {os.sep!r}: {prefix!r}."
        )
    path = Path(root)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_whole(
    path: str | os.PathLike[str],
    write: Callable[[IO[bytes]], None],
    *,
    exclusive: bool = False,
) -> None:
    """Has `write` write a file. Whoever is killed meanwhile has left the file as it was, and beside
    it perhaps one whose name begins with `unfinished_name` of the path.

    exclusive: raises `FileExistsError` if the file is there by the time it is written.
    """
    path = Path(path)
    unfinished = path.with_name(f"{unfinished_name(path)}{secrets.token_hex(8)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder for the file", str(path))
    # Unlike that of `tempfile`, it is to be read by whom the umask lets.
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            _link(unfinished, path)
        else:
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_directory(path.parent)


def unfinished_name(path: Path) -> str:
    """How the names of files begin that were to become this one."""
    return f".{path.name}.unfinished-"


def sync_directory(path: Path) -> None:
    """What was renamed in a directory is so after a power failure, too, where systems can do it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _link(source: Path, path: Path) -> None:
    """Gives a file another name, if nothing has that name."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links.
        if path.exists():
            raise FileExistsError(str(path)) from None
        os.replace(source, path)
