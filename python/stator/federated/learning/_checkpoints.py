"""States in files: written whole or not at all, and read only if they are of the process.

The file is that of states of programs (`stator.federated.program`): an archive of arrays with a
list of what they are. Those that earlier versions have written, of arrays alone, are read as well.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import leaves
from stator.federated.learning._processes import IterativeProcess
from stator.federated.program import CorruptedFileError, structure_utils
from stator.federated.program._archive import Archive, read_archive

_KIND = "state of learning"
_STATE, _TRAINING = "state", "training"

#: How earlier versions called what is told of training, among the arrays of the state.
_OLD_TRAINING = "training: metrics and seed"


class CheckpointError(Exception):
    """A file has no state of the process."""


@_native.hidden
def save_state(state: Any, path: str | os.PathLike[str]) -> None:
    """Writes a state to a file. Whoever is killed meanwhile has left the file as it was."""
    write(state, None, path)


@_native.hidden
def load_state(process: IterativeProcess, path: str | os.PathLike[str]) -> Any:
    """The state that was written to a file, by `save_state` or as a checkpoint of `train`.

    Raises `CheckpointError` if the file is damaged, or holds the state of another process;
    `FileNotFoundError` if there is none.
    """
    values, _ = read(path)
    return state_of(process, values, path)


def write(state: Any, training: str | None, path: str | os.PathLike[str]) -> None:
    """Writes a state to a file, with what is told of the training that came to it."""
    contents = {_STATE: structure_utils.map_structure(_as_array, state)}
    if training is not None:
        contents[_TRAINING] = training
    Archive(contents, _KIND).write(path)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None]:
    """The values of a state by their paths in it, and what is told of the training."""
    try:
        found = read_archive(path, _KIND, "Remove it to begin anew, or give an earlier file.")
    except CorruptedFileError as error:
        old = _read_old(path)
        if old is None:
            raise CheckpointError(str(error)) from error
        return old
    training = dict(found).get((_TRAINING,))
    values = {_name(place[1:]): value for place, value in found if place[:1] == (_STATE,)}
    return values, training if isinstance(training, str) else None


def _read_old(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None] | None:
    """The same of a file of arrays alone; `None` if it isn't one, or is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                return None
            values = {name: file[name] for name in file.files}
        if not all(isinstance(value, np.ndarray) for value in values.values()):
            return None
        told = values.pop(_OLD_TRAINING, None)
        return values, None if told is None else bytes(told).decode()
    except Exception:
        # Damage makes NumPy raise whatever it finds first.
        return None


def state_of(
    process: IterativeProcess, values: dict[str, Any], path: str | os.PathLike[str]
) -> Any:
    """The state that values from a file are."""
    expected = dict(leaves(process.state_type))
    if missing := expected.keys() ^ values.keys():
        names = ", ".join(sorted(missing))
        raise CheckpointError(
            f"{os.fspath(path)} holds the state of another process: these are in one of them only: "
            f"{names}"
        )
    for name, of in expected.items():
        found = np.asarray(values[name])
        if found.dtype != of.dtype or found.shape != tuple(of.shape):
            raise CheckpointError(
                f"{os.fspath(path)} holds the state of another process: `{name}` is "
                f"{found.dtype}{list(found.shape)}, where the process has {of}"
            )
    return _nested(process.state_type, (values[name] for name in expected))


def _as_array(value: Any) -> Any:
    return value if isinstance(value, np.generic) else np.asarray(value)


def _name(place: structure_utils.Path) -> str:
    return "/".join(map(str, place))


def _nested(of: Any, values: Iterator[Any]) -> Any:
    """Values of a type, in the order of its leaves, in its containers."""
    if not isinstance(of, fl.StructType):
        return next(values)
    inner = [(name, _nested(field, values)) for name, field in of.items()]
    if inner and inner[0][0] is None:
        return tuple(value for _, value in inner)
    return OrderedDict(inner)
