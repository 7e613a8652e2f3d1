"""What is traced in the place of NumPy's functions that choose by numbers, conditions and masks, of
those of sets and of bits, as in `numpy_functions`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from stator._program_tracing import arrays
from stator._program_tracing.arrays import Array, Selected, array, both, cast, dtype_of
from stator._program_tracing.checked import is_all_true
from stator._program_tracing.numpy_functions import (
    SELECTED,
    along_one,
    isin,
    places,
    stands_for,
)
from stator._program_tracing.numpy_selected import SUBSTITUTES
from stator._program_tracing.numpy_shapes import concatenate

__all__ = ["SILENT", "SUBSTITUTES"]


# It has no types.
_broadcast: Any = torch.broadcast_tensors


def _in_range(number: Any, count: Any, mode: str) -> Any:
    """Numbers from 0 to less than `count`."""
    if mode == "clip":
        return torch.clamp(number, 0, count - 1)
    if mode == "wrap":
        return torch.remainder(number, count)
    is_all_true((number >= 0) & (number < count))
    return number


@stands_for(np.choose, method=True)
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    found = [array(choice) for choice in choices]
    kind = arrays.common(found)
    number = _in_range(array(a).tensor.to(torch.int64), len(found), mode)
    parts = _broadcast(number, *[cast(each.tensor, kind) for each in found])
    chosen = parts[1]
    for at, part in enumerate(parts[2:], 1):
        chosen = torch.where(parts[0] == at, part, chosen)
    return Array(chosen.clone())


@stands_for(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    values = array(x)
    conditions = [array(each) for each in condlist]
    if len(funclist) == len(conditions) + 1:
        rest = torch.zeros_like(conditions[0].tensor)
        for each in conditions:
            rest = rest | each.tensor
        conditions.append(Array(torch.logical_not(rest)))
    elif len(funclist) != len(conditions):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or "
            f"{len(conditions) + 1} functions are expected"
        )
    found = Array(torch.zeros_like(values.tensor))
    for condition, function in zip(conditions, funclist, strict=True):
        given = function
        if callable(function):
            chosen: Any = values[condition] if condition.ndim else values
            given = function(chosen, *args, **kw)
            if isinstance(given, Selected) and given.goes_with(chosen):
                given = Array(given.values.reshape(values.shape))
        if isinstance(given, Selected):
            found[condition] = given
        else:
            found = Array(
                torch.where(
                    condition.tensor, array(given).tensor.to(found.tensor.dtype), found.tensor
                )
            )
    return found


def _own(a: Any, name: str) -> Any:
    if not isinstance(a, Array):
        raise TypeError(
            f"{name} writes to an array from outside, which a program doesn't: make one inside"
        )
    return a


@stands_for(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    to, given = _own(dst, "np.copyto"), array(src)
    found = torch.broadcast_to(given.tensor, to.shape)
    if where is not True:
        chosen = torch.broadcast_to(array(where).tensor, to.shape)
        found = torch.where(chosen, cast(found, to.tensor.dtype), to.tensor)
    to._written(Array(found))


@stands_for(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    to, given = _own(a, "np.putmask"), array(values).tensor
    if given.dim() and given.shape != to.tensor.shape:
        raise TypeError("np.putmask in a tensor program takes one value, or one for each element")
    to[array(mask).astype(bool)] = Array(given)[array(mask).astype(bool)] if given.dim() else values


@stands_for(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    to, given = _own(arr, "np.place"), array(vals).tensor.reshape(-1)
    if given.shape[0] != 1:
        raise TypeError("np.place in a tensor program takes one value")
    to[array(mask).astype(bool)] = Array(given[0])


@stands_for(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    to, given = _own(a, "np.fill_diagonal"), array(val)
    if to.ndim != 2 or wrap or given.ndim:
        raise TypeError("np.fill_diagonal in a tensor program takes a matrix and one value")
    places = torch.eye(to.tensor.shape[0], to.tensor.shape[1], dtype=torch.bool)
    to._written(Array(torch.where(places, cast(given.tensor, to.tensor.dtype), to.tensor)))


@stands_for(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    return array(arr).ravel()[array(condition).ravel().astype(bool)]


@stands_for(np.compress)
def compress(condition: Any, a: Any, axis: Any = None) -> Any:
    tensor, along = along_one(a, axis)
    mask = array(condition).astype(bool)
    if along % tensor.dim() == 0:
        return Array(tensor)[mask]
    return Array(tensor.movedim(along, 0)[mask.tensor].movedim(0, along))


@stands_for(np.argwhere)
def argwhere(a: Any) -> Any:
    tensor = array(a).tensor
    if tensor.dim() != 1:
        return Array(torch.nonzero(tensor))
    found = places(a)
    return found.with_values(found.values.reshape(-1, 1))


# Sets: each element once, in order.


def _ordered(ar: Any) -> Any:
    unique = SELECTED["unique"]
    one = array(ar).ravel()
    return unique(Selected(one.tensor, torch.ones_like(one.tensor, dtype=torch.bool), one.tensor))


def _kept(found: Any, mask: Any) -> Any:
    chosen = found.mask & mask.tensor
    return Selected(found.values, chosen, chosen)


@stands_for(np.intersect1d)
def intersect1d(ar1: Any, ar2: Any) -> Any:
    left, right = both(array(ar1), array(ar2))
    found = _ordered(Array(left))
    return _kept(found, isin(Array(found.values), Array(right)))


@stands_for(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any) -> Any:
    found = _ordered(ar1)
    return _kept(found, ~isin(Array(found.values), array(ar2)))


@stands_for(np.union1d)
def union1d(ar1: Any, ar2: Any) -> Any:
    return _ordered(concatenate((array(ar1).ravel(), array(ar2).ravel())))


@stands_for(np.setxor1d)
def setxor1d(ar1: Any, ar2: Any) -> Any:
    found = union1d(ar1, ar2)
    values = Array(found.values)
    return _kept(found, isin(values, array(ar1)) ^ isin(values, array(ar2)))


# Bits.


def _weights(bitorder: str) -> Any:
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    bits = [1 << at for at in range(8)]
    return torch.tensor(bits if bitorder == "little" else bits[::-1], dtype=torch.uint8)


@stands_for(np.packbits)
def packbits(a: Any, axis: Any = None, bitorder: str = "big") -> Any:
    tensor, along = along_one(a, axis)
    bits = (tensor != 0).to(torch.uint8).movedim(along, -1)
    bits = torch.nn.functional.pad(bits, [0, -bits.shape[-1] % 8])
    bits = bits.reshape([*bits.shape[:-1], bits.shape[-1] // 8, 8])
    return Array((bits * _weights(bitorder)).sum(-1, dtype=torch.uint8).movedim(-1, along))


@stands_for(np.unpackbits)
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    tensor, along = along_one(a, axis)
    if tensor.dtype != torch.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    rows = tensor.movedim(along, -1)
    bits = (torch.bitwise_and(rows.unsqueeze(-1), _weights(bitorder)) != 0).to(torch.uint8)
    bits = bits.reshape([*rows.shape[:-1], rows.shape[-1] * 8])
    if count is not None:
        bits = bits[..., :count]
    return Array(bits.movedim(-1, along))


if hasattr(np, "bitwise_count"):

    @stands_for(np.bitwise_count)
    def bitwise_count(x: Any) -> Any:
        tensor = array(x).tensor
        if tensor.dtype == torch.bool:
            return Array(tensor.to(torch.uint8))
        bits = torch.arange(torch.iinfo(tensor.dtype).bits)
        left = torch.abs(tensor) if tensor.dtype.is_signed else tensor
        held = torch.bitwise_right_shift(left.unsqueeze(-1).to(torch.int64), bits) & 1
        return Array(held.sum(-1).to(torch.uint8))


@stands_for(np.modf)
def modf(x: Any) -> Any:
    tensor = array(x).tensor
    tensor = cast(tensor, arrays.ROOTS[tensor.dtype])
    whole = torch.trunc(tensor)
    part = torch.where(torch.isinf(tensor), torch.zeros_like(tensor), tensor - whole)
    return Array(torch.copysign(part, tensor)), Array(whole)


@stands_for(np.frexp)
def frexp(x: Any) -> Any:
    tensor = array(x).tensor
    mantissa, exponent = torch.frexp(cast(tensor, arrays.ROOTS[tensor.dtype]))
    return Array(mantissa), Array(exponent)


# Places in arrays of several dimensions.


@stands_for(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise") -> Any:
    found: Any = 0
    for at, size in zip(multi_index, dims, strict=True):
        number = _in_range(array(at).tensor.to(torch.int64), size, mode)
        found = found * size + number
    return Array(found)


@stands_for(np.unravel_index)
def unravel_index(indices: Any, shape: Any) -> Any:
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    count = 1
    for size in sizes:
        count = count * size
    left = _in_range(array(indices).tensor.to(torch.int64), count, "raise")
    found = []
    for size in sizes[::-1]:
        found.append(Array(left % size))
        left = left // size
    return tuple(found[::-1])


@stands_for(np.ix_)
def ix_(*args: Any) -> Any:
    found = []
    for at, arg in enumerate(args):
        part = array(arg)
        if part.tensor.dtype == torch.bool:
            raise TypeError("np.ix_ in a tensor program takes numbers of rows, and no masks")
        sizes = [1] * len(args)
        sizes[at] = -1
        found.append(part.reshape(sizes))
    return tuple(found)


@stands_for(np.fromiter, makes=True)
def fromiter(iter: Any, dtype: Any, count: int = -1) -> Any:
    found = [each for each in iter]  # noqa: C416
    if count >= 0:
        if len(found) < count:
            raise ValueError(
                f"iterator too short: Expected {count} but iterator had only {len(found)} items."
            )
        found = found[:count]
    return array(found).astype(dtype)


# Functions of single elements.


def kinds_of(self: Any) -> list[torch.Tensor]:
    """A tensor, with data, of each element type that a vectorized function is said to give. No part
    of the program."""
    with _disable_current_modes():
        return [torch.zeros((), dtype=dtype_of(np.dtype(each))) for each in self.otypes or ()]


def vectorized(self: Any, func: Any, args: Any) -> Any:
    """What `np.vectorize` calls: the function is called for each element."""
    if self.signature is not None:
        raise TypeError("np.vectorize with `signature=` isn't there in tensor programs")
    if not args:
        return func()
    given = _broadcast(*[array(arg).tensor for arg in args])
    sizes = list(given[0].shape)
    rows = zip(*[part.reshape(-1).unbind(0) for part in given], strict=True)
    made = [func(*[Array(element) for element in row]) for row in rows]
    is_many = isinstance(made[0], tuple)
    columns = list(zip(*made, strict=True)) if is_many else [made]
    told = kinds_of(self)
    found = []
    for at, column in enumerate(columns):
        whole = array(list(column))
        if whole.ndim != 1:
            raise ValueError("setting an array element with a sequence.")
        kind = told[at].dtype if told else array(column[0]).tensor.dtype
        found.append(Array(cast(whole.tensor, kind).reshape(sizes)))
    return tuple(found) if is_many else found[0]


def _noted(self: Any, func: Any, args: Any) -> Any:
    if arrays.holds_arrays(list(args)):
        arrays.note()
    return vectorized(self, func, args)


SUBSTITUTES.append((np.vectorize._vectorize_call, _noted))  # type: ignore[attr-defined]


# Called while a program is traced, and no part of it.
SILENT = [kinds_of]


@stands_for(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return nanquantile(a, 0.5, axis, keepdims=keepdims)


@stands_for(np.nanpercentile)
def nanpercentile(a: Any, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    share = q / 100 if isinstance(q, (int, float)) else array(q) / 100
    return nanquantile(a, share, axis, keepdims=keepdims)


@stands_for(np.nanquantile)
def nanquantile(a: Any, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    tensor, along = along_one(a, axis)
    along = along % tensor.dim()
    kind = arrays.MEANS[tensor.dtype]
    rows = torch.sort(cast(tensor, kind).movedim(along, -1), dim=-1).values
    # What is no number comes last.
    count = torch.logical_not(torch.isnan(rows)).sum(-1, keepdim=True)
    shares = cast(array(q).tensor, torch.float64)
    place = shares.reshape(-1) * torch.clamp(count - 1, min=0).to(torch.float64)
    low = torch.gather(rows, -1, torch.floor(place).to(torch.int64))
    high = torch.gather(rows, -1, torch.ceil(place).to(torch.int64))
    share = cast(place - torch.floor(place), kind)
    step = high - low
    found = torch.where(share >= 0.5, high - step * (1 - share), low + step * share)
    if not isinstance(q, (bool, int, float)):
        found = found.to(torch.float64)
    if shares.dim() == 0:
        found = found.select(-1, 0)
        if keepdims:
            found = found.reshape([1] * array(a).ndim) if axis is None else found.unsqueeze(along)
        return Array(found)
    if keepdims:
        raise TypeError("np.nanquantile in a tensor program has `keepdims=` for one share")
    return Array(found.movedim(-1, 0))
