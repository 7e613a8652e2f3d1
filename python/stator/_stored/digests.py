"""What objects stand for that guards know by identity: equal digests, equal behaviour.

Another process has other objects at the same places. A function is the same one if its code,
constants, defaults and closure are; a class if all that its resolution order says is; a function of
C if its library is the same file.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stator._stator import Compiled

__all__ = ["Digests", "library"]

_HEAP = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the class was made at run time, by a `class` statement as a rule."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))


class Digests:
    """Digests of objects as they are now: classes that many objects share are told once."""

    def __init__(self) -> None:
        self._bodies: dict[type, str] = {}
        self._made: dict[int, tuple[object, str]] = {}

    def of(self, value: object) -> str:
        """The digest of a function, class, code object, module, enum member or C function."""
        found = self._made.get(id(value))
        if found is None:
            if isinstance(value, type):
                parts = self._class(value)
            else:
                parts = self._parts(value, frozenset())
            found = self._made[id(value)] = (value, _hashed(parts))
        return found[1]

    def _class(self, value: type) -> Iterator[str]:
        for base in (*inspect.getmro(value), *inspect.getmro(type(value))):
            yield _name(base)
            if not base.__flags__ & _HEAP:
                yield library(base.__module__)
                continue
            if base not in self._bodies:
                self._bodies[base] = _hashed(self._body(base))
            yield self._bodies[base]

    def _body(self, value: type) -> Iterator[str]:
        for name, held in value.__dict__.items():
            if name not in _UNTOLD:
                yield name
                yield from self._parts(held, frozenset())

    def _parts(self, value: Any, within: frozenset[int]) -> Iterator[str]:
        """Texts that tell it from others. `within`: what is being told, which may hold itself."""
        yield type(value).__qualname__
        if id(value) in within:
            return
        inner = within | {id(value)}
        if isinstance(value, type):
            # If the trace relies on a class within another thing, it has a guard of its own.
            yield _name(value)
        elif type(value) in _PLAIN:
            yield repr(value)
        elif isinstance(value, types.ModuleType):
            yield value.__name__
        elif isinstance(value, types.CodeType):
            yield _told(value)
            yield from self._all(value.co_consts, inner)
        elif isinstance(value, types.FunctionType):
            yield str(value.__module__)
            cells = [_content(cell) for cell in value.__closure__ or ()]
            defaults = (value.__defaults__, *(value.__kwdefaults__ or {}).items())
            yield from self._all((value.__code__, *defaults, *cells), inner)
        elif (held := _held(value)) is not None:
            yield from self._all(held, inner)
        else:
            yield str(getattr(value, "__qualname__", ""))
            yield library(str(getattr(value, "__module__", None) or ""))

    def _all(self, values: Sequence[object], within: frozenset[int]) -> Iterator[str]:
        yield str(len(values))
        for value in values:
            yield from self._parts(value, within)


def _held(value: Any) -> Sequence[object] | None:
    """What an object consists of, if it's of a kind that has no more to it."""
    if type(value) is tuple:
        return value
    if type(value) is frozenset:
        return sorted(value, key=repr)
    if isinstance(value, enum.Enum):
        return value.name, value.value, type(value)
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return (value.__func__,)
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    if isinstance(value, functools.partial):
        return value.func, value.args, *value.keywords.items()
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, (Compiled, functools._lru_cache_wrapper)):
        return (value.__wrapped__,)
    return None


def _told(code: types.CodeType) -> str:
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    bodies = (code.co_code, code.co_exceptiontable, code.co_linetable)
    return repr((code.co_qualname, code.co_firstlineno, numbers, names, bodies))


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return NotImplemented


def _name(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _hashed(parts: Iterable[str]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        made.update(len(encoded).to_bytes(4, "little"))
        made.update(encoded)
    return made.hexdigest()


_UNTOLD = {"__dict__", "__weakref__", "__doc__", "__annotations__", "_abc_impl"}
"""Entries of classes that no call of theirs reads, or that CPython makes for each anew."""


@functools.cache
def library(module: str) -> str:
    """What tells the library of a module from others: its file, as the file system has it."""
    name = module
    while name:
        found = sys.modules.get(name)
        path = getattr(found, "__file__", None)
        if path:
            return _file(path)
        name = name.rpartition(".")[0]
    return sys.version


@functools.cache
def _file(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return path
    return f"{path} {found.st_size} {found.st_mtime_ns}"
