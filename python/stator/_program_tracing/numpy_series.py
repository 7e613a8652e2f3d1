"""What is traced in the place of NumPy's functions of series of numbers, as in `numpy_functions`:
differences and integrals, polynomials, correlations, statistics without what is no number, Fourier
transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator._program_tracing import arrays
from stator._program_tracing.arrays import Array, array, both, cast, common
from stator._program_tracing.numpy_functions import (
    all,
    along_one,
    histogram,
    isclose,
    max,
    min,
    stands_for,
    sum,
    where,
)
from stator._program_tracing.numpy_shapes import SUBSTITUTES

__all__ = ["SUBSTITUTES"]

# Differences and integrals.


@stands_for(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    tensor = array(a).tensor
    parts = []
    for part in (prepend, tensor, append):
        if part is None:
            continue
        given = Array(part) if part is tensor else array(part)
        if not given.ndim:
            sizes = [*tensor.shape]
            sizes[axis] = 1
            given = Array(given.tensor.expand(sizes))
        parts.append(given)
    if len(parts) > 1:
        kind = common(parts)
        tensor = torch.cat([cast(part.tensor, kind) for part in parts], axis)
    if tensor.dtype == torch.bool:
        for _ in range(n):
            last = tensor.shape[axis] - 1
            tensor = torch.logical_xor(tensor.narrow(axis, 1, last), tensor.narrow(axis, 0, last))
        return Array(tensor)
    return Array(torch.diff(tensor, n, axis))


@stands_for(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    tensor = array(ary).tensor.reshape(-1)
    parts = [torch.diff(tensor)]
    if to_begin is not None:
        parts = [array(to_begin).tensor.reshape(-1).to(tensor.dtype), *parts]
    if to_end is not None:
        parts = [*parts, array(to_end).tensor.reshape(-1).to(tensor.dtype)]
    return Array(torch.cat(parts))


@stands_for(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None) -> Any:
    tensor = array(f).tensor
    tensor = cast(tensor, arrays.QUOTIENTS[tensor.dtype])
    axes = range(tensor.dim()) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    steps = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    found = []
    for along, step in zip(axes, steps, strict=True):
        if not isinstance(step, (int, float)):
            raise TypeError("np.gradient in a tensor program takes one distance a dimension")
        last = tensor.shape[along] - 1
        inner = tensor.narrow(along, 2, last - 1) - tensor.narrow(along, 0, last - 1)
        first = tensor.narrow(along, 1, 1) - tensor.narrow(along, 0, 1)
        end = tensor.narrow(along, last, 1) - tensor.narrow(along, last - 1, 1)
        found.append(Array(torch.cat([first / step, inner / (2.0 * step), end / step], along)))
    return found[0] if len(found) == 1 else tuple(found)


# NumPy 1 calls it `trapz`.
@stands_for(getattr(np, "trapezoid" if hasattr(np, "trapezoid") else "trapz"))
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    tensor = array(y).tensor
    last = tensor.shape[axis] - 1
    total = Array(tensor.narrow(axis, 1, last)) + Array(tensor.narrow(axis, 0, last))
    if x is None:
        return sum(total * dx / 2.0, axis)
    places = array(x).tensor
    if places.dim() == 1:
        sizes = [1] * tensor.dim()
        sizes[axis] = -1
        return sum(Array(torch.diff(places).reshape(sizes)) * total / 2.0, axis)
    return sum(Array(torch.diff(places, dim=axis)) * total / 2.0, axis)


# Polynomials.


@stands_for(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Any:
    tensor = array(p).tensor
    tensor = cast(tensor, arrays.ROOTS[tensor.dtype])
    half = period / 2
    jump = torch.diff(tensor, dim=axis)
    turned = torch.remainder(jump + half, period) - half
    turned = torch.where((turned == -half) & (jump > 0), half, turned)
    least = half if discont is None else torch.maximum(*both(discont, half))
    steps = torch.where(torch.abs(jump) < least, 0, turned - jump)
    first = torch.zeros_like(torch.narrow(tensor, axis, 0, 1))
    return Array(tensor + torch.cumsum(torch.cat([first, steps], axis), axis))


@stands_for(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    factors, at = array(p), array(x)
    found = Array(torch.zeros_like(at.tensor))
    for each in factors.tensor.unbind(0):
        found = found * at + Array(each)
    return found


@stands_for(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803
    tensor = array(x).tensor
    kind = common([Array(tensor), array(0)])
    columns = tensor.shape[0] if N is None else N
    powers = torch.arange(columns)
    if not increasing:
        powers = torch.flip(powers, [0])
    return Array(torch.pow(cast(tensor, kind)[:, None], powers[None].to(kind)))


@stands_for(np.polyfit)
def polyfit(x: Any, y: Any, deg: int) -> Any:
    places, values = (cast(array(each).tensor, torch.float64) for each in (x, y))
    rows = vander(Array(places), deg + 1).tensor
    # Columns of like size: that is what makes this exact.
    scale = torch.sqrt((rows * rows).sum(0))
    found = torch.linalg.pinv(rows / scale) @ values
    return Array(found / (scale if values.dim() == 1 else scale[:, None]))


# Correlations.


@stands_for(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
) -> Any:
    rows = _variables(m, rowvar)
    if y is not None:
        rows = torch.cat([rows, _variables(y, rowvar)])
    correction = (0 if bias else 1) if ddof is None else ddof
    off = rows - rows.mean(1, keepdim=True)
    return Array((off @ off.T / (rows.shape[1] - correction)).squeeze())


def _variables(m: Any, rowvar: bool) -> Any:
    """One in a row."""
    tensor = cast(array(m).tensor, torch.float64)
    if tensor.dim() == 1:
        return tensor.unsqueeze(0)
    return tensor if rowvar else tensor.T


@stands_for(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    found = cov(x, y, rowvar).tensor
    if not found.dim():
        return Array(found / found)
    spread = torch.sqrt(torch.diagonal(found))
    return Array((found / spread[:, None] / spread[None]).clamp(-1, 1))


@stands_for(np.histogram2d)
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool = False) -> Any:
    sides = bins if isinstance(bins, (tuple, list)) else (bins, bins)
    limits = (None, None) if range is None else range
    places, edges = [], []
    for values, count, limit in zip((x, y), sides, limits, strict=True):
        tensor = array(values).tensor
        edge = histogram(Array(tensor.reshape(-1)), count, limit)[1].tensor.to(torch.float64)
        exact = tensor.reshape(-1).to(torch.float64)
        last = edge.shape[0] - 1
        place = torch.searchsorted(edge, exact, right=True) - 1
        place = torch.where(exact == edge[-1], last - 1, place)
        places.append(torch.where((exact >= edge[0]) & (exact <= edge[-1]), place, -1))
        edges.append(edge)
    rows, columns = edges[0].shape[0] - 1, edges[1].shape[0] - 1
    inside = (places[0] >= 0) & (places[1] >= 0)
    # What is in none is counted in one more, which is left out.
    place = torch.where(inside, places[0] * columns + places[1], rows * columns)
    ones = torch.ones(place.shape, dtype=torch.float64)
    found = torch.zeros(rows * columns + 1, dtype=torch.float64).index_add(0, place, ones)
    found = found[: rows * columns].reshape(rows, columns)
    if density:
        found = found / torch.diff(edges[0])[:, None] / torch.diff(edges[1])[None] / found.sum()
    return Array(found), Array(edges[0]), Array(edges[1])


# Without what is no number.


def _counted(a: Any) -> tuple[Any, Any]:
    """Numbers, and which of them are some."""
    found = array(a)
    kind = arrays.MEANS[found.tensor.dtype]
    tensor = cast(found.tensor, kind)
    return Array(tensor), Array(torch.logical_not(torch.isnan(tensor)))


@stands_for(np.nanvar)
def nanvar(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    values, known = _counted(a)
    count = Array(cast(sum(known, axis, keepdims=True).tensor, values.tensor.dtype))
    off = where(known, values - sum(values, axis, keepdims=True, where=known) / count, 0.0)
    total = sum(off * off, axis, keepdims=keepdims)
    divisor = Array(count.tensor.reshape(total.tensor.shape)) - ddof
    return total / where(divisor > 0, divisor, float("nan"))


@stands_for(np.nanstd)
def nanstd(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return Array(torch.sqrt(nanvar(a, axis, ddof=ddof, keepdims=keepdims).tensor))


@stands_for(np.nanmax)
def nanmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _extreme(a, axis, keepdims, max, float("-inf"))


@stands_for(np.nanmin)
def nanmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _extreme(a, axis, keepdims, min, float("inf"))


def _extreme(a: Any, axis: Any, keepdims: bool, to: Callable[..., Any], least: float) -> Any:
    found = array(a)
    if not found.tensor.dtype.is_floating_point:
        return to(found, axis, keepdims=keepdims)
    known = Array(torch.logical_not(torch.isnan(found.tensor)))
    chosen = to(where(known, found, least), axis, keepdims=keepdims)
    none = all(Array(torch.isnan(found.tensor)), axis, keepdims=keepdims)
    return where(none, float("nan"), chosen)


# Whether arrays are alike.


@stands_for(np.allclose)
def allclose(
    a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    return all(isclose(a, b, rtol, atol, equal_nan))


@stands_for(np.array_equal)
def array_equal(a1: Any, a2: Any) -> Any:
    left, right = array(a1), array(a2)
    if left.shape != right.shape:
        return Array(torch.zeros((), dtype=torch.bool))
    return all(left == right)


# Order.


@stands_for(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1) -> Any:
    # What is in order is parted, too.
    tensor, axis = along_one(a, axis)
    return Array(torch.sort(tensor, dim=axis).values)


@stands_for(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1) -> Any:
    tensor, axis = along_one(a, axis)
    return Array(torch.sort(tensor, dim=axis, stable=True).indices)


@stands_for(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Any:
    parts = [array(key).tensor for key in keys]
    found = torch.sort(parts[0], dim=axis, stable=True).indices
    for part in parts[1:]:
        following = torch.sort(part.gather(axis, found), dim=axis, stable=True).indices
        found = found.gather(axis, following)
    return Array(found)


@stands_for(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    choices = [array(choice) for choice in [*choicelist, default]]
    kind = arrays.common_of([*choicelist, default])
    found = cast(choices[-1].tensor, kind)
    for condition, choice in zip(condlist[::-1], choices[-2::-1], strict=True):
        found = torch.where(array(condition).tensor, cast(choice.tensor, kind), found)
    return Array(found)


# Fourier transforms.


def _transform(name: str) -> None:
    to = getattr(torch.fft, name)
    gives = getattr(np.fft, name)

    def kind_of(tensor: Any) -> Any:
        kind = arrays.ROOTS[tensor.dtype]
        return torch.float64 if kind == torch.float16 or not _keeps(tensor) else kind

    def function(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        tensor = array(a).tensor
        return Array(to(cast(tensor, kind_of(tensor)), n, axis, norm))

    stands_for(gives)(function)


def _keeps(tensor: Any) -> bool:
    """Whether a transform has its argument's precision: in NumPy 1 none has."""
    return _KEEPS and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


