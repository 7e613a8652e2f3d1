"""A complete description of a value as lines of text, so that two values compare line by line.

Everything a program could observe goes in: exact types, tensor metadata and bits (NaN and -0.0
included), gradients, aliasing of objects and of tensor storage, instance dictionaries and slots,
class attributes, closure cells, exception chains. Addresses stay out. Objects are numbered in the
order they are met, and a second meeting prints the number.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import os
import re
import struct
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

# What AOTAutograd notes on results of varying sizes, for the next function that a compiler is given: the backend's doing.
_WEAK_MARK = "_dynamo_weak_dynamic_indices"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_HOOKS = re.compile(r"_hooks(_\w+)?$")
_ATOMS = (int, str, bytes, bool, type(None), range, type(...), type(NotImplemented))
_NAMED = (types.ModuleType, types.BuiltinFunctionType, types.GetSetDescriptorType)


def describe(value: Any, name: str = "result") -> list[str]:
    """All lines of one value."""
    return describe_all({name: value})


def describe_all(values: Mapping[str, Any]) -> list[str]:
    """All lines of several named values that may share objects."""
    walk = _Walk()
    with torch.no_grad():
        for name, value in values.items():
            walk.visit(name, value)
    return walk.lines


def first_difference(expected: list[str], found: list[str]) -> str | None:
    """The first differing line of two descriptions, with its neighbourhood."""
    if expected == found:
        return None
    length = min(len(expected), len(found))
    at = next((i for i in range(length) if expected[i] != found[i]), length)
    before = [f"    {line}" for line in expected[max(0, at - 3) : at]]
    plain = [f"  - {line}" for line in expected[at : at + 3]]
    ours = [f"  + {line}" for line in found[at : at + 3]]
    return "\n".join([*before, *plain, *ours])


def mask_addresses(text: str) -> str:
    """`text` with every address replaced."""
    return _ADDRESS.sub("0x…", text)


def _is_of_case(module: str) -> bool:
    return any(folder in f".{module}." for folder in (".corpus.", ".programs."))


def _type_name(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}"


class _Walk:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._seen: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []

    def visit(self, path: str, value: Any) -> None:
        if self._atom(path, value):
            return
        number = self._seen.get(id(value))
        if number is not None:
            self.lines.append(f"{path}: is #{number}")
            return
        number = len(self._seen)
        self._seen[id(value)] = number
        self._alive.append(value)
        head = f"{path}: #{number} {_type_name(type(value))}"
        if isinstance(value, torch.Tensor):
            self._tensor(path, head, value)
        elif isinstance(value, type):
            self._class(path, value)
        elif isinstance(value, BaseException):
            self._exception(path, head, value)
        elif isinstance(value, types.FunctionType):
            self._function(path, value)
        elif isinstance(value, RemovableHandle):
            self.lines.append(head)  # its number counts the handles of the whole process
        else:
            self._container_or_object(path, head, value)

    def _atom(self, path: str, value: Any) -> bool:
        kind = type(value)
        if kind is float:
            # Which of two NaNs a sum gives, so its sign, is up to the C compiler.
            bits = "nan" if value != value else struct.pack(">d", value).hex()
            self.lines.append(f"{path}: float {bits} ({value!r})")
        elif kind is complex:
            bits = struct.pack(">dd", value.real, value.imag).hex()
            self.lines.append(f"{path}: complex {bits} ({value!r})")
        elif kind in _ATOMS:
            self.lines.append(f"{path}: {kind.__name__} {value!r}")
        elif isinstance(value, enum.Enum):
            self.lines.append(f"{path}: member {_type_name(kind)}.{value!s}")
        elif isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            self.lines.append(f"{path}: {value!r}")
        elif isinstance(value, _NAMED) and not _is_bound(value):
            self.lines.append(f"{path}: {kind.__name__} {value.__name__}")
        else:
            return False
        return True

    def _tensor(self, path: str, head: str, value: torch.Tensor) -> None:
        if value.layout is not torch.strided:
            dense = value.to_dense()
            self.lines.append(f"{head} {value.layout} {value.dtype} {tuple(value.shape)}")
            self.visit(f"{path}.to_dense()", dense)
            return
        try:
            grad_fn = type(value.grad_fn).__name__ if value.grad_fn is not None else None
            gradient = value.grad if value.is_leaf else None
        except RuntimeError as error:  # of a view whose like was written
            grad_fn, gradient = mask_addresses(str(error)), None
        flags = [
            str(value.dtype),
            str(tuple(value.shape)),
            f"stride={tuple(value.stride())}",
            f"requires_grad={value.requires_grad}",
            f"grad_fn={grad_fn}",
        ]
        flags += [
            name
            for name, on in (
                ("conj", value.is_conj()),
                ("neg", value.is_neg()),
                ("inference", value.is_inference()),
            )
            if on
        ]
        if value.device.type != "cpu":
            flags.append(f"device={value.device}")
        if value.device.type == "meta":
            self.lines.append(f"{head} {' '.join(flags)}")
            return
        storage = value.untyped_storage()._cdata
        index = self._storages.setdefault(storage, len(self._storages))
        plain = value.detach().as_subclass(torch.Tensor).cpu().resolve_conj().resolve_neg()
        flat = torch.empty(plain.numel(), dtype=plain.dtype, device="cpu").copy_(plain.flatten())
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        digest = hashlib.sha1(raw).hexdigest()[:12]
        shown = flat[:6].tolist()
        where = f"storage {index}+{value.storage_offset()}"
        self.lines.append(f"{head} {' '.join(flags)} {where} bits={digest} {shown}")
        if gradient is not None:
            self.visit(f"{path}.grad", gradient)
        for key, item in vars(value).items():
            if key != _WEAK_MARK:
                self.visit(f"{path}.{key}", item)

    def _class(self, path: str, value: type) -> None:
        self.lines.append(f"{path}: class {_type_name(value)}")
        if not _is_of_case(value.__module__):
            return
        for key, item in list(vars(value).items()):
            if not key.startswith("__") and isinstance(
                item, (int, float, str, list, dict, set, tuple, torch.Tensor)
            ):
                self.visit(f"{path}.{key}", item)

    def _exception(self, path: str, head: str, value: BaseException) -> None:
        self.lines.append(f"{head} {mask_addresses(str(value))!r}")
        places = _places(value.__traceback__)
        if isinstance(value, RecursionError):
            # How deep it went, and so where it was, depends on what has called the program.
            places = []
        self.lines.append(f"{path}.__traceback__: {places}")
        # Arguments of errors raised by C code hold addresses; their text was compared above.
        for index, item in enumerate(value.args):
            if isinstance(item, str):
                self.lines.append(f"{path}.args[{index}]: str {mask_addresses(item)!r}")
            else:
                self.visit(f"{path}.args[{index}]", item)
        for key, item in vars(value).items():
            self.visit(f"{path}.{key}", item)
        if value.__cause__ is not None:
            self.visit(f"{path}.__cause__", value.__cause__)
        if value.__context__ is not None:
            self.visit(f"{path}.__context__", value.__context__)
        self.lines.append(f"{path}.__suppress_context__: {value.__suppress_context__}")
        if isinstance(value, BaseExceptionGroup):
            for index, item in enumerate(value.exceptions):
                self.visit(f"{path}.exceptions[{index}]", item)

    def _function(self, path: str, value: types.FunctionType) -> None:
        self.lines.append(f"{path}: function {value.__qualname__}")
        if not _is_of_case(value.__module__):
            return
        for index, item in enumerate(value.__defaults__ or ()):
            self.visit(f"{path}.__defaults__[{index}]", item)
        for key, item in (value.__kwdefaults__ or {}).items():
            self.visit(f"{path}.__kwdefaults__[{key!r}]", item)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                self.visit(f"{path}.<{name}>", cell.cell_contents)
            except ValueError:
                self.lines.append(f"{path}.<{name}>: empty cell")
        for key, item in vars(value).items():
            self.visit(f"{path}.{key}", item)

    def _container_or_object(self, path: str, head: str, value: Any) -> None:
        if isinstance(value, Mapping):
            self.lines.append(f"{head} of {len(value)}")
            self._items(path, value)
            self._attributes(path, value)
        elif isinstance(value, (set, frozenset)):
            items = [mask_addresses(repr(item)) for item in value]
            if not all(type(item) in _ATOMS for item in value):
                items.sort()  # hashed by addresses
            self.lines.append(f"{head} {items}")
        elif isinstance(value, (str, int, float, bytes)):
            self.lines.append(f"{head} {value!r}")
            self._attributes(path, value)
        elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            self.lines.append(f"{head} of {len(value)}")
            self._sequence(path, value)
            self._attributes(path, value)
        elif isinstance(value, types.MethodType):
            self.lines.append(head)
            self.visit(f"{path}.__self__", value.__self__)
            self.visit(f"{path}.__func__", value.__func__)
        elif isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self.lines.append(f"{head} {value.__qualname__}")
            self.visit(f"{path}.__self__", value.__self__)
        elif isinstance(value, weakref.ref):
            self.lines.append(head)
            self.visit(f"{path}()", value())
        elif isinstance(value, Iterator):
            self.lines.append(head)
            self._sequence(path, itertools.islice(value, 64))  # it may be endless
        else:
            self._object(path, head, value)

    def _items(self, path: str, value: Mapping[Any, Any]) -> None:
        hooks = _HOOKS.search(path) is not None
        for index, (key, item) in enumerate(list(type(value).items(value))):
            if hooks:
                self.visit(f"{path}[{index}]", item)
            elif isinstance(key, (str, int, float, bytes, tuple, type(None), enum.Enum)):
                self.visit(f"{path}[{key!r}]", item)
            else:
                self.visit(f"{path}.key[{index}]", key)
                self.visit(f"{path}.value[{index}]", item)

    def _sequence(self, path: str, value: Iterable[Any]) -> None:
        for index, item in enumerate(value):
            self.visit(f"{path}[{index}]", item)

    def _attributes(self, path: str, value: Any) -> None:
        for key, item in getattr(value, "__dict__", {}).items():
            self.visit(f"{path}.{key}", item)

    def _object(self, path: str, head: str, value: Any) -> None:
        slots = [
            slot
            for kind in type(value).__mro__
            for slot in _slots(kind)
            if slot not in ("__dict__", "__weakref__")
        ]
        if not slots and not hasattr(value, "__dict__"):
            self.lines.append(f"{head} {mask_addresses(repr(value))}")
            return
        self.lines.append(head)
        for slot in slots:
            try:
                self.visit(f"{path}.{slot}", object.__getattribute__(value, slot))
            except AttributeError:
                self.lines.append(f"{path}.{slot}: unset")
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        for key, item in list(attributes.items()):
            self.visit(f"{path}.{key}", item)


_TORCH = os.path.dirname(torch.__file__)


def _places(traceback: types.TracebackType | None) -> list[str]:
    """The functions that an exception has left, with their lines; PyTorch's take other ways at their first calls."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_TORCH):
            places.append(f"{code.co_qualname}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return places


def _is_bound(value: Any) -> bool:
    receiver = getattr(value, "__self__", None)
    return not isinstance(receiver, (types.ModuleType, type, type(None)))


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [slots] if isinstance(slots, str) else list(slots)
