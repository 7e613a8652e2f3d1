"""Rules for padded rows (`padding.py`): their order and places in it, what is done along them,
lengths.

Padding stands behind a client's own rows, and sorting is stable: so what is as great as a client's
own number comes after that.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from stator._program_tracing.padding import (
    Padding,
    are_rows,
    compared,
    dims_of,
    elements,
    greatest,
    least,
    positive,
    reduced,
    rule_for,
    without_rows,
)
from stator._program_tracing.padding_numbers import NotPaddedError, Number, Share

__all__ = ["Padding"]


@rule_for("cdist", is_of_several=True)
def _distances(
    padding: Padding, call: Any, /, left: Any, right: Any, *args: Any, **how: Any
) -> Any:
    """Of rows from something else, or from each other; or of columns that have rows."""
    without_rows(padding, args, how)
    a, b = padding.dim(left), padding.dim(right)
    if (a, b) == (left.dim() - 2, right.dim() - 2):
        found = call(left, right, *args, **how)
        numbers = [padding.number(left), padding.number(right)]
        return compared(padding, found, [found.dim() - 2, found.dim() - 1], numbers)
    if (a, b) == (left.dim() - 1, right.dim() - 1):
        # Rows are what differs: padding is nothing in both.
        if padding.number(left).key != padding.number(right).key:
            raise NotPaddedError("clients of different sizes: rows beside fewer rows")
        return call(padding.only(left, 0), padding.only(right, 0), *args, **how)
    if (a, b) not in ((left.dim() - 2, None), (None, right.dim() - 2)):
        raise NotPaddedError("clients of different sizes: distances of something else than rows")
    found = call(left, right, *args, **how)
    number = padding.number(left if b is None else right)
    return padding.mark(found, found.dim() - (2 if b is None else 1), number)


# Places.


@rule_for("argmax", "argmin", is_of_several=True)
def _place(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False
) -> Any:
    """The first one of the greatest: padding is no greater, and behind all."""
    dims, rows = dims_of(dim, input), padding.dims(input)
    if dim is None and rows != (0,):
        raise NotPaddedError("clients of different sizes: a place among rows and others")
    if are_rows(padding, input, dims):
        padding.has_some(input)
    fill = least if call.name == "argmax" else greatest
    given = padding.only(input, fill(input.dtype), dims)
    return reduced(padding, call(given, dim, keepdim), input, dims, keepdim)


# Order.


def _in_order(
    padding: Padding, input: Any, dim: Any, descending: Any, stable: Any
) -> tuple[Any, Any]:
    """Numbers in order, and their places: a client's own come first."""
    without_rows(padding, dim, descending, stable)
    at = positive(dim, input)
    if at not in padding.dims(input):
        found = torch.sort(input, dim=at, descending=bool(descending), stable=bool(stable))
        return found.values, found.indices
    # What is no number is greater than all.
    is_last_nan = input.dtype.is_floating_point and not descending
    end = math.nan if is_last_nan else (least if descending else greatest)(input.dtype)
    given = padding.only(input, end, [at])
    found = torch.sort(given, dim=at, descending=bool(descending), stable=True)
    mask = padding.mask(input, [at])
    # Padding is as finite as a client's own.
    values, places = [torch.where(mask, part, part.narrow(at, 0, 1)) for part in found]
    return values, places


@rule_for("sort", is_of_several=True)
def _sort(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    dim: Any = -1,
    descending: Any = False,
    *,
    stable: Any = False,
) -> Any:
    values, places = _in_order(padding, input, dim, descending, stable)
    padding.mark_as(values, input)
    padding.mark_as(places, input)
    return torch.return_types.sort((values, places))


@rule_for("argsort", is_of_several=True)
def _argsort(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    dim: Any = -1,
    descending: Any = False,
    *,
    stable: Any = False,
) -> Any:
    _, places = _in_order(padding, input, dim, descending, stable)
    return padding.mark_as(places, input)


