"""Tensor programs as local computations: federated types as types of tensors, and back.

The native side imports this module where the first local computation is traced or read: it needs
torch.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator, Sequence
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
    if isinstance(ty, _federated.SequenceType):
        return _elements(ty.element, ty, declared)
    raise TypeError(_wrong("tensors, structs and sequences of tensors", ty, declared))


def _elements(ty: Any, whole: Any, declared: str) -> Any:
    """The specification of a sequence's elements: stacked, in containers as an element has them."""
    if isinstance(ty, _federated.TensorType) and ty.shape is not None and None not in ty.shape:
        spec = _spec(ty, whole, declared)
        return TensorSpec(spec.dtype, (None, *spec.shape))
    if isinstance(ty, _federated.StructType):
        names = [name for name, _ in ty.items()]
        inner = [_elements(field, whole, declared) for _, field in ty.items()]
        return _container(ty.python_container, names, inner)
    raise TypeError(_wrong("a sequence of tensors whose sizes are known", whole, declared))


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
        # How often it couldn't be run for several clients at once; and whether that is right.
        self._failures = 0
        self._is_right: bool | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [_tensor(leaf) for leaf in _leaves((args, kwargs))]
        return _nested(self._program.gives, iter(self._program(*tensors)))

    @property
    def clients_at_once(self) -> int:
        """For how many clients executors run it at once. It doesn't depend on the machine."""
        is_given_up = self._is_right is False or self._failures >= _ATTEMPTS
        return 1 if is_given_up or not self._program.inputs else _AT_ONCE

    def together(self, calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any] | None:
        """What it gives for each call; `None`: it is to be called for one after the other."""
        try:
            results = self._together(calls)
        except Exception as error:
            # For one client alone it tells what is wrong; or nothing is.
            self._failures += 1
            _LOG.info("%r runs for one client after the other: %s", self._program, error)
            return None
        if results is None:
            return None
        return [_nested(self._program.gives, iter(result)) for result in results]

    def _together(self, calls: Sequence[Any]) -> list[Sequence[torch.Tensor]] | None:
        # What several clients have is one tensor.
        known: dict[int, torch.Tensor] = {}
        rows = []
        for call in calls:
            row = []
            for leaf in _leaves(call):
                if id(leaf) not in known:
                    known[id(leaf)] = _tensor(leaf)
                row.append(known[id(leaf)])
            rows.append(row)
        groups: dict[Any, list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(tuple(tensor.shape for tensor in row), []).append(index)
        results: list[Any] = [None] * len(rows)
        for indices in groups.values():
            most = max(1, _BYTES // max(1, sum(tensor.nbytes for tensor in rows[indices[0]])))
            for start in range(0, len(indices), most):
                part = indices[start : start + most]
                if len(part) == 1:
                    results[part[0]] = self._program(*rows[part[0]])
                    continue
                made = self._program._run_together([rows[index] for index in part])
                if self._is_right is None:
                    self._is_right = _are_close(made[0], self._program(*rows[part[0]]))
                if not self._is_right:
                    _LOG.info(
                        "%r runs for one client after the other: at once it gives something else",
                        self._program,
                    )
                    return None
                for index, result in zip(part, made, strict=True):
                    results[index] = result
        return results


_LOG = logging.getLogger("stator.federated")

_AT_ONCE = 256
"""For how many clients a program runs at once, at most."""

_BYTES = 16 << 20
"""How large their inputs may be together."""

_ATTEMPTS = 3


def _are_close(found: Sequence[torch.Tensor], expected: Any) -> bool:
    """Whether outputs differ by rounding only."""
    expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
    return all(_is_close(*pair) for pair in zip(found, expected, strict=True))


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return torch.equal(found, expected)
    largest = expected.abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0.0
    tolerance = torch.finfo(expected.dtype).eps ** 0.5 * largest
    return torch.allclose(found, expected, rtol=0, atol=tolerance, equal_nan=True)


def load(data: bytes) -> _Runner:
    """What runs a program that was read."""
    return _Runner(TensorProgram.from_bytes(data))


def _leaves(value: Any) -> Iterator[Any]:
    """The tensors in containers, in the order of their type's fields."""
    if isinstance(value, _ListIterator):
        yield from _stacked(list(value))
    elif isinstance(value, (tuple, list)):
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


_ListIterator: type[Iterator[Any]] = type(iter([]))


def _stacked(elements: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors of a sequence's elements, those of all elements in one."""
    if not elements:
        raise ValueError(
            "a sequence without elements is given to PyTorch code, which gets elements stacked\n"
            "  expected: at least one element\n"
            "  hint:     what is collected has an element for each client: there is to be one"
        )
    for column in zip(*(_leaves(element) for element in elements), strict=True):
        yield torch.stack([_tensor(leaf) for leaf in column])


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
