"""The file that structures are written to: an archive of arrays, beside a list of what they are.

It is a ZIP archive as `numpy.savez` writes it, so `numpy.load` shows the arrays; `contents.json`
says for each value where it is in the structure, and of which kind. Reading it runs no code that a
file could bring: no pickle is written, and none is read.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import IO, Any, TypeAlias

import numpy as np

from stator.federated._abstract import Serializable
from stator.federated._files import write_whole
from stator.federated.program import structure_utils

#: The name of a member of an archive, and what writes it.
_Member: TypeAlias = tuple[str, Callable[[IO[bytes]], None]]

_FORMAT = "stator.federated.program"
_VERSION = 1
_CONTENTS = "contents.json"

#: What reading something else than an archive raises. Files that can't be read are another matter.
_DAMAGE = (
    *(ValueError, LookupError, TypeError, EOFError, NotImplementedError, RuntimeError),
    *(OverflowError, zipfile.BadZipFile, struct.error),
)


class CorruptedFileError(Exception):
    """A file is damaged, or isn't what its name says.

    path: of the file.
    """

    def __init__(self, path: str, why: str, hint: str) -> None:
        super().__init__(f"{path} is damaged, or was written by another program: {why}. {hint}")
        self.path = path
        self._arguments = path, why, hint

    def __reduce__(self) -> Any:
        return type(self), self._arguments


class Written:
    """A `Serializable` object as it was written.

    name: of its class.
    data: what `to_bytes` gave.
    """

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data


def as_it_is(structure: Any) -> Any:
    """The structure with `Written` for what is `Serializable`: a program may go on with that while
    references are awaited and the file is written."""
    return structure_utils.map_structure(
        lambda value: (
            Written(type(value).__qualname__, value.to_bytes())
            if isinstance(value, Serializable)
            else value
        ),
        structure,
    )


class Archive:
    """A structure that is to be written to a file, as `as_it_is` gives it.

    of: what it is, which is asked for when it is read.

    Raises `TypeError` if something can't be written.
    """

    def __init__(self, structure: Any, of: str) -> None:
        entries: list[dict[str, Any]] = []
        self._members: list[_Member] = []
        for place, value in structure_utils.with_paths(structure):
            entry = _entry(value, place, self._members)
            entries.append({"path": [_part(key, place) for key in place], **entry})
        contents = {"format": _FORMAT, "version": _VERSION, "of": of, "values": entries}
        self._contents = json.dumps(contents)

    def write(self, path: str | os.PathLike[str], *, exclusive: bool = False) -> None:
        """Writes the file, whole or not at all. Raises `FileExistsError` if there is one where
        there must be none."""
        write_whole(path, self._write, exclusive=exclusive)

    def _write(self, file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(_CONTENTS), self._contents)
            for name, write_member in self._members:
                with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                    write_member(member)


def read_archive(path: str | os.PathLike[str], of: str, hint: str) -> list[tuple[Any, Any]]:
    """What is in a file: values with their paths, as `structure_utils.with_paths` gives them,
    and `Written` for what was `Serializable`.

    Raises `CorruptedFileError` with the hint; `FileNotFoundError` if there is none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            contents = json.loads(_member(archive, _CONTENTS))
            if contents["format"] != _FORMAT or contents["of"] != of:
                raise ValueError(f"it holds no {of}")
            if contents["version"] != _VERSION:
                raise ValueError(f"its format is of version {contents['version']!r}")
            return [
                (tuple(_key(part) for part in entry["path"]), _value(entry, archive))
                for entry in contents["values"]
            ]
    except (*_DAMAGE, OSError) as error:
        # Places that no file has are damage, too.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        why = str(error) or type(error).__name__
        raise CorruptedFileError(os.fspath(path), why, hint) from None


def _part(key: Any, place: structure_utils.Path) -> Any:
    """A part of a path as JSON has it: a text, a position, or an integer key of a dictionary."""
    if type(key) in (str, int):
        return key
    raise TypeError(
        f"a key can't be written to a file\n  expected: a text or an integer\n"
        f"  found:    {key!r}, in {_name(place)}"
    )


def _key(part: Any) -> Any:
    if type(part) not in (str, int):
        raise ValueError("a path is of something else than texts and integers")
    return part


def _name(place: structure_utils.Path) -> str:
    return f"`{'/'.join(map(str, place))}`" if place else "the value"


