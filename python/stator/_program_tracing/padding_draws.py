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
    values_of,
    writes_to,
)
from stator._program_tracing.padding import Padding, padded, tensors_in
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
        padding.written(args[0])
        if not padding.dims(args[0]) or not is_each_clients(args[0]):
            raise NotPaddedError(_OTHERWISE)
    dims, numbers = _like(padding, args, kwargs)
    count = len(states)
    sizes = [_values(padding, number, count) for number in numbers]
    padded_sizes = [padding.rows_of(number) for number in numbers]

    # What it drops is drawn alone: it has no gradient.
    is_dropout = not writes and func in (torch.dropout, torch.nn.functional.dropout)

    def of_client(at: int) -> Any:
        given, named = _own(padding, (args, kwargs), at, count, writes, {})
        if is_dropout and given:
            given = (torch.ones_like(given[0].detach()), *given[1:])
        return given, named

    def of_all(made: list[Any]) -> Any:
        if not all(isinstance(each, torch.Tensor) for each in made):
            return None
        for dim, of in zip(dims, sizes, strict=True):
            if any(dim >= each.dim() or each.shape[dim] != of[at] for at, each in enumerate(made)):
                return None
        if dims == [0] and padded_sizes[0] == max(sizes[0]):
            return padded([made], sizes)[0] if len({each.shape[1:] for each in made}) == 1 else None
        for dim, of, size in zip(dims, sizes, padded_sizes, strict=True):
            places = torch.arange(size)
            made = [
                each.index_select(dim, torch.where(places < of[at], places, 0))
                for at, each in enumerate(made)
            ]
        return torch.stack(made) if len({each.shape for each in made}) == 1 else None

    if any(size < 1 for of in sizes for size in of):
        raise NotPaddedError(_OTHERWISE)
    found = drawn_each(func, of_client, of_all, states, level)
    if found is None:
        raise NotPaddedError(_OTHERWISE)
    if writes:
        return args[0].copy_(found)
    if is_dropout and args:
        found = args[0] * found
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


def _values(padding: Padding, number: Number, count: int) -> list[int]:
    """A number of each client's own."""
    found = padding.known_sizes.get(number.key)
    if found is None:
        found = padding.known_sizes[number.key] = values_of(number.own, count)
    return found


def _own(
    padding: Padding, value: Any, at: int, count: int, writes: bool, known: dict[int, torch.Tensor]
) -> Any:
    """What is in containers, as a client has it alone."""
    if isinstance(value, (tuple, list)):
        parts = [_own(padding, item, at, count, writes, known) for item in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, dict):
        return {name: _own(padding, item, at, count, writes, known) for name, item in value.items()}
    if isinstance(value, Number):
        return _values(padding, value, count)[at]
    if isinstance(value, Share):
        raise NotPaddedError(_OTHERWISE)
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) not in known:
        own = tensor_of(value, at)
        for dim, number in zip(padding.dims(value), padding.numbers(value), strict=True):
            own = own.narrow(dim, 0, _values(padding, number, count)[at])
        if padding.dims(value) and (writes or not own.is_contiguous()):
            # As it lies in memory alone.
            own = own.clone()
        known[id(value)] = own
    return known[id(value)]
