"""Rules for padded rows (`padding.py`): what is put somewhere, or added there."""

from __future__ import annotations

from typing import Any

import torch

from stator._program_tracing.padding import (
    Padding,
    as_first,
    greatest,
    least,
    positive,
    rule_for,
    without_rows,
    written_as_first,
)
from stator._program_tracing.padding_numbers import NotPaddedError, Number
from stator._program_tracing.padding_shapes import all_keys, bounds, is_whole, place_of, rows_at

__all__ = ["Padding"]

_PUT = "clients of different sizes: rows are put into something else"


@rule_for("index_add", "index_add_", "scatter_add", "scatter_add_", is_of_several=True)
def _added(
    padding: Padding, call: Any, /, input: Any, dim: int, index: Any, source: Any, **how: Any
) -> Any:
    """Rows are added to what has none, or to other rows."""
    without_rows(padding, how)
    rows, at = padding.dim(source), positive(dim, input)
    if rows is None or padding.dim(index) != (0 if index.dim() == 1 else rows):
        raise NotPaddedError("clients of different sizes: rows are added to something else")
    if padding.number(index).key != padding.number(source).key:
        raise NotPaddedError("clients of different sizes: rows beside fewer rows")
    if index.dim() == 1 and rows != at:
        raise NotPaddedError("clients of different sizes: rows are added to something else")
    # No row of the padding is one that isn't there.
    places = padding.only(index, 0)
    own = padding.dim(input)
    if own is None:
        return call(input, dim, places, padding.only(source, 0), **how)
    if own != at or rows != at:
        raise NotPaddedError("clients of different sizes: rows are added to something else")
    padding.holds((places >= 0) & (places < padding.number(input).own))
    number = padding.number(input)
    found = call(input, dim, places, padding.only(source, 0), **how)
    padding.mark(found, at, number)
    return (written_as_first if call.name.endswith("_") else as_first)(padding, found)


@rule_for("index_put", "index_put_", is_of_several=True)
def _put(
    padding: Padding, call: Any, /, input: Any, indices: Any, values: Any, accumulate: Any = False
) -> Any:
    """What is added at places, of something else or of rows."""
    without_rows(padding, accumulate)
    are_rows = all(padding.dims(index) == (0,) and index.dim() == 1 for index in indices)
    beside = input.dim() - len(indices)
    is_known = values.dim() <= beside if padding.dim(values) is None else padding.dim(values) == 0
    if not accumulate or not are_rows or not is_known:
        raise NotPaddedError(_PUT)
    given = [*indices, *([values] if padding.dims(values) else [])]
    if len({padding.number(each).key for each in given}) > 1:
        raise NotPaddedError(_PUT)
    places = [padding.only(index, 0) for index in indices]
    for dim, number in zip(padding.dims(input), padding.numbers(input), strict=True):
        if dim >= len(places):
            raise NotPaddedError(_PUT)
        padding.holds((places[dim] >= 0) & (places[dim] < number.own))
    mask = padding.mask(indices[0]).reshape([-1, *[1] * beside])
    added = torch.where(mask, values, torch.zeros((), dtype=values.dtype))
    found = call(input, tuple(places), added, True)
    return padding.mark_as(found, input) if padding.dims(input) else found


@rule_for("setitem", is_of_several=True)
def _set(padding: Padding, call: Any, /, input: Any, key: Any, value: Any) -> Any:
    """One number where a mask says so, or at places; or anything in parts of each row."""
    if isinstance(key, torch.Tensor):
        if (isinstance(value, torch.Tensor) and value.dim()) or padding.is_met(value):
            raise NotPaddedError(_PUT)
        if key.dtype in (torch.bool, torch.uint8):
            return _set_by_mask(padding, input, key, value)
        call(input, _places(padding, input, key), value)
        return _with_padding_again(padding, input)
    if isinstance(key, tuple) and all(isinstance(each, torch.Tensor) for each in key):
        return _set_by_places(padding, call, input, key, value)
    keys = all_keys(input, list(key) if isinstance(key, tuple) else [key])
    if len(rows := padding.dims(input)) == 1:
        which = [at for at, each in enumerate(keys) if each is not None][rows[0]]
        if not is_whole(keys[which]):
            return _set_rows(padding, input, keys, which, value)
    ends = _ends(padding, input, keys)
    own: dict[int, Number] = {}
    if isinstance(value, torch.Tensor):
        numbers = zip(padding.dims(value), padding.numbers(value), strict=True)
        own = {value.dim() - dim: number for dim, number in numbers}
        others = ends.keys() - own.keys()
        if any(value.dim() >= end and value.shape[-end] != 1 for end in others):
            raise NotPaddedError(_PUT)
    else:
        without_rows(padding, value)
    if any(end not in ends or ends[end].key != number.key for end, number in own.items()):
        raise NotPaddedError(_PUT)
    return call(input, key, value)


