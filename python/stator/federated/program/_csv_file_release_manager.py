"""Releasing to a table in a CSV file."""

from __future__ import annotations

import asyncio
import csv
import enum
import inspect
import io
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stator._stator import federated as _native
from stator.federated._files import write_whole
from stator.federated.program import structure_utils
from stator.federated.program._archive import CorruptedFileError
from stator.federated.program._turns import Turns
from stator.federated.program.release_manager import ReleasableStructure, ReleaseManager
from stator.federated.program.value_reference import materialize_value

_LOG = logging.getLogger("stator.federated")
# The column of a value without containers.
_VALUE = "value"


class CSVSaveMode(enum.Enum):
    """How a row comes into a CSV file: it is added to the file, or the file is written anew."""

    APPEND = "append"
    WRITE = "write"


class CSVKeyFieldnameNotFoundError(Exception):
    """A CSV file has no column of the keys' name.

    path: of the file.
    """

    def __init__(self, path: str, key_fieldname: str, found: list[str]) -> None:
        super().__init__(
            f"{path} has no column of keys\n"
            f"  expected: {key_fieldname!r}\n  found:    {', '.join(map(repr, found))}\n"
            "  hint:     say `key_fieldname=`, or take another file"
        )
        self.path = path
        self._arguments = path, key_fieldname, found

    def __reduce__(self) -> Any:
        return type(self), self._arguments


