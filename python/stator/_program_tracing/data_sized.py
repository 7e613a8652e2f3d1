"""Operations of which data say how many elements they give (`x[mask]`, `nonzero`, `unique`), on
tensors without data: they give as many as stand for a size that is unknown. The recorder knows that
data decide it (`crates/tracer/src/recorder/numbers/program_sizes.rs`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["GIVEN"]

_aten = torch.ops.aten


def _nonzero(many: int, tensor: Any) -> Any:
    return tensor.new_empty((many, tensor.dim()), dtype=torch.int64)


def _masked_select(many: int, tensor: Any, mask: Any) -> Any:
    torch.broadcast_shapes(tensor.shape, mask.shape)  # type: ignore[no-untyped-call]
    return tensor.new_empty((many,))


def _index(many: int, tensor: Any, indices: Sequence[Any]) -> Any:
    found: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            found.append(index)
            continue
        at = len(found)
        if not index.dim():
            return None
        if index.shape != tensor.shape[at : at + index.dim()]:
            raise IndexError(
                f"The shape of the mask {list(index.shape)} at index {at} does not match the shape "
                f"of the indexed tensor {list(tensor.shape)} at index {at}"
            )
        found += [index.new_empty((many,), dtype=torch.int64)] * index.dim()
    return _aten.index.Tensor(tensor, found)


def _unique(
    many: int, tensor: Any, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> Any:
    places = tensor.new_empty(tensor.shape if inverse else (0,), dtype=torch.int64)
    numbers = tensor.new_empty((many,) if counts else (0,), dtype=torch.int64)
    return tensor.new_empty((many,)), places, numbers


def _along(many: int, tensor: Any, dim: int, inverse: bool, counts: bool) -> Any:
    sizes = list(tensor.shape)
    sizes[dim] = many
    places = tensor.new_empty((tensor.shape[dim],) if inverse else (0,), dtype=torch.int64)
    numbers = tensor.new_empty((many,) if counts else (0,), dtype=torch.int64)
    return tensor.new_empty(sizes), places, numbers


def _unique_dim(
    many: int,
    tensor: Any,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    return _along(many, tensor, dim, return_inverse, return_counts)


def _unique_consecutive(
    many: int,
    tensor: Any,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is None:
        return _unique(many, tensor, True, return_inverse, return_counts)
    return _along(many, tensor, dim, return_inverse, return_counts)


def _repeat_interleave(many: int, repeats: Any, output_size: int | None = None) -> Any:
    count = many if output_size is None else output_size
    return repeats.new_empty((count,), dtype=torch.int64)


def _ctc_loss(many: int, rows: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
    # Of what the lengths decide nobody sees anything but the gradient, which has the rows' sizes.
    batch = (rows.shape[1],) if rows.dim() == 3 else ()
    return rows.new_empty(batch), rows.new_empty((*(batch or (1,)), rows.shape[0], 1))


GIVEN: dict[Any, Callable[..., Any]] = {
    _aten.nonzero.default: _nonzero,
    _aten.masked_select.default: _masked_select,
    _aten.index.Tensor: _index,
    _aten._unique2.default: _unique,
    _aten.unique_dim.default: _unique_dim,
    _aten.unique_consecutive.default: _unique_consecutive,
    _aten.repeat_interleave.Tensor: _repeat_interleave,
    _aten._ctc_loss.Tensor: _ctc_loss,
}
"""What operations give, where PyTorch can't say how much that is: given that number, and the
operation's arguments. `None`: who knows."""
