"""States in files: written whole or not at all, and read only if they are of the process."""

from __future__ import annotations

import os
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

import stator.federated as fl
from stator.federated._files import write_whole
from stator.federated.learning._processes import IterativeProcess


class CheckpointError(Exception):
    """A file has no state of the process."""


def save_state(state: Any, path: str | os.PathLike[str]) -> None:
    """Writes a state to a file. Whoever is killed meanwhile has left the file as it was."""
    write_arrays(arrays_of(state), path)


def load_state(process: IterativeProcess, path: str | os.PathLike[str]) -> Any:
    """The state that was written to a file.

    Raises `CheckpointError` if the file is damaged, or holds the state of another process;
    `FileNotFoundError` if there is none.
    """
    return state_of(process, read_arrays(path), path)


def write_arrays(arrays: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes arrays to a file, whole or not at all."""
    write_whole(path, lambda file: np.savez(file, **arrays))


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays in a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{os.fspath(path)} is no checkpoint, or is damaged: {error}"
        ) from error


def arrays_of(state: Any) -> dict[str, Any]:
    """A state as arrays, by their paths in it."""
    return {name: np.asarray(value) for name, value in _flat(state, dict)}


def state_of(
    process: IterativeProcess, arrays: dict[str, Any], path: str | os.PathLike[str]
) -> Any:
    """The state that arrays from a file are."""
    expected = dict(_flat(process.state_type, fl.StructType))
    if missing := expected.keys() ^ arrays.keys():
        names = ", ".join(sorted(missing))
        raise CheckpointError(
            f"{os.fspath(path)} holds the state of another process: these are in one of them only: "
            f"{names}"
        )
    for name, of in expected.items():
        found = arrays[name]
        if found.dtype != of.dtype or found.shape != tuple(of.shape):
            raise CheckpointError(
                f"{os.fspath(path)} holds the state of another process: `{name}` is "
                f"{found.dtype}{list(found.shape)}, where the process has {of}"
            )
    return _nested(process.state_type, iter([arrays[name] for name in expected]))


def _flat(tree: Any, kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What is in a state or its type, by paths; `kind` is the class of what holds others."""
    for name, part in tree.items():
        if isinstance(part, kind):
            yield from _flat(part, kind, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", part


def _nested(of: Any, arrays: Iterator[Any]) -> Any:
    return OrderedDict(
        (name, _nested(field, arrays) if isinstance(field, fl.StructType) else next(arrays))
        for name, field in of.items()
    )