@_native.hidden
class CSVFileReleaseManager(ReleaseManager[ReleasableStructure, int]):
    """Releases values to a CSV file: a row for each key, a column for each value of the structure,
    by the name that `structure_utils.flatten_with_name` gives it. Python's `csv` reads it.

    A value without containers is in the column `value`. An array is written as a list, such as
    `[[1, 2], [3, 4]]`. A column that wasn't there before is added, and empty in the rows before.

    A program that goes on from an earlier state releases the same keys again: a row takes the place
    of the one with its key and of all with greater ones.

    file_path: the file; it is made, with its directory, by the first release.
    save_mode: `APPEND` adds a row to the file. Whoever is killed meanwhile may leave a part of a
        row, which is removed, with a warning in the log, by the first release of the next process.
        `WRITE` writes the whole file each time, so that it always has whole rows; it takes longer
        the longer it is.
    key_fieldname: the name of the column of the keys.

        manager = CSVFileReleaseManager("metrics.csv")
        await manager.release({"train": {"loss": 0.5}}, 1)  # key,train/loss

    Raises `ValueError` if `file_path` or `key_fieldname` is empty, `CSVKeyFieldnameNotFoundError`
    if the file has no such column, `CorruptedFileError` if it is no such table.
    """

    def __init__(
        self,
        file_path: str | os.PathLike[str],
        save_mode: CSVSaveMode = CSVSaveMode.APPEND,
        key_fieldname: str = "key",
    ) -> None:
        if not os.fspath(file_path):
            raise ValueError("`file_path` is to be the path of a file, and is empty.")
        if not key_fieldname:
            raise ValueError("`key_fieldname` is to be the name of a column, and is empty.")
        self._path = Path(file_path)
        self._mode = CSVSaveMode(save_mode)
        self._key_name = key_fieldname
        self._turns = Turns()
        # What is known of the file while it is as this manager left it.
        self._seen: tuple[int, int] | None = None
        self._columns: list[str] = []
        self._latest: int | None = None
        self._read()

    async def release(self, value: ReleasableStructure, key: int) -> None:
        """Writes a row. Raises `TypeError` if the key isn't an integer, or a value has no text but
        where it is in memory, such as a function; `ValueError` if a column would have the name of
        the keys'."""
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"`key` is to be an integer, such as a round's number, not {key!r}.")
        # Rows are written in the order in which they were released.
        async with self._turns.next():
            found = await materialize_value(value)  # type: ignore[arg-type]
            row = self._row(found, int(key))
            await asyncio.to_thread(self._write, row, int(key))

    def _row(self, value: Any, key: int) -> dict[str, str]:
        row = {self._key_name: str(key)}
        for name, part in structure_utils.flatten_with_name(value):
            name = name or _VALUE
            if name in row:
                raise ValueError(
                    f"two columns would have the name {name!r}: give `key_fieldname=` another one, "
                    "or the value."
                )
            row[name] = _cell(part, name)
        return row

    def _write(self, row: Mapping[str, str], key: int) -> None:
        follows = self._is_as_left() and (self._latest is None or key > self._latest)
        if self._mode is CSVSaveMode.APPEND and follows and row.keys() <= set(self._columns):
            line = _text([[row.get(name, "") for name in self._columns]])
            with open(self._path, "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        else:
            rows = [old for old in self._read() if int(old[self._key_name]) < key]
            columns = [*self._columns, *(name for name in row if name not in self._columns)]
            table = [[each.get(name, "") for name in columns] for each in (*rows, row)]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, lambda file: _write_bytes(file, _text([columns, *table])))
            self._columns = columns
        self._latest = key
        self._seen = self._stat()

    def _is_as_left(self) -> bool:
        return self._seen is not None and self._seen == self._stat()

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns

    def _read(self) -> list[dict[str, str]]:
        """The rows of the file."""
        self._columns, self._latest, self._seen = [], None, self._stat()
        if self._seen is None or self._seen[0] == 0:
            # What isn't there has no columns to add a row to.
            self._seen = None
            return []
        rows, is_whole = self._parsed(self._path.read_bytes())
        self._latest = max((int(row[self._key_name]) for row in rows), default=None)
        if not is_whole:
            # The next release writes it anew.
            self._seen = None
        return rows

    def _parsed(self, data: bytes) -> tuple[list[dict[str, str]], bool]:
        """The rows in a file, and whether its last one was written to the end."""
        hint = "Repair or remove it, or take another file."
        try:
            text = data.decode()
            whole = _whole_lines(text)
            lines = list(csv.reader(io.StringIO(whole or text, newline=""), strict=True))
            self._columns = lines[0]
            if len(set(self._columns)) != len(self._columns):
                raise ValueError("two columns have the same name")
        except (ValueError, IndexError, csv.Error) as error:
            raise CorruptedFileError(str(self._path), str(error), hint) from None
        if self._key_name not in self._columns:
            raise CSVKeyFieldnameNotFoundError(str(self._path), self._key_name, self._columns)
        rows = []
        for number, line in enumerate(lines[1:], 1):
            try:
                row = dict(zip(self._columns, line, strict=True))
                int(row[self._key_name])
            except ValueError:
                why = f"row {number} has other columns than the first line, or no integer key"
                raise CorruptedFileError(str(self._path), why, hint) from None
            rows.append(row)
        if 0 < len(whole) < len(text):
            _LOG.warning("%s ends with a part of a row, which is left out", self._path)
        return rows, whole == text


def _whole_lines(text: str) -> str:
    """What was written to the end: up to the last end of a line that isn't within quotes. A cell
    has an even number of quotes."""
    end = len(text)
    while True:
        end = text.rfind("\n", 0, end)
        if end < 0 or text.count('"', 0, end) % 2 == 0:
            return text[: end + 1]


def _text(rows: list[list[str]]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()


def _write_bytes(file: Any, data: bytes) -> None:
    file.write(data)


def _cell(value: Any, column: str) -> str:
    """A value as text: Python's of numbers and lists of them."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, bytes):
        # Texts of the language are bytes.
        return value.decode(errors="backslashreplace")
    text = str(value)
    if inspect.isroutine(value) or isinstance(value, type) or f"0x{id(value):x}" in text:
        raise TypeError(
            f"a table has no place for the value of column {column!r}\n"
            "  expected: a number, an array, a text, or an object with a text of its own\n"
            f"  found:    {text}"
        )
    return text
