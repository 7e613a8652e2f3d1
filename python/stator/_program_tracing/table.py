"""What the names in a tensor program's text mean: the only objects that a program can reach.

A program may come from a stranger, so this is a list of what is allowed: what the table of
operations knows (`crates/operators`), which takes tensors and gives tensors. Left out are private
ones, those that reach files, memory, Python objects or other processes, and those that read tensors
into Python, but for single numbers. No function here is given a callable: arguments are tensors,
plain values, and the objects that programs name as arguments.
"""

from __future__ import annotations

import builtins
import functools
import math
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from stator import _stator
from stator._program_tracing.casting import SWITCHES

__all__ = ["draws_nothing", "is_method", "is_quiet", "name_of", "resolve"]


# Where else operations live, and how their names begin in a text.
_NAMESPACES = ("torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special")

_NUMBERS = {
    "builtins": ("abs", "float", "int", "max", "min", "round"),
    "math": ("ceil", "cos", "exp", "floor", "log", "log10", "log2", "sin", "sqrt", "tanh", "trunc"),
}

_ATEN = re.compile(r"torch\.ops\.aten\.([a-z][A-Za-z0-9_]*)(?:\.([A-Za-z][A-Za-z0-9_]*))?")
_DEVICE = re.compile(r"torch\.device\('([a-z]+(?::[0-9]+)?)'\)")


def _is_allowed(name: str, found: Any, is_method: bool = False) -> bool:
    """Whether programs may use what has this name: the table of operations has to know it."""
    if not _stator._is_allowed_in_programs(name):
        return False
    known = _stator._known(found) or ""
    return known.startswith("Operation") or (is_method and known == "StateRead")


_PRIVATE = ("_standard_gamma", "_sample_dirichlet", "_dirichlet_grad")
"""Operations of PyTorch's own distributions."""


_READ = ("item", "__float__", "__int__")
"""What reads a number of a tensor, and gives nothing else."""


def _operations() -> Iterator[tuple[str, Any]]:
    """Names and operations. Where an operation has several names, the first is the one printed."""
    for prefix, owner in (
        ("torch.nn.functional", torch.nn.functional),
        ("torch", torch),
        ("torch.Tensor", torch.Tensor),
        ("torch.linalg", torch.linalg),
        ("torch.fft", torch.fft),
        ("torch.special", torch.special),
        ("torch.nn.init", torch.nn.init),
        ("torch.functional", torch.functional),
    ):
        for name in dir(owner):
            found = getattr(owner, name, None)
            # Functions that write are PyTorch's own; they are found below.
            writes = owner is torch.nn.functional and name.endswith("_")
            if not writes and _is_allowed(name, found, owner is torch.Tensor):
                yield f"{prefix}.{name}", found
    for name in _stator._program_factories():
        yield f"torch.{name}", getattr(torch, name)
    for prefix in _NAMESPACES:
        module = sys.modules.get(prefix) or getattr(torch._C, prefix.rpartition(".")[2])
        for name in dir(module):
            found = getattr(module, name)
            if _is_allowed(name, found):
                yield f"{prefix}.{name}", found
    variables: Any = torch._C._VariableFunctions
    for name in dir(variables):
        if _is_allowed(name, getattr(variables, name)):
            yield f"torch.{name}", getattr(variables, name)
    for name in _PRIVATE:
        yield f"torch.{name}", getattr(torch, name)
    for name in _READ:
        yield f"torch.Tensor.{name}", getattr(torch.Tensor, name)
    yield "torch.autograd.grad", torch.autograd.grad
    yield "torch.nn.Parameter", torch.nn.Parameter
    yield "torch._C._set_grad_enabled", torch._C._set_grad_enabled
    for name in ("sym_max", "sym_min"):
        yield f"torch.{name}", getattr(torch, name)
    yield "torch.Generator", torch.Generator
    yield "torch.Generator.manual_seed", torch.Generator.manual_seed
    for name in SWITCHES:
        yield f"torch.{name}", getattr(torch, name)
    for attribute in ("data", "requires_grad"):
        setter = getattr(torch.Tensor, attribute).__set__
        yield f"torch.Tensor.{attribute}.__set__", setter
    for prefix, names in _NUMBERS.items():
        for name in names:
            yield f"{prefix}.{name}", getattr(builtins if prefix == "builtins" else math, name)


def _plain_objects() -> Iterator[tuple[str, Any]]:
    kinds = (torch.dtype, torch.layout, torch.memory_format)
    for name in dir(torch):
        found = getattr(torch, name)
        if isinstance(found, kinds):
            # `torch.float` is `torch.float32`: the object's own text is its name.
            yield str(found), found


@functools.cache
def _table() -> tuple[dict[str, Any], dict[Any, str]]:
    by_name: dict[str, Any] = {}
    by_object: dict[Any, str] = {}
    for name, found in (*_operations(), *_plain_objects()):
        if by_name.setdefault(name, found) == found:
            by_object.setdefault(found, name)
    return by_name, by_object


