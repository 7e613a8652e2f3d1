"""Rules for padded rows (`padding.py`): sizes, shapes, and which rows are taken.

What takes some rows gives a tensor with as many padded rows again, of which a client's own are the
first ones: so a slice that ends sooner has more padding, and one that begins later is moved up. Its
padding is one of the rows that were taken, because others may not be finite.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from stator._program_tracing.padding import (
    Padding,
    is_mask,
    positive,
    rule_for,
    without_rows,
)
from stator._program_tracing.padding_chosen import by_mask, read
from stator._program_tracing.padding_numbers import NotPaddedError, Number, Share, is_of_data

__all__ = ["Padding"]

_RESHAPED = "clients of different sizes: rows are reshaped"
_TAKEN = "clients of different sizes: some rows are taken"


# Sizes.


@rule_for("size", "shape", is_of_several=True)
def _size(padding: Padding, call: Any, /, input: Any, dim: Any = None) -> Any:
    rows = padding.dims(input)
    sizes = [
        padding.number_at(input, at) if at in rows else size for at, size in enumerate(input.shape)
    ]
    return tuple(sizes) if dim is None else sizes[dim]


@rule_for("numel", "nelement", is_of_several=True)
def _count(padding: Padding, call: Any, /, input: Any) -> Any:
    rows = padding.dims(input)
    others = [size for at, size in enumerate(input.shape) if at not in rows]
    return math.prod(padding.numbers(input), start=math.prod(others))


@rule_for("zeros", "ones", "empty", "full")
def _made(padding: Padding, call: Any, /, *args: Any, **how: Any) -> Any:
    if "size" in how:
        size, rest = how.pop("size"), args
    elif args and isinstance(args[0], (tuple, list)):
        size, rest = args[0], args[1:]
    else:
        size, rest = args, ()
    return _of_size(padding, call, size, rest, how)


@rule_for("new_zeros", "new_ones", "new_empty", "new_full")
def _made_like(padding: Padding, call: Any, /, input: Any, *args: Any, **how: Any) -> Any:
    if "size" in how:
        size, rest = how.pop("size"), args
    elif args and isinstance(args[0], (tuple, list)):
        size, rest = args[0], args[1:]
    else:
        size, rest = args, ()
    like = torch.empty((), dtype=input.dtype)

    def make(*args: Any, **how: Any) -> Any:
        return call(like, *args, **how)

    make.name = call.name  # type: ignore[attr-defined]
    how.setdefault("dtype", input.dtype)
    return _of_size(padding, make, size, rest, how)


def _of_size(
    padding: Padding, call: Any, size: Any, rest: tuple[Any, ...], how: dict[str, Any]
) -> Any:
    """A new tensor, which may have rows, or their number in it."""
    at = [at for at, each in enumerate(size) if isinstance(each, Number)]
    sizes = [padding.rows_of(each) if isinstance(each, Number) else each for each in size]
    fill = how.pop("fill_value", rest[0] if rest else None)
    without_rows(padding, how, rest[1:])
    if isinstance(fill, Share) and "full" in call.name:
        usual = torch.int64 if isinstance(fill, Number) else torch.get_default_dtype()
        kind = how.pop("dtype", None) or usual
        without_rows(padding, how)
        found = torch.zeros(sizes, dtype=kind, **how) + fill.own.to(kind)
    elif "full" in call.name:
        without_rows(padding, fill)
        found = call(sizes, fill, **how)
    else:
        found = call(sizes, *rest, **how)
    return padding.mark(found, at, [size[each] for each in at]) if at else found


@rule_for("eye")
def _identity(padding: Padding, call: Any, /, n: Any, m: Any = None, **how: Any) -> Any:
    """Rows beside rows."""
    without_rows(padding, how)
    if not isinstance(n, Number) or not (m is None or (isinstance(m, Number) and m.key == n.key)):
        raise NotPaddedError("clients of different sizes: a tensor with rows and others")
    return padding.mark(call(padding.rows_of(n), **how), (0, 1), n)


@rule_for("tensor", "as_tensor", "scalar_tensor")
def _number(padding: Padding, call: Any, /, data: Any, dtype: Any = None, **how: Any) -> Any:
    if how or not isinstance(data, Share):
        raise NotPaddedError("clients of different sizes: numbers in another form")
    # `scalar_tensor` has the default element type.
    is_whole = isinstance(data, Number) and call.name != "scalar_tensor"
    usual = torch.int64 if is_whole else torch.get_default_dtype()
    return data.own.to(dtype or usual, copy=True)


@rule_for("arange")
def _arange(padding: Padding, call: Any, /, *args: Any, **how: Any) -> Any:
    """Numbers from one on, or down to one, as many as rows say."""
    start, end = (0, args[0]) if len(args) == 1 else args[:2]
    step = args[2] if len(args) > 2 else how.pop("step", 1)
    without_rows(padding, how, step)
    bounds = (int, Number)
    if type(step) is not int or not step or not all(type(each) in bounds for each in (start, end)):
        raise NotPaddedError("clients of different sizes: numbers in another form")
    number: Any = (end - start) if step > 0 else (start - end)
    if abs(step) > 1:
        number = (number + (abs(step) - 1)) // abs(step)
    if not isinstance(number, Number):
        raise NotPaddedError("clients of different sizes: numbers in another form")
    rows = padding.rows_of(number)
    places = call(rows, **how)
    # Its padding is as its beginning: these may be places of rows.
    places = torch.where(torch.arange(rows) < number.own, places, 0)
    first = start.own.to(places.dtype) if isinstance(start, Number) else start
    return padding.mark(places * step + first, 0, number)


# Shapes.


@rule_for("reshape", "view", is_of_several=True)
def _reshape(padding: Padding, call: Any, /, input: Any, *shape: Any) -> Any:
    """Rows stay the first dimension; or all numbers are divided anew."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if padding.dims(input) == (0, 1) and len(sizes) == 1 and type(sizes[0]) is int:
        return _in_line(padding, input)
    if len(sizes) == 1 and len(at := padding.dims(input)) == 1 and at[0]:
        is_all = type(sizes[0]) is int or padding.is_size(sizes[0])
        if is_all and input.numel() == input.shape[at[0]]:
            # All but the rows are dimensions of one.
            return padding.mark_as(input.reshape(-1), input, [0])
    if len(sizes) == 2 and padding.dim(input) == 0:
        parts, rest = sizes
        is_rest = type(rest) is int and rest == -1
        if type(parts) is int and parts > 0 and is_rest:
            return _in_parts(padding, input, parts)
    without_rows(padding, *sizes[1:])
    if any(type(size) is not int for size in sizes[1:]):
        raise NotPaddedError(_RESHAPED)
    rest = math.prod(input.shape[1:])
    others = math.prod(sizes[1:])
    if padding.dim(input) != 0 or not sizes or isinstance(sizes[0], torch.dtype) or not rest:
        raise NotPaddedError(_RESHAPED)
    if sizes[1:].count(-1) == 1:
        # Of the others one is what is left.
        is_kept, others = padding.is_size(sizes[0]), rest
    else:
        is_rest = type(sizes[0]) is int and sizes[0] == -1
        is_kept = others > 0 and (is_rest or isinstance(sizes[0], Number))
    number = _divided(padding, input, rest, others) if is_kept else None
    if number is None and is_kept and len(sizes) == 2 and others > rest:
        return _in_rows(padding, input, others)
    if number is None or not (type(sizes[0]) is int or _is_same(sizes[0], number)):
        raise NotPaddedError(_RESHAPED)
    return padding.mark(call(input, (padding.rows_of(number), *sizes[1:])), 0, number)


