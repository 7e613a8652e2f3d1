"""Where PyTorch's code and NumPy's meet in tensor programs: tensors of arrays, arrays of tensors,
and numbers of Python's that are made of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stator._program_tracing.arrays import (
    Array,
    array,
    cast,
    constant,
    note_unless_known,
    numbers,
)

__all__ = ["OF_ARRAYS", "SUBSTITUTES"]


def to_float(value: Any) -> Any:
    """What `float` gives of an array: a number that the program reads, where it isn't known. C code
    that calls `__float__` wants it known."""
    tensor = array(value).tensor
    found = numbers(tensor)
    return float(found[0]) if len(found) == 1 else float(tensor)


def to_int(value: Any) -> Any:
    """What `int` gives of an array."""
    tensor = array(value).tensor
    found = numbers(tensor)
    return int(found[0]) if len(found) == 1 else int(tensor)


def _tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """`torch.tensor` of an array: a copy of its own."""
    found = _as_tensor(data, dtype, device).clone()
    return found.requires_grad_() if requires_grad else found


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """`torch.as_tensor` of an array. Nobody may write to one from outside."""
    found = data.tensor if isinstance(data, Array) else constant(data)[0]
    found = found if dtype is None else cast(found, dtype)
    return found if device is None else found.to(device)


def _from_numpy(data: Any) -> Any:
    """`torch.from_numpy`: where it's given what the function is given, that are arrays."""
    if isinstance(data, Array):
        note_unless_known(data.tensor)
    return _as_tensor(data)


def of_tensor(tensor: Any, *, force: bool = False) -> Array:
    """`tensor.numpy()` in NumPy code that uses PyTorch: they share memory."""
    if tensor.requires_grad and not force:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    return Array(tensor.detach())


# Functions of PyTorch's, and what is traced in their place where they are given an array. One from
# outside is a constant of the program.
OF_ARRAYS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.tensor, _tensor),
    (torch.as_tensor, _as_tensor),
    (torch.from_numpy, _from_numpy),
    (float, to_float),
    (int, to_int),
]

# What is traced in NumPy code in the place of functions of PyTorch's.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.Tensor.numpy, of_tensor),
]