_KEEPS = np.fft.fft(np.ones(2, np.float32)).dtype == np.complex64

for _name in ("fft", "ifft", "rfft", "irfft"):
    _transform(_name)


@stands_for(np.fft.fftfreq, makes=True)
def fftfreq(n: int, d: float = 1.0) -> Any:
    return Array(torch.fft.fftfreq(n, d, dtype=torch.float64))


@stands_for(np.fft.rfftfreq, makes=True)
def rfftfreq(n: int, d: float = 1.0) -> Any:
    return Array(torch.fft.rfftfreq(n, d, dtype=torch.float64))


@stands_for(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    return Array(torch.fft.fftshift(array(x).tensor, axes))


@stands_for(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    left, right = both(a, v)
    if mode not in ("full", "valid"):
        raise TypeError(f"np.correlate in a tensor program has no mode {mode!r}")
    more = right.shape[0] - 1 if mode == "full" else 0
    found = torch.nn.functional.conv1d(left[None, None], right[None, None], padding=more)
    return Array(found[0, 0])


# What is thought of errors of computing: a program warns of none.


class _Unsaid:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *raised: Any) -> None:
        return None


def _errstate(**kinds: Any) -> Any:
    if "raise" in kinds.values() or "call" in kinds.values():
        raise TypeError("np.errstate in a tensor program can't have errors raised or told")
    return _Unsaid()


SUBSTITUTES.append((np.errstate, _errstate))
