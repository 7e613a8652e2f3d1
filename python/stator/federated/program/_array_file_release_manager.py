"""Releasing arrays to files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stator._stator import federated as _native
from stator.federated._files import directory, sync_directory
from stator.federated.program._archive import Archive, Written, as_it_is, read_archive
from stator.federated.program.release_manager import (
    ReleasableStructure,
    ReleasedValueNotFoundError,
    ReleaseManager,
)
from stator.federated.program.value_reference import materialize_value

_KIND = "released value"


@_native.hidden
class ArrayFileReleaseManager(ReleaseManager[ReleasableStructure, int | str]):
    """Releases values to files of a directory, one for each key: `release_12.npz`.

    It is for what is too large for a table, such as the weights of a model. `numpy.load` opens the
    files, too. They are written whole or not at all; a value with the same key as another one takes
    its place.

    root_dir: the directory; it is made if it isn't there.
    prefix: what the names of the files begin with.

        manager = ArrayFileReleaseManager("weights")
        await manager.release({"weights": [w, b]}, 12)
        released = await manager.get_value(12)

    Raises `ValueError` if `root_dir` is empty.
    """

    def __init__(self, root_dir: str | os.PathLike[str], prefix: str = "release_") -> None:
        self._root = directory(root_dir, prefix)
        self._prefix = prefix

    async def release(self, value: ReleasableStructure, key: int | str) -> None:
        """Writes a value. Raises `TypeError` if the key is neither an integer nor a text, or
        something in the value is neither a number, a text, bytes, an array nor `None`."""
        path = self._path(key)
        found = await materialize_value(as_it_is(value))
        await asyncio.to_thread(Archive(found, _KIND).write, path)

    async def get_value(self, key: int | str) -> Any:
        """The value that was released: mappings as dictionaries, sequences as lists.

        Raises `ReleasedValueNotFoundError` if there is none, `CorruptedFileError` if its file is
        damaged or foreign.
        """
        return await asyncio.to_thread(self._read, key)

    async def remove(self, key: int | str) -> None:
        """Removes the value. Raises `ReleasedValueNotFoundError` if there is none."""
        await asyncio.to_thread(self._remove, key)

    def _path(self, key: int | str) -> Path:
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            raise TypeError(
                f"`key` is to be an integer or a text, not {key!r}: it is part of a file's name."
            )
        return self._root / f"{self._prefix}{quote(str(key), safe='')}.npz"

    def _read(self, key: int | str) -> Any:
        path = self._path(key)
        try:
            found = read_archive(path, _KIND, "Remove it; other keys have files of their own.")
        except FileNotFoundError:
            raise ReleasedValueNotFoundError(key) from None
        plain = [
            (place, value.data if isinstance(value, Written) else value) for place, value in found
        ]
        return _nested(plain)

    def _remove(self, key: int | str) -> None:
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            raise ReleasedValueNotFoundError(key) from None
        sync_directory(self._root)


def _nested(values: list[tuple[Any, Any]]) -> Any:
    """The structure that values with paths are."""
    if not values:
        return {}
    if values[0][0] == ():
        return values[0][1]
    parts: dict[Any, list[tuple[Any, Any]]] = {}
    for (key, *rest), value in values:
        parts.setdefault(key, []).append((tuple(rest), value))
    found = {key: _nested(part) for key, part in parts.items()}
    return list(found.values()) if list(found) == list(range(len(found))) else found
