"""Traces in the user's folder: one file for each compiled function, under what it is known by.

The form has a version, as what the native side writes has one. A file that isn't of this version,
that is damaged or was written by somebody else isn't used, and is replaced when traces are kept
the next time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch

from stator._kept import Store, store
from stator._stator import _TRACE_VERSION, Compiled, __version__, _adopt_trace, _stored_traces
from stator._stored import KeptTraces
from stator._stored.digests import Digests, library
from stator._stored.objects import ChangedError, Form, NotStorableError, Reader, Writer

__all__ = ["keep", "take"]

log = logging.getLogger("stator.background")

_FORMAT = 1
_FOLDER = "traces"


def keep(compiled: Compiled, name: str, settings: str) -> KeptTraces:
    """Writes the traces of a compiled function. `name`, `settings`: what else it is known by."""
    function = compiled.__wrapped__
    assert isinstance(function, types.FunctionType)
    kept, left_out = [], []
    table = _Table(Writer(function))
    for stored, reason in _stored_traces(compiled):
        if stored is None:
            left_out.append(f"A trace has no stored form: {reason}.")
            continue
        table.know(stored["objects"])
        try:
            kept.append(_written(stored, table))
        except NotStorableError as error:
            left_out.append(f"A trace can't be found again by another process: {error}.")
    folder = _folder()
    if folder is None:
        return KeptTraces(0, (*left_out, "STATOR_CACHE is off."))
    content = {"format": _FORMAT, "objects": table.forms, "traces": kept}
    if kept and not folder.write(_key(function, name, settings), json.dumps(content).encode()):
        return KeptTraces(0, (*left_out, f"Nothing can be kept in {folder.folder}."))
    return KeptTraces(len(kept), tuple(left_out))


def take(compiled: Compiled, name: str, settings: str) -> KeptTraces:
    """Adds the traces to a compiled function that were written for one like it."""
    function = compiled.__wrapped__
    assert isinstance(function, types.FunctionType)
    folder = _folder()
    content = None
    if folder is not None:
        content = folder.read(_key(function, name, settings), _checked)
    if content is None:
        return KeptTraces(0, ())
    reader = Reader(function)
    count, left_out = 0, []
    for trace in content["traces"]:
        try:
            objects = {index: reader.read(content["objects"][index]) for index in _named(trace)}
            if not _adopt_trace(compiled, _read(trace, objects)):
                left_out.append("The function has as many traces as it may have.")
                break
            count += 1
        except ChangedError as error:
            left_out.append(f"A trace isn't used: {error}.")
        except ValueError as error:
            left_out.append(f"A trace isn't used: {error}.")
    for reason in left_out:
        log.info(reason)
    return KeptTraces(count, tuple(left_out))


class _Table:
    """The forms of the objects of some traces, each once."""

    def __init__(self, writer: Writer) -> None:
        self.forms: list[Form] = []
        self._writer = writer
        self._known: dict[str, int] = {}

    def know(self, objects: Sequence[object]) -> None:
        """Other objects are found by these."""
        self._writer.know(objects)

    def add(self, value: object) -> int:
        """Where an object's form is."""
        return self._add(self._writer.write(value))

    def add_code(self, code: types.CodeType, names: dict[str, Any]) -> list[int]:
        """Where the forms of a code object and of its global variables are."""
        return [*map(self._add, self._writer.write_code(code, names))]

    def _add(self, form: Form) -> int:
        text = json.dumps(form)
        if text not in self._known:
            self._known[text] = len(self.forms)
            self.forms.append(form)
        return self._known[text]


_LISTS = ("objects", "graph_objects", "classes", "generators")


def _written(stored: dict[str, Any], table: _Table) -> dict[str, Any]:
    written: dict[str, Any] = {name: [*map(table.add, stored[name])] for name in _LISTS}
    written["codes"] = [table.add_code(*pair) for pair in stored["codes"]]
    written["data"] = base64.b85encode(bytes(stored["data"])).decode()
    return written


def _named(trace: dict[str, Any]) -> set[int]:
    codes = [index for pair in trace["codes"] for index in pair]
    return {*codes, *(index for name in _LISTS for index in trace[name])}


def _read(trace: dict[str, Any], objects: dict[int, object]) -> dict[str, Any]:
    read: dict[str, Any] = {name: [objects[index] for index in trace[name]] for name in _LISTS}
    read["codes"] = [(objects[code], objects[names]) for code, names in trace["codes"]]
    read["data"] = base64.b85decode(trace["data"])
    return read


def _checked(content: bytes) -> dict[str, Any]:
    read = json.loads(content)
    if not isinstance(read, dict) or read.get("format") != _FORMAT:
        raise ValueError("its form has another version")
    return read


def _folder() -> Store | None:
    found = store()
    return None if found is None else Store(found.folder / _FOLDER)


def _key(function: types.FunctionType, name: str, settings: str) -> str:
    """The name of a function's file: another one for each version of what a trace is made of."""
    parts = (
        *(str(_FORMAT), str(_TRACE_VERSION), __version__, sys.version),
        library("stator._stator"),
        *(torch.__version__, torch.version.git_version),
        *(function.__module__, Digests().of(function), name, settings),
    )
    made = hashlib.blake2b(digest_size=20)
    for part in parts:
        made.update(len(part.encode()).to_bytes(4, "little"))
        made.update(part.encode())
    return made.hexdigest()
