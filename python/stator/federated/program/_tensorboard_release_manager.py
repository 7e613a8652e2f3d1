"""Releasing to TensorBoard."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import numpy as np

from stator._stator import federated as _native
from stator.federated.program import structure_utils
from stator.federated.program._turns import Turns
from stator.federated.program.release_manager import ReleasableStructure, ReleaseManager
from stator.federated.program.value_reference import materialize_value


class TensorBoardNotFoundError(ModuleNotFoundError):
    """TensorBoard, or PyTorch, which writes its files, isn't installed."""


@_native.hidden
class TensorBoardReleaseManager(ReleaseManager[ReleasableStructure, int]):
    """Releases values to a directory that TensorBoard shows: numbers as scalars, arrays of numbers
    as histograms, texts as texts, by the names that `structure_utils.flatten_with_name` gives them
    (`value` for a lone one). Needs PyTorch and `pip install tensorboard`.

    summary_dir: the directory; it is made if it isn't there.

        manager = TensorBoardReleaseManager("summaries")
        await manager.release({"loss": 0.5}, 1)
        manager.close()

    Raises `TensorBoardNotFoundError` if one of the two isn't installed, `ValueError` if
    `summary_dir` is empty.
    """

    def __init__(self, summary_dir: str | os.PathLike[str]) -> None:
        if not os.fspath(summary_dir):
            raise ValueError("`summary_dir` is to be the path of a directory, and is empty.")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise TensorBoardNotFoundError(
                f"a TensorBoardReleaseManager needs a module that isn't installed: {error.name}\n"
                "  hint:     pip install torch tensorboard",
                name=error.name,
            ) from None
        self._writer: Any = SummaryWriter(os.fspath(summary_dir))
        self._turns = Turns()

    async def release(self, value: ReleasableStructure, key: int) -> None:
        """Writes a value, as the step that the key is. Raises `TypeError` if the key isn't an
        integer, or something in the value is neither a real number, an array of them nor a text;
        then nothing is written."""
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"`key` is to be an integer, such as a round's number, not {key!r}.")
        async with self._turns.next():
            found = await materialize_value(value)  # type: ignore[arg-type]
            parts = [
                (name or "value", _shown(part, name))
                for name, part in structure_utils.flatten_with_name(found)
            ]
            await asyncio.to_thread(self._write, parts, int(key))

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()

    def _write(self, parts: list[tuple[str, Any]], key: int) -> None:
        for name, part in parts:
            if isinstance(part, str):
                self._writer.add_text(name, part, key)
            elif part.ndim == 0:
                self._writer.add_scalar(name, part[()], key)
            elif part.size:
                self._writer.add_histogram(name, part, key)
        self._writer.flush()


def _shown(value: Any, name: str) -> Any:
    """A text, or an array that TensorBoard knows."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, str):
        return str(value)
    array = np.asarray(value)
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"`{name or 'value'}` can't be shown by TensorBoard\n"
            "  expected: real numbers, arrays of them, or a text\n"
            f"  found:    {type(value).__name__}, {array.dtype}"
        )
    return array