def _set_rows(padding: Padding, input: Any, keys: list[Any], which: int, value: Any) -> None:
    """One row, or those of a slice, or a part of each: one number, or what has a row for each.
    `which`: the key of rows."""
    key, others = keys[which], [*keys[:which], *keys[which + 1 :]]
    if padding.is_met(others) or not all(
        each is None or type(each) in (int, slice) for each in others
    ):
        raise NotPaddedError(_PUT)
    number = padding.number(input)
    many: Any = None
    if not isinstance(key, slice):
        first = place_of(number, key)
        padding.holds((first >= 0) & (first < number.own))
        last = first + 1
    elif key.step in (None, 1):
        first, many = bounds(padding, number, key)
        last = first + (many.own if isinstance(many, Number) else many)
    else:
        raise NotPaddedError(_PUT)
    left = input[(*keys[:which], slice(None), *keys[which + 1 :])]
    # How many dimensions rows and what is behind them are.
    end = left.dim() - sum(each is None or isinstance(each, slice) for each in keys[:which])
    rows = torch.arange(left.shape[-end])
    given = _for_rows(padding, value, many, left, end, rows - first)
    mask = ((rows >= first) & (rows < last)).reshape([-1, *[1] * (end - 1)])
    left.copy_(torch.where(mask, given, left))
    _with_padding_again(padding, input)


def _for_rows(padding: Padding, value: Any, many: Any, left: Any, end: int, places: Any) -> Any:
    """What is put in rows, beside all of these. `many`: how many they are (`None`: one, in no
    dimension); `places`: which of them each is."""
    if not isinstance(value, torch.Tensor):
        without_rows(padding, value)
        return torch.full((), value, dtype=left.dtype)
    at = value.dim() - end
    own = padding.dims(value)
    given = value.to(left.dtype)
    if own:
        is_beside = own == (at,) and isinstance(many, Number)
        if not is_beside or padding.number(value).key != many.key or value.dim() > left.dim():
            raise NotPaddedError(_PUT)
        return rows_at(given, at, places.clamp(0, value.shape[at] - 1))
    if many is None:
        # A row has no dimension of rows.
        given = given.unsqueeze(at + 1) if at >= -1 and value.dim() else given
    elif at >= 0 and given.shape[at] != 1:
        if type(many) is not int or many != given.shape[at]:
            raise NotPaddedError(_PUT)
        given = rows_at(given, at, places.clamp(0, many - 1))
    if given.dim() > left.dim():
        raise NotPaddedError(_PUT)
    return given


def _set_by_places(padding: Padding, call: Any, input: Any, key: Any, value: Any) -> Any:
    """One number at places that several say, which have as many rows."""
    is_one = not isinstance(value, torch.Tensor) or not value.dim()
    are_rows = all(padding.dims(each) == (0,) and each.dim() == 1 for each in key)
    are_places = all(each.dtype not in (torch.bool, torch.uint8) for each in key)
    if not (is_one and are_rows and are_places) or padding.is_met(value):
        raise NotPaddedError(_PUT)
    if len({padding.number(each).key for each in key}) > 1:
        raise NotPaddedError(_PUT)
    places = [torch.where(padding.mask(each), each, each.narrow(0, 0, 1)) for each in key]
    padding.has_some(key[0])
    for dim, number in zip(padding.dims(input), padding.numbers(input), strict=True):
        if dim < len(places):
            padding.holds((places[dim] >= -number.own) & (places[dim] < number.own))
            places[dim] = torch.where(places[dim] < 0, places[dim] + number.own, places[dim])
    call(input, tuple(places), value)
    return _with_padding_again(padding, input)


def _with_padding_again(padding: Padding, input: Any) -> None:
    """Some rows were written: padding is as the first one is now. Others may not be as finite."""
    if padding.dims(input):
        written_as_first(padding, input)


