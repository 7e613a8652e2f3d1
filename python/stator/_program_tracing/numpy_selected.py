"""What is traced where data say how many elements there are, as in `numpy_functions`: of elements
that a mask chooses, of what `np.unique` and `np.nonzero` give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator._program_tracing import arrays
from stator._program_tracing.arrays import Array, Selected, array, cast, dtype_of
from stator._program_tracing.checked import is_all_true
from stator._program_tracing.numpy_functions import SELECTED, places, stands_for
from stator._program_tracing.numpy_series import SUBSTITUTES

__all__ = ["SUBSTITUTES"]


def _told(*names: str) -> Callable[[Any], Any]:
    """What functions of these names, and methods, give of those that are chosen."""

    def add(function: Any) -> Any:
        def called(of: Any, axis: Any = None, *args: Any, **how: Any) -> Any:
            if axis is not None and axis != 0 and not (axis == -1 and of.ndim == 1):
                raise TypeError("rows that a mask chooses are reduced along the first dimension")
            # All numbers, or those of a column.
            is_whole = axis is None or of.ndim == 1
            mask = of.spread()
            values = of.values
            if is_whole:
                mask, values = mask.reshape(-1), values.reshape(-1)
            return Array(function(values, mask, *args, **how))

        for name in names:
            SELECTED[name] = called
        if hasattr(np.ndarray, names[-1]):
            setattr(Selected, names[-1], called)
        return function

    return add


def _only(values: Any, mask: Any, otherwise: Any) -> Any:
    return torch.where(mask, values, torch.full((), otherwise, dtype=values.dtype))


@_told("sum")
def _sum(values: Any, mask: Any, dtype: Any = None) -> Any:
    kind = arrays.TOTALS[values.dtype] if dtype is None else dtype_of(dtype)
    return _only(values, mask, 0).sum(0, dtype=kind)


@_told("prod")
def _prod(values: Any, mask: Any, dtype: Any = None) -> Any:
    kind = arrays.TOTALS[values.dtype] if dtype is None else dtype_of(dtype)
    return torch.prod(_only(values, mask, 1), 0, dtype=kind)


@_told("mean")
def _mean(values: Any, mask: Any, dtype: Any = None) -> Any:
    kind = arrays.MEANS[values.dtype] if dtype is None else dtype_of(dtype)
    values = cast(values, kind)
    return _only(values, mask, 0).sum(0) / cast(mask.sum(0), kind)


@_told("var")
def _var(values: Any, mask: Any, dtype: Any = None, ddof: float = 0) -> Any:
    kind = arrays.MEANS[values.dtype] if dtype is None else dtype_of(dtype)
    values = cast(values, kind)
    off = _only(values - _mean(values, mask), mask, 0)
    return (off * off).sum(0) / cast(torch.clamp(mask.sum(0) - ddof, min=0), kind)


@_told("std")
def _std(values: Any, mask: Any, dtype: Any = None, ddof: float = 0) -> Any:
    return torch.sqrt(_var(values, mask, dtype, ddof))


def _least(kind: torch.dtype) -> Any:
    if kind.is_floating_point:
        return float("-inf")
    return False if kind == torch.bool else torch.iinfo(kind).min


def _greatest(kind: torch.dtype) -> Any:
    if kind.is_floating_point:
        return float("inf")
    return True if kind == torch.bool else torch.iinfo(kind).max


def _some(mask: Any) -> None:
    """NumPy refuses the extremes of no elements."""
    is_all_true(mask.any(0))


@_told("amax", "max")
def _max(values: Any, mask: Any) -> Any:
    _some(mask)
    return torch.amax(_only(values, mask, _least(values.dtype)), 0)


@_told("amin", "min")
def _min(values: Any, mask: Any) -> Any:
    _some(mask)
    return torch.amin(_only(values, mask, _greatest(values.dtype)), 0)


@_told("ptp")
def _ptp(values: Any, mask: Any) -> Any:
    return _max(values, mask) - _min(values, mask)


@_told("any")
def _any(values: Any, mask: Any) -> Any:
    return torch.any(_only(values, mask, 0), 0)


@_told("all")
def _all(values: Any, mask: Any) -> Any:
    return torch.all(_only(values, mask, 1), 0)


@_told("count_nonzero")
def _count_nonzero(values: Any, mask: Any) -> Any:
    return ((values != 0) & mask).sum(0)


def _place(best: Any, mask: Any) -> Any:
    """The number, among those that are chosen, of the first that is best."""
    _some(mask)
    first = torch.argmax((best & mask).to(torch.uint8), 0, keepdim=True)
    return (torch.cumsum(mask, 0).gather(0, first) - 1).squeeze(0)


def _is_extreme(values: Any, extreme: Any) -> Any:
    # The first that is no number is the extreme.
    if not values.dtype.is_floating_point:
        return values == extreme
    return (values == extreme) | (torch.isnan(values) & torch.isnan(extreme))


@_told("argmax")
def _argmax(values: Any, mask: Any) -> Any:
    return _place(_is_extreme(values, _max(values, mask)), mask)


@_told("argmin")
def _argmin(values: Any, mask: Any) -> Any:
    return _place(_is_extreme(values, _min(values, mask)), mask)


@_told("median")
def _median(values: Any, mask: Any) -> Any:
    kind = arrays.MEANS[values.dtype]
    values = cast(values, kind)
    ordered = torch.sort(_only(values, mask, float("inf")), dim=0).values
    count = mask.sum(0, keepdim=True)
    low = ordered.gather(0, torch.clamp((count - 1) // 2, min=0))
    high = ordered.gather(0, torch.clamp(count // 2, max=values.shape[0] - 1))
    found = torch.where(low == high, low, (low + high) / 2).squeeze(0)
    # Of none there is none, and of some that are no numbers.
    unknown = (torch.isnan(values) & mask).any(0) | (count.squeeze(0) == 0)
    return torch.where(unknown, float("nan"), found)


def _size(a: Any, axis: Any = None) -> Any:
    return a.size if axis is None else a.shape[axis]


SELECTED["size"] = _size


def _sorted(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    """In order; those that aren't chosen are the last ones."""
    if a.ndim != 1:
        raise TypeError("rows that a mask chooses aren't sorted in tensor programs")
    values, order = torch.sort(a.values, stable=True)
    chosen = a.mask.index_select(0, order)
    return Selected(values, chosen, chosen)


