"""What is traced in the place of the functions of the module `numpy`, in programs of NumPy code.

Each has the name, the parameters and the element types of NumPy's, as far as a program can: sizes
of results follow from sizes. What NumPy's function can besides is an error that says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator._program_tracing import arrays
from stator._program_tracing.arrays import (
    Array,
    Selected,
    absolute,
    array,
    both,
    cast,
    dtype_of,
    holds_arrays,
    length,
    note,
)

__all__ = [
    "SELECTED",
    "SUBSTITUTES",
    "all",
    "along_one",
    "any",
    "as_called",
    "cumprod",
    "cumsum",
    "max",
    "min",
    "places",
    "prod",
    "reduced",
    "stands_for",
    "sum",
]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (len, length),
    (abs, absolute),
]


SELECTED: dict[str, Callable[..., Any]] = {}
"""What is traced of elements that a mask chooses, by the names of NumPy's functions."""

_ELEMENTWISE = frozenset({"round", "around", "clip", "nan_to_num", "isclose"})
"""Functions of each element alone that aren't universal functions of NumPy's."""


def _of_selected(
    function: Callable[..., Any], like: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Those that are chosen, each changed by itself."""
    given = [Array(like.values) if arg is like else like.of(arg) for arg in args]
    return like.with_values(function(*given, **kwargs).tensor)


def _all_fit(like: Any, args: tuple[Any, ...]) -> bool:
    """Whether what stands beside elements that are chosen does so for all of them."""
    return not [arg for arg in args if not like.fits(arg)]


def stands_for(*originals: Any, method: bool = False, makes: bool = False) -> Callable[[Any], Any]:
    """Has a function traced in the place of NumPy's; as a method of arrays, too. `makes`: arrays of
    nothing but numbers."""

    def add(function: Any) -> Any:
        called = as_called(function, *_called(originals[0]))
        name = originals[0].__name__
        is_of_elements = isinstance(originals[0], np.ufunc) or name in _ELEMENTWISE

        def substitute(*args: Any, **kwargs: Any) -> Any:
            # PyTorch code has numbers computed by NumPy, too.
            if makes or holds_arrays(args):
                note()
            for arg in args:
                if isinstance(arg, Selected):
                    if is_of_elements and _all_fit(arg, args):
                        return _of_selected(called, arg, args, kwargs)
                    if name in SELECTED:
                        return SELECTED[name](*args, **kwargs)
            return called(*args, **kwargs)

        for original in originals:
            SUBSTITUTES.append((original, substitute))
        if method:
            setattr(Array, function.__name__, called)
        return function

    return add


# Parameters that all of NumPy's functions for elements have, and what these are by default.
_OF_ELEMENTS = {"casting": "same_kind", "order": "K", "dtype": None, "subok": True, "where": True}


def as_called(function: Any, name: str, defaults: dict[str, Any]) -> Any:
    """The function as that of NumPy's of this name is called: with `out=`, if that has it, and with
    other parameters of that one where they have these defaults."""
    own = tuple(inspect.signature(function).parameters)
    takes_out = "out" in defaults and "out" not in own
    # In a reduction it says which elements count.
    says_where = "casting" in defaults

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        out, where = None, True
        if kwargs:
            if takes_out:
                out = kwargs.pop("out", None)
                if out is not None and says_where:
                    where = kwargs.pop("where", True)
            for given in [*kwargs]:
                if given in own:
                    continue
                if given not in defaults or not _is_default(kwargs.pop(given), defaults[given]):
                    _refuse(name, given, own)
        found = function(*args, **kwargs)
        return found if out is None else _written_to(out, found, where)

    return called


def _called(original: Any) -> tuple[str, dict[str, Any]]:
    """How NumPy's function is called, and its parameters with their defaults."""
    if isinstance(original, np.ufunc):
        return f"np.{original.__name__}", {"out": None, **_OF_ELEMENTS}
    try:
        parameters = inspect.signature(original).parameters.values()
    except (TypeError, ValueError):
        return f"np.{original.__name__}", {}
    return f"np.{original.__name__}", {each.name: each.default for each in parameters}


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) in (bool, int, str) and value == default)


def _refuse(name: str, given: str, own: tuple[str, ...]) -> None:
    raise TypeError(
        f"{name} has no parameter `{given}` in tensor programs\n  expected: {', '.join(own)}\n"
        f"  found:    {given}\n  hint:     compute it from what there is, or declare `result=`: "
        "then the function is called as it is"
    )


