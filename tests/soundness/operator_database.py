"""PyTorch's operator database, and the numbers in its sample inputs."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

SAMPLES = 40


def operator_database() -> Any:
    """PyTorch's `op_db`, whose module wants `expecttest` for something that isn't used here."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


class Call(NamedTuple):
    """A call of an operator, as its sample inputs have it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Slot(NamedTuple):
    """A number among the arguments of a call: the steps that lead to it, from `(args, kwargs)`."""

    path: tuple[Any, ...]
    number: Any


def calls(op: Any) -> Iterator[Call]:
    """The operator's sample inputs, for each way to call it."""
    dtype = torch.float32
    if not op.supports_dtype(dtype, "cpu"):
        supported = op.supported_dtypes("cpu")
        if not supported:
            return
        dtype = torch.int64 if torch.int64 in supported else sorted(supported, key=str)[0]
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        yield Call(op.name, op.op, args, kwargs)
        if op.method_variant is not None:
            yield Call(f"Tensor.{op.name}", op.method_variant, args, kwargs)
        if op.inplace_variant is not None:
            yield Call(f"{op.name}_", op.inplace_variant, args, kwargs)


def slots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[Slot]:
    """The numbers in an argument, those in containers and slices too."""
    match value:
        case bool() | int() | float():
            yield Slot(path, value)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from slots(item, (*path, index))
        case dict():
            for key, item in value.items():
                yield from slots(item, (*path, key))
        case slice():
            for part in ("start", "stop", "step"):
                yield from slots(getattr(value, part), (*path, part))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with something else at a path. A `torch.Size` becomes a tuple."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    match value:
        case list():
            return [replaced(v, rest, new) if i == step else v for i, v in enumerate(value)]
        case tuple():
            items = [replaced(v, rest, new) if i == step else v for i, v in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        case dict():
            return {k: replaced(v, rest, new) if k == step else v for k, v in value.items()}
        case slice():
            parts = {part: getattr(value, part) for part in ("start", "stop", "step")}
            parts[step] = replaced(parts[step], rest, new)
            return slice(parts["start"], parts["stop"], parts["step"])
    raise TypeError(type(value))


def copied(value: Any) -> Any:
    """The same arguments in other tensors."""
    match value:
        case Tensor():
            return value.detach().clone().requires_grad_(value.requires_grad and value.is_leaf)
        case list():
            return [copied(item) for item in value]
        case tuple() if type(value) is tuple:
            return tuple(copied(item) for item in value)
        case dict():
            return {key: copied(item) for key, item in value.items()}
        case slice():
            return slice(copied(value.start), copied(value.stop), copied(value.step))
    return value
