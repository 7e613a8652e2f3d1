"""What is traced in the place of methods of NumPy's universal functions, as in `numpy_functions`:
`np.add.reduce`, `np.maximum.accumulate`, `np.multiply.outer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator._program_tracing import arrays
from stator._program_tracing.arrays import Array, array, both, cast, note
from stator._program_tracing.numpy_functions import (
    all,
    any,
    as_called,
    cumprod,
    cumsum,
    max,
    min,
    prod,
    reduced,
    sum,
)

__all__ = ["SUBSTITUTES"]

_Table = dict[str, Callable[..., Any]]

_DEFAULTS = {"out": None, "initial": None, "where": True, "dtype": None}
"""Parameters of NumPy's methods and their defaults."""


def _reducing(name: str, to: Callable[..., Any]) -> Any:
    def reduce(array: Any, axis: Any = 0, *, keepdims: bool = False) -> Any:
        return to(array, axis, keepdims=keepdims)

    def extreme(array: Any, axis: Any = 0, *, keepdims: bool = False, initial: Any = None) -> Any:
        return to(array, axis, keepdims=keepdims, initial=initial)

    return as_called(extreme if to in (max, min) else reduce, f"np.{name}.reduce", _DEFAULTS)


def _accumulating(name: str, to: Callable[..., Any]) -> Any:
    def accumulate(array: Any, axis: Any = 0) -> Any:
        return to(array, axis)

    return as_called(accumulate, f"np.{name}.accumulate", _DEFAULTS)


def _outer(name: str) -> Any:
    to = torch.eq if name == "equal" else getattr(torch, name)

    def outer(A: Any, B: Any) -> Any:  # noqa: N803
        # Numbers are arrays here, with element types of their own.
        left, right = both(array(A), array(B))
        return Array(to(left.reshape([*left.shape, *[1] * right.dim()]), right))

    return as_called(outer, f"np.{name}.outer", {"out": None})


def _log_of_sum(a: Any, axis: Any, *, keepdims: bool) -> Any:
    tensor = array(a).tensor
    wide = cast(tensor, arrays.ROOTS[tensor.dtype])
    return Array(reduced(wide, axis, keepdims, torch.logsumexp))


def _running(to: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, axis: Array(to(array(a).tensor, axis).values)


_REDUCE: _Table = {
    name: _reducing(name, to)
    for name, to in (
        *(("add", sum), ("multiply", prod), ("maximum", max), ("minimum", min)),
        *(("logical_and", all), ("logical_or", any), ("logaddexp", _log_of_sum)),
    )
}
_ACCUMULATE: _Table = {
    name: _accumulating(name, to)
    for name, to in (
        *(("add", cumsum), ("multiply", cumprod)),
        *(("maximum", _running(torch.cummax)), ("minimum", _running(torch.cummin))),
    )
}
_OUTER: _Table = {
    name: _outer(name)
    for name in (
        *("add", "subtract", "multiply", "maximum", "minimum", "less", "less_equal", "greater"),
        *("greater_equal", "equal", "not_equal", "logical_and", "logical_or"),
    )
}


def _place(index: Any) -> Any:
    if isinstance(index, (slice, type(None), type(...))):
        raise TypeError("`at` in a tensor program takes numbers and arrays of them for places")
    return array(index).tensor


def _at(sign: int) -> Callable[..., Any]:
    def at(a: Any, indices: Any, b: Any) -> None:
        if not isinstance(a, Array):
            raise TypeError(
                "`at` writes to an array from outside, which a program doesn't: make one inside"
            )
        places = [_place(each) for each in (indices if isinstance(indices, tuple) else (indices,))]
        given = array(b).tensor.to(a.tensor.dtype)
        a.tensor.index_put_(places, -given if sign < 0 else given, accumulate=True)

    return at


def _at_best(how: str) -> Callable[..., Any]:
    def at(a: Any, indices: Any, b: Any) -> None:
        if not isinstance(a, Array):
            raise TypeError(
                "`at` writes to an array from outside, which a program doesn't: make one inside"
            )
        places = _place(indices)
        if places.dim() != 1:
            raise TypeError("this `at` in a tensor program takes an array of one dimension")
        given = array(b).tensor.to(a.tensor.dtype)
        given = given.expand([places.shape[0], *a.tensor.shape[1:]])
        places = torch.where(places < 0, places + a.tensor.shape[0], places).to(torch.int64)
        places = places.reshape([-1, *[1] * (given.dim() - 1)]).expand(given.shape)
        a.tensor.scatter_reduce_(0, places, given, how)

    return at


_AT: _Table = {
    "add": _at(1),
    "subtract": _at(-1),
    "maximum": _at_best("amax"),
    "minimum": _at_best("amin"),
    "multiply": _at_best("prod"),
}


_UFUNCS = [(of, name) for name in dir(np) if isinstance(of := getattr(np, name), np.ufunc)]


def _of(method: str, table: _Table) -> Callable[..., Any]:
    known = [(getattr(np, name), function) for name, function in table.items()]
    expected = ", ".join([f"np.{name}.{method}" for name in table]) or "NumPy's functions"

    def called(ufunc: Any, *args: Any, **kwargs: Any) -> Any:
        note()
        for of, function in known:
            if of is ufunc:
                return function(*args, **kwargs)
        name = next(name for of, name in _UFUNCS if of is ufunc)
        raise TypeError(
            f"np.{name}.{method} isn't there in tensor programs\n  expected: {expected}\n"
            "  hint:     compute it from what there is, or declare `result=`: then the function is "
            "called as it is"
        )

    return called


# Methods, and what is traced in their place: given the function that they are of.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (np.ufunc.reduce, _of("reduce", _REDUCE)),
    (np.ufunc.accumulate, _of("accumulate", _ACCUMULATE)),
    (np.ufunc.outer, _of("outer", _OUTER)),
    (np.ufunc.reduceat, _of("reduceat", {})),
    (np.ufunc.at, _of("at", _AT)),
]