def _written_to(out: Any, found: Any, where: Any) -> Any:
    """`out`, with what was computed in it: where `where` says so."""
    if isinstance(out, tuple):
        out = out[0]
    if not isinstance(out, Array):
        raise TypeError(
            "`out=` is an array from outside, which a program doesn't write to: make one inside"
        )
    if where is not True:
        found = Array(torch.where(array(where).tensor, *both(found, out)))
    sizes = found.tensor.dim(), out.tensor.dim()
    if sizes[0] > sizes[1]:
        raise ValueError(f"`out=` has {sizes[1]} dimensions, where the result has {sizes[0]}")
    return out._written(found)


# Element by element.


def _of_floats(name: str, to: Callable[..., Any]) -> None:
    kinds = arrays.ROOTS

    def function(x: Any) -> Any:
        tensor = array(x).tensor
        return Array(to(cast(tensor, kinds[tensor.dtype])))

    stands_for(getattr(np, name))(function)


for _name in (
    *("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan"),
    *("arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("deg2rad", "rad2deg"),
):
    _of_floats(_name, getattr(torch, _name))
_of_floats("rint", torch.round)
_of_floats("fabs", torch.abs)
_of_floats("radians", torch.deg2rad)
_of_floats("degrees", torch.rad2deg)
_of_floats("cbrt", lambda tensor: torch.sign(tensor) * torch.abs(tensor).pow(1 / 3))


def _of_one(name: str, to: Callable[..., Any]) -> None:
    def function(x: Any) -> Any:
        return Array(to(array(x).tensor))

    stands_for(getattr(np, name))(function)


def _rounded(to: Callable[..., Any]) -> Callable[..., Any]:
    def function(tensor: Any) -> Any:
        return to(tensor) if tensor.dtype.is_floating_point else tensor.clone()

    return function


def _sign(tensor: Any) -> Any:
    found = torch.sign(tensor)
    # That of no number is no number.
    return torch.where(torch.isnan(tensor), tensor, found)


for _name, _to in (
    *((name, getattr(torch, name)) for name in ("abs", "square", "negative")),
    ("positive", torch.clone),
    ("sign", _sign),
    *((name, getattr(torch, name)) for name in ("isnan", "isinf", "isfinite", "logical_not")),
    *((name, _rounded(getattr(torch, name))) for name in ("floor", "ceil", "trunc")),
    ("invert", torch.bitwise_not),
    ("signbit", torch.signbit),
    ("reciprocal", torch.reciprocal),
    ("angle", torch.angle),
    ("conjugate", lambda tensor: torch.conj_physical(tensor).clone()),
):
    _of_one(_name, _to)


def _of_two(name: str, to: Callable[..., Any]) -> None:
    def function(x1: Any, x2: Any) -> Any:
        return Array(to(*both(x1, x2)))

    stands_for(getattr(np, name))(function)


for _name in (
    *("add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin", "matmul"),
    *("floor_divide", "remainder", "less", "less_equal", "greater", "greater_equal"),
    *("not_equal", "logical_and", "logical_or", "logical_xor"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "fmod", "gcd", "lcm"),
):
    _of_two(_name, getattr(torch, _name))
_of_two("equal", torch.eq)
_of_two("left_shift", torch.bitwise_left_shift)
_of_two("right_shift", torch.bitwise_right_shift)
_of_two("power", arrays.power)


def _of_two_floats(name: str, to: Callable[..., Any]) -> None:
    kinds = arrays.ROOTS

    def function(x1: Any, x2: Any) -> Any:
        left, right = both(x1, x2)
        kind = kinds[left.dtype]
        return Array(to(cast(left, kind), cast(right, kind)))

    stands_for(getattr(np, name))(function)


for _name in ("arctan2", "hypot", "logaddexp", "logaddexp2", "copysign", "heaviside"):
    _of_two_floats(_name, getattr(torch, _name))


@stands_for(np.true_divide)
def true_divide(x1: Any, x2: Any) -> Any:
    return arrays.quotient(x1, x2)


def places(a: Any) -> Any:
    """Where an array isn't zero: at as many places as its data say."""
    tensor = array(a).tensor
    if tensor.dim() != 1:
        raise TypeError("tensor programs find places in arrays of one dimension")
    mask = tensor != 0
    return Selected(torch.arange(tensor.shape[0]), mask, mask)


@stands_for(np.where)
def where(condition: Any, *values: Any) -> Any:
    if not values:
        return (places(condition),)
    return Array(torch.where(cast(array(condition).tensor, torch.bool), *both(*values)))


@stands_for(np.clip, method=True)
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    found = Array(array(a).tensor.clone()) if low is None else Array(torch.maximum(*both(a, low)))
    return found if high is None else Array(torch.minimum(*both(found, high)))


@stands_for(np.round, np.around, method=True)
def round(a: Any, decimals: int = 0) -> Any:
    tensor = array(a).tensor
    if not tensor.dtype.is_floating_point:
        if decimals < 0:
            raise TypeError("tensor programs round integers to no powers of ten")
        return Array(tensor.clone())
    if not decimals:
        return Array(torch.round(tensor))
    return Array(torch.round(tensor * 10.0**decimals) / 10.0**decimals)


@stands_for(np.nan_to_num)
def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    return Array(torch.nan_to_num(array(x).tensor.clone(), nan, posinf, neginf))


@stands_for(np.isclose)
def isclose(
    a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    left, right = both(a, b)
    return Array(torch.isclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan))


@stands_for(np.isin)
def isin(element: Any, test_elements: Any) -> Any:
    return Array(torch.isin(*both(element, test_elements)))


@stands_for(np.interp)
def interp(x: Any, xp: Any, fp: Any) -> Any:
    at, places, values = (cast(array(each).tensor, torch.float64) for each in (x, xp, fp))
    right = torch.searchsorted(places, at.contiguous()).clamp(1, places.shape[0] - 1)
    low, high = places[right - 1], places[right]
    share = ((at - low) / (high - low)).clamp(0, 1)
    return Array(values[right - 1] + share * (values[right] - values[right - 1]))


# Of all elements, or along dimensions.


def reduced(tensor: Any, axis: Any, keepdims: bool, to: Callable[..., Any]) -> Any:
    if tensor.dim() == 0:
        return to(tensor.reshape(1), 0, False)
    if axis is None:
        return to(tensor, list(range(tensor.dim())), keepdims)
    if isinstance(axis, tuple):
        if not axis:
            raise TypeError("tensor programs reduce along one dimension at least")
        axis = list(axis)
    return to(tensor, axis, keepdims)


def _only(a: Any, where: Any, otherwise: Any) -> Any:
    """The tensor of an array, with another value where it isn't to count."""
    tensor = array(a).tensor
    if where is True:
        return tensor
    return torch.where(array(where).tensor, tensor, torch.full((), otherwise, dtype=tensor.dtype))


@stands_for(np.sum, method=True)
def sum(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> Any:
    tensor = _only(a, where, 0)
    kind = arrays.TOTALS[tensor.dtype] if dtype is None else dtype_of(dtype)

    def to(tensor: Any, axis: Any, keepdims: bool) -> Any:
        return tensor.sum(axis, keepdim=keepdims, dtype=kind)

    return Array(reduced(tensor, axis, keepdims, to))


@stands_for(np.mean, method=True)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> Any:
    tensor = array(a).tensor
    kind = arrays.MEANS[tensor.dtype] if dtype is None else dtype_of(dtype)
    if where is not True:
        return _mean_of(Array(cast(tensor, kind)), axis, keepdims, where)

    def to(tensor: Any, axis: Any, keepdims: bool) -> Any:
        return tensor.mean(axis, keepdim=keepdims, dtype=kind)

    return Array(reduced(tensor, axis, keepdims, to))


def _mean_of(values: Any, axis: Any, keepdims: bool, counts: Any, ddof: float = 0) -> Any:
    """The mean of those that count."""
    counts = Array(torch.broadcast_to(array(counts).tensor, values.tensor.shape))
    count = cast(sum(counts, axis, keepdims=keepdims).tensor, values.tensor.dtype)
    if ddof:
        count = torch.clamp(count - ddof, min=0)
    return sum(values, axis, keepdims=keepdims, where=counts) / Array(count)


@stands_for(np.var, method=True)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = True,
) -> Any:
    tensor = array(a).tensor
    kind = arrays.MEANS[tensor.dtype] if dtype is None else dtype_of(dtype)
    if where is not True:
        values = Array(cast(tensor, kind))
        off = values - _mean_of(values, axis, True, where)
        return _mean_of(off * off, axis, keepdims, where, ddof)

    def to(tensor: Any, axis: Any, keepdims: bool) -> Any:
        return torch.var(cast(tensor, kind), axis, correction=ddof, keepdim=keepdims)

    return Array(reduced(tensor, axis, keepdims, to))


@stands_for(np.std, method=True)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = True,
) -> Any:
    found = var(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=where)
    return Array(torch.sqrt(found.tensor))


