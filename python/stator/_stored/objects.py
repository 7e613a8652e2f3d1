"""The objects of a trace as text, by which another process finds what stands in their places.

A constant is written as itself. Anything else is written as where it is (a module that is imported,
and steps from there) and what it stands for (`digests`). Where nothing is found, or something else,
the trace isn't used.
"""

from __future__ import annotations

import enum
import functools
import struct
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from stator._stator import Compiled
from stator._stored.digests import Digests

__all__ = ["ChangedError", "Form", "NotStorableError", "Reader", "Writer"]

Form: TypeAlias = list[Any]
"""What JSON can write."""

Step: TypeAlias = list[Any]
"""A kind of step, and which, if there are several: see `_STEPS`."""


class NotStorableError(Exception):
    """An object can't be found again by another process."""


class ChangedError(Exception):
    """An object isn't there any more, or is another one."""


_NAMED = {"None": None, "True": True, "False": False, "...": ..., "NotImplemented": NotImplemented}

_TORCHS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)

_DEPTH = 6
"""How many steps lead from what a name says to what is looked for: decorators within decorators."""


_STEPS: dict[str, Callable[[Any, Any], object]] = {
    "in": lambda value, name: vars(value)[name],
    "member": lambda value, name: value._member_map_[name],
    "wrapped": lambda value, _: value.__wrapped__,
    "function": lambda value, _: value.__func__,
    "cell": lambda value, index: value.__closure__[index].cell_contents,
    "default": lambda value, index: value.__defaults__[index],
    "code": lambda value, _: value.__code__,
    "globals": lambda value, _: value.__globals__,
    "constant": lambda value, index: value.co_consts[index],
    "accessor": lambda value, name: getattr(value, name),
    "partial": lambda value, _: value.func,
}


def _around(value: Any) -> Iterator[Step]:
    """The steps that lead on from an object whose name was found."""
    if isinstance(value, types.CodeType):
        for index, constant in enumerate(value.co_consts):
            if isinstance(constant, types.CodeType):
                yield ["constant", index]
    elif isinstance(value, types.FunctionType):
        yield ["code", None]
        if "__wrapped__" in vars(value):
            yield ["wrapped", None]
        for index in range(len(value.__closure__ or ())):
            yield ["cell", index]
        for index in range(len(value.__defaults__ or ())):
            yield ["default", index]
    elif isinstance(value, (staticmethod, classmethod, types.MethodType)):
        yield ["function", None]
    elif isinstance(value, property):
        for name in ("fget", "fset", "fdel"):
            yield ["accessor", name]
    elif isinstance(value, functools.partial):
        yield ["partial", None]
    elif isinstance(value, (Compiled, functools._lru_cache_wrapper)):
        yield ["wrapped", None]


def _taken(value: object, step: Step) -> object:
    return _STEPS[step[0]](value, step[1])


