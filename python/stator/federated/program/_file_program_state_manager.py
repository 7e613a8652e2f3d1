"""States of programs in files."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from pathlib import Path
from typing import Any

from stator._stator import federated as _native
from stator.federated._abstract import Serializable
from stator.federated._files import directory, sync_directory, unfinished_name
from stator.federated.program import structure_utils
from stator.federated.program._archive import Archive, Written, as_it_is, read_archive
from stator.federated.program.program_state_manager import (
    ProgramStateExistsError,
    ProgramStateManager,
    ProgramStateNotFoundError,
    ProgramStateStructure,
)
from stator.federated.program.value_reference import materialize_value

_KIND = "program state"


class StructureMismatchError(ValueError):
    """A saved state has another structure than the one that it is loaded for."""


@_native.hidden
class FileProgramStateManager(ProgramStateManager[ProgramStateStructure]):
    """Keeps states in files of a directory, one for each version: `program_state_12.npz`.

    A state is written whole or not at all, so whoever is killed goes on from the last one that was
    saved. What a file may hold: numbers, texts, bytes, NumPy's arrays, `None`, and what is
    `Serializable`; they come back as they were. One program at a time writes to a directory.

    root_dir: the directory; it is made if it isn't there.
    prefix: what the names of the files begin with.
    keep_total: how many states are kept, of which the oldest are removed first; 0 or less for all.
    keep_first: whether the first state, that of the least version, is always kept.
    keep_every_k: of all but the latest state, and the first one if that is kept, those are kept
        whose version is a multiple of this; 1 for all.

        manager = FileProgramStateManager("states", keep_total=3)
        await manager.save({"round": 1, "weights": weights}, 1)
        state, version = await manager.load_latest({"round": 0, "weights": weights})

    Raises `ValueError` if `root_dir` is empty, or `keep_every_k` less than 1.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike[str],
        prefix: str = "program_state_",
        keep_total: int = 5,
        keep_first: bool = True,
        keep_every_k: int = 1,
    ) -> None:
        if keep_every_k < 1:
            raise ValueError(f"`keep_every_k` is to be 1 or more, not {keep_every_k!r}.")
        self._root = directory(root_dir, prefix)
        self._prefix = prefix
        self._keep_total = keep_total
        self._keep_first = keep_first
        self._keep_every = keep_every_k
        self._saving: set[int] = set()
        self._lock = threading.Lock()

    async def get_versions(self) -> list[int] | None:
        """The versions there are, from the least on; `None` if there is none."""
        return await asyncio.to_thread(self._versions) or None

    async def load(self, version: int, structure: ProgramStateStructure) -> ProgramStateStructure:
        """The state of a version.

        structure: a state of the same structure, such as the initial one. Its values don't matter;
            what is `Serializable` is read by `from_bytes` of the class that stands in its place.

        Raises `ProgramStateNotFoundError` if there is none, `CorruptedFileError` if its file is
        damaged or foreign, `StructureMismatchError` if it has another structure.
        """
        return await asyncio.to_thread(self._load, _checked(version), structure)

    async def save(self, program_state: ProgramStateStructure, version: int) -> None:
        """Keeps a state, and then removes those that needn't be kept.

        version: 0 or more.

        Raises `ProgramStateExistsError` if there is one of this version, `TypeError` if something
        in it can't be written.
        """
        path = self._path(_checked(version))
        if path.exists():
            raise ProgramStateExistsError(version=version, path=str(path))
        state = await materialize_value(as_it_is(program_state))
        await asyncio.to_thread(self._save, Archive(state, _KIND), version)

    async def remove(self, version: int) -> None:
        """Removes the state of a version. Raises `ProgramStateNotFoundError` if there is none."""
        await asyncio.to_thread(self._remove, _checked(version))

    async def remove_all(self) -> None:
        """Removes all states, and what was left of states that weren't written to the end."""
        await super().remove_all()
        await asyncio.to_thread(self._sweep, None)

    def _path(self, version: int) -> Path:
        return self._root / f"{self._prefix}{version}.npz"

    def _versions(self) -> list[int]:
        pattern = re.compile(re.escape(self._prefix) + r"(0|[1-9][0-9]*)\.npz")
        try:
            found = [pattern.fullmatch(name) for name in os.listdir(self._root)]
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in found if match)

    def _load(self, version: int, structure: Any) -> Any:
        path = self._path(version)
        before = [other for other in self._versions() if other < version]
        go_on = f"go on from version {before[-1]}" if before else "begin anew"
        hint = f"Remove it, or `await manager.remove({version})`, to {go_on}."
        try:
            found = read_archive(path, _KIND, hint)
        except FileNotFoundError:
            raise ProgramStateNotFoundError(version) from None
        places = list(structure_utils.with_paths(structure))
        _check_structure([place for place, _ in places], [place for place, _ in found], path)
        values = [
            _restored(saved, like, place, path)
            for (place, like), (_, saved) in zip(places, found, strict=True)
        ]
        return structure_utils.unflatten_as(structure, values)

    def _save(self, state: Archive, version: int) -> None:
        path = self._path(version)
        self._root.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._saving.add(version)
        try:
            state.write(path, exclusive=True)
        except FileExistsError:
            raise ProgramStateExistsError(version=version, path=str(path)) from None
        finally:
            with self._lock:
                self._saving.discard(version)
        with self._lock:
            for old in self._superfluous():
                self._path(old).unlink(missing_ok=True)
        self._sweep(version)

    def _superfluous(self) -> list[int]:
        """The versions that needn't be kept."""
        versions = self._versions()
        if not versions:
            return []
        always = {versions[-1], *(versions[:1] if self._keep_first else ())}
        others = [each for each in versions if each not in always]
        removed = [each for each in others if each % self._keep_every]
        if self._keep_total > 0:
            kept = [each for each in others if each % self._keep_every == 0]
            removed += kept[: max(0, len(kept) + len(always) - self._keep_total)]
        return removed

    def _remove(self, version: int) -> None:
        try:
            self._path(version).unlink()
        except FileNotFoundError:
            raise ProgramStateNotFoundError(version) from None
        sync_directory(self._root)

    def _sweep(self, newest: int | None) -> None:
        """Removes what killed processes have left of states up to a version, or of all."""
        before, after = unfinished_name(self._root / f"{self._prefix}\0.npz").split("\0")
        pattern = re.compile(f"{re.escape(before)}([0-9]+){re.escape(after)}[0-9a-f]+")
        for name in os.listdir(self._root):
            match = pattern.fullmatch(name)
            if match is None or (newest is not None and int(match[1]) > newest):
                continue
            with self._lock:
                if int(match[1]) not in self._saving:
                    (self._root / name).unlink(missing_ok=True)


