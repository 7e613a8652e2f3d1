"""Tensor programs as local computations: federated types as types of tensors, and back.

The native side imports this module where the first local computation is traced or read: it needs
torch.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from stator._program_tracing.tracing import Tracing, rebuilt
from stator._stator import federated as _federated
from stator._suggest import describe
from stator.programs import Structure, TensorProgram, TensorSpec


def specs(parameter: Any, spread: bool, declared: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The specifications of a function's arguments; `spread`: the fields of its parameter."""
    if parameter is None:
        return (), {}
    if not spread:
        return (_spec(parameter, parameter, declared),), {}
    fields = [(name, _spec(ty, parameter, declared)) for name, ty in parameter.items()]
    positional = tuple(spec for name, spec in fields if name is None)
    return positional, {name: spec for name, spec in fields if name is not None}


def _spec(ty: Any, whole: Any, declared: str) -> Any:
    """The specification of what is of a type."""
    if isinstance(ty, _federated.TensorType):
        dtype = getattr(torch, np.dtype(ty.dtype).name, None)
        if ty.shape is None:
            raise TypeError(_wrong("a tensor whose number of dimensions is known", ty, declared))
        if not isinstance(dtype, torch.dtype):
            raise TypeError(_wrong("an element type that PyTorch has", ty, declared))
        return TensorSpec(dtype, tuple(ty.shape))
    if isinstance(ty, _federated.StructType):
        names = [name for name, _ in ty.items()]
        inner = [_spec(field, whole, declared) for _, field in ty.items()]
        return _container(ty.python_container, names, inner)
    raise TypeError(_wrong("tensors and structs of tensors", ty, declared))


def _wrong(expected: str, found: Any, declared: str) -> str:
    return (
        "PyTorch code can't be traced for a parameter of this type\n"
        f"  expected: {expected}\n  found:    {found}\n  declared: {declared}\n"
        "  hint:     with `result=` the function is called as it is, whatever it is written with"
    )


def _container(kind: Any, names: list[str | None], inner: list[Any]) -> Any:
    """Containers as an executor makes them."""
    named = bool(names) and all(name is not None for name in names)
    if kind is None and not named and any(name is not None for name in names):
        return _federated.Struct(list(zip(names, inner, strict=True)))
    if kind is list:
        return inner
    if kind is dict or kind is collections.OrderedDict:
        return kind(zip(names, inner, strict=True))
    if kind is None or kind is tuple:
        return collections.OrderedDict(zip(names, inner, strict=True)) if named else tuple(inner)
    if issubclass(kind, tuple):
        return kind(*inner)
    if issubclass(kind, dict):
        return collections.OrderedDict(zip(names, inner, strict=True))
    return kind(**{str(name): item for name, item in zip(names, inner, strict=True)})


def finished(program: TensorProgram, tracing: Tracing) -> tuple[Any, _Runner, bytes]:
    """The result's type, what runs the program, and its bytes."""
    types = iter([_tensor_type(spec) for spec in program.outputs])
    result = _federated.to_type(rebuilt(tracing.result, types))
    return result, _Runner(program), program.to_bytes()


def _tensor_type(spec: TensorSpec) -> Any:
    name = str(spec.dtype).removeprefix("torch.")
    try:
        dtype = np.dtype(name)
    except TypeError:
        # NumPy knows it once somebody has imported what brings it.
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return _federated.TensorType(dtype, list(spec.shape))


class _Runner:
    """Runs a program on values as executors have them."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [_tensor(leaf) for leaf in _leaves((args, kwargs))]
        return _nested(self._program.gives, iter(self._program(*tensors)))


def load(data: bytes) -> _Runner:
    """What runs a program that was read."""
    return _Runner(TensorProgram.from_bytes(data))


def _leaves(value: Any) -> Iterator[Any]:
    """The tensors in containers, in the order of their type's fields."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, _federated.Struct):
        for item in value:
            yield from _leaves(item)
    elif hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            yield from _leaves(getattr(value, name))
    elif hasattr(type(value), "__attrs_attrs__"):
        for attribute in type(value).__attrs_attrs__:
            yield from _leaves(getattr(value, attribute.name))
    else:
        yield value


def _tensor(leaf: Any) -> torch.Tensor:
    """A tensor of a leaf: it may share memory, because programs don't write to their inputs."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"A tensor program takes numbers, not {describe(leaf)}.")
    if not array.flags.writeable or not array.dtype.isnative or any(s < 0 for s in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), copy=True)
    return torch.from_numpy(array)


def _nested(structure: Structure | None, leaves: Iterator[torch.Tensor]) -> Any:
    """The result around its tensors. Who converts it takes the names from here."""
    if structure is None:
        return next(leaves)
    inner = [(name, _nested(field, leaves)) for name, field in structure.fields]
    if structure.kind == "struct":
        return _federated.Struct(inner)
    if any(name is not None for name, _ in inner):
        return collections.OrderedDict(inner)
    return tuple(item for _, item in inner)