def _in_line(padding: Padding, input: Any) -> Any:
    """What is of pairs, one pair behind the other."""
    if input.dim() != 2:
        raise NotPaddedError(_RESHAPED)
    number: Any = math.prod(padding.numbers(input))
    width, each = input.shape[1], padding.number_at(input, 1).own
    places = torch.arange(padding.rows_of(number))
    places = torch.where(places < number.own, places, 0)
    flat = input.reshape(-1)
    found = flat.gather(0, places // each * width + places % each)
    padding.copied(input, found)
    return padding.mark(found, 0, number)


def _in_parts(padding: Padding, input: Any, parts: int) -> Any:
    """All of a client's numbers in so many parts, each of which begins where the last one ends."""
    each = math.prod(input.shape[1:])
    if each % parts == 0 and each:
        number: Any = padding.number(input) * (each // parts)
    elif each < parts:
        number = _quotient(padding, input, each, parts)
    else:
        number = None
    if not isinstance(number, Number):
        raise NotPaddedError(_RESHAPED)
    begins = torch.arange(parts).unsqueeze(1) * number.own
    places = begins + torch.arange(padding.rows_of(number))
    found = input.reshape(-1)[places.clamp(max=input.numel() - 1)]
    padding.copied(input, found)
    return padding.mark(found, 1, number)


def _in_rows(padding: Padding, input: Any, width: int) -> Any:
    """All of a client's numbers in rows of another width, larger than before."""
    number = _quotient(padding, input, math.prod(input.shape[1:]), width)
    rows = padding.rows_of(number)
    flat = input.reshape(-1)
    lacks = rows * width - flat.shape[0]
    flat = torch.cat([flat, flat[:1].expand(lacks)]) if lacks > 0 else flat[: rows * width]
    padding.copied(input, flat)
    return padding.mark(flat.reshape(rows, width), 0, number)


def _quotient(padding: Padding, input: Any, each: int, parts: int) -> Any:
    """How many there are in each of so many parts of a client's numbers, `each` in a row."""
    whole: Any = padding.number(input) * each
    # PyTorch raises otherwise.
    padding.holds(torch.as_tensor(whole.own) % parts == 0)
    return whole // parts


def _is_same(size: Any, number: Number) -> bool:
    return isinstance(size, Number) and size.key == number.key


def _divided(padding: Padding, input: Any, rest: int, others: int) -> Number | None:
    """How many rows there are, where each has had so many numbers and has others now."""
    if rest == others:
        return padding.number(input)
    if rest % others == 0:
        return padding.in_parts(input, rest // others)
    return padding.of_parts(input, others // rest) if others % rest == 0 else None


@rule_for("flatten", "ravel", is_of_several=True)
def _flatten(
    padding: Padding, call: Any, /, input: Any, start_dim: int = 0, end_dim: int = -1
) -> Any:
    start, end = positive(start_dim, input), positive(end_dim, input)
    if padding.dims(input) == (0, 1) and (start, end) == (0, 1):
        return _in_line(padding, input)
    dim = padding.dim(input)
    if dim is None or (dim > start and math.prod(input.shape[start:dim]) != 1 and dim <= end):
        raise NotPaddedError(_RESHAPED)
    found = call(input) if call.name == "ravel" else call(input, start_dim, end_dim)
    if dim < start:
        return padding.mark(found, dim)
    if dim > end:
        return padding.mark(found, dim - (end - start))
    parts = math.prod(input.shape[dim + 1 : end + 1])
    number = padding.in_parts(input, parts) if parts > 1 else padding.number(input)
    if number is None or not parts:
        raise NotPaddedError(_RESHAPED)
    return padding.mark(found, start, number)


@rule_for("unsqueeze", is_of_several=True)
def _unsqueeze(padding: Padding, call: Any, /, input: Any, dim: int) -> Any:
    at = dim + input.dim() + 1 if dim < 0 else dim
    return padding.mark_as(
        call(input, dim), input, [row + (at <= row) for row in padding.dims(input)]
    )


@rule_for("squeeze")
def _squeeze(padding: Padding, call: Any, /, input: Any, dim: Any) -> Any:
    if type(dim) is not int:
        raise NotPaddedError(_RESHAPED)
    at, rows = positive(dim, input), padding.dim(input) or 0
    if at == rows:
        raise NotPaddedError(_RESHAPED)
    found = call(input, dim)
    return padding.mark(found, rows - (found.dim() < input.dim() and at < rows))


@rule_for("transpose", "swapaxes", "swapdims", is_of_several=True)
def _transpose(padding: Padding, call: Any, /, input: Any, dim0: int, dim1: int) -> Any:
    order = list(range(input.dim()))
    a, b = positive(dim0, input), positive(dim1, input)
    order[a], order[b] = b, a
    rows = [order.index(row) for row in padding.dims(input)]
    return padding.mark_as(call(input, dim0, dim1), input, rows)


@rule_for("permute", is_of_several=True)
def _permute(padding: Padding, call: Any, /, input: Any, *dims: Any) -> Any:
    order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    order = [positive(dim, input) for dim in order]
    rows = [order.index(row) for row in padding.dims(input)]
    return padding.mark_as(call(input, *dims), input, rows)


@rule_for("movedim", "moveaxis")
def _movedim(padding: Padding, call: Any, /, input: Any, source: Any, destination: Any) -> Any:
    """Where rows are then the same move says of the numbers of the dimensions."""
    order = torch.empty([*range(input.dim())]).movedim(source, destination).shape
    return padding.mark(call(input, source, destination), order.index(padding.dim(input) or 0))


@rule_for("T", "t", "mT", "H", "mH", is_of_several=True)
def _turned(padding: Padding, call: Any, /, input: Any) -> Any:
    if input.dim() != 2:
        raise NotPaddedError(_RESHAPED)
    return padding.mark_as(call(input), input, [1 - row for row in padding.dims(input)])


@rule_for("expand", "broadcast_to")
def _expand(padding: Padding, call: Any, /, input: Any, *sizes: Any) -> Any:
    shape = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    rows = padding.dim(input)
    at = [place for place, size in enumerate(shape) if isinstance(size, Number)]
    if rows is not None:
        own = rows + len(shape) - input.dim()
        at = at or [own]
        if at != [own] or not (padding.is_size(shape[own]) or shape[own] == -1):
            raise NotPaddedError("clients of different sizes: rows beside something else")
    if len(at) != 1:
        raise NotPaddedError("clients of different sizes: a tensor with rows in two dimensions")
    known = [padding.rows_of(size) if isinstance(size, Number) else size for size in shape]
    size = shape[at[0]]
    return padding.mark(call(input, known), at[0], size if isinstance(size, Number) else None)


@rule_for("expand_as")
def _expand_as(padding: Padding, call: Any, /, input: Any, other: Any) -> Any:
    at, rows = padding.dim(other), padding.dim(input)
    if at is None or (rows is not None and rows + other.dim() - input.dim() != at):
        raise NotPaddedError("clients of different sizes: rows beside something else")
    return padding.mark(call(input, other), at)


@rule_for("chunk", "split", "tensor_split", "unbind", "unsafe_chunk", "unsafe_split")
def _parts(padding: Padding, call: Any, /, input: Any, *args: Any, **how: Any) -> Any:
    """Parts of each row."""
    without_rows(padding, args, how)
    count = 0 if call.name == "unbind" else 1
    dim = args[count] if len(args) > count else how.get("dim", 0)
    rows, at = padding.dim(input) or 0, positive(dim, input)
    if at == rows:
        raise NotPaddedError(_TAKEN)
    found = call(input, *args, **how)
    return tuple(
        padding.mark(part, rows - (part.dim() < input.dim() and at < rows)) for part in found
    )


@rule_for("hstack", "vstack", "column_stack", is_of_several=True)
def _beside(padding: Padding, call: Any, /, tensors: Any) -> Any:
    """Matrices, and vectors as they are taken for such."""
    ranks = {tensor.dim() for tensor in tensors}
    if call.name == "column_stack" and ranks <= {1, 2}:
        columns = [each if each.dim() > 1 else _as_column(padding, each) for each in tensors]
        return _joined(padding, _Cat, columns, 1)
    if len(ranks) != 1 or (call.name == "vstack" and ranks == {1}):
        raise NotPaddedError("clients of different sizes: rows are joined in another form")
    return _joined(padding, _Cat, tensors, 1 if call.name != "vstack" and ranks != {1} else 0)


def _as_column(padding: Padding, vector: Any) -> Any:
    column = vector.unsqueeze(1)
    is_of_rows = padding.dim(vector) is not None
    return padding.mark(column, 0, padding.number(vector)) if is_of_rows else column


class _Cat:
    """The operation, as its rule is given it."""

    name = "cat"

    def __new__(cls, *args: Any) -> Any:
        return torch.cat(*args)


@rule_for("cat", "concat", "concatenate", "stack", is_of_several=True)
def _joined(padding: Padding, call: Any, /, tensors: Any, dim: int = 0) -> Any:
    dims = {padding.dim(tensor) for tensor in tensors}
    ranks = {tensor.dim() for tensor in tensors}
    found_dims = tensors[0].dim() + (call.name == "stack")
    at = dim + found_dims if dim < 0 else dim
    if call.name != "stack" and at in dims and dims <= {at, None} and len(ranks) == 1:
        return _one_after_the_other(padding, tensors, at)
    if len(dims) != 1:
        raise NotPaddedError("clients of different sizes: rows are joined with something else")
    rows = dims.pop()
    if rows is None:
        raise NotPaddedError("clients of different sizes: rows are joined")
    found = call(tensors, dim)
    return padding.mark(found, rows + (call.name == "stack" and at <= rows))


def _one_after_the_other(padding: Padding, tensors: Any, dim: int) -> Any:
    """Rows behind each other, with all padding behind them."""
    total: Any = 0
    first = 0
    place = torch.arange(sum(tensor.shape[dim] for tensor in tensors))
    source = torch.zeros_like(place)
    for tensor in tensors:
        # In what stands before it are so many of a client's own.
        is_padded = padding.dim(tensor) is not None
        number: Any = padding.number(tensor) if is_padded else tensor.shape[dim]
        before = total.own if isinstance(total, Number) else total
        own = number.own if is_padded else number
        is_here = (place >= before) & (place < before + own)
        source = torch.where(is_here, place - before + first, source)
        first += tensor.shape[dim]
        total = total + number
    if not isinstance(total, Number):
        raise NotPaddedError("clients of different sizes: rows are joined")
    whole = torch.cat(list(tensors), dim)
    return padding.mark(rows_at(whole, dim, source[: padding.rows_of(total)]), dim, total)


@rule_for("repeat", "tile")
def _repeat(padding: Padding, call: Any, /, input: Any, *sizes: Any) -> Any:
    shape = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    without_rows(padding, shape)
    rows = (padding.dim(input) or 0) + len(shape) - input.dim()
    if len(shape) < input.dim() or shape[rows] != 1:
        raise NotPaddedError(_RESHAPED)
    return padding.mark(call(input, *sizes), rows)


# Which rows are taken.


def rows_at(tensor: Any, dim: int, places: Any) -> Any:
    """Rows by their places."""
    if not dim:
        return tensor[places]
    return tensor.movedim(dim, 0)[places].movedim(0, dim)


def _from(padding: Padding, tensor: Any, dim: int, first: Any, number: Any, step: int = 1) -> Any:
    """As many rows as a number says, from a place on: each, or one of so many."""
    is_moved = isinstance(first, torch.Tensor) or first or step > 1
    if type(number) is int:
        places = torch.arange(number) * step + first
        return rows_at(tensor, dim, places) if is_moved else tensor.narrow(dim, 0, number)
    # Its padding is its own first row: others may not be as finite. Where data say that there is
    # none, it's as what is behind a client's rows.
    has_some = padding.finite_unless.append if is_of_data(number.key) else padding.holds
    has_some(number.own > 0)
    rows = padding.rows_of(number)
    places = torch.arange(rows)
    if not is_moved and rows <= tensor.shape[dim]:
        is_own = (places < number.own).reshape([-1, *[1] * (tensor.dim() - dim - 1)])
        one = tensor.narrow(dim, 0, 1).detach()
        return torch.where(is_own, tensor.narrow(dim, 0, rows), one)
    places = torch.where(places < number.own, places, 0) * step + first
    return rows_at(tensor, dim, places.clamp(max=tensor.shape[dim] - 1))


def bounds(padding: Padding, number: Number, key: slice) -> tuple[Any, Any]:
    """Where a slice of rows, which all clients have, begins, and how many these are."""
    start = _bound(padding, key.start, number, 0)
    stop = _bound(padding, key.stop, number, number)
    first = start.own if isinstance(start, Number) else start
    last = stop.own if isinstance(stop, Number) else stop
    if isinstance(stop, Number) and stop.key == number.key:
        padding.holds(torch.as_tensor(first) <= number.own)
    else:
        padding.holds((torch.as_tensor(first) <= last) & (last <= number.own))
    padding.holds(torch.as_tensor(first) >= 0)
    return first, stop - start


def place_of(number: Number, place: Any) -> Any:
    """A place among rows, counted from the first one."""
    if isinstance(place, Number):
        return place.own
    if type(place) is not int:
        raise NotPaddedError(_TAKEN)
    return number.own + place if place < 0 else torch.as_tensor(place)


def _bound(padding: Padding, bound: Any, number: Number, whole: Any) -> Any:
    """A bound of a slice, counted from the first row."""
    if bound is None:
        return whole
    if isinstance(bound, Number):
        padding.holds(bound.own >= 0)
        return bound
    if isinstance(bound, torch.Tensor):
        return read(padding, bound, number)
    if type(bound) is not int:
        raise NotPaddedError(_TAKEN)
    return number + bound if bound < 0 else bound


def _sliced(padding: Padding, tensor: Any, dim: int, number: Number, key: slice) -> Any:
    """A slice of rows, which all clients have, and how many these are."""
    step = 1 if key.step is None else key.step
    if type(step) is not int or step < 1:
        raise NotPaddedError(_TAKEN)
    first, many = bounds(padding, number, key)
    if step > 1:
        many = (many + (step - 1)) // step
    if type(many) is int and not 0 <= many <= tensor.shape[dim]:
        raise NotPaddedError(_TAKEN)
    found = _from(padding, tensor, dim, first, many, step)
    padding.copied(tensor, found)
    return found, many


def _row(padding: Padding, tensor: Any, dim: int, number: Number, place: Any) -> Any:
    """One row, in a dimension of one."""
    own = place_of(number, place)
    padding.holds((own >= 0) & (own < number.own))
    if type(place) is int and place >= 0:
        if place >= tensor.shape[dim]:
            raise NotPaddedError(_TAKEN)
        return tensor.narrow(dim, place, 1)
    found = rows_at(tensor, dim, own.reshape(1))
    padding.copied(tensor, found)
    return found


def _by_places(padding: Padding, tensor: Any, dim: int, places: Any) -> Any:
    """Rows by a tensor of places, as PyTorch counts them; these may have rows, too."""
    number = padding.number(tensor)
    own = padding.only(places, 0)
    padding.holds((own >= -number.own) & (own < number.own))
    if padding.dim(places) is not None:
        padding.has_some(tensor)
    known = torch.where(own < 0, own + number.own, own)
    return rows_at(tensor, dim, known)


@rule_for("getitem", is_of_several=True)
def _item(padding: Padding, call: Any, /, input: Any, key: Any) -> Any:
    """Numbers, slices and new dimensions; rows by their places, and places that rows say."""
    rows = padding.dims(input)
    keys = [_as_places(each) for each in (key if isinstance(key, tuple) else (key,))]
    if is_mask(keys[0]) and not any(isinstance(each, torch.Tensor) for each in keys[1:]):
        chosen = by_mask(padding, input, keys[0])
        beside = (slice(None), *keys[1:])
        return _item(padding, call, chosen, beside) if keys[1:] else chosen
    if any(isinstance(each, torch.Tensor) for each in keys):
        return _item_by_places(padding, call, input, key, keys)
    if not rows:
        raise NotPaddedError(_TAKEN)
    keys = all_keys(input, keys)
    dim, place, taken = 0, 0, input
    left: list[tuple[int, Number]] = []
    for at_key, each in enumerate(keys):
        if each is None:
            place += 1
            continue
        if dim in rows:
            number: Any = padding.number_at(input, dim)
            if not isinstance(each, slice):
                taken, keys[at_key] = _row(padding, taken, dim, number, each), 0
            elif not is_whole(each):
                taken, number = _sliced(padding, taken, dim, number, each)
                keys[at_key] = slice(None)
            if isinstance(each, slice) and isinstance(number, Number):
                left.append((place, number))
        elif isinstance(each, slice):
            without_rows(padding, each)
        elif type(each) is not int:
            raise NotPaddedError(_TAKEN)
        place += isinstance(each, slice)
        dim += 1
    found = call(taken, tuple(keys))
    padding.sliced(input, key, found)
    return padding.mark(found, *zip(*left, strict=True)) if left else found


def _as_places(key: Any) -> Any:
    """A list of places as the tensor that PyTorch makes of it."""
    is_list = isinstance(key, list) and key and all(type(each) is int for each in key)
    return torch.tensor(key) if is_list else key


def all_keys(input: Any, keys: list[Any]) -> list[Any]:
    """A key for each dimension of a tensor, and for new ones."""
    used = sum(each is not None and each is not Ellipsis for each in keys)
    rest = [slice(None)] * (input.dim() - used)
    at = [at for at, each in enumerate(keys) if each is Ellipsis]
    return [*keys[: at[0]], *rest, *keys[at[0] + 1 :]] if at else [*keys, *rest]


def _item_by_places(padding: Padding, call: Any, input: Any, key: Any, keys: list[Any]) -> Any:
    """By one tensor of places, or one for each dimension with rows beside each other."""
    rows = padding.dim(input)
    tensors = [each for each in keys if isinstance(each, torch.Tensor)]
    if any(each.dtype in (torch.bool, torch.uint8) for each in tensors):
        raise NotPaddedError("clients of different sizes: rows are chosen by data")
    marked = [each for each in tensors if padding.dim(each) is not None]
    if isinstance(keys[0], torch.Tensor) and all(map(is_whole, keys[1:])):
        places = keys[0]
        number = padding.number(places) if marked else None
        if rows is None:
            return padding.mark_as(call(input, key), places)
        if rows == 0:
            found = _by_places(padding, input, 0, places)
            at = padding.dim(places)
            return found if at is None else padding.mark(found, at, number)
        if places.dim() == 1 and not marked:
            return padding.mark_as(call(input, key), input)
        raise NotPaddedError(_TAKEN)
    if len(tensors) == 1 and all(
        isinstance(each, torch.Tensor) or each is Ellipsis or is_whole(each) for each in keys
    ):
        return _item_along(padding, call, input, tensors[0], all_keys(input, keys))
    if len(tensors) != len(keys) or not marked or len(marked) != len(tensors):
        raise NotPaddedError(_TAKEN)
    if {padding.dim(each) for each in marked} != {0} or {each.dim() for each in marked} != {1}:
        raise NotPaddedError(_TAKEN)
    if rows is None and len({padding.number(each).key for each in marked}) == 1:
        return padding.mark_as(call(input, key), marked[0])
    if rows or rows is None or len({padding.number(each).key for each in marked}) != 1:
        raise NotPaddedError(_TAKEN)
    # One element of each row, or of several rows.
    number = padding.number(input)
    own = padding.only(keys[0], 0)
    padding.holds((own >= -number.own) & (own < number.own))
    known = torch.where(own < 0, own + number.own, own)
    return padding.mark(call(input, (known, *keys[1:])), 0, padding.number(keys[0]))


def _item_along(padding: Padding, call: Any, input: Any, places: Any, keys: list[Any]) -> Any:
    """By places in one dimension, of which the others stay whole."""
    rows, own = padding.dim(input), padding.dim(places)
    at = next(at for at, each in enumerate(keys) if isinstance(each, torch.Tensor))
    if rows is None:
        return padding.mark_as(call(input, tuple(keys)), places, [at + (own or 0)])
    if rows == at and places.dim() == 1:
        found = _by_places(padding, input, at, places)
        return found if own is None else padding.mark(found, at, padding.number(places))
    if rows == at or own is not None:
        raise NotPaddedError(_TAKEN)
    moved = rows + (places.dim() - 1 if rows > at else 0)
    return padding.mark_as(call(input, tuple(keys)), input, [moved])


def is_whole(key: Any) -> bool:
    bounds = (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)
    return all(bound is None for bound in bounds) and isinstance(key, slice)


@rule_for("masked_select", is_of_several=True)
def _masked(padding: Padding, call: Any, /, input: Any, mask: Any) -> Any:
    if input.dim() != 1 or mask.dim() != 1:
        raise NotPaddedError("clients of different sizes: elements are chosen by data")
    return by_mask(padding, input, mask)


@rule_for("select")
def _select(padding: Padding, call: Any, /, input: Any, dim: int, index: Any) -> Any:
    at, rows = positive(dim, input), padding.dim(input)
    if rows is None:
        raise NotPaddedError(_TAKEN)
    if at == rows:
        return _row(padding, input, rows, padding.number(input), index).squeeze(rows)
    without_rows(padding, index)
    return padding.mark(call(input, dim, index), rows - (at < rows))


@rule_for("narrow")
def _narrow(padding: Padding, call: Any, /, input: Any, dim: int, start: Any, length: Any) -> Any:
    at, rows = positive(dim, input), padding.dim(input)
    if rows is None:
        raise NotPaddedError(_TAKEN)
    if at != rows:
        without_rows(padding, start, length)
        return padding.mark(call(input, dim, start, length), rows)
    number = padding.number(input)
    first = _bound(padding, start, number, 0)
    found, many = _sliced(padding, input, rows, number, slice(first, first + length))
    return padding.mark(found, rows, many) if isinstance(many, Number) else found


@rule_for("index_select", is_of_several=True)
def _index_select(padding: Padding, call: Any, /, input: Any, dim: int, index: Any) -> Any:
    rows, at = padding.dim(input), positive(dim, input)
    own = padding.dim(index)
    if rows is None:
        return padding.mark_as(call(input, dim, index), index, [at])
    if at != rows:
        if own is not None:
            raise NotPaddedError(_TAKEN)
        return padding.mark_as(call(input, dim, index), input)
    padding.holds(padding.only(index, 0) >= 0)
    found = _by_places(padding, input, at, index.reshape(-1))
    return found if own is None else padding.mark(found, at, padding.number(index))


@rule_for("gather", "take_along_dim", is_of_several=True)
def _gather(padding: Padding, call: Any, /, input: Any, dim: int, index: Any, **how: Any) -> Any:
    if call.name == "take_along_dim":
        dim, index = index, dim
    without_rows(padding, how)
    rows, own, at = padding.dim(input), padding.dim(index), positive(dim, input)
    beside = [
        (a, b) for d, (a, b) in enumerate(zip(input.shape, index.shape, strict=False)) if d != at
    ]
    if input.dim() != index.dim() or (call.name != "gather" and any(a != b for a, b in beside)):
        raise NotPaddedError(_TAKEN)
    if rows == at:
        number = padding.number(input)
        places = padding.only(index, 0)
        padding.holds((places >= 0) & (places < number.own))
        found = torch.gather(input, at, places)
        return found if own is None else padding.mark(found, own, padding.number(index))
    if rows is None or rows != own or padding.number(input).key != padding.number(index).key:
        raise NotPaddedError("clients of different sizes: rows beside something else")
    return padding.mark_as(torch.gather(input, at, index), input)


@rule_for("scatter")
def _scatter(padding: Padding, call: Any, /, input: Any, dim: int, index: Any, *args: Any) -> Any:
    """Within each row."""
    rows = padding.dim(input)
    given = [each for each in args if isinstance(each, torch.Tensor) and each.dim()]
    are_apart = all(padding.dim(each) == rows for each in (index, *given))
    if rows is None or not are_apart or positive(dim, input) == rows:
        raise NotPaddedError("clients of different sizes: rows are put into something else")
    return padding.mark(call(input, dim, index, *args), rows)


@rule_for("unfold")
def _windows(
    padding: Padding, call: Any, /, input: Any, dimension: int, size: int, step: int
) -> Any:
    """Windows over rows, or within each."""
    without_rows(padding, dimension, size, step)
    rows, at = padding.dim(input) or 0, positive(dimension, input)
    if call.func is torch.nn.functional.unfold or type(size) is not int or type(step) is not int:
        raise NotPaddedError(_TAKEN)
    if at != rows:
        return padding.mark(call(input, dimension, size, step), rows)
    whole = padding.number(input)
    padding.holds(whole.own >= size)
    number: Any = (whole - size) // step + 1
    places = torch.arange(padding.rows_of(number))
    places = torch.where(places < number.own, places, 0) * step
    taken = (places.unsqueeze(1) + torch.arange(size)).clamp(max=padding.rows - 1)
    found = input.movedim(rows, 0)[taken].movedim(1, -1).movedim(0, rows)
    padding.copied(input, found)
    return padding.mark(found, rows, number)


@rule_for("flip", is_of_several=True)
def _flip(padding: Padding, call: Any, /, input: Any, *dims: Any) -> Any:
    given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    without_rows(padding, given)
    rows, known = padding.dims(input), [positive(dim, input) for dim in given]
    found = input.flip([dim for dim in known if dim not in rows])
    for row in set(known).intersection(rows):
        places = torch.arange(input.shape[row])
        own = padding.number_at(input, row).own
        found = rows_at(found, row, torch.where(places < own, own - 1 - places, places))
    return padding.mark_as(found, input)


@rule_for("roll", is_of_several=True)
def _roll(padding: Padding, call: Any, /, input: Any, shifts: Any, dims: Any = None) -> Any:
    """Of one dimension."""
    shift = shifts[0] if isinstance(shifts, (tuple, list)) and len(shifts) == 1 else shifts
    dim = dims[0] if isinstance(dims, (tuple, list)) and len(dims) == 1 else dims
    if dim is None and input.dim() == 1:
        dim = 0
    if type(shift) is not int or type(dim) is not int or not padding.dims(input):
        raise NotPaddedError("clients of different sizes: rows are rolled in another form")
    at = positive(dim, input)
    if at not in padding.dims(input):
        return padding.mark_as(call(input, shift, dim), input)
    places = torch.arange(input.shape[at])
    own = padding.number_at(input, at).own.clamp(min=1)
    found = rows_at(input, at, torch.where(places < own, (places - shift) % own, places))
    return padding.mark_as(found, input)


@rule_for("diff")
def _diff(padding: Padding, call: Any, /, input: Any, n: int = 1, dim: int = -1) -> Any:
    rows, at = padding.dim(input) or 0, positive(dim, input)
    if at != rows:
        return padding.mark(call(input, n, dim), rows)
    for _ in range(n):
        number = padding.number(input)
        sooner, _ = _sliced(padding, input, rows, number, slice(None, -1))
        later, number = _sliced(padding, input, rows, number, slice(1, None))
        made = later ^ sooner if input.dtype == torch.bool else later - sooner
        input = padding.mark(made, rows, number)
    return input