@rule_for("topk", is_of_several=True)
def _topk(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    k: Any,
    dim: int = -1,
    largest: Any = True,
    sorted: Any = True,
) -> Any:
    """The greatest of each row, or of the rows that a client has."""
    without_rows(padding, dim, largest, sorted)
    at, rows = positive(dim, input), padding.dims(input)
    if at not in rows:
        without_rows(padding, k)
        found = call(input, k, dim, largest, sorted)
        for part in found:
            padding.mark_as(part, input)
        return found
    if not sorted or (isinstance(k, Share) and not (isinstance(k, Number) and len(rows) == 1)):
        raise NotPaddedError("clients of different sizes: rows are taken in another form")
    many = k.own if isinstance(k, Number) else torch.as_tensor(k)
    padding.holds((many >= 0) & (many <= padding.number_at(input, at).own))
    order = _in_order(padding, input, dim, largest, True)
    alone = _alone(padding, input, order[0], at, many)
    others = [row for row in rows if row != at]
    if isinstance(k, Number):
        taken = min(padding.rows_of(k), input.shape[at])
        parts = [padding.mark(part.narrow(at, 0, taken), at, k) for part in order]
    elif k > input.shape[at]:
        raise NotPaddedError("clients of different sizes: more rows than clients have")
    else:
        parts = [part.narrow(at, 0, k) for part in order]
        if others:
            numbers = [padding.number_at(input, row) for row in others]
            parts = [padding.mark(part, others, numbers) for part in parts]
    padding.holds_if_used(parts[1], alone)
    return torch.return_types.topk(tuple(parts))


def _alone(padding: Padding, input: Any, ordered: Any, dim: int, many: Any) -> Any:
    """Whether the first so many numbers in an order are each once among a client's own: otherwise
    it's PyTorch's choice which ones it takes."""
    rest = ordered.shape[dim] - 1
    one, next_one = ordered.narrow(dim, 0, rest), ordered.narrow(dim, 1, rest)
    is_same = (one == next_one) | ((one != one) & (next_one != next_one))
    places = torch.arange(rest).reshape([-1, *[1] * (ordered.dim() - dim - 1)])
    is_own = (places < many) & (places < padding.number_at(input, dim).own - 1)
    for row in padding.dims(input):
        if row != dim:
            is_own = is_own & padding.mask(input, [row])
    return ~(is_same & is_own)


@rule_for("kthvalue", is_of_several=True)
def _kth(
    padding: Padding, call: Any, /, input: Any, k: Any, dim: int = -1, keepdim: bool = False
) -> Any:
    """The number that is at a place in order."""
    without_rows(padding, dim, keepdim)
    at, rows = positive(dim, input), padding.dims(input)
    if at not in rows:
        without_rows(padding, k)
        found = call(input, k, dim, keepdim)
        for part in found:
            reduced(padding, part, input, [at], keepdim)
        return found
    if isinstance(k, Share) and not isinstance(k, Number):
        raise NotPaddedError("clients of different sizes: rows are taken in another form")
    many = k.own if isinstance(k, Number) else torch.as_tensor(k)
    padding.holds((many >= 1) & (many <= padding.number_at(input, at).own))
    order = _in_order(padding, input, dim, False, True)
    alone = _alone(padding, input, order[0], at, many)
    place = (many - 1).clamp(min=0, max=input.shape[at] - 1).reshape(1)
    parts = [part.index_select(at, place) for part in order]
    if not keepdim:
        parts = [part.squeeze(at) for part in parts]
    for part in parts:
        reduced(padding, part, input, [at], keepdim)
    padding.holds_if_used(parts[1], alone)
    return torch.return_types.kthvalue(tuple(parts))


