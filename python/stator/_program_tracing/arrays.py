"""NumPy's arrays in tensor programs: tensors that compute by NumPy's rules.

A function that is NumPy code gets an `Array` where it would get a NumPy array. What it computes
with it are operations of PyTorch's, on element types that NumPy would choose (`x / 2` of integers
is `float64`). `numpy_functions` has what stands for the functions of the module `numpy`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from stator._program_tracing import TensorSpec, indexing
from stator._program_tracing.checked import is_all_true
from stator._program_tracing.known import Known

__all__ = [
    "SILENT",
    "Array",
    "ArraySpec",
    "Selected",
    "array",
    "begin",
    "dtype_of",
    "end",
    "known",
    "note",
    "was_noted",
]


class ArraySpec(TensorSpec):
    """The type of a tensor that the function gets as an `Array`."""

    __slots__ = ()


_NAMES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_KINDS: dict[torch.dtype, Any] = {getattr(torch, name): np.dtype(name) for name in _NAMES}
_CLASSES = {dtype: of.type for dtype, of in _KINDS.items()}
_OF_NUMPY: dict[Any, torch.dtype] = {of: dtype for dtype, of in _KINDS.items()}


def _known(of: Any) -> torch.dtype:
    return _OF_NUMPY[np.dtype(of)]


# Whatever NumPy takes for an element type.
_DTYPES: dict[Any, torch.dtype] = {
    **{_KINDS[dtype]: dtype for dtype in _KINDS},
    **{_KINDS[dtype].type: dtype for dtype in _KINDS},
    **{_KINDS[dtype].name: dtype for dtype in _KINDS},
    **{_KINDS[dtype].str[1:]: dtype for dtype in _KINDS},
    bool: torch.bool,
    int: _known(int),
    float: torch.float64,
    complex: torch.complex128,
}

# Of two element types that of what is computed with both.
_PROMOTED = {(a, b): _known(np.result_type(_KINDS[a], _KINDS[b])) for a in _KINDS for b in _KINDS}

# Of an element type and one of Python's numbers.
_WITH_NUMBER = {
    (dtype, type(number)): _known(np.result_type(np.empty(1, _KINDS[dtype]), number))
    for dtype in _KINDS
    for number in (True, 1, 1.0, 1j)
}


def _gives(function: Callable[..., Any], arguments: int) -> dict[torch.dtype, torch.dtype]:
    """The element types that one of NumPy's functions gives."""
    found = {}
    for dtype, of in _KINDS.items():
        try:
            found[dtype] = _known(function(*[np.ones(1, of)] * arguments).dtype)
        except TypeError:
            continue
    return found


QUOTIENTS = _gives(np.true_divide, 2)
ROOTS = _gives(np.sqrt, 1)
TOTALS = _gives(np.sum, 1)
MEANS = _gives(np.mean, 1)


def is_known(dtype: torch.dtype) -> bool:
    """Whether NumPy has an element type, too."""
    return dtype in _KINDS


_HINT = "\n  hint:     with `result=` the function is called as it is, whatever it is written with"


def dtype_of(kind: Any) -> torch.dtype:
    """The element type that a NumPy program names."""
    found = _DTYPES.get(kind)
    if found is None:
        raise TypeError(f"tensor programs have no element type {kind!r}{_HINT}")
    return found


_STATE = threading.local()


def begin() -> None:
    """Begins a trace."""
    _STATE.is_numpy = False
    _STATE.constants = {}
    _STATE.known = Known()


def end() -> None:
    """Ends it."""
    _STATE.constants = {}
    _STATE.known = Known()


def known() -> Known:
    """What is known of this thread's tensors without data."""
    found: Known = _STATE.known
    return found


def numbers(tensor: Any) -> list[Any]:
    """The numbers in a tensor that is computed of constants alone; otherwise none."""
    with _disable_current_modes():
        found = _STATE.known.of(tensor)
        return [] if found is None else found.reshape(-1).tolist()


def note() -> None:
    """Something was called that only NumPy code calls."""
    _STATE.is_numpy = True


def note_unless_known(tensor: Any) -> None:
    """The same of what is called with something else than constants."""
    with _disable_current_modes():
        if _STATE.known.of(tensor) is None:
            note()