class Writer:
    """Writes objects of the traces of one function."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function
        self._digests = Digests()
        self._written: dict[int, tuple[object, Form]] = {}
        self._functions: dict[int, types.FunctionType] = {}

    def know(self, objects: Sequence[object]) -> None:
        """Code is found by the functions among some objects: it needn't have their names."""
        for value in objects:
            if isinstance(value, types.FunctionType):
                self._functions[id(value.__code__)] = value

    def write_code(self, code: types.CodeType, names: dict[str, Any]) -> list[Form]:
        """The forms of a code object and of the global variables that it is evaluated with."""
        form = self.write(code)
        try:
            return [form, self.write(names)]
        except NotStorableError:
            # A function that was made from a text may have variables of its own.
            kind, root, steps, _ = form
            if steps[-1] != ["code", None]:
                raise
            return [form, [kind, root, [*steps[:-1], ["globals", None]], self._digests.of(names)]]

    def write(self, value: Any) -> Form:
        """The form of an object. Raises NotStorableError if another process can't find it again."""
        if id(value) not in self._written:
            self._written[id(value)] = (value, self._form(value))
        return self._written[id(value)][1]

    def _form(self, value: Any) -> Form:
        kind = type(value)
        for name, named in _NAMED.items():
            if value is named:
                return ["named", name]
        if kind is int:
            return ["int", str(value)]
        if kind is float:
            return ["float", _bits(value)]
        if kind is complex:
            return ["complex", _bits(value.real), _bits(value.imag)]
        if kind is str:
            return ["str", value]
        if kind is bytes:
            return ["bytes", value.hex()]
        if kind is tuple:
            return ["tuple", *map(self.write, value)]
        if kind is slice:
            return ["slice", *map(self.write, (value.start, value.stop, value.step))]
        if kind is range:
            return ["range", value.start, value.stop, value.step]
        if kind is torch.Size:
            return ["size", *value]
        if kind is torch.device:
            return ["device", str(value)]
        if isinstance(value, _TORCHS):
            return ["torch", str(value).removeprefix("torch.")]
        if value is torch.default_generator:
            return ["torch", "default_generator"]
        if isinstance(value, torch._ops._OpNamespace):
            return ["operators", value.name]
        if isinstance(value, types.ModuleType):
            if sys.modules.get(value.__name__) is not value:
                raise NotStorableError(f"the module {value.__name__} isn't in sys.modules")
            return ["module", value.__name__]
        if isinstance(value, dict):
            return self._globals(value)
        if isinstance(value, torch._ops.OpOverloadPacket):
            return ["operator", value._qualified_op_name, None]
        if isinstance(value, torch._ops.OpOverload):
            return ["operator", value._schema.name, value._overloadname]
        function = self._functions.get(id(value))
        if function is not None:
            kind, root, steps, _ = self.write(function)
            return [kind, root, [*steps, ["code", None]], self._digests.of(value)]
        if not _is_told(value):
            raise NotStorableError(f"what {_shown(value)} holds isn't known")
        for root, start, names in self._starts(value):
            steps = self._way(value, start, names)
            if steps is not None:
                return ["found", root, steps, self._digests.of(value)]
        raise NotStorableError(f"{_shown(value)} has no name by which it is found")

    def _globals(self, value: dict[str, Any]) -> Form:
        module = sys.modules.get(str(value.get("__name__")))
        if module is None or vars(module) is not value:
            raise NotStorableError("a dictionary isn't that of a module")
        return ["globals", module.__name__]

    def _starts(self, value: Any) -> Iterator[tuple[str | None, object, list[str]]]:
        """Modules where an object may be, and the names on the way. None: the compiled function."""
        yield None, self._function, []
        for module, qualname in _places(value):
            found = sys.modules.get(module)
            if found is not None:
                yield module, found, qualname.split(".<locals>")[0].split(".")

    def _way(self, value: object, start: object, names: list[str]) -> list[Step] | None:
        """The steps from a module to an object; None: it isn't there."""
        steps: list[Step] = []
        for name in names:
            try:
                start = _taken(start, ["in", name])
            except (KeyError, TypeError):
                return None
            steps.append(["in", name])
        if isinstance(value, enum.Enum):
            steps.append(["member", value.name])
            return steps if _at(start, steps[-1]) is value else None
        ways = [(start, steps)]
        seen = set()
        for _ in range(_DEPTH):
            further = []
            for found, way in ways:
                if found is value:
                    return way
                if id(found) not in seen:
                    seen.add(id(found))
                    further += [(_at(found, step), [*way, step]) for step in _around(found)]
            ways = further
        return None


_TOLD = (
    *(type, types.FunctionType, types.CodeType, property, staticmethod, classmethod, enum.Enum),
    *(functools.partial, functools.cached_property, functools._lru_cache_wrapper, Compiled),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
"""Digests tell of these all that guards don't."""


def _is_told(value: Any) -> bool:
    """Whether a digest, and the guards on what was read of it, tell an object from others.

    An object of C may hold anything: a pattern its text, a bound method what it is bound to.
    """
    if isinstance(value, _TOLD):
        return True
    if isinstance(value, (types.BuiltinFunctionType, types.MethodType)):
        bound = value.__self__
        # Functions of pybind11 are bound to a record of it.
        is_record = type(bound).__name__.startswith(
            ("PyCapsule", "pybind11_detail_function_record")
        )
        return is_record or bound is None or isinstance(bound, (type, types.ModuleType))
    if type(value).__module__.split(".")[0] == "numpy" and callable(value):
        return True  # Its universal functions.
    classes = type(value).__mro__[:-1]
    return all("__dict__" in vars(base) or "__slots__" in vars(base) for base in classes)


def _function_of(value: Any) -> types.FunctionType | None:
    """The function that an entry of a class was made of: it has its name."""
    if isinstance(value, property):
        value = value.fget or value.fset or value.fdel
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) else None


def _entries(value: object) -> Iterator[tuple[str, str]]:
    """The places of an entry of a class, or of its code, whatever these say of themselves."""
    for module, found in list(sys.modules.items()):
        for name, held in list(vars(found).items()):
            if issubclass(type(held), type) and held.__module__ == module:
                for attribute, entry in list(vars(held).items()):
                    function = _function_of(entry)
                    if (
                        value is entry
                        or value is function
                        or value is getattr(function, "__code__", 0)
                    ):
                        yield module, f"{name}.{attribute}"


