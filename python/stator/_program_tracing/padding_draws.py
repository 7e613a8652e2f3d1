"""What clients with different numbers of rows draw: each what it draws alone, for its own rows.
Padding is as the first row that was drawn.
"""

from __future__ import annotations

from typing import Any

import torch

from stator._program_tracing.each_draws import (
    drawn_each,
    is_each_clients,
    tensor_of,
    writes_to,
)
from stator._program_tracing.padding import Padding, tensors_in
from stator._program_tracing.padding_numbers import NotPaddedError, Number, Share

__all__ = ["drawn_for_rows"]

_OTHERWISE = "clients of different sizes: it draws in another form"


def drawn_for_rows(
    padding: Padding,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    states: list[torch.Tensor],
    level: int,
) -> Any:
    """What a call that is given rows, or how many there are, gives; `states` move on."""
    padding.use((args, kwargs))
    if kwargs.get("generator") is not None:
        raise NotPaddedError(_OTHERWISE)
    writes = writes_to(func, args, kwargs)
    if writes:
        padding.expect_alone(args[0])
        if not padding.dims(args[0]) or not is_each_clients(args[0]):
            raise NotPaddedError(_OTHERWISE)
    dims, numbers = _like(padding, args, kwargs)
    sizes = [_values(number, len(states)) for number in numbers]
    padded_sizes = [padding.rows_of(number) for number in numbers]

    def of_client(at: int) -> Any:
        return _own(padding, (args, kwargs), at, {})

    def of_all(made: list[Any]) -> Any:
        if not all(isinstance(each, torch.Tensor) for each in made):
            return None
        padded = []
        for at, each in enumerate(made):
            rows = each
            for dim, of, size in zip(dims, sizes, padded_sizes, strict=True):
                if dim >= rows.dim() or rows.shape[dim] != of[at]:
                    return None
                places = torch.arange(size)
                rows = rows.index_select(dim, torch.where(places < of[at], places, 0))
            padded.append(rows)
        is_one = len({each.shape for each in padded}) == 1
        return torch.stack(padded) if is_one else None

    if any(size < 1 for of in sizes for size in of):
        raise NotPaddedError(_OTHERWISE)
    found = drawn_each(func, of_client, of_all, states, level)
    if found is None:
        raise NotPaddedError(_OTHERWISE)
    if writes:
        return args[0].copy_(found)
    return padding.mark(found, dims, numbers)


def _like(padding: Padding, args: Any, kwargs: Any) -> tuple[list[int], list[Number]]:
    """Where the result has rows, and how many: where the first tensor with rows has them, or as the
    sizes say."""
    for tensor in tensors_in((args, kwargs)):
        if padding.dims(tensor):
            return [*padding.dims(tensor)], padding.numbers(tensor)
    containers = [each for each in (*args, kwargs.get("size")) if isinstance(each, (tuple, list))]
    sizes = containers[0] if containers else args
    at = [at for at, size in enumerate(sizes) if isinstance(size, Number)]
    if not at:
        raise NotPaddedError(_OTHERWISE)
    return at, [sizes[each] for each in at]


def _values(number: Number, count: int) -> list[int]:
    """A number of each client's own."""
    return [int(tensor_of(number.own, at)) for at in range(count)]


def _own(padding: Padding, value: Any, at: int, known: dict[int, torch.Tensor]) -> Any:
    """What is in containers, as a client has it alone."""
    if isinstance(value, (tuple, list)):
        parts = [_own(padding, item, at, known) for item in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, dict):
        return {name: _own(padding, item, at, known) for name, item in value.items()}
    if isinstance(value, Number):
        return int(tensor_of(value.own, at))
    if isinstance(value, Share):
        raise NotPaddedError(_OTHERWISE)
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) not in known:
        own = tensor_of(value, at)
        for dim, number in zip(padding.dims(value), padding.numbers(value), strict=True):
            own = own.narrow(dim, 0, int(tensor_of(number.own, at)))
        # As it lies in memory alone.
        known[id(value)] = own.clone() if padding.dims(value) else own
    return known[id(value)]
