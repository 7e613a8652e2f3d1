"""What tensors without data hold that are computed of numbers and constants alone: NumPy code may
decide by that, and make numbers of Python's of it, as constants have the values that they have when
a program is traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["Known"]

_MOST = 4096
"""How many elements they have, at most."""


class Known:
    """Those of a trace."""

    def __init__(self) -> None:
        self._values: Any = WeakIdKeyDictionary()

    def of(self, tensor: Any) -> torch.Tensor | None:
        """The same tensor with data; `None`: its data depend on inputs, or are random."""
        if isinstance(tensor, FakeTensor):
            found: torch.Tensor | None = self._values.get(tensor)
            return found
        return tensor.detach() if tensor.numel() <= _MOST else None

    def note(self, func: Any, args: Any, kwargs: Any, found: Any) -> None:
        """An operation gave tensors without data."""
        if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return
        if sum(tensor.numel() for tensor in _tensors(found)) > _MOST:
            return
        try:
            with _disable_current_modes(), torch.no_grad():
                values = func(*self._with_data(args), **self._with_data(kwargs))
        except Exception:
            # The operation itself has said what is wrong; or somebody's data aren't known.
            return
        for tensor, value in zip(_tensors(found), _tensors(values), strict=True):
            if isinstance(tensor, FakeTensor):
                self._values[tensor] = value

    def forget(self, written: Any) -> None:
        """Something writes to tensors, and so to what shares memory with them."""
        memories = {_memory(tensor) for tensor in _tensors(written)}
        if memories:
            for tensor in [each for each in self._values if _memory(each) in memories]:
                del self._values[tensor]

    def _with_data(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            found = self.of(value)
            if found is None:
                raise LookupError
            return found
        if isinstance(value, (list, tuple)):
            return type(value)(self._with_data(part) for part in value)
        if isinstance(value, dict):
            return {name: self._with_data(part) for name, part in value.items()}
        return value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
