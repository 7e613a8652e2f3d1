"""Rows that data choose (`x[mask]`), for clients that run at once (`padding.py`).

Each client's chosen rows come first, in their order, and how many these are is each client's own.
"""

from __future__ import annotations

from typing import Any

import torch

from stator._program_tracing.padding import Padding, memory_of, unwrapped
from stator._program_tracing.padding_numbers import NotPaddedError, Number, of_data

__all__ = ["by_mask", "read"]

# Its types lack some of what it has.
_functorch: Any = torch._C._functorch

_BY_DATA = "clients of different sizes: rows are chosen by data"


def by_mask(padding: Padding, input: Any, mask: Any) -> Any:
    """The rows of a tensor that a mask chooses."""
    rows, own = padding.dims(input), padding.dims(mask)
    are_beside = rows == own and rows in ((), (0,)) and mask.shape == input.shape[:1]
    if not are_beside or mask.dtype != torch.bool or mask.shape[0] == 0:
        raise NotPaddedError(_BY_DATA)
    if rows and padding.number(input).key != padding.number(mask).key:
        raise NotPaddedError(_BY_DATA)
    number, places = _chosen(padding, mask)
    found = input[places]
    if found.dtype.is_floating_point or found.dtype.is_complex:
        # A client that has chosen none has no row that is as finite as what it has chosen.
        found = torch.where(number.own > 0, found, torch.ones((), dtype=found.dtype))
        padding.finite_unless.append(number.own > 0)
    else:
        # Nor a number that is a place as what it has chosen may be.
        found = torch.where(number.own > 0, found, torch.zeros((), dtype=found.dtype))
    return padding.mark(found, 0, number)


def _chosen(padding: Padding, mask: Any) -> tuple[Number, Any]:
    """How many rows a mask chooses, and where these are. Masks that choose the same rows of each
    client choose as many."""
    known = padding.only(mask, False) if padding.dims(mask) else mask
    beneath, batched = unwrapped(known), _batched_at(known)
    of = padding.number(mask).key if padding.dims(mask) else None
    for each, (rows, at), number, places in padding.chosen:
        is_same = (rows, at) == (of, batched) and each.shape == beneath.shape
        if is_same and torch.equal(each, beneath):
            return number, places
    count = known.sum()
    number = of_data(mask.shape[0], count, padding.conditions)
    row = torch.arange(mask.shape[0])
    # Where each row goes to; those that aren't chosen behind all others.
    to = torch.where(known, known.cumsum(0) - 1, mask.shape[0])
    order = torch.zeros_like(to[:1]).expand(mask.shape[0] + 1).scatter(0, to, row)[:-1]
    # Padding is as the first row that was chosen.
    places = torch.where(row < count, order, order.narrow(0, 0, 1))
    padding.chosen.append((beneath.clone(), (of, batched), number, places))
    return number, places


def _batched_at(tensor: Any) -> list[int]:
    """In which dimensions of a tensor of all clients these are, from the outermost level on."""
    found = []
    while _functorch.is_batchedtensor(tensor) or _functorch.is_gradtrackingtensor(tensor):
        found.append(_functorch.maybe_get_bdim(tensor))
        tensor = _functorch.get_unwrapped(tensor)
    return found


def read(padding: Padding, bound: Any, number: Number) -> Number:
    """The bound of a slice that a program has read of a tensor, as Python takes it, counted from
    the first row."""
    if bound.dim() or bound.dtype != torch.int64:
        raise NotPaddedError(_BY_DATA)
    key = memory_of(bound), number.key
    if (known := padding.read.get(key)) is None:
        own = torch.where(bound < 0, bound + number.own, bound)
        own = torch.minimum(own.clamp(min=0), torch.as_tensor(number.own))
        # The tensor is kept, so that nothing else gets its memory.
        known = of_data(number.plain, own, padding.conditions), bound
        padding.read[key] = known
    found: Number = known[0]
    return found