def was_noted() -> bool:
    """Whether something was, since this thread's trace began."""
    return getattr(_STATE, "is_numpy", False)


def constant(value: Any) -> list[torch.Tensor]:
    """A tensor, with data, of what NumPy makes an array of."""
    known = _STATE.constants.get(id(value))
    if known is not None:
        return [known[1]]
    found = np.array(value)
    if found.dtype not in _OF_NUMPY:
        raise TypeError(f"tensor programs have no element type {found.dtype}{_HINT}")
    with _disable_current_modes():
        made = torch.from_numpy(found.astype(found.dtype.newbyteorder("="), copy=False))
    if isinstance(value, np.ndarray):
        # The same constant wherever the program has the array.
        _STATE.constants[id(value)] = value, made
    return [made]


def array(value: Any) -> Array:
    """An array of whatever NumPy takes for one."""
    if isinstance(value, Array):
        return value
    if isinstance(value, Selected):
        return value.apart()
    if isinstance(value, bool):
        return Array(torch.full((), value, dtype=torch.bool))
    if isinstance(value, int):
        return Array(torch.full((), value, dtype=torch.int64))
    if isinstance(value, float):
        return Array(torch.full((), value, dtype=torch.float64))
    if isinstance(value, (list, tuple)) and holds_arrays(value):
        parts = [array(part) for part in value]
        kind = common(parts)
        return Array(torch.stack([cast(part.tensor, kind) for part in parts]))
    note()
    return Array(constant(value)[0])


def holds_arrays(value: Any) -> bool:
    """Whether something in containers is an array of the program, or a size that varies."""
    if isinstance(value, (list, tuple)):
        return any(holds_arrays(part) for part in value)
    return isinstance(value, (Array, Selected))


def cast(tensor: Any, kind: torch.dtype) -> Any:
    """The tensor with an element type: itself, if it has that."""
    return tensor if tensor.dtype == kind else tensor.to(kind)


def common(parts: Any) -> torch.dtype:
    """The element type of what is computed with all of these arrays."""
    kind: torch.dtype = parts[0].tensor.dtype
    for part in parts:
        kind = _PROMOTED[kind, part.tensor.dtype]
    return kind


def common_of(values: Any) -> torch.dtype:
    """The same of arrays and of Python's numbers, which stay numbers."""
    parts = [array(value) for value in values if type(value) not in (bool, int, float)]
    if not parts:
        return common([array(value) for value in values])
    kind = common(parts)
    for value in values:
        if type(value) in (bool, int, float):
            kind = _WITH_NUMBER[kind, type(value)]
    return kind


def pair(left: Any, right: Any) -> tuple[Any, Any, torch.dtype]:
    """Two operands with the element type of what is computed with them. A number of Python's stays
    one."""
    if type(right) in (bool, int, float, complex) and isinstance(left, Array):
        kind = _WITH_NUMBER[left.tensor.dtype, type(right)]
        return cast(left.tensor, kind), right, kind
    if type(left) in (bool, int, float, complex) and isinstance(right, Array):
        kind = _WITH_NUMBER[right.tensor.dtype, type(left)]
        return left, cast(right.tensor, kind), kind
    left, right = array(left), array(right)
    kind = _PROMOTED[left.tensor.dtype, right.tensor.dtype]
    return cast(left.tensor, kind), cast(right.tensor, kind), kind


def both(left: Any, right: Any) -> tuple[Any, Any]:
    """The same, both as tensors."""
    left, right, kind = pair(left, right)
    if not isinstance(left, torch.Tensor):
        left = torch.full((), left, dtype=kind)
    if not isinstance(right, torch.Tensor):
        right = torch.full((), right, dtype=kind)
    return left, right


def quotient(left: Any, right: Any) -> Array:
    left, right = both(left, right)
    kind = QUOTIENTS[left.dtype]
    return Array(cast(left, kind) / cast(right, kind))


def power(left: Any, right: Any) -> Any:
    """Powers of tensors. Those of integers have no negative exponents."""
    if not left.dtype.is_floating_point and not left.dtype.is_complex:
        is_all_true(right >= 0)
    return torch.pow(left, right)