def _beside(a: Any, axis: Any, initial: Any) -> Any:
    """The tensor of an array; if there is one, with another number along the dimensions that are
    reduced: so there is an element where there are none."""
    if initial is None:
        return array(a).tensor
    tensor, first = both(array(a), initial)
    if tensor.dim() == 0:
        return torch.stack([tensor, first])
    every = range(tensor.dim()) if axis is None else axis
    for dim in every if isinstance(every, (tuple, range)) else (every,):
        sizes = list(tensor.shape)
        sizes[dim] = 1
        tensor = torch.cat([tensor, first.expand(sizes)], dim)
    return tensor


@stands_for(np.max, np.amax, method=True)
def max(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None) -> Any:
    return Array(reduced(_beside(a, axis, initial), axis, keepdims, torch.amax))


@stands_for(np.min, np.amin, method=True)
def min(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None) -> Any:
    return Array(reduced(_beside(a, axis, initial), axis, keepdims, torch.amin))


@stands_for(np.ptp)
def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


@stands_for(np.any, method=True)
def any(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return Array(reduced(array(a).tensor, axis, keepdims, torch.any))


@stands_for(np.all, method=True)
def all(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return Array(reduced(array(a).tensor, axis, keepdims, torch.all))


@stands_for(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return sum(array(a) != 0, axis, keepdims=keepdims)


def _known(a: Any) -> tuple[Any, Any]:
    """An array with zeros for what is no number, and where it is one."""
    found = array(a)
    known = Array(torch.logical_not(torch.isnan(found.tensor)))
    return where(known, found, Array(torch.zeros_like(found.tensor))), known


@stands_for(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return sum(_known(a)[0], axis, dtype, keepdims=keepdims)


@stands_for(np.nanmean)
def nanmean(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    values, known = _known(a)
    count = sum(known, axis, keepdims=keepdims)
    total = sum(values, axis, keepdims=keepdims)
    return total / Array(cast(count.tensor, arrays.MEANS[values.tensor.dtype]))


@stands_for(np.prod, method=True)
def prod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    tensor = array(a).tensor
    kind = arrays.TOTALS[tensor.dtype] if dtype is None else dtype_of(dtype)
    if axis is None:
        return Array(torch.prod(tensor, dtype=kind))
    return Array(torch.prod(tensor, axis, keepdim=keepdims, dtype=kind))


def along_one(a: Any, axis: Any) -> tuple[Any, int]:
    """A tensor, and the dimension along which something is done: in one where nothing is said."""
    tensor = array(a).tensor
    return (tensor.reshape(-1), 0) if axis is None else (tensor, axis)


@stands_for(np.cumsum, method=True)
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    tensor, axis = along_one(a, axis)
    kind = arrays.TOTALS[tensor.dtype] if dtype is None else dtype_of(dtype)
    return Array(torch.cumsum(tensor, axis, dtype=kind))


@stands_for(np.cumprod, method=True)
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    tensor, axis = along_one(a, axis)
    kind = arrays.TOTALS[tensor.dtype] if dtype is None else dtype_of(dtype)
    return Array(torch.cumprod(tensor, axis, dtype=kind))


def _ordered(a: Any) -> Any:
    """A tensor of numbers: PyTorch doesn't order truth values."""
    tensor = array(a).tensor
    return tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor


@stands_for(np.argmax, method=True)
def argmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return Array(torch.argmax(_ordered(a), axis, keepdim=keepdims))


@stands_for(np.argmin, method=True)
def argmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return Array(torch.argmin(_ordered(a), axis, keepdim=keepdims))


@stands_for(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    tensor, axis = along_one(a, axis)
    return Array(torch.sort(tensor, dim=axis).values)


@stands_for(np.argsort, method=True)
def argsort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    tensor, axis = along_one(a, axis)
    return Array(torch.sort(tensor, dim=axis, stable=True).indices)


@stands_for(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    values, weights = array(a), array(weights)
    if weights.ndim != values.ndim and isinstance(axis, int):
        sizes = [1] * values.ndim
        sizes[axis] = weights.shape[0]
        weights = weights.reshape(sizes)
    spread = Array(torch.broadcast_to(weights.tensor, values.tensor.shape))
    total = sum(spread, axis, keepdims=keepdims)
    return sum(values * spread, axis, keepdims=keepdims) / total


def _quantile(a: Any, q: Any, axis: Any, keepdims: bool, method: str) -> Any:
    """Between the two elements that are nearest to a share of the way."""
    tensor, along = along_one(a, axis)
    along = along % tensor.dim()
    if not isinstance(q, (bool, int, float)):
        q = array(q)
    shares = cast(array(q).tensor, torch.float64)
    is_between = method not in ("lower", "higher")
    kind = arrays.MEANS[tensor.dtype] if is_between else tensor.dtype
    ordered = torch.sort(cast(tensor, kind), dim=along).values
    place = shares.reshape(-1) * torch.arange(ordered.shape[along], dtype=torch.float64)[-1]
    below = torch.index_select(ordered, along, torch.floor(place).to(torch.int64))
    above = torch.index_select(ordered, along, torch.ceil(place).to(torch.int64))
    found = {"lower": below, "higher": above}.get(method)
    if found is None:
        if isinstance(q, Array):
            kind = torch.float64
        weight = {"linear": place - torch.floor(place), "midpoint": torch.full_like(place, 0.5)}
        share = cast(weight[method], kind).reshape([-1, *[1] * (ordered.dim() - 1 - along)])
        step = above - below
        found = torch.where(share >= 0.5, above - step * (1 - share), below + step * share)
    # Elements that are no numbers are the last ones.
    last = torch.narrow(torch.flip(ordered, [along]), along, 0, 1)
    found = torch.where(torch.isnan(last), last, found)
    if keepdims:
        sizes = [1 if axis is None or at == along else size for at, size in enumerate(a.shape)]
        found = found.movedim(along, 0).reshape([*shares.shape, *sizes])
    elif shares.dim() == 0:
        found = found.select(along, 0)
    else:
        found = found.movedim(along, 0)
    return Array(found)


@stands_for(np.quantile)
def quantile(
    a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    return _quantile(array(a), q, axis, keepdims, method)


@stands_for(np.percentile)
def percentile(
    a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    share = q / 100 if isinstance(q, (int, float)) else array(q) / 100
    return _quantile(array(a), share, axis, keepdims, method)


@stands_for(np.median)
def median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _quantile(array(a), 0.5, axis, keepdims, "linear")


# Counts.


@stands_for(np.bincount)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    held = None if weights is None else array(weights).tensor.to(torch.float64)
    return Array(torch.bincount(array(x).tensor, held, minlength))


@stands_for(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> Any:
    values = array(a).tensor.reshape(-1)
    if not isinstance(bins, int):
        edges = array(bins).tensor
    elif range is None:
        raise TypeError("np.histogram in a tensor program takes `range=` or the bins' edges")
    else:
        edges = cast(
            arrays.evenly(float(range[0]), float(range[1]), bins + 1), arrays.MEANS[values.dtype]
        )
    count = edges.shape[0] - 1
    exact = values.to(torch.float64)
    sides = edges.to(torch.float64)
    place = torch.searchsorted(sides, exact, right=True) - 1
    place = torch.where(exact == sides[-1], count - 1, place)
    # What is in none is counted in one more, which is left out.
    inside = (exact >= sides[0]) & (exact <= sides[-1])
    place = torch.where(inside, place, count)
    ones = torch.ones_like(place) if weights is None else array(weights).tensor.reshape(-1)
    found = torch.zeros(count + 1, dtype=ones.dtype).index_add(0, place, ones)[:count]
    if density:
        found = found / torch.diff(sides) / found.sum()
    return Array(found), Array(edges)


@stands_for(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    values, edges = both(x, bins)
    values, turned = values.contiguous(), torch.flip(edges, [0])
    up = torch.searchsorted(edges, values, right=not right)
    down = edges.shape[0] - torch.searchsorted(turned, values, right=not right)
    return Array(torch.where(edges[0] <= edges[-1], up, down))


@stands_for(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    return Array(torch.searchsorted(*both(a, v), right=side == "right"))
