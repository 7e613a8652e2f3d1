"""Indices of tensors that are integers without dimensions, in tensor programs.

PyTorch asks such an index for its number. A program can't: it takes a row by an index of one
element, which counts from the end and ends out of range as a number does; and what is in a slice
with such a bound by a mask. The functions here are traced in the place of `tensor[index]` and
`tensor[index] = value`.

What PyTorch gives is a view; a row that was taken by an index is a copy. As long as neither is
written to, nobody can tell. `Copies` sees to that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["SILENT", "Copies", "between", "get_item", "set_item"]


class Copies:
    """The rows that one trace has taken, by the memory they are in.

    `tensor[k] += 1` writes to the row, and then stores it: so a write to a row is fine if the next
    thing that happens to the row and the tensor is that it is stored there. A row isn't used any
    more once the tensor it came from was written to.
    """

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, Any]] = {}  # from which memory; it keeps the row alive
        self._stale: set[int] = set()
        self._pending: int | None = None

    def add(self, tensor: Any, row: Any) -> None:
        self._of[_memory(row)] = (_memory(tensor), row)

    def check(self, func: Any, args: Sequence[Any], written: Sequence[Any]) -> str | None:
        """Before an operation: why it would tell a row from a view, if it would."""
        if not self._of:
            return None
        used = {_memory(value) for value in _tensors(args)}
        if used & self._stale:
            return _STALE
        targets = {_memory(value) for value in _tensors(written)}
        if self._pending is not None:
            row, tensor = self._pending, self._of[self._pending][0]
            if row in used and tensor in targets:
                self._pending = None
            elif used & {row, tensor} and not _reads_no_data(func):
                return _WRITTEN
        for target in targets:
            if target in self._of:
                self._pending = target
            self._write(target)
        return None

    def check_result(self, leaves: Sequence[Any]) -> str | None:
        """The same at the end."""
        if self._pending is not None:
            return _WRITTEN
        if self._of and {_memory(value) for value in _tensors(leaves)} & self._stale:
            return _STALE
        return None

    def _write(self, target: int) -> None:
        for row, (tensor, _) in self._of.items():
            if tensor == target and row not in self._stale:
                self._stale.add(row)
                self._write(row)


_WRITTEN = (
    "a row that was taken by a tensor as index is written to, and the row is a copy in a program; "
    "write `tensor[index] = value`"
)
_STALE = (
    "a row that was taken by a tensor as index is used after its tensor was written to, and the "
    "row is a copy in a program; take it again"
)

_TRACING = threading.local()


def begin(copies: Copies) -> Copies | None:
    """Makes this what the thread's trace adds to; gives what was it before."""
    before: Copies | None = getattr(_TRACING, "copies", None)
    _TRACING.copies = copies
    return before


def end(before: Copies | None) -> None:
    _TRACING.copies = before


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Any) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(_tensors(value))
    return found


def _reads_no_data(func: Any) -> bool:
    """Whether an operation gives a view, or a property that isn't data."""
    if func.namespace == "prim":
        return True
    infos = [argument.alias_info for argument in func._schema.arguments]
    return any(info is not None and not info.is_write for info in infos)


def note_row(tensor: Any, row: Any) -> None:
    """Takes note of a row; no part of the program."""
    _TRACING.copies.add(tensor, row)


def refuse_store() -> str:
    return (
        "a tensor is written to at a position that is a tensor, beside other indices that are "
        "tensors or lists"
    )


def refuse_slice_store() -> str:
    return "a tensor is written to in a slice with a bound that is a tensor; use `torch.where`"


def _is_number(part: Any) -> bool:
    return (
        isinstance(part, torch.Tensor)
        and part.dim() == 0
        and part.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)
    )


def _is_mask(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def _dims_of(part: Any) -> int:
    """How many dimensions of the tensor a part of an index is for."""
    if part is None or part is Ellipsis or part is True or part is False:
        return 0
    return int(part.dim()) if _is_mask(part) else 1


def _has_bound(part: Any) -> bool:
    """Whether it is a slice with a bound that is a number of a tensor's."""
    return isinstance(part, slice) and (
        _is_number(part.start) or _is_number(part.stop) or _is_number(part.step)
    )


class _AsItIs:
    """What it is asked for."""

    def __getitem__(self, key: Any) -> Any:
        return key


def between(start: Any, stop: Any, step: Any) -> Any:
    """A slice. In a program `slice` doesn't make one of tensors."""
    return _AsItIs()[start:stop:step]


def _in_slice(tensor: Any, dim: int, part: Any) -> Any:
    """What is in a slice of a dimension."""
    if part.step is not None and not (isinstance(part.step, int) and part.step == 1):
        raise NotImplementedError(
            "in tensor programs a slice with a bound that is a tensor has no step"
        )
    count = tensor.shape[dim]
    places = torch.arange(count)
    chosen = torch.ones(count, dtype=torch.bool)
    if part.start is not None:
        chosen = chosen & (places >= _from_end(part.start, count))
    if part.stop is not None:
        chosen = chosen & (places < _from_end(part.stop, count))
    if dim == 0:
        return tensor[chosen]
    return tensor.movedim(dim, 0)[chosen].movedim(0, dim)


def _from_end(bound: Any, count: Any) -> Any:
    if isinstance(bound, torch.Tensor):
        bound = bound.to(torch.int64)
        return torch.where(bound < 0, bound + count, bound)
    return bound + count if bound < 0 else bound


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def get_item(tensor: Any, index: Any) -> Any:
    """`tensor[index]`"""
    parts = _parts(index)
    taken = sum([_dims_of(part) for part in parts])
    if taken > tensor.dim():
        raise IndexError(f"too many indices for tensor of dimension {tensor.dim()}")
    numbers = []
    row = tensor
    at = 0
    for part in parts:
        if part is Ellipsis:
            at += tensor.dim() - taken
        if _is_number(part):
            numbers.append((at, part))
        elif _has_bound(part):
            row = _in_slice(row, at, part)
        at += _dims_of(part)
    for dim, number in reversed(numbers):
        first = row if dim == 0 else row.movedim(dim, 0)
        row = first[number.reshape(1).to(torch.int64)].squeeze(0)
    rest = tuple(
        [slice(None) if _has_bound(part) else part for part in parts if not _is_number(part)]
    )
    if rest:
        row = row[rest]
    note_row(tensor, row)
    return row


def set_item(tensor: Any, index: Any, value: Any) -> None:
    """`tensor[index] = value`"""
    rest = []
    dims = []
    numbers = []
    parts = _parts(index)
    taken = sum([_dims_of(part) for part in parts])
    if taken > tensor.dim():
        raise IndexError(f"too many indices for tensor of dimension {tensor.dim()}")
    at = 0
    for part in parts:
        if _is_number(part):
            dims.append(at)
            numbers.append(part.reshape(1).to(torch.int64))
            rest.append(slice(None))
            at += 1
            continue
        if _has_bound(part):
            refuse_slice_store()
        rest.append(part)
        if part is Ellipsis:
            at += tensor.dim() - taken
        elif part is None or isinstance(part, slice):
            at += 1
        elif not isinstance(part, int) or part is True or part is False:
            refuse_store()
    if isinstance(value, torch.Tensor):
        value = value.to(tensor.dtype)
    view = tensor[tuple(rest)].movedim(dims, list(range(len(dims))))
    view[tuple(numbers)] = value


# Called while a program is traced, and no part of it.
SILENT = [note_row, refuse_slice_store, refuse_store]