@rule_for("searchsorted", is_of_several=True)
def _searched(padding: Padding, call: Any, /, sequence: Any, values: Any, **how: Any) -> Any:
    """Places of numbers of rows among others, or of others among rows that are in order."""
    without_rows(padding, how)
    rows, own = padding.dim(sequence), padding.dim(values)
    if sequence.dim() != 1:
        raise NotPaddedError("clients of different sizes: rows are searched in another form")
    if own is not None:
        # As it lies in memory alone: PyTorch warns of others.
        values = padding.mark_as(values.clone(memory_format=torch.contiguous_format), values)
    if rows is None:
        return padding.mark_as(call(sequence, values, **how), values)
    # What is no number would stand before the padding, and be less in order than that.
    padding.holds(~torch.isnan(padding.only(sequence, 0)))
    found = call(padding.only(sequence, greatest(sequence.dtype)), values, **how)
    found = torch.minimum(found, padding.number(sequence).own.to(found.dtype))
    return found if own is None else padding.mark_as(found, values)


@rule_for("median", "nanmedian")
def _median(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False
) -> Any:
    """The lower one of the two in the middle."""
    without_rows(padding, dim, keepdim)
    rows, at = padding.dim(input) or 0, 0 if dim is None else positive(dim, input)
    if dim is not None and at != rows:
        found = call(input, dim, keepdim)
        for part in found:
            reduced(padding, part, input, [at], keepdim)
        return found
    padding.has_some(input)
    own = torch.where(padding.mask(input), input, _beyond(input.dtype)).movedim(rows, 0)
    count = padding.number(input).own
    if dim is None:
        numbers = math.prod(own.shape[1:])
        return _middle(call.name, own.reshape(-1), count * numbers)[0]
    value, place = _middle(call.name, own, count)
    if keepdim:
        value, place = value.unsqueeze(at), place.unsqueeze(at)
    return torch.return_types.median((value, place))


@rule_for("nanmean", is_of_several=True)
def _mean_of_numbers(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False, **how: Any
) -> Any:
    without_rows(padding, dim, how)
    if how or not input.dtype.is_floating_point:
        raise NotPaddedError("clients of different sizes: a mean with another element type")
    dims = dims_of(dim, input)
    is_number = padding.mark_as(~torch.isnan(input), input)
    count = padding.only(is_number, False, dims).sum(dims, keepdim=keepdim)
    whole = padding.only(input, 0, dims).nansum(dims, keepdim=keepdim)
    return reduced(padding, whole / count, input, dims, keepdim)


def _beyond(kind: torch.dtype) -> Any:
    """What comes behind everything else in order."""
    return torch.full((), math.nan if kind.is_floating_point else greatest(kind), dtype=kind)