def _entry(
    value: Any,
    place: structure_utils.Path,
    members: list[_Member],
) -> dict[str, Any]:
    """How a value is listed; what is large goes to a member."""

    def add(suffix: str, write: Callable[[IO[bytes]], None]) -> str:
        members.append((f"{len(members)}{suffix}", write))
        return members[-1][0]

    kind = type(value)
    if value is None:
        return {"kind": "none"}
    if kind in (bool, str):
        return {"kind": kind.__name__, "value": value}
    if kind is int:
        return {"kind": "int", "value": hex(value)}
    if kind is float:
        return {"kind": "float", "value": value.hex()}
    if kind is complex:
        return {"kind": "complex", "value": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"kind": "bytes", "member": add(".bin", lambda file: _write(file, value))}
    if isinstance(value, Written):
        name = add(".bin", lambda file: _write(file, value.data))
        return {"kind": "serializable", "class": value.name, "member": name}
    if isinstance(value, np.generic) or kind in (np.ndarray, np.memmap):
        array = np.asarray(value)
        found = {"kind": "scalar" if isinstance(value, np.generic) else "array"}
        if array.dtype.hasobject:
            return {**found, "texts": _texts(array, place), "shape": list(array.shape)}
        if array.dtype.kind == "V" and (extended := _extended_name(array.dtype, place)):
            found["dtype"] = extended
            array = array.view(f"u{array.dtype.itemsize}")
        name = add(".npy", lambda file: np.lib.format.write_array(file, array, allow_pickle=False))
        return {**found, "member": name}
    raise TypeError(
        f"{_name(place)} can't be written to a file\n"
        "  expected: numbers, texts, bytes, arrays, None, or what is Serializable\n"
        f"  found:    {kind.__module__}.{kind.__qualname__}\n"
        "  hint:     use dictionaries, lists and (named) tuples of such values, or derive its "
        "class from stator.federated.Serializable"
    )


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)


def _texts(array: Any, place: structure_utils.Path) -> list[list[Any]]:
    """The elements of an array of texts, which the language has as bytes."""
    found: list[list[Any]] = []
    for element in array.reshape(-1).tolist():
        if type(element) is str:
            found.append(["str", element])
        elif type(element) is bytes:
            found.append(["bytes", element.hex()])
        else:
            raise TypeError(
                f"{_name(place)} can't be written to a file\n"
                "  expected: an array of numbers or texts\n"
                f"  found:    one with an object of {type(element).__qualname__}"
            )
    return found


def _extended_name(dtype: np.dtype[Any], place: structure_utils.Path) -> str | None:
    """The name of an element type of `ml_dtypes`, such as bfloat16, which NumPy's format doesn't
    know; `None` of one of records."""
    if dtype.fields is None:
        with contextlib.suppress(ImportError, ValueError):
            if _extended(dtype.name) == dtype:
                return dtype.name
    else:
        # Not all of them are read as they were written.
        file = io.BytesIO()
        with contextlib.suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.lib.format.write_array(file, np.empty(0, dtype), allow_pickle=False)
            if _parsed(file.getvalue()).dtype == dtype:
                return None
    raise TypeError(
        f"{_name(place)} can't be written to a file\n"
        "  expected: an array of numbers or texts\n"
        f"  found:    an array of {dtype}"
    )


def _extended(name: str) -> np.dtype[Any]:
    """An element type of `ml_dtypes`."""
    import ml_dtypes

    found = getattr(ml_dtypes, name, None)
    if not isinstance(found, type):
        raise ValueError(f"it has an array of an unknown element type, {name}")
    return np.dtype(found)


def _value(entry: dict[str, Any], archive: zipfile.ZipFile) -> Any:
    """The value that is listed."""
    kind = entry["kind"]
    if kind == "none":
        return None
    if kind in ("bool", "str"):
        found = entry["value"]
        if type(found).__name__ != kind:
            raise ValueError(f"a {kind} is something else")
        return found
    if kind == "int":
        return int(entry["value"], 16)
    if kind == "float":
        return float.fromhex(entry["value"])
    if kind == "complex":
        real, imag = map(float.fromhex, entry["value"])
        return complex(real, imag)
    if kind == "bytes":
        return _member(archive, entry["member"])
    if kind == "serializable":
        return Written(str(entry["class"]), _member(archive, entry["member"]))
    if kind not in ("array", "scalar"):
        raise ValueError(f"it has a value of an unknown kind, {kind!r}")
    array = _array_of_texts(entry) if "texts" in entry else _array(entry, archive)
    return array[()] if kind == "scalar" else array


def _array_of_texts(entry: dict[str, Any]) -> Any:
    texts = [bytes.fromhex(text) if kind == "bytes" else str(text) for kind, text in entry["texts"]]
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(entry["shape"])


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _array(entry: dict[str, Any], archive: zipfile.ZipFile) -> Any:
    array = _parsed(_member(archive, entry["member"]))
    return array.view(_extended(entry["dtype"])) if "dtype" in entry else array


def _parsed(data: bytes) -> np.ndarray[Any, Any]:
    """The array in NumPy's format."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array's format is of version {version}")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("an array holds objects")
    left = len(data) - file.tell()
    if math.prod(shape) * dtype.itemsize != left:
        raise ValueError("an array is of another size than it says")
    flat = np.frombuffer(data, dtype, count=math.prod(shape), offset=file.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C").copy(order="K")


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a member; its checksum is looked at."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError("a member is compressed")
    return archive.read(info)