def evenly(start: float, stop: float, count: int) -> Any:
    """Numbers at even distances, as NumPy rounds them."""
    steps = torch.arange(count, dtype=torch.float64)
    if count < 2:
        return steps + start
    found = steps * ((stop - start) / (count - 1)) + start
    return torch.where(steps == count - 1, stop, found)


def key_of(key: Any) -> Any:
    """An index as PyTorch takes it."""
    if isinstance(key, tuple):
        return tuple([key_of(part) for part in key])
    if isinstance(key, Array):
        return key.tensor
    if isinstance(key, Selected):
        return key.apart().tensor
    if isinstance(key, (list, np.ndarray)):
        return array(key).tensor
    if isinstance(key, slice):
        # Made here of its bounds, which may be numbers that vary.
        return indexing.between(key_of(key.start), key_of(key.stop), key_of(key.step))
    return key


def _backwards(key: Any) -> bool:
    return isinstance(key, slice) and isinstance(key.step, int) and key.step < 0


class Array:
    """An array of NumPy's in a program."""

    __slots__ = ("tensor",)
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    # What it is.

    @property
    def shape(self) -> Any:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return self.tensor.dim()  # type: ignore[no-any-return]

    @property
    def size(self) -> Any:
        return self.tensor.numel()

    @property
    def dtype(self) -> Any:
        return _CLASSES[self.tensor.dtype]

    @property
    def T(self) -> Array:  # noqa: N802
        return Array(self.tensor.permute(list(range(self.tensor.dim()))[::-1]))

    @property
    def real(self) -> Array:
        return Array(self.tensor.real if self.tensor.dtype.is_complex else self.tensor)

    @property
    def imag(self) -> Array:
        part = self.tensor.imag if self.tensor.dtype.is_complex else torch.zeros_like(self.tensor)
        return Array(part)

    def __len__(self) -> int:
        return self.tensor.shape[0]  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        return iter([Array(row) for row in self.tensor.unbind(0)])

    # What is computed of constants alone is one. Of anything else numbers are data, and refused.

    def __bool__(self) -> bool:
        found = numbers(self.tensor)
        return bool(found[0]) if len(found) == 1 else bool(self.tensor)

    def __int__(self) -> int:
        found = numbers(self.tensor)
        return int(found[0]) if len(found) == 1 else int(self.tensor)

    def __float__(self) -> float:
        found = numbers(self.tensor)
        return float(found[0]) if len(found) == 1 else float(self.tensor)

    def item(self) -> Any:
        found = numbers(self.tensor)
        return found[0] if len(found) == 1 else self.tensor.item()

    def tolist(self) -> Any:
        found = numbers(self.tensor)
        if not found:
            return self.tensor.tolist()
        return found if self.tensor.dim() else found[0]

    # Items.

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Array) and key.tensor.dtype == torch.bool and key.ndim:
            return self.chosen(key)
        if isinstance(key, tuple) and len(key) == 1 and isinstance(key[0], Selected):
            key = key[0]
        if isinstance(key, Selected):
            # What isn't chosen is no place.
            places = torch.where(key.mask, key.values, 0)
            found = torch.index_select(self.tensor, 0, places)
            return Selected(found, key.mask, key.key, key.when)
        found = self.tensor
        keys = key if isinstance(key, tuple) else (key,)
        turned = []
        for at, part in enumerate(keys):
            if _backwards(part):
                note()
                if part.step != -1 or part.start is not None or part.stop is not None:
                    raise NotImplementedError("in tensor programs the one step back is `[::-1]`")
                if any(each is None or each is Ellipsis for each in keys[:at]):
                    raise NotImplementedError("`[::-1]` behind `None` and `...`: use np.flip")
                found = torch.flip(found, [at])
                part = slice(None)
            turned.append(key_of(part))
        return Array(found[tuple(turned) if isinstance(key, tuple) else turned[0]])

    def chosen(self, key: Array) -> Selected:
        """The elements, or rows, that a mask chooses."""
        mask = key.tensor
        if tuple(mask.shape) != self.shape[: mask.dim()]:
            raise IndexError("boolean index did not match the array that it is an index of")
        values = self.tensor.reshape([-1, *self.tensor.shape[mask.dim() :]])
        when = _When()
        note_when(when, mask)
        # What they are doesn't change when the array or the mask is written to.
        return Selected(values.clone(), mask.reshape(-1).clone(), mask, when)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Selected):
            value = value.apart()
        if isinstance(key, Array) and key.tensor.dtype == torch.bool:
            self._set_where(key.tensor, value)
        elif isinstance(value, (bool, int, float)):
            self.tensor[key_of(key)] = value
        else:
            self.tensor[key_of(key)] = array(value).tensor.to(self.tensor.dtype)

    def _set_where(self, mask: Any, value: Any) -> None:
        """`x[mask] = value`: one value, or row, for all, or one for each."""
        given = value if isinstance(value, (bool, int, float)) else array(value).tensor
        if isinstance(given, torch.Tensor) and given.dim() > self.tensor.dim() - mask.dim():
            self.tensor[mask] = given.to(self.tensor.dtype)
            return
        mask = mask.reshape([*mask.shape, *[1] * (self.tensor.dim() - mask.dim())])
        self.tensor.copy_(torch.where(mask, given, self.tensor))

    # Operators.

    def __add__(self, other: Any) -> Array:
        left, right, _ = pair(self, other)
        return Array(left + right)

    def __radd__(self, other: Any) -> Array:
        left, right, _ = pair(other, self)
        return Array(left + right)

    def __sub__(self, other: Any) -> Array:
        left, right, _ = pair(self, other)
        return Array(left - right)

    def __rsub__(self, other: Any) -> Array:
        left, right, _ = pair(other, self)
        return Array(left - right)

    def __mul__(self, other: Any) -> Array:
        left, right, _ = pair(self, other)
        return Array(left * right)

    def __rmul__(self, other: Any) -> Array:
        left, right, _ = pair(other, self)
        return Array(left * right)

    def __truediv__(self, other: Any) -> Array:
        return quotient(self, other)

    def __rtruediv__(self, other: Any) -> Array:
        return quotient(other, self)

    def __floordiv__(self, other: Any) -> Array:
        return Array(torch.floor_divide(*both(self, other)))

    def __rfloordiv__(self, other: Any) -> Array:
        return Array(torch.floor_divide(*both(other, self)))

    def __mod__(self, other: Any) -> Array:
        return Array(torch.remainder(*both(self, other)))

    def __rmod__(self, other: Any) -> Array:
        return Array(torch.remainder(*both(other, self)))

    def __pow__(self, other: Any) -> Array:
        if isinstance(other, (bool, int, float)):
            left, right, _ = pair(self, other)
            return Array(left**right)
        return Array(power(*both(self, other)))

    def __rpow__(self, other: Any) -> Array:
        return Array(power(*both(other, self)))

    def __matmul__(self, other: Any) -> Array:
        return Array(torch.matmul(*both(self, other)))

    def __rmatmul__(self, other: Any) -> Array:
        return Array(torch.matmul(*both(other, self)))

    def __and__(self, other: Any) -> Array:
        return Array(torch.bitwise_and(*both(self, other)))

    __rand__ = __and__

    def __or__(self, other: Any) -> Array:
        return Array(torch.bitwise_or(*both(self, other)))

    __ror__ = __or__

    def __xor__(self, other: Any) -> Array:
        return Array(torch.bitwise_xor(*both(self, other)))

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Array:
        return Array(torch.bitwise_left_shift(*both(self, other)))

    def __rlshift__(self, other: Any) -> Array:
        return Array(torch.bitwise_left_shift(*both(other, self)))

    def __rshift__(self, other: Any) -> Array:
        return Array(torch.bitwise_right_shift(*both(self, other)))

    def __rrshift__(self, other: Any) -> Array:
        return Array(torch.bitwise_right_shift(*both(other, self)))

    def __lt__(self, other: Any) -> Array:
        return Array(torch.lt(*both(self, other)))

    def __le__(self, other: Any) -> Array:
        return Array(torch.le(*both(self, other)))

    def __gt__(self, other: Any) -> Array:
        return Array(torch.gt(*both(self, other)))

    def __ge__(self, other: Any) -> Array:
        return Array(torch.ge(*both(self, other)))

    def __eq__(self, other: Any) -> Array:  # type: ignore[override]
        return Array(torch.eq(*both(self, other)))

    def __ne__(self, other: Any) -> Array:  # type: ignore[override]
        return Array(torch.ne(*both(self, other)))

    def __neg__(self) -> Array:
        return Array(-self.tensor)

    def __pos__(self) -> Array:
        return Array(self.tensor.clone())

    def __abs__(self) -> Array:
        return Array(torch.abs(self.tensor))

    def __invert__(self) -> Array:
        return Array(torch.bitwise_not(self.tensor))

    # Operators that write: the element type stays.

    def _written(self, found: Array) -> Array:
        kind, given = self.tensor.dtype, found.tensor.dtype
        if _PROMOTED[kind, given] != kind and not _is_same_kind(given, kind):
            raise TypeError(
                f"Cannot cast the result from {_KINDS[given]!r} to {_KINDS[kind]!r} with casting "
                "rule 'same_kind'"
            )
        self.tensor.copy_(found.tensor)
        return self

    def __iadd__(self, other: Any) -> Array:
        return self._written(self + other)

    def __isub__(self, other: Any) -> Array:
        return self._written(self - other)

    def __imul__(self, other: Any) -> Array:
        return self._written(self * other)

    def __itruediv__(self, other: Any) -> Array:
        return self._written(self / other)

    def __ipow__(self, other: Any) -> Array:
        return self._written(self**other)

    def sort(self, axis: int = -1) -> None:
        self.tensor.copy_(torch.sort(self.tensor, dim=axis).values)

    def fill(self, value: Any) -> None:
        self[...] = value

    # Shapes and element types.

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        note()
        kind = dtype_of(dtype)
        return Array(self.tensor.clone() if self.tensor.dtype == kind else self.tensor.to(kind))

    def copy(self) -> Array:
        note()
        return Array(self.tensor.clone())

    def reshape(self, *shape: Any) -> Array:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return Array(self.tensor.reshape(sizes))

    def view(self, *given: Any) -> Array:
        # Sizes are what PyTorch's method takes. NumPy's reads elements as those of another type.
        if given and type(given[0]) in (int, tuple):
            raise TypeError(f"Cannot interpret '{given[0]}' as a data type")
        raise AttributeError("'Array' object has no attribute 'view'", name="view", obj=self)

    def ravel(self) -> Array:
        return Array(self.tensor.reshape(-1))

    def flatten(self) -> Array:
        return Array(self.tensor.reshape(-1).clone())

    def transpose(self, *axes: Any) -> Array:
        if not axes or axes[0] is None:
            return self.T
        return Array(self.tensor.permute(axes[0] if isinstance(axes[0], (tuple, list)) else axes))

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        return Array(self.tensor.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> Array:
        return Array(self.tensor.squeeze() if axis is None else self.tensor.squeeze(axis))


class _When:
    """When a mask was taken: it may be written to later."""

    __slots__ = ("version",)
    version: int


def note_when(when: _When, mask: Any) -> None:
    """No part of the program, as what follows."""
    when.version = mask._version


def is_then(when: _When | None, other: _When | None) -> bool:
    """Whether a mask was the same."""
    return when is other or (
        when is not None and other is not None and when.version == other.version
    )


class Selected:
    """Elements of an array that a mask chooses. As many as its data say, so a program has all
    elements and the mask, and gives what follows from those that are chosen: it may run for many
    clients at once then. What can't be done so is done with those that are chosen alone
    (`apart`)."""

    __slots__ = ("key", "mask", "values", "when")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Any, mask: Any, key: Any, when: _When | None = None) -> None:
        self.values = values
        # Of the first dimension.
        self.mask = mask
        # What they were chosen with: elements of several arrays, chosen with the same, belong
        # together.
        self.key = key
        self.when = when

    @property
    def shape(self) -> Any:
        return (Array(self.mask.sum()), *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        return self.values.dim()  # type: ignore[no-any-return]

    @property
    def size(self) -> Any:
        count = self.mask.sum()
        for size in self.values.shape[1:]:
            count = count * size
        return Array(count)

    @property
    def dtype(self) -> Any:
        return _CLASSES[self.values.dtype]

    def __repr__(self) -> str:
        return "an array of as many elements as its data say"

    def astype(self, dtype: Any) -> Selected:
        return self.with_values(self.values.to(dtype_of(dtype)))

    def copy(self) -> Selected:
        return self

    def apart(self) -> Array:
        """Those that are chosen, in an array of their own."""
        return Array(self.values[self.mask])

    def with_values(self, values: Any) -> Selected:
        """Others for the same mask."""
        return Selected(values, self.mask, self.key, self.when)

    def goes_with(self, other: Selected) -> bool:
        """Whether both were chosen with the same mask."""
        return other.key is self.key and is_then(self.when, other.when)

    def fits(self, other: Any) -> bool:
        """Whether what stands beside these in an operation does so for all elements."""
        if isinstance(other, Selected):
            return self.goes_with(other)
        return not isinstance(other, Array) or other.ndim < self.ndim

    def of(self, other: Any) -> Any:
        """What stands beside these, for all elements."""
        return Array(other.values) if isinstance(other, Selected) else other

    def spread(self) -> Any:
        """The mask, for all numbers of the elements."""
        mask = self.mask.reshape([-1, *[1] * (self.values.dim() - 1)])
        return torch.broadcast_to(mask, self.values.shape)

    def at(self, place: Any) -> Array:
        """One of them, by its number."""
        count = self.mask.sum()
        number = place.tensor if isinstance(place, Array) else torch.full((), place)
        number = torch.where(number < 0, number + count, number)
        is_all_true((number >= 0) & (number < count))
        # As many are chosen up to there.
        row = torch.searchsorted(torch.cumsum(self.mask, 0), number.reshape(1) + 1)
        return Array(torch.index_select(self.values, 0, row).squeeze(0))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Selected) and key.values.dtype == torch.bool and self.goes_with(key):
            chosen = self.mask & key.values
            return Selected(self.values, chosen, key.values)
        if isinstance(key, Array) and not key.ndim and key.tensor.dtype != torch.bool:
            return self.at(key)
        if isinstance(key, int) and not isinstance(key, bool):
            return self.at(key)
        return self.apart()[key]

    def __iter__(self) -> Any:
        raise TypeError(_UNKNOWN_COUNT)

    def __getattr__(self, name: str) -> Any:
        # Methods of arrays, and what else they have.
        return getattr(self.apart(), name)