def _middle(name: str, values: Any, count: Any) -> tuple[Any, Any]:
    """The median of the first dimension, in which padding is greater than all, and its place."""
    ordered = torch.sort(values, dim=0, stable=True)
    if values.dtype.is_floating_point:
        # Where something is no number, PyTorch gives that.
        known = (~torch.isnan(values)).sum(0)
        middle = (known - 1).clamp(min=0) // 2
        if name == "median":
            middle = torch.where(known < count, known, middle)
    else:
        middle = ((count - 1) // 2).expand(values.shape[1:])
    middle = middle.clamp(max=values.shape[0] - 1).unsqueeze(0)
    return tuple(part.gather(0, middle).squeeze(0) for part in ordered)  # type: ignore[return-value]


# Along rows.


@rule_for("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", is_of_several=True)
def _running(padding: Padding, call: Any, /, input: Any, dim: Any, **how: Any) -> Any:
    """A client's own rows come first: padding behind them changes nothing."""
    without_rows(padding, dim, how)
    given = input
    if call.name in ("cumsum", "cumprod"):
        given = padding.only(input, int(call.name == "cumprod"), [positive(dim, input)])
    found = call(given, dim, **how)
    for part in found if isinstance(found, tuple) else [found]:
        padding.mark_as(part, input)
    return found


@rule_for("softmax", "log_softmax", is_of_several=True)
def _shares(padding: Padding, call: Any, /, input: Any, dim: Any, *args: Any, **how: Any) -> Any:
    without_rows(padding, dim, args, how)
    at, rows = positive(dim, input), padding.dims(input)
    found = call(padding.only(input, -math.inf, [at]), dim, *args, **how)
    if at in rows:
        # Padding is as finite as a client's own.
        found = torch.where(padding.mask(input, [at]), found, torch.zeros((), dtype=found.dtype))
    return padding.mark_as(found, input)


# Lengths.


@rule_for("norm", "vector_norm", is_of_several=True)
def _norm(padding: Padding, call: Any, /, input: Any, *args: Any, **how: Any) -> Any:
    """`torch.norm`, and those of `torch.linalg`, which call the order otherwise."""
    without_rows(padding, args, how)
    given: dict[str, Any] = dict(zip(("order", "dim", "keepdim"), args, strict=False))
    order: Any = given.get("order", how.get("p", how.get("ord")))
    dims = dims_of(given.get("dim", how.get("dim")), input)
    is_number = type(order) in (int, float) and order >= 0
    # Of matrices other norms than the Frobenius norm aren't made of squares.
    is_of_matrices = call.func is torch.linalg.norm and len(dims) > 1
    if order not in (None, "fro") and (not is_number or is_of_matrices):
        raise NotPaddedError("clients of different sizes: a norm of another kind")
    filled = padding.only(input, 0, dims)
    keepdim = bool(given.get("keepdim", how.get("keepdim", False)))
    return reduced(padding, call(filled, *args, **how), input, dims, keepdim)


@rule_for("normalize")
def _normalize(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    p: Any = 2.0,
    dim: Any = 1,
    eps: Any = 1e-12,
    **how: Any,
) -> Any:
    without_rows(padding, p, dim, eps)
    rows = padding.dim(input)
    if rows in dims_of(dim, input) and not isinstance(p, Share) and p > 0:
        known = padding.only(input, 0)
        length = torch.linalg.vector_norm(known, p, dims_of(dim, input), keepdim=True)
        return padding.mark_as(input / length.clamp(min=eps), input)
    if rows is None or rows in dims_of(dim, input):
        raise NotPaddedError("clients of different sizes: rows are normalised together")
    return padding.mark(call(input, p, dim, eps), rows)


@rule_for("cosine_similarity", is_of_several=True)
def _cosine(
    padding: Padding, call: Any, /, x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8
) -> Any:
    """Of what stands beside each other, or of each with each."""
    without_rows(padding, dim, eps)
    end = dim - max(x1.dim(), x2.dim()) if dim >= 0 else dim
    if any(each.dim() + end < 0 for each in (x1, x2)):
        raise NotPaddedError("clients of different sizes: rows beside something else")
    parts = []
    for each in (_without(padding, x1, end), _without(padding, x2, end)):
        length = torch.linalg.vector_norm(each, dim=end, keepdim=True).clamp(min=eps)
        part = each / length
        parts.append(padding.mark_as(part, each) if padding.dims(each) else part)
    found = elements(padding, _Product, *parts)
    return reduced(padding, found.sum(end), found, [found.dim() + end], False)


def _without(padding: Padding, tensor: Any, end: int) -> Any:
    """A tensor without padding in one dimension, where rows are what is compared."""
    at = tensor.dim() + end
    if at not in padding.dims(tensor):
        return tensor
    return padding.mark_as(padding.only(tensor, 0, [at]), tensor)


class _Product:
    """The operation, as its rule is given it."""

    name = "mul"

    def __new__(cls, *args: Any) -> Any:
        return torch.mul(*args)


@rule_for("isin", is_of_several=True)
def _are_in(padding: Padding, call: Any, /, elements: Any, test_elements: Any, **how: Any) -> Any:
    """Whether each is one of some."""
    is_other = how.pop("invert", False)
    if set(how) - {"assume_unique"} or not isinstance(test_elements, torch.Tensor):
        raise NotPaddedError("clients of different sizes: rows are searched in another form")
    found = elements.unsqueeze(-1) == test_elements.reshape(-1)
    padding.expect_room(found)
    if padding.dims(test_elements):
        if test_elements.dim() != 1:
            raise NotPaddedError("clients of different sizes: rows are searched in another form")
        found = found & padding.own_rows(test_elements)
    found = found.any(-1) != is_other
    return padding.mark_as(found, elements) if padding.dims(elements) else found