def _checked(version: Any) -> int:
    if isinstance(version, bool) or not hasattr(version, "__index__"):
        raise TypeError(f"`version` is to be an integer, not {version!r}.")
    if version < 0:
        raise ValueError(f"`version` is to be 0 or more, not {version}.")
    return int(version)


def _check_structure(wanted: list[Any], found: list[Any], path: Path) -> None:
    if wanted == found:
        return

    def listed(places: Any) -> str:
        names = ["/".join(map(str, place)) or "a lone value" for place in places]
        shown = ", ".join(f"`{name}`" for name in names[:5])
        return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "nothing"

    raise StructureMismatchError(
        f"{path} holds a state of another structure\n"
        f"  expected: {listed([place for place in wanted if place not in found])}\n"
        f"  found:    {listed([place for place in found if place not in wanted])} instead\n"
        "  hint:     load it for a state of the structure that was saved"
    )


def _restored(saved: Any, like: Any, place: structure_utils.Path, path: Path) -> Any:
    """The value as it was; what is `Serializable` is made by its class."""
    if not isinstance(saved, Written):
        return saved
    if not isinstance(like, Serializable) or type(like).__qualname__ != saved.name:
        raise StructureMismatchError(
            f"{path} holds something else at `{'/'.join(map(str, place))}`\n"
            f"  expected: an object of {saved.name}, in the structure it is loaded for\n"
            f"  found:    one of {type(like).__qualname__}"
        )
    return type(like).from_bytes(saved.data)