def resolve(name: str) -> Any:
    """What a name in a text stands for. A name that isn't known is a `ValueError`."""
    by_name, _ = _table()
    if name in by_name:
        return by_name[name]
    if device := _DEVICE.fullmatch(name):
        try:
            return torch.device(device[1])
        except RuntimeError as error:
            raise ValueError(f"a tensor program names an unknown device: {name}") from error
    if aten := _ATEN.fullmatch(name):
        packet = getattr(torch.ops.aten, aten[1], None)
        found = packet if aten[2] is None or packet is None else getattr(packet, aten[2], None)
        if isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) and _is_allowed(
            aten[1], found
        ):
            return found
    raise ValueError(f"a tensor program names something that programs may not use: {name}")


# What programs set of PyTorch for themselves.
_MODES = frozenset(
    {
        *("torch._C._set_grad_enabled", "torch.set_grad_enabled"),
        *(f"torch.{name}" for name in SWITCHES),
    }
)


@functools.cache
def draws_nothing(name: str) -> bool:
    """Whether what a name stands for surely draws no random numbers. It is known of PyTorch's
    operations by their tags, of what is C by the operations of its name, and of functions that are
    written in Python by what these call."""
    module, _, last = name.rpartition(".")
    found = resolve(name)
    if module == "operator" or name in _MODES or not callable(found):
        return True
    if isinstance(found, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded not in found.tags
    if isinstance(found, torch._ops.OpOverloadPacket):
        return not _is_seeded(found)
    if isinstance(found, types.FunctionType):
        return not _calls_what_draws(found, set())
    # `torch.linalg.inv` is the operation `linalg_inv`.
    names = (last, f"{module.rpartition('.')[2]}_{last}")
    return not any(_is_seeded(getattr(torch.ops.aten, each, None)) for each in names)


def _is_seeded(operation: Any) -> bool:
    """Whether something is an operation of which some form draws random numbers."""
    if not isinstance(operation, torch._ops.OpOverloadPacket):
        return False
    packet: Any = operation
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return any(torch.Tag.nondeterministic_seeded in each.tags for each in overloads)


_CALLED = re.compile(r"%\d+ = ([\w.]+)\((.*)\)")
_ARGUMENT = re.compile(r"(?:[^,()\[\]]|\([^()]*\)|\[[^\[\]]*\])+")
"""One of several, of which lists and tuples hold names and numbers alone."""

_F = "torch.nn.functional"
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
_RATES: dict[str, tuple[int, int]] = {
    **{f"{_F}.{name}": (1, 2) for name in (*_DROPOUTS, "feature_alpha_dropout")},
    **{f"torch.{name}": (5, 6) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    f"{_F}.scaled_dot_product_attention": (4, -1),
    f"{_F}.multi_head_attention_forward": (10, 13),
}
"""What draws where it has a rate that isn't zero, and is told to train: the places of both."""


def is_quiet(text: str, names: Iterable[str]) -> bool:
    """Whether a program surely draws no random numbers. `names`: those in its text."""
    drawing = {name for name in names if not draws_nothing(name)}
    if not drawing <= _RATES.keys():
        return False
    called = [found for line in text.splitlines() if (found := _CALLED.fullmatch(line))]
    return all(
        _has_no_rate(name, _ARGUMENT.findall(arguments))
        for name, arguments in (found.groups() for found in called)
        if name in drawing
    )


def _has_no_rate(name: str, arguments: list[str]) -> bool:
    given = [argument.strip() for argument in arguments]
    named = dict(each.split("=", 1) for each in given if re.match(r"\w+=", each))
    given = given[: len(given) - len(named)]
    is_recurrent = name.startswith("torch.") and name.count(".") == 1
    # Packed sequences come with the numbers of their steps.
    if is_recurrent and (named or len(given) != 9 or not given[2].startswith("[")):
        return False
    rate, trains = _RATES[name]
    is_attention = "attention" in name
    found = given[rate] if len(given) > rate else named.get("dropout_p" if is_attention else "p")
    if found is None and name.endswith("scaled_dot_product_attention"):
        return True
    told = given[trains] if len(given) > trains > 0 else named.get("training")
    return found in ("0", "0.0") or told == "False"


# Where functions written in Python find each other, beside their own modules.
_PYTHON_MODULES = (torch.nn.functional, torch.functional, torch.nn.init)


def _calls_what_draws(function: types.FunctionType, known: set[Any]) -> bool:
    """Whether a name that a function's code has, or that of one it can call, is that of an
    operation which draws."""
    if function in known:
        return False
    known.add(function)
    called = [cell.cell_contents for cell in function.__closure__ or ()]
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
        for name in code.co_names:
            if _is_seeded(getattr(torch.ops.aten, name, None)):
                return True
            called.append(function.__globals__.get(name))
            called.extend(getattr(module, name, None) for module in _PYTHON_MODULES)
    return any(
        _calls_what_draws(each, known) for each in called if isinstance(each, types.FunctionType)
    )


def name_of(value: Any) -> str | None:
    """The name in a text that stands for an object; `None` where it has none."""
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = f"torch.ops.{value}"
        try:
            return name if resolve(name) is value else None
        except ValueError:
            return None
    _, by_object = _table()
    try:
        return by_object.get(value)
    except TypeError:  # not hashable
        return None


def is_method(name: str, found: Any) -> bool:
    """Whether programs may call a method of this name; `found` is what a class has there."""
    by_name, _ = _table()
    known = by_name.get(f"torch.Tensor.{name}")
    return known is not None and (found is None or bool(known == found))
