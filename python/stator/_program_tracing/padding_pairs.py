"""Rules for padded rows (`padding.py`): each pair of rows once, in the order of the first, then the
second."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import handle_torch_function

from stator._program_tracing.padding import Padding, rule_for, without_rows
from stator._program_tracing.padding_numbers import NotPaddedError, Number, Share, pairs_of

__all__ = ["LINKED", "Padding"]


def _pairs(padding: Padding, number: Number) -> tuple[Any, Any, Number]:
    """The first and second row of each pair that so many rows make, and how many these are."""
    rows = padding.rows_of(number)
    if rows < 2:
        raise NotPaddedError("clients of different sizes: pairs of one row")
    many, own = pairs_of(number), number.own
    place = torch.arange(padding.rows_of(many))
    padding.expect_room(place)
    # Padding is as the first pair.
    place = torch.where(place < many.own, place, 0)
    row = torch.arange(rows)
    # Which pair is the first of each row's.
    begins = torch.where(row < own, row * own - row * (row + 1) // 2, len(place))
    first = torch.searchsorted(begins, place, right=True) - 1
    return first, place - begins.gather(0, first) + first + 1, many


@rule_for("pdist")
def _distances(padding: Padding, call: Any, /, input: Any, p: Any = 2.0) -> Any:
    without_rows(padding, p)
    if padding.dims(input) != (0,) or input.dim() != 2:
        raise NotPaddedError("clients of different sizes: distances of something else than rows")
    first, second, many = _pairs(padding, padding.number(input))
    # How far a row is from itself is no number where it isn't finite, and its gradient neither.
    if padding.differentiates:
        padding.finite_unless.append(torch.isfinite(padding.only(input, 0)).all())
    between = torch.cdist(input, input, p, compute_mode="donot_use_mm_for_euclid_dist")
    # Each pair stands twice, and is looked for.
    padding.expect_room(between, 16)
    found = between.reshape(-1).gather(0, first * between.shape[0] + second)
    found = torch.where(torch.arange(len(found)) < many.own, found, found[:1].detach())
    return padding.mark(found, 0, many)


@rule_for("triu_indices")
def _places(padding: Padding, call: Any, /, row: Any, col: Any, offset: Any = 0, **how: Any) -> Any:
    """Of the pairs above the diagonal."""
    without_rows(padding, offset, how)
    are_rows = isinstance(row, Number) and isinstance(col, Number) and row.key == col.key
    if not are_rows or offset != 1 or how.get("dtype") not in (None, torch.int64):
        raise NotPaddedError("clients of different sizes: places in another form")
    first, second, many = _pairs(padding, row)
    return padding.mark(torch.stack([first, second]), 1, many)


def triu_indices(row: Any, col: Any, offset: Any = 0, **how: Any) -> Any:
    """The operation as a function: PyTorch's wants integers before it tells who watches."""
    if isinstance(row, Share):
        return handle_torch_function(triu_indices, (row.own,), row, col, offset, **how)
    return torch.triu_indices(row, col, offset, **how)


LINKED: dict[str, Any] = {"torch.triu_indices": triu_indices}
"""What programs call in the place of what their texts name."""