def _ends(padding: Padding, input: Any, keys: list[Any]) -> dict[int, Number]:
    """Where what keys take has rows, from the last dimension on: all of them."""
    kept: list[Number | None] = []
    dim = 0
    for each in keys:
        is_slice = isinstance(each, slice)
        has_rows = each is not None and dim in padding.dims(input)
        if has_rows and not is_whole(each):
            raise NotPaddedError(_PUT)
        if padding.is_met(each) or isinstance(each, torch.Tensor):
            raise NotPaddedError(_PUT)
        if each is None or is_slice:
            kept.append(padding.number_at(input, dim) if has_rows else None)
        dim += each is not None
    ends = {len(kept) - at: number for at, number in enumerate(kept) if number is not None}
    if not ends:
        raise NotPaddedError(_PUT)
    return ends


def _set_by_mask(padding: Padding, input: Any, mask: Any, value: Any) -> Any:
    """In place."""
    of = dict(zip(padding.dims(input), padding.numbers(input), strict=True))
    own = dict(zip(padding.dims(mask), padding.numbers(mask), strict=True))
    are_rows = [dim for dim in of if dim < mask.dim()] == list(own) and all(
        of[dim].key == number.key for dim, number in own.items()
    )
    is_beside = mask.shape == input.shape[: mask.dim()] and mask.dtype == torch.bool
    if not are_rows or not is_beside:
        raise NotPaddedError(_PUT)
    input.masked_fill_(mask.reshape([*mask.shape, *[1] * (input.dim() - mask.dim())]), value)
    return None


def _places(padding: Padding, input: Any, places: Any) -> Any:
    """Where rows say, in what has none, or in rows: what padding says is as a row says it."""
    if padding.dims(places):
        padding.has_some(places)
        first = places.narrow(padding.dim(places) or 0, 0, 1)
        places = torch.where(padding.mask(places), places, first)
    if not (rows := padding.dims(input)):
        return places
    if rows[0] != 0:
        return places
    own = padding.number_at(input, 0).own
    padding.holds((places >= -own) & (places < own))
    return torch.where(places < 0, places + own, places)


@rule_for(
    *("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_"), is_of_several=True
)
def _put_together(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    dim: int,
    index: Any,
    source: Any,
    *args: Any,
    **how: Any,
) -> Any:
    """The greatest, or such, of what is at places."""
    without_rows(padding, args, how)
    name: Any = args[0] if args else how.get("reduce")
    neutral = {"sum": 0, "prod": 1, "amax": least(source.dtype), "amin": greatest(source.dtype)}
    rows = padding.dim(source)
    is_known = rows is not None and padding.dim(index) == (0 if index.dim() == 1 else rows)
    is_known = is_known and padding.number(index).key == padding.number(source).key
    if not is_known or (index.dim() == 1 and rows != positive(dim, input)):
        raise NotPaddedError(_PUT)
    if how.get("include_self", args[1] if len(args) > 1 else True) is not True:
        return _put_instead(padding, call, input, dim, index, source, args, how)
    if name not in neutral:
        raise NotPaddedError(_PUT)
    given, places = padding.only(source, neutral[name]), padding.only(index, 0)
    found = call(input, dim, places, given, *args, **how)
    if (own := padding.dim(input)) is None:
        return found
    if own != positive(dim, input) or rows != own:
        raise NotPaddedError(_PUT)
    padding.holds((places >= 0) & (places < padding.number(input).own))
    padding.mark_as(found, input)
    return (written_as_first if call.name.endswith("_") else as_first)(padding, found)


def _put_instead(
    padding: Padding,
    call: Any,
    input: Any,
    dim: int,
    index: Any,
    source: Any,
    args: tuple[Any, ...],
    how: dict[str, Any],
) -> Any:
    """The same without what was there: padding goes to a row of its own behind all others."""
    at = positive(dim, input)
    own = padding.dim(input)
    rows = input.shape[at]
    places = torch.where(padding.mask(index), index, rows)
    if own is not None:
        if own != at or padding.dim(source) != at:
            raise NotPaddedError(_PUT)
        known = padding.only(index, 0)
        padding.holds((known >= 0) & (known < padding.number(input).own))
    longer = torch.cat([input, input.narrow(at, 0, 1)], at)
    is_written = call.name.endswith("_")
    put = torch.Tensor.index_reduce if "index" in call.name else torch.Tensor.scatter_reduce
    found: Any = put(longer, dim, places, source, *args, **how).narrow(at, 0, rows)
    if own is not None:
        found = as_first(padding, padding.mark_as(found, input))
    if not is_written:
        return found
    return input.copy_(found)