def _places(value: Any) -> Iterator[tuple[str, str]]:
    """The modules where an object may be, each with the name that it may have there."""
    short = str(getattr(value, "__name__", ""))
    name = str(getattr(value, "__qualname__", short))
    module = str(getattr(value, "__module__", None))
    receiver = getattr(value, "__self__", None)
    function = _function_of(value)
    if function is not None:
        module, name = str(function.__module__), function.__qualname__
        yield module, name
    elif isinstance(value, types.CodeType):
        for known, found in list(sys.modules.items()):
            if getattr(found, "__file__", None) == value.co_filename:
                yield known, value.co_qualname
    elif isinstance(value, enum.Enum):
        yield module, type(value).__qualname__
    elif (owner := getattr(value, "__objclass__", None)) is not None:
        yield owner.__module__, f"{owner.__qualname__}.{short}"
        for held in _names_in("types", owner):
            yield "types", f"{held}.{short}"
    elif isinstance(receiver, type):
        yield receiver.__module__, f"{receiver.__qualname__}.{short}"
    else:
        yield module, name
    # What a function has made and a module holds is there under any name.
    for known in (module, "types"):
        for held in _names_in(known, value):
            yield known, held
    for known, found in list(sys.modules.items()):
        if short and vars(found).get(short) is value:
            yield known, short
    if isinstance(value, (types.CodeType, types.FunctionType, staticmethod, classmethod)):
        yield from _entries(value)


def _names_in(module: str, value: object) -> list[str]:
    """The names that an object has in a module."""
    found = sys.modules.get(module)
    return [] if found is None else [name for name, held in vars(found).items() if held is value]


def _bits(value: float) -> str:
    """All of them: `hex` tells no two NaNs apart."""
    return struct.pack("<d", value).hex()


def _float(bits: str) -> float:
    (value,) = struct.unpack("<d", bytes.fromhex(bits))
    assert isinstance(value, float)
    return value


def _at(value: object, step: Step) -> object:
    """What a step leads to; itself, if it leads nowhere."""
    try:
        return _taken(value, step)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return value


class Reader:
    """Finds the objects again that a `Writer` has written."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function
        self._digests = Digests()

    def read(self, form: Form) -> Any:
        """The object. Raises ChangedError if there is none, or another one."""
        kind, *rest = form
        match kind:
            case "named":
                return _NAMED[rest[0]]
            case "int":
                return int(rest[0])
            case "float":
                return _float(rest[0])
            case "complex":
                return complex(*map(_float, rest))
            case "str":
                return sys.intern(rest[0])
            case "bytes":
                return bytes.fromhex(rest[0])
            case "tuple":
                return tuple(map(self.read, rest))
            case "slice":
                return slice(*map(self.read, rest))
            case "range":
                return range(*rest)
            case "size":
                return torch.Size(rest)
            case "device":
                return torch.device(rest[0])
            case "torch":
                return getattr(torch, rest[0])
            case "module":
                return _module(rest[0])
            case "globals":
                return vars(_module(rest[0]))
            case "operators":
                return getattr(torch.ops, rest[0])
            case "operator":
                return self._operator(*rest)
            case "found":
                return self._found(*rest)
        raise ValueError(f"no object is written as {kind}")

    def _operator(self, name: str, overload: str | None) -> object:
        namespace, _, operator = name.partition("::")
        try:
            packet = getattr(getattr(torch.ops, namespace), operator)
            return packet if overload is None else getattr(packet, overload)
        except (AttributeError, RuntimeError) as error:
            raise ChangedError(f"there is no operator {name}") from error

    def _found(self, root: str | None, steps: list[Step], expected: str) -> object:
        found: Any = self._function if root is None else _module(root)
        for step in steps:
            try:
                found = _taken(found, step)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise ChangedError(f"{_path(root, steps)} isn't there") from error
        if self._digests.of(found) != expected:
            raise ChangedError(f"{_path(root, steps)} has changed")
        return found


def _module(name: str) -> types.ModuleType:
    found = sys.modules.get(name)
    if found is None:
        raise ChangedError(f"the module {name} isn't imported")
    return found


def _path(root: str | None, steps: list[Step]) -> str:
    names = [str(which) for kind, which in steps if kind in ("in", "member")]
    return ".".join([root or "the compiled function", *names])


def _shown(value: object) -> str:
    kind = type(value).__name__
    name = getattr(value, "__qualname__", None) or getattr(value, "co_qualname", None)
    return f"the {kind} {name}" if isinstance(name, str) else f"a {kind}"