def _between(name: str) -> Any:
    """An operator of arrays, for those that are chosen."""
    operate = getattr(Array, name)

    def operator(self: Selected, *others: Any) -> Any:
        for other in others:
            if not self.fits(other):
                return operate(self.apart(), *others)
        given = [self.of(other) for other in others]
        return self.with_values(operate(Array(self.values), *given).tensor)

    return operator


for _name in (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rand", "ror", "rxor"),
    *("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"),
):
    setattr(Selected, f"__{_name}__", _between(f"__{_name}__"))


_UNKNOWN_COUNT = (
    "how many elements a mask, np.unique or np.nonzero gives its data say: a tensor program sums "
    "them up, counts them, takes one of them, and computes with them alone" + _HINT
)


def _is_same_kind(given: torch.dtype, kind: torch.dtype) -> bool:
    return bool(_SAME_KIND[given, kind])


_SAME_KIND = {
    (a, b): bool(np.can_cast(_KINDS[a], _KINDS[b], "same_kind")) for a in _KINDS for b in _KINDS
}


def length(value: Any) -> Any:
    """What `len` gives. An array's may be one that varies."""
    if isinstance(value, Selected):
        return value.shape[0]
    return value.tensor.shape[0] if isinstance(value, Array) else value.__len__()


def absolute(value: Any) -> Any:
    """What `abs` gives, of arrays from outside too."""
    return (array(value) if isinstance(value, np.ndarray) else value).__abs__()


# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [note, note_unless_known, constant, note_when, is_then, numbers]