SELECTED["sort"] = _sorted


@stands_for(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    tensor = array(ar).tensor
    if return_inverse and tensor.dim() != 1:
        raise TypeError("np.unique in a tensor program gives places in arrays of one dimension")
    tensor = tensor.reshape(-1)
    return _unique(tensor, None, return_index, return_inverse, return_counts)


def _unique_selected(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    if ar.ndim != 1 or return_index or return_inverse:
        raise TypeError("np.unique of chosen elements in a tensor program gives values and counts")
    return _unique(ar.values, ar.mask, False, False, return_counts)


SELECTED["unique"] = _unique_selected


def _unique(tensor: Any, mask: Any, index: bool, inverse: bool, counts: bool) -> Any:
    """The first of each run of equal elements, in order."""
    if mask is None:
        mask = torch.ones_like(tensor, dtype=torch.bool)
    values, order = torch.sort(tensor, stable=True)
    chosen = mask.index_select(0, order)
    # Those that are chosen come first among equal ones, so that a run begins with one.
    later = torch.sort(torch.logical_not(chosen).to(torch.uint8), stable=True).indices
    values, order = values.index_select(0, later), order.index_select(0, later)
    chosen = chosen.index_select(0, later)
    before = torch.roll(values, 1)
    is_other = values != before
    if values.dtype.is_floating_point:
        is_other = is_other & torch.logical_not(torch.isnan(values) & torch.isnan(before))
    is_other = is_other | (torch.arange(values.shape[0]) == 0)
    first = is_other & chosen
    run = torch.cumsum(first, 0) - 1
    found: list[Any] = [Selected(values, first, first)]
    if index:
        found.append(Selected(order, first, first))
    if inverse:
        found.append(Array(torch.zeros_like(run).scatter(0, order, run)))
    if counts:
        # What isn't chosen counts in no run.
        held = torch.zeros_like(run).index_add(0, torch.clamp(run, min=0), chosen.to(run.dtype))
        found.append(Selected(held.index_select(0, torch.clamp(run, min=0)), first, first))
    return found[0] if len(found) == 1 else tuple(found)


# Places.


@stands_for(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    return places(array(a).ravel())


@stands_for(np.nonzero)
def nonzero(a: Any) -> Any:
    return (places(a),)


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number is among those that are chosen."""
    fits = weights is None or (isinstance(weights, Selected) and x.goes_with(weights))
    if not isinstance(x, Selected) or not minlength or not fits:
        held = None if weights is None else array(weights).tensor.to(torch.float64)
        return Array(torch.bincount(array(x).tensor, held, minlength))
    held = x.mask.to(torch.int64) if weights is None else weights.values.to(torch.float64)
    held = _only(held, x.mask, 0)
    found = torch.zeros(minlength, dtype=held.dtype)
    return Array(found.index_add(0, _only(x.values, x.mask, 0).to(torch.int64), held))


SELECTED["bincount"] = _bincount
