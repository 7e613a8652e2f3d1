"""What is traced in the place of NumPy's functions that make arrays, shapes of others and products,
as in `numpy_functions`."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import torch

from stator._program_tracing import arrays
from stator._program_tracing.arrays import Array, Selected, array, both, cast, dtype_of
from stator._program_tracing.numpy_functions import SUBSTITUTES, along_one, stands_for, sum

__all__ = ["SUBSTITUTES"]

# New arrays.


def _filled(shape: Any, value: Any, dtype: torch.dtype) -> Any:
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    return Array(torch.full(sizes, value, dtype=dtype))


@stands_for(np.zeros, makes=True)
def zeros(shape: Any, dtype: Any = float) -> Any:
    return _filled(shape, 0, dtype_of(dtype))


@stands_for(np.ones, makes=True)
def ones(shape: Any, dtype: Any = float) -> Any:
    return _filled(shape, 1, dtype_of(dtype))


@stands_for(np.full, makes=True)
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    value = array(fill_value)
    kind = value.tensor.dtype if dtype is None else dtype_of(dtype)
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    return Array(value.tensor.to(kind).expand(sizes).clone())


@stands_for(np.empty, makes=True)
def empty(shape: Any, dtype: Any = float) -> Any:
    # What isn't written is whatever was there: zeros are that, too.
    return _filled(shape, 0, dtype_of(dtype))


def _like(a: Any, value: Any, dtype: Any) -> Any:
    return Array(torch.full_like(a, value, dtype=a.dtype if dtype is None else dtype_of(dtype)))


@stands_for(np.zeros_like, np.empty_like)
def zeros_like(a: Any, dtype: Any = None) -> Any:
    return _like(array(a).tensor, 0, dtype)


@stands_for(np.ones_like)
def ones_like(a: Any, dtype: Any = None) -> Any:
    return _like(array(a).tensor, 1, dtype)


@stands_for(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    return _like(array(a).tensor, fill_value, dtype)


@stands_for(np.arange, makes=True)
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    begin, end = (0, start) if stop is None else (start, stop)
    if dtype is not None:
        kind = dtype_of(dtype)
    elif isinstance(begin, float) or isinstance(end, float) or isinstance(step, float):
        kind = torch.float64
    else:
        kind = torch.int64
    return Array(torch.arange(begin, end, step, dtype=kind))


@stands_for(np.linspace, makes=True)
def linspace(start: float, stop: float, num: int = 50, *, dtype: Any = None) -> Any:
    found = Array(arrays.evenly(float(start), float(stop), num))
    return found if dtype is None else found.astype(dtype)


@stands_for(np.eye, makes=True)
def eye(N: int, M: Any = None, *, dtype: Any = float) -> Any:  # noqa: N803
    return Array(torch.eye(N, N if M is None else M, dtype=dtype_of(dtype)))


@stands_for(np.identity, makes=True)
def identity(n: int, dtype: Any = float) -> Any:
    return eye(n, dtype=dtype)


@stands_for(np.asarray, np.ascontiguousarray, makes=True)
def asarray(a: Any, dtype: Any = None) -> Any:
    found = array(a)
    return found if dtype is None else Array(cast(found.tensor, dtype_of(dtype)))


@stands_for(np.array, np.copy, makes=True)
def copied(a: Any, dtype: Any = None) -> Any:
    found = array(a)
    return found.copy() if dtype is None else found.astype(dtype)


def _scalar(kind: Any) -> None:
    dtype = dtype_of(kind)

    def scalar(value: Any = 0) -> Any:
        if isinstance(value, (bool, int, float)):
            return Array(torch.full((), value, dtype=dtype))
        return Array(array(value).tensor.to(dtype))

    stands_for(kind, makes=True)(scalar)


for _kind in (np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_):
    _scalar(_kind)


# Shapes.


def _joined(parts: Any) -> list[Any]:
    found = [array(part) for part in parts]
    kind = arrays.common(found)
    return [cast(part.tensor, kind) for part in found]


@stands_for(np.concatenate)
def concatenate(arrays: Any, axis: Any = 0) -> Any:
    parts = _joined(arrays)
    if axis is None:
        return Array(torch.cat([part.reshape(-1) for part in parts]))
    return Array(torch.cat(parts, axis))


@stands_for(np.stack)
def stack(arrays: Any, axis: int = 0) -> Any:
    return Array(torch.stack(_joined(arrays), axis))


@stands_for(np.vstack)
def vstack(tup: Any) -> Any:
    return Array(torch.vstack(_joined(tup)))


@stands_for(np.hstack)
def hstack(tup: Any) -> Any:
    return Array(torch.hstack(_joined(tup)))


@stands_for(np.column_stack)
def column_stack(tup: Any) -> Any:
    return Array(torch.column_stack(_joined(tup)))


@stands_for(np.reshape)
def reshape(a: Any, shape: Any) -> Any:
    return array(a).reshape(shape)


@stands_for(np.ravel)
def ravel(a: Any) -> Any:
    return array(a).ravel()


@stands_for(np.transpose)
def transpose(a: Any, axes: Any = None) -> Any:
    return array(a).transpose(axes)


@stands_for(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return array(a).swapaxes(axis1, axis2)


@stands_for(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    return array(a).squeeze(axis)


@stands_for(np.expand_dims)
def expand_dims(a: Any, axis: int) -> Any:
    return Array(array(a).tensor.unsqueeze(axis))


@stands_for(np.broadcast_to)
def broadcast_to(array: Any, shape: Any) -> Any:
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    return Array(arrays.array(array).tensor.expand(sizes))


@stands_for(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return Array(array(a).tensor.movedim(source, destination))


@stands_for(np.atleast_1d)
def atleast_1d(a: Any) -> Any:
    found = array(a)
    return found if found.ndim else found.reshape(1)


@stands_for(np.atleast_2d)
def atleast_2d(a: Any) -> Any:
    found = array(a)
    return found if found.ndim > 1 else found.reshape(1, -1)


@stands_for(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    tensor, places = array(ary).tensor, indices_or_sections
    if isinstance(places, int):
        size = tensor.shape[axis]
        if size % places:
            raise ValueError("array split does not result in an equal division")
        return [Array(part) for part in torch.split(tensor, size // places, axis)]
    return [Array(part) for part in torch.tensor_split(tensor, tuple(places), axis)]


@stands_for(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    tensor = arrays.array(array).tensor
    widths = pad_width if isinstance(pad_width, (tuple, list)) else (pad_width, pad_width)
    if not isinstance(widths[0], (tuple, list)):
        widths = [widths] * tensor.dim()
    pairs = list(widths) * (tensor.dim() if len(widths) == 1 else 1)
    if mode != "constant":
        for axis, (before, after) in enumerate(pairs):
            tensor = _padded(tensor, axis, before, after, mode)
        return Array(tensor)
    flat = [size for before, after in pairs[::-1] for size in (before, after)]
    return Array(torch.nn.functional.pad(tensor, flat, value=constant_values))


def _padded(tensor: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """With elements of its own beyond its ends."""
    size = tensor.shape[axis]
    at = torch.arange(-before, size + after)
    if mode == "edge":
        at = torch.clamp(at, 0, size - 1)
    elif mode == "wrap":
        at = at % size
    elif mode == "symmetric":
        at = at % (2 * size)
        at = torch.where(at < size, at, 2 * size - 1 - at)
    elif mode == "reflect":
        around = 2 * size - 2 if size > 1 else 1
        at = at % around
        at = torch.where(at < size, at, around - at)
    else:
        raise TypeError(f"np.pad in a tensor program has no mode {mode!r}")
    return torch.index_select(tensor, axis, at)


@stands_for(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    tensor = array(m).tensor
    axes = list(range_of(tensor)) if axis is None else axis
    return Array(torch.flip(tensor, list(axes) if isinstance(axes, (list, tuple)) else [axes]))


def range_of(tensor: Any) -> Any:
    return range(tensor.dim())


@stands_for(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return Array(torch.roll(array(a).tensor, shift, axis))


@stands_for(np.tile)
def tile(A: Any, reps: Any) -> Any:  # noqa: N803
    return Array(torch.tile(array(A).tensor, reps if isinstance(reps, tuple) else (reps,)))


@stands_for(np.repeat, method=True)
def repeat(a: Any, repeats: int, axis: Any = None) -> Any:
    tensor, axis = along_one(a, axis)
    return Array(torch.repeat_interleave(tensor, repeats, axis))


@stands_for(np.take, method=True)
def take(a: Any, indices: Any, axis: Any = None) -> Any:
    tensor, axis = along_one(a, axis)
    places = array(indices).tensor
    found = torch.index_select(tensor, axis, places.reshape(-1))
    axis = axis % tensor.dim()
    sizes = [*tensor.shape[:axis], *places.shape, *tensor.shape[axis + 1 :]]
    return Array(found.reshape(sizes))


@stands_for(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    tensor, along = along_one(arr, axis)
    places = array(indices).tensor.to(torch.int64)
    if places.dim() != tensor.dim():
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return Array(torch.take_along_dim(tensor, places, along))


@stands_for(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    if axis is None:
        return concatenate((array(arr).ravel(), array(values).ravel()))
    return concatenate((arr, values), axis)


def _place(obj: Any, name: str) -> int:
    if isinstance(obj, bool) or not isinstance(obj, int):
        raise TypeError(f"np.{name} in a tensor program takes one place, a number")
    return obj


@stands_for(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    tensor, along = along_one(arr, axis)
    size = tensor.shape[along]
    at = _place(obj, "delete")
    at = at + size if at < 0 else at
    if not 0 <= at < size:
        raise IndexError(f"index {obj} is out of bounds for axis {along} with size {size}")
    parts = tensor.narrow(along, 0, at), tensor.narrow(along, at + 1, size - at - 1)
    return Array(torch.cat(parts, along))


@stands_for(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    tensor, along = along_one(arr, axis)
    size = tensor.shape[along]
    at = _place(obj, "insert")
    at = at + size if at < 0 else at
    if not 0 <= at <= size:
        raise IndexError(f"index {obj} is out of bounds for axis {along} with size {size}")
    if along < 0:
        along = along + tensor.dim()
    sizes = [1 if each == along else of for each, of in enumerate(tensor.shape)]
    given = array(values).tensor.to(tensor.dtype)
    if given.dim() and given.dim() == tensor.dim() - 1:
        given = given.unsqueeze(along)
    elif (given.dim() and given.dim() != tensor.dim()) or (given.dim() and given.shape[along] != 1):
        raise TypeError("np.insert in a tensor program takes one number, or one row")
    parts = tensor.narrow(along, 0, at), given.expand(sizes), tensor.narrow(along, at, size - at)
    return Array(torch.cat(parts, along))


@stands_for(np.meshgrid)
def meshgrid(*xi: Any, indexing: str = "xy") -> Any:
    parts = [array(part).tensor.reshape(-1) for part in xi]
    count = len(parts)
    places = list(range(count))
    if indexing == "xy" and count > 1:
        places[0], places[1] = 1, 0
    sizes = [1] * count
    for part, place in zip(parts, places, strict=True):
        sizes[place] = part.shape[0]
    found = []
    for part, place in zip(parts, places, strict=True):
        own = [1] * count
        own[place] = -1
        found.append(Array(part.reshape(own).expand(sizes).clone()))
    return tuple(found)


@stands_for(np.dstack)
def dstack(tup: Any) -> Any:
    return Array(torch.dstack(_joined(tup)))


@stands_for(np.fliplr)
def fliplr(m: Any) -> Any:
    return flip(m, 1)


@stands_for(np.flipud)
def flipud(m: Any) -> Any:
    return flip(m, 0)


@stands_for(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    return Array(torch.rot90(array(m).tensor, k, list(axes)))


@stands_for(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    places = indices_or_sections
    places = places if isinstance(places, int) else tuple(places)
    return [Array(part) for part in torch.tensor_split(array(ary).tensor, places, axis)]


@stands_for(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 1 if array(ary).ndim > 1 else 0)


@stands_for(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 0)


@stands_for(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    tensor = array(arr).tensor
    rows = tensor.movedim(axis, -1)
    outer = rows.shape[:-1]
    rows = rows.reshape([-1, tensor.shape[axis]])
    found = [array(func1d(Array(row), *args, **kwargs)) for row in rows.unbind(0)]
    whole = torch.stack([each.tensor for each in found])
    inner = list(range(-whole.dim() + 1, 0))
    whole = whole.reshape([*outer, *whole.shape[1:]])
    if not inner:
        return Array(whole)
    place = axis % tensor.dim()
    return Array(whole.movedim(inner, list(range(place, place + len(inner)))))


@stands_for(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    sizes = list(window_shape) if isinstance(window_shape, (tuple, list)) else [window_shape]
    tensor = array(x).tensor
    if axis is None:
        axes = list(range_of(tensor))
        if len(axes) != len(sizes):
            raise ValueError("Must provide matching length window_shape and axis")
    else:
        axes = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    # NumPy's can't be written to.
    for size, each in zip(sizes, axes, strict=True):
        tensor = tensor.unfold(each % array(x).ndim, size, 1)
    return Array(tensor)


@stands_for(np.block)
def block(arrays: Any) -> Any:
    deep = _depth(arrays)
    return _blocks(arrays, deep, deep)


def _depth(parts: Any) -> int:
    return 1 + _depth(parts[0]) if isinstance(parts, list) else 0


def _blocks(parts: Any, deep: int, all_deep: int) -> Any:
    if not isinstance(parts, list):
        if deep:
            raise ValueError("List depths are mismatched.")
        found = array(parts)
        missing = all_deep - found.ndim
        return found.reshape([1] * missing + list(found.shape)) if missing > 0 else found
    return concatenate([_blocks(part, deep - 1, all_deep) for part in parts], axis=-deep)


def _window(name: str, terms: tuple[float, ...]) -> None:
    def window(M: int) -> Any:  # noqa: N803
        if M < 2:
            return Array(torch.ones(M, dtype=torch.float64))
        at = arrays.evenly(1.0 - M, M - 1.0, M) * (torch.pi / (M - 1))
        found = torch.full((M,), terms[0], dtype=torch.float64)
        for number, term in enumerate(terms[1:], 1):
            found = found + term * torch.cos(number * at)
        return Array(found)

    stands_for(getattr(np, name), makes=True)(window)


for _name, _terms in (
    ("hanning", (0.5, 0.5)),
    ("hamming", (0.54, 0.46)),
    ("blackman", (0.42, 0.5, 0.08)),
):
    _window(_name, _terms)


@stands_for(np.tri, makes=True)
def tri(N: int, M: Any = None, k: int = 0, dtype: Any = float) -> Any:  # noqa: N803
    return Array(torch.tril(torch.ones(N, N if M is None else M, dtype=dtype_of(dtype)), k))


@stands_for(np.logspace, makes=True)
def logspace(start: float, stop: float, num: int = 50, *, base: float = 10.0) -> Any:
    return Array(torch.pow(base, arrays.evenly(float(start), float(stop), num)))


@stands_for(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    return Array(torch.diag(array(v).tensor, k))


@stands_for(np.diagonal, method=True)
def diagonal(a: Any, offset: int = 0) -> Any:
    return Array(torch.diagonal(array(a).tensor, offset))


@stands_for(np.trace, method=True)
def trace(a: Any) -> Any:
    return sum(diagonal(a), -1)


@stands_for(np.triu)
def triu(m: Any, k: int = 0) -> Any:
    return Array(torch.triu(array(m).tensor, k))


@stands_for(np.tril)
def tril(m: Any, k: int = 0) -> Any:
    return Array(torch.tril(array(m).tensor, k))


@stands_for(np.size)
def size(a: Any, axis: Any = None) -> Any:
    return array(a).size if axis is None else array(a).shape[axis]


@stands_for(np.ndim)
def ndim(a: Any) -> Any:
    return array(a).ndim


@stands_for(np.shape)
def shape(a: Any) -> Any:
    return array(a).shape


# Products.


@stands_for(np.dot, method=True)
def dot(a: Any, b: Any) -> Any:
    left, right = both(a, b)
    if left.dim() == 0 or right.dim() == 0:
        return Array(left * right)
    if right.dim() <= 2:
        return Array(torch.matmul(left, right))
    return Array(torch.tensordot(left, right, dims=([left.dim() - 1], [right.dim() - 2])))


@stands_for(np.inner)
def inner(a: Any, b: Any) -> Any:
    return Array(torch.inner(*both(a, b)))


@stands_for(np.outer)
def outer(a: Any, b: Any) -> Any:
    left, right = both(a, b)
    return Array(torch.outer(left.reshape(-1), right.reshape(-1)))


@stands_for(np.kron)
def kron(a: Any, b: Any) -> Any:
    return Array(torch.kron(*both(a, b)))


@stands_for(np.cross)
def cross(a: Any, b: Any, *, axis: int = -1) -> Any:
    left, right = both(a, b)
    if left.shape[axis] != 3 or right.shape[axis] != 3:
        raise ValueError("np.cross in a tensor program takes vectors of three numbers")
    return Array(torch.linalg.cross(left, right, dim=axis))


@stands_for(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    left, right = both(a, b)
    return Array(torch.vdot(left.reshape(-1), right.reshape(-1)))


@stands_for(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    return Array(torch.tensordot(*both(a, b), dims=axes))


@stands_for(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    left, right = both(a, v)
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    if left.shape[0] < right.shape[0]:
        left, right = right, left
    more = 0 if mode == "valid" else right.shape[0] - 1
    kernel = torch.flip(right, [0])[None, None]
    found = torch.nn.functional.conv1d(left[None, None], kernel, padding=more)[0, 0]
    if mode == "same":
        found = torch.narrow(found, 0, (right.shape[0] - 1) // 2, left.shape[0])
    return Array(found)


@stands_for(np.einsum)
def einsum(subscripts: str, *operands: Any) -> Any:
    return Array(torch.einsum(subscripts, *_joined(operands)))


# Linear algebra.


def _square(a: Any) -> Any:
    tensor = array(a).tensor
    return cast(tensor, arrays.QUOTIENTS[tensor.dtype])


def _linear(name: str) -> None:
    to = getattr(torch.linalg, name)

    def function(a: Any) -> Any:
        return Array(to(_square(a)))

    stands_for(getattr(np.linalg, name))(function)


for _name in ("inv", "det", "cholesky", "eigvalsh", "pinv"):
    _linear(_name)


@stands_for(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    left, right = both(a, b)
    kind = arrays.QUOTIENTS[left.dtype]
    return Array(torch.linalg.solve(cast(left, kind), cast(right, kind)))


@stands_for(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    left, right = both(a, b)
    kind = arrays.QUOTIENTS[left.dtype]
    left, right = cast(left, kind), cast(right, kind)
    rows, columns = left.shape
    sizes = torch.full((), rows, dtype=kind), torch.full((), columns, dtype=kind)
    share = torch.finfo(kind).eps * torch.maximum(*sizes) if rcond is None else rcond
    values = torch.linalg.svdvals(left)
    rank = (values > share * values.amax()).sum()
    found = torch.linalg.pinv(left, rcond=share) @ right
    off = right - left @ found
    off = (off if off.dim() > 1 else off[:, None]).pow(2).sum(0)
    # NumPy tells them of more rows than unknowns, and full rank.
    told = ((rank == columns) & (sizes[0] > sizes[1])).expand(off.shape)
    return Array(found), Selected(off, told, told), Array(rank.to(torch.int32)), Array(values)


Eigh = collections.namedtuple("Eigh", "eigenvalues eigenvectors")
Svd = collections.namedtuple("Svd", "U S Vh")
Slogdet = collections.namedtuple("Slogdet", "sign logabsdet")
Qr = collections.namedtuple("Qr", "Q R")


@stands_for(np.linalg.eigh)
def eigh(a: Any) -> Any:
    values, vectors = torch.linalg.eigh(_square(a))
    return Eigh(Array(values), Array(vectors))


@stands_for(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    sign, logarithm = torch.linalg.slogdet(_square(a))
    return Slogdet(Array(sign), Array(logarithm))


@stands_for(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    tensor = array(a).tensor
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return Array(torch.linalg.matrix_power(tensor, n))
    if n < 0:
        return Array(torch.linalg.matrix_power(_square(a), n))
    found = torch.eye(tensor.shape[-1], dtype=tensor.dtype).expand(tensor.shape)
    for _ in range(n):
        found = torch.matmul(found, tensor)
    return Array(found.clone())


@stands_for(np.linalg.matrix_rank)
def matrix_rank(A: Any) -> Any:  # noqa: N803
    tensor = _square(A)
    values = torch.linalg.svdvals(tensor)
    rows, columns = tensor.shape[-2], tensor.shape[-1]
    small = torch.finfo(tensor.dtype).eps * (rows if rows > columns else columns)
    return Array((values > values.amax(-1, keepdim=True) * small).sum(-1))


@stands_for(np.linalg.multi_dot)
def multi_dot(arrays: Any) -> Any:
    found = array(arrays[0])
    for part in arrays[1:]:
        found = dot(found, part)
    return found


@stands_for(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        return Array(torch.linalg.svdvals(_square(a)))
    left, values, right = torch.linalg.svd(_square(a), full_matrices=full_matrices)
    return Svd(Array(left), Array(values), Array(right))


@stands_for(np.linalg.qr)
def qr(a: Any) -> Any:
    left, right = torch.linalg.qr(_square(a))
    return Qr(Array(left), Array(right))


@stands_for(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    tensor = _square(x)
    if ord is None:
        squares = torch.abs(tensor).pow(2)
        return Array(torch.sqrt(sum(Array(squares), axis, keepdims=keepdims).tensor))
    return Array(torch.linalg.norm(tensor, ord, axis, keepdims))
