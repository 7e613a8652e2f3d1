"""Running a program at once for clients that have different numbers of rows.

Each client's rows are padded up to as many as any has: by its first row, so that what is computed
of the padding is as finite as the client's own. Operations keep rows apart, or have a rule here
for leaving the padding out; an operation without a rule leaves the program as it is (`NotPadded`).
What has no dimension of rows depends on a client's own rows alone, and so do gradients: padding
reaches it by nothing but `torch.where` with the mask, whose gradient for padding is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import resolve_name
from torch.utils.weak import WeakIdKeyDictionary

from stator._program_tracing.padding_numbers import (
    NotPaddedError,
    Number,
    Share,
    TooManyPairsError,
    grows_with_rows,
    is_of_data,
    lengths_in,
    of_rows,
)
from stator._program_tracing.padding_views import Views

__all__ = ["Padding", "is_mask", "memory_of", "name_of", "padded", "tensors_in", "unwrapped"]


def padded(
    columns: Sequence[Any], lengths: Sequence[Sequence[int]], dims: Sequence[int] | None = None
) -> list[torch.Tensor]:
    """The inputs of clients in one tensor each, with a first dimension of clients. What is a list
    has a tensor for each client: rows, as many as the next of `lengths` says. `dims`: in which
    dimension these are; otherwise the first."""
    left = iter(lengths)
    places_of_rows = iter([0] * len(lengths) if dims is None else dims)
    known: dict[tuple[int, ...], torch.Tensor] = {}
    found = []
    for column in columns:
        if not isinstance(column, list):
            found.append(column)
            continue
        own = tuple(next(left))
        if own not in known:
            counts = torch.tensor(own)
            rows = torch.arange(max(own))
            places = torch.where(rows < counts.unsqueeze(1), rows, 0)
            known[own] = places + (counts.cumsum(0) - counts).unsqueeze(1)
        dim = next(places_of_rows)
        if dim == 0:
            found.append(torch.cat(column)[known[own]])
            continue
        rows = torch.cat([each.movedim(dim, 0) for each in column])
        found.append(rows[known[own]].movedim(1, 1 + dim).contiguous())
    return found


_MOST = 64 << 10
"""How many bytes a client's pairs of rows may take: operations on more are as quick for one client
after the other, which has no padding, and stays near the processor."""

# Its types lack some of what it has.
_functorch: Any = torch._C._functorch

_SEVERAL = "clients of different sizes: rows beside others, or fewer"

_Inner = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class _Call:
    """An operation, called as its rule says."""

    def __init__(self, func: Any, inner: _Inner) -> None:
        self.func = func
        self.name = name_of(func)
        self._inner = inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner(self.func, args, kwargs)


class _Length:
    """How many rows some tensors have: each client's own number."""

    __slots__ = ("mask", "number", "rows")

    def __init__(self, number: Number, rows: int) -> None:
        self.number = number
        # With the padding.
        self.rows = rows
        # Which rows are a client's own.
        self.mask = torch.arange(rows) < number.own


class Padding:
    """Which tensors of a run have dimensions of padded rows, and how many of these are a client's
    own. With the padding they are as many as in some input, but where there are more: parts of
    rows, pairs."""

    def __init__(
        self,
        counts: Sequence[torch.Tensor],
        rows: Sequence[int],
        inputs: Sequence[tuple[torch.Tensor, int, int]],
        differentiates: bool = False,
    ) -> None:
        """counts: how many rows a client has, for each of its lengths; rows: how many with the
        padding; inputs: those that have rows, in which dimension, and which length that is.
        """
        # What has to hold for each client, so that it gives what each gives alone.
        self.conditions: list[Any] = []
        numbers = [
            of_rows(count, each, self.conditions, at)
            for at, (count, each) in enumerate(zip(counts, rows, strict=True))
        ]
        self._wholes = [_Length(number, number.plain) for number in numbers]
        self._lengths: dict[Any, _Length] = {whole.number.key: whole for whole in self._wholes}
        # For each dimension that has rows, and how many these are.
        self._dims: Any = WeakIdKeyDictionary()
        # What has to hold if somebody uses a tensor.
        self._if_used: Any = WeakIdKeyDictionary()
        # What is a view in PyTorch, and a copy here.
        self._views = Views(memory_of)
        self.copied, self.sliced, self.written = (
            *(self._views.copied, self._views.sliced, self._views.written),
        )
        # What masks have chosen, and numbers that were read as bounds (`padding_chosen.py`).
        self.chosen: list[tuple[Any, Any, Number, Any]] = []
        self.read: dict[Any, tuple[Number, Any]] = {}
        # Whoever lacks one of these has made something of other rows than its own, or of what isn't
        # finite: gradients show it.
        self.finite_unless: list[Any] = []
        self.differentiates = differentiates
        # Numbers of rows, as integers for each client: of those that something was drawn for.
        self.known_sizes: dict[Any, list[int]] = {}
        # That of all tensors that an operation is given.
        self._current: _Length | None = None
        for tensor, dim, length in inputs:
            self.mark(tensor, dim, numbers[length])

    @property
    def rows(self) -> int:
        """How many rows what an operation is given has, with the padding."""
        if self._current is not None:
            return self._current.rows
        if len(self._wholes) > 1:
            raise NotPaddedError(_SEVERAL)
        return self._wholes[0].rows

    def in_parts(self, tensor: Any, parts: int) -> Number | None:
        """How many rows a tensor has where each of them is divided into so many."""
        number: Any = self.number(tensor) * parts
        return number if isinstance(number, Number) else None

    def of_parts(self, tensor: Any, parts: int) -> Number | None:
        """How many rows a tensor has where so many of them become one: its parts."""
        for length in self._lengths.values():
            divided: Any = length.number * parts
            if divided.key == self.number(tensor).key:
                return length.number
        return None

    def mark(
        self,
        tensor: Any,
        dim: int | Sequence[int],
        number: Number | Sequence[Number] | None = None,
    ) -> Any:
        """A tensor has rows in a dimension, or in several: as many as what the operation is given,
        or a number, or one for each dimension."""
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        if isinstance(number, Number):
            number = [number] * len(dims)
        if number is None:
            lengths = [self._current] * len(dims)
        else:
            rows = [tensor.shape[at] for at in dims]
            lengths = [self.length(*each) for each in zip(number, rows, strict=True)]
        if any(length is None for length in lengths):
            raise NotPaddedError(_SEVERAL)
        known: Any = sorted(zip(dims, lengths, strict=True), key=lambda each: each[0])
        if not known or any(tensor.shape[at] != length.rows for at, length in known):
            raise NotPaddedError("rows are somewhere else than expected")
        self._dims[tensor] = tuple(at for at, _ in known), tuple(length for _, length in known)
        return tensor

    def mark_as(self, tensor: Any, other: Any, dims: Sequence[int] | None = None) -> Any:
        """A tensor has rows where another one has them, or in these dimensions instead; or none."""
        numbers = self.numbers(other)
        return self.mark(tensor, self.dims(other) if dims is None else dims, numbers)

    def follow(self, tensor: Any, other: Any) -> None:
        """A tensor stands in the place of another one."""
        if (found := self._dims.get(tensor)) is not None:
            self._dims[other] = found

    def length(self, number: Number, with_padding: int | None = None) -> _Length:
        """As many rows as a number says. `with_padding`: how many the first tensor has that has so
        many; otherwise that is found out."""
        found = self._lengths.get(number.key)
        if found is None:
            # A number's value is that of the padded rows.
            most = max((self._wholes[at].rows for at in lengths_in(number.key)), default=0)
            rows = number.plain if grows_with_rows(number) else most
            if is_of_data(number.key):
                rows = max(number.plain, most)
            rows = rows if with_padding is None else with_padding
            found = self._lengths[number.key] = _Length(number, rows)
            self.holds((number.own >= 0) & (number.own <= rows))
        return found

    def rows_of(self, number: Number) -> int:
        """The same with the padding."""
        return self.length(number).rows

    def expect_room(self, tensor: Any, times: int = 1) -> None:
        """Raises if a tensor is large: pairs of rows are many. `times`: how much more it takes to
        make one with padding."""
        if tensor.numel() * tensor.element_size() * times > _MOST:
            raise TooManyPairsError("pairs of so many rows take much memory")

    def holds(self, condition: Any) -> None:
        """Takes note of what has to hold for each client."""
        self.conditions.append(condition.all())

    def holds_if_used(self, tensor: Any, condition: Any) -> None:
        """Takes note of what has to hold for each client whose program uses a tensor."""
        self._if_used[tensor] = condition

    def use(self, value: Any) -> None:
        """Something is used."""
        self._views.use(value)
        self._use(value)

    def _use(self, value: Any) -> None:
        if self._if_used:
            for tensor in tensors_in(value):
                if (condition := self._if_used.pop(tensor, None)) is not None:
                    self.holds(condition)

    def dims(self, value: Any) -> tuple[int, ...]:
        """Where a tensor has rows: in one dimension, or in several (`x @ x.T`)."""
        found = self._dims.get(value) if isinstance(value, torch.Tensor) else None
        return () if found is None else found[0]

    def dim(self, value: Any) -> int | None:
        """Where a tensor has rows, which are in one dimension."""
        dims = self.dims(value)
        if len(dims) > 1:
            raise NotPaddedError("clients of different sizes: rows are compared with each other")
        return dims[0] if dims else None

    def number(self, tensor: Any) -> Number:
        """How many rows a tensor has."""
        numbers = self.numbers(tensor)
        if any(number.key != numbers[0].key for number in numbers):
            raise NotPaddedError(_SEVERAL)
        return numbers[0]

    def numbers(self, tensor: Any) -> list[Number]:
        """How many rows a tensor has, in each dimension that has some."""
        found = self._dims.get(tensor) if isinstance(tensor, torch.Tensor) else None
        return [] if found is None else [length.number for length in found[1]]

    def number_at(self, tensor: Any, dim: int) -> Number:
        """How many rows a tensor has in a dimension."""
        return self.numbers(tensor)[self.dims(tensor).index(dim)]

    def is_size(self, value: Any) -> bool:
        """Whether a number is that of the rows which an operation is given."""
        return (
            isinstance(value, Number)
            and self._current is not None
            and value.key == self._current.number.key
        )

    def only(self, tensor: Any, otherwise: Any, dims: Sequence[int] | None = None) -> Any:
        """A tensor with a number in the place of padding; of that in some dimensions."""
        rows = self.dims(tensor)
        if not rows or (dims is not None and not set(rows) & set(dims)):
            return tensor
        mask = self.mask(tensor, dims)
        return torch.where(mask, tensor, torch.full((), otherwise, dtype=tensor.dtype))

    def mask(self, tensor: Any, dims: Sequence[int] | None = None) -> Any:
        """Which rows of a tensor are a client's own, beside the tensor; in some dimensions."""
        masks = [
            length.mask.reshape([-1, *[1] * (tensor.dim() - dim - 1)])
            for dim, length in zip(*self._dims[tensor], strict=True)
            if dims is None or dim in dims
        ]
        return math.prod(masks[1:], start=masks[0])

    def own_rows(self, tensor: Any) -> Any:
        """Which rows of a tensor are a client's own."""
        return self.length(self.number(tensor)).mask

    def has_some(self, tensor: Any) -> None:
        """Each client has rows of a tensor: otherwise PyTorch raises."""
        for number in self.numbers(tensor):
            if all(number.key != whole.number.key for whole in self._wholes):
                self.holds(number.own > 0)

    def is_met(self, value: Any) -> bool:
        """Whether something in containers has rows, or is a number of them."""
        return any(True for _ in self._met(value))

    def _met(self, value: Any) -> Iterator[Any]:
        """What in containers has rows, or is a number of them."""
        if isinstance(value, (tuple, list)):
            for part in value:
                yield from self._met(part)
        elif isinstance(value, dict):
            yield from self._met(tuple(value.values()))
        elif isinstance(value, slice):
            yield from self._met((value.start, value.stop, value.step))
        elif isinstance(value, Share) or self.dims(value):
            yield value

    def called(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inner: _Inner
    ) -> Any:
        """What an operation gives, by its rule where rows are given."""
        self._use((args, kwargs))
        name = name_of(func)
        is_in_place = name == "setitem" or name in _IN_PLACE or name.endswith("_")
        self._views.called(name, args, kwargs, is_in_place)
        met = [*self._met(args), *self._met(kwargs)]
        if not met and not _is_choice(name, args):
            return inner(func, args, kwargs)
        rule = _RULES.get(name)
        if rule is None or kwargs.get("out") is not None:
            raise NotPaddedError(f"clients of different sizes: there is no rule for {name}")
        lengths = {
            id(length): length for each in met if is_tensor(each) for length in self._dims[each][1]
        }
        if len(lengths) > 1 and name not in _OF_SEVERAL:
            raise NotPaddedError("clients of different sizes: rows beside fewer rows")
        self._current = next(iter(lengths.values())) if len(lengths) == 1 else None
        return rule(self, _Call(func, inner), *args, **kwargs)


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def name_of(func: Any) -> str:
    """What an operation is called, whether it is a function, a method or an operator."""
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") == "__get__" and owner is not None:
        return str(owner.__name__)
    name: str = (resolve_name(func) or getattr(func, "__name__", "")).rpartition(".")[2]
    return name.strip("_") if name.startswith("__") else name


def memory_of(tensor: torch.Tensor) -> int:
    """Where a tensor's data is; of a batch, that of all clients."""
    return int(unwrapped(tensor).untyped_storage().data_ptr())


def unwrapped(tensor: Any) -> Any:
    """A tensor of all clients."""
    while _functorch.is_batchedtensor(tensor) or _functorch.is_gradtrackingtensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def is_mask(key: Any) -> bool:
    return isinstance(key, torch.Tensor) and key.dtype in (torch.bool, torch.uint8)


def _is_choice(name: str, args: tuple[Any, ...]) -> bool:
    """Whether an operation takes what a mask chooses."""
    if len(args) < 2 or name not in ("getitem", "masked_select"):
        return False
    return any(map(is_mask, args[1] if isinstance(args[1], tuple) else args[1:]))


_RULES: dict[str, Callable[..., Any]] = {}
_OF_SEVERAL: set[str] = set()


def rule_for(*names: str, is_of_several: bool = False) -> Callable[[Any], Any]:
    """A rule of these operations. `is_of_several`: it may be given tensors that have different
    numbers of rows."""

    def add(function: Any) -> Any:
        for name in names:
            _RULES[name] = function
        if is_of_several:
            _OF_SEVERAL.update(names)
        return function

    return add


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


def positive(dim: int, of: Any) -> int:
    return dim + of.dim() if dim < 0 else dim


def without_rows(padding: Padding, *values: Any) -> None:
    """Nothing in these is of rows."""
    if padding.is_met(values):
        raise NotPaddedError("clients of different sizes: rows are where there is no rule for them")


# Element by element.


_ELEMENTS = (
    *("add", "sub", "mul", "div", "truediv", "true_divide", "floor_divide", "floordiv", "mod"),
    *("radd", "rsub", "rmul", "rtruediv", "rdiv", "rfloordiv", "rmod", "remainder", "fmod", "pow"),
    *("rpow", "neg", "abs", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt"),
    *("rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
    *("sigmoid", "relu", "relu6", "gelu", "silu", "elu", "selu", "celu", "leaky_relu", "softplus"),
    *("softsign", "mish", "hardtanh", "hardswish", "hardsigmoid", "logsigmoid", "erf", "square"),
    *("sign", "clamp", "clip", "clamp_min", "clamp_max", "minimum", "maximum", "where", "eq"),
    *("ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor"),
    *("bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor", "and", "or", "xor", "invert"),
    *("rand", "ror", "rxor", "isnan", "isfinite", "isinf", "nan_to_num", "round", "floor"),
    *("ceil", "trunc", "reciprocal", "lerp", "addcmul", "addcdiv", "float", "double", "long"),
    *("int", "bool", "to", "type", "type_as", "detach", "clone", "contiguous", "masked_fill"),
    *("half", "bfloat16", "cfloat", "cdouble", "short", "byte", "char", "angle", "sgn", "polar"),
    *("complex", "ldexp", "float_power", "threshold", "hardshrink", "softshrink", "tanhshrink"),
    *("xlogy", "hypot", "logit", "positive", "requires_grad_", "zeros_like", "ones_like"),
    *("full_like", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real", "isclose"),
    *("absolute", "negative", "multiply", "subtract", "divide", "less", "less_equal", "greater"),
    *("greater_equal", "not_equal", "fix", "arcsin", "arccos", "arctan", "arctan2", "arcsinh"),
    *("arccosh", "arctanh", "nextafter", "copysign", "logaddexp", "logaddexp2", "heaviside"),
    *("bitwise_left_shift", "bitwise_right_shift", "lshift", "rshift", "gcd", "lcm", "deg2rad"),
    *("rad2deg", "asinh", "acosh", "atanh", "sinc", "erfc", "erfinv", "lgamma", "digamma"),
    *("signbit", "frac"),
    # Where a program draws nothing, these do nothing.
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"),
)
"""Operations that make an element of the result of one of each tensor."""


@rule_for(*_ELEMENTS, is_of_several=True)
def elements(padding: Padding, call: Any, /, *args: Any, **kwargs: Any) -> Any:
    """An element of the result is made of one of each tensor, which are broadcast."""
    given = list(tensors_in((args, kwargs)))
    ends = _ends(padding, given)
    are_compared = len(ends) > 1 and all(len(padding.dims(tensor)) < len(ends) for tensor in given)
    # Beside a condition a number has the element type of what it may stand for.
    typed = given[1:] if call.name == "where" else given
    kind = typed[0].dtype if len(typed) == 1 else None
    if call.name == "where" and not typed:
        is_float = any(isinstance(value, float) and not isinstance(value, Number) for value in args)
        kind = torch.get_default_dtype() if is_float else torch.int64

    def counted(value: Any) -> Any:
        if not isinstance(value, Share):
            return value
        is_whole = kind in (torch.int32, torch.int64) and isinstance(value, Number)
        if kind is None or not (kind.is_floating_point or (is_whole and "pow" not in call.name)):
            raise NotPaddedError("clients of different sizes: their number has another type")
        return value.own.to(kind)

    args = tuple(counted(value) for value in args)
    if call.name in _IN_PLACE:
        return call(*args, **{name: counted(value) for name, value in kwargs.items()})
    found = call(*args, **{name: counted(value) for name, value in kwargs.items()})
    dims = [found.dim() - end for end in ends]
    if are_compared:
        return compared(padding, found, dims, list(ends.values()))
    return padding.mark(found, dims, list(ends.values())) if dims else found


def _ends(padding: Padding, given: Sequence[Any]) -> dict[int, Number]:
    """Where tensors that are broadcast have rows, from the last dimension on, and how many."""
    ends: dict[int, Number] = {}
    for tensor in given:
        for dim, number in zip(padding.dims(tensor), padding.numbers(tensor), strict=True):
            if ends.setdefault(tensor.dim() - dim, number).key != number.key:
                raise NotPaddedError("clients of different sizes: rows beside fewer rows")
    for tensor in given:
        own = {tensor.dim() - dim for dim in padding.dims(tensor)}
        for end in ends.keys() - own:
            if tensor.dim() >= end and tensor.shape[-end] != 1:
                raise NotPaddedError("clients of different sizes: rows beside something else")
    return ends


_IN_PLACE = frozenset(
    {
        f"{name}_"
        for name in _ELEMENTS
        if any(hasattr(owner, f"{name}_") for owner in (torch.Tensor, torch.nn.functional))
    }
    | {f"i{name}" for name in _ELEMENTS if hasattr(torch.Tensor, f"__i{name}__")}
    | {"copy_", "zero_", "fill_"}
)


@rule_for(*_IN_PLACE, is_of_several=True)
def _written(padding: Padding, call: Any, /, input: Any, *args: Any, **kwargs: Any) -> Any:
    """The same, written to a tensor that has all of these rows."""
    given = list(tensors_in((args, kwargs)))
    ends = _ends(padding, [input, *given])
    if ends.keys() - {input.dim() - dim for dim in padding.dims(input)}:
        raise NotPaddedError("clients of different sizes: rows are put into something else")
    return elements(padding, call, input, *args, **kwargs)


@rule_for("broadcast_tensors", is_of_several=True)
def _beside_each_other(padding: Padding, call: Any, /, *tensors: Any) -> Any:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    ends = _ends(padding, given)
    if all(len(padding.dims(tensor)) < len(ends) for tensor in given):
        raise NotPaddedError("clients of different sizes: rows beside others, or fewer")
    found = call(*tensors)
    for part in found:
        padding.mark(part, [part.dim() - end for end in ends], list(ends.values()))
    return found


def compared(
    padding: Padding, found: Any, dims: Sequence[int], numbers: Sequence[Number] | None = None
) -> Any:
    """What has been made of each pair of rows. Padding is a copy of a row, and a program may see to
    it that a row is beside itself in one place alone: so what stands for padding is made of two
    rows of the client's own, and has no gradient."""
    padding.expect_room(found)
    padding.mark(found, dims, numbers)
    first, *_, last = padding.dims(found)
    own = (padding.number_at(found, last).own - 1).clamp(min=0).reshape(1)
    one = found.detach().narrow(first, 0, 1).index_select(last, own)
    for dim in padding.dims(found)[1:-1]:
        one = one.narrow(dim, 0, 1)
    return padding.mark_as(torch.where(padding.mask(found), found, one), found)


# Rows that stay apart.


def apart(*names: str, only_first: bool = False, behind: int = 0) -> None:
    """Each row of the first argument gives one: no other argument has rows. `only_first`: rows are
    the first dimension. `behind`: at least so many dimensions stand behind it."""

    def rule(padding: Padding, call: Any, /, input: Any, *args: Any, **kwargs: Any) -> Any:
        dim = padding.dim(input)
        without_rows(padding, args, kwargs)
        if dim is None or (only_first and dim) or input.dim() - dim <= behind:
            raise NotPaddedError("clients of different sizes: rows are mixed")
        return padding.mark(call(input, *args, **kwargs), dim)

    rule_for(*names)(rule)


apart("linear", "embedding_bag", behind=1)
apart("embedding", "one_hot", "bucketize")
apart("adaptive_avg_pool2d", only_first=True, behind=3)
apart("conv3d", "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", only_first=True, behind=4)
apart("adaptive_max_pool2d", only_first=True, behind=3)
apart("group_norm", only_first=True, behind=2)


@rule_for("layer_norm")
def _layer_norm(
    padding: Padding, call: Any, /, input: Any, sizes: Any, *args: Any, **how: Any
) -> Any:
    without_rows(padding, sizes, args, how)
    dim = padding.dim(input)
    if dim is None or dim >= input.dim() - len(sizes):
        raise NotPaddedError("clients of different sizes: rows are normalised together")
    return padding.mark(call(input, sizes, *args, **how), dim)


# Rows that become one.


def dims_of(dim: Any, of: Any) -> list[int]:
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(of.dim()))
    return [positive(each, of) for each in (dim if isinstance(dim, (tuple, list)) else [dim])]


def reduced(padding: Padding, found: Any, input: Any, dims: list[int], keepdim: bool) -> Any:
    """What is left of a tensor without some dimensions, marked."""
    rows = [row for row in padding.dims(input) if row not in dims]
    if not rows:
        return found
    numbers = [padding.number_at(input, row) for row in rows]
    left = rows if keepdim else [row - sum(dim < row for dim in dims) for row in rows]
    return padding.mark(found, left, numbers)


def as_first(padding: Padding, found: Any) -> Any:
    """A tensor whose padding is as its first row, and has no gradient: what was made of rows that
    were compared, or put somewhere, may not be as finite as what was made of a client's own."""
    made = found
    for row in padding.dims(found):
        made = torch.where(padding.mask(found, [row]), made, made.narrow(row, 0, 1).detach())
    return made if made is found else padding.mark_as(made, found)


def written_as_first(padding: Padding, written: Any) -> Any:
    """The same of what was written in place."""
    made = as_first(padding, written)
    return written if made is written else written.copy_(made)


def as_first_if_compared(padding: Padding, found: Any, input: Any) -> Any:
    """The same of what is left of a tensor that has rows in several dimensions."""
    is_left = len(padding.dims(found)) and len(padding.dims(found)) < len(padding.dims(input))
    return as_first(padding, found) if is_left else found


def are_rows(padding: Padding, input: Any, dims: Sequence[int]) -> bool:
    """Whether some of the dimensions are those of rows."""
    return not set(padding.dims(input)).isdisjoint(dims)


def _reduction(fill: Callable[[torch.dtype], Any], *names: str, is_of_some: bool = False) -> None:
    """`is_of_some`: over nothing PyTorch raises."""

    def rule(
        padding: Padding,
        call: Any,
        /,
        input: Any,
        dim: Any = None,
        keepdim: bool = False,
        **how: Any,
    ) -> Any:
        without_rows(padding, dim, how)
        if dim is not None:
            how = {"dim": dim, "keepdim": keepdim, **how}
        dims = dims_of(dim, input)
        if is_of_some and are_rows(padding, input, dims):
            padding.has_some(input)
        given = padding.only(input, fill(input.dtype), dims)
        found = reduced(padding, call(given, **how), input, dims, keepdim)
        return as_first_if_compared(padding, found, input)

    rule_for(*names, is_of_several=True)(rule)


def least(kind: torch.dtype) -> Any:
    if kind.is_floating_point:
        return -math.inf
    return False if kind == torch.bool else torch.iinfo(kind).min


def greatest(kind: torch.dtype) -> Any:
    if kind.is_floating_point:
        return math.inf
    return True if kind == torch.bool else torch.iinfo(kind).max


_reduction(lambda kind: 0, "sum", "any", "nansum")
_reduction(lambda kind: 1, "all")
_reduction(least, "logsumexp")
_reduction(least, "amax", is_of_some=True)
_reduction(greatest, "amin", is_of_some=True)


@rule_for("prod", is_of_several=True)
def _prod(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False, **how: Any
) -> Any:
    dims = dims_of(dim, input)
    given = padding.only(input, 1, dims)
    found = call(given, **how) if dim is None else call(given, dim, keepdim, **how)
    return reduced(padding, found, input, dims, keepdim)


@rule_for("mean", is_of_several=True)
def _mean(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False, **how: Any
) -> Any:
    dims = dims_of(dim, input)
    if not are_rows(padding, input, dims):
        found = call(input, dim=dim, keepdim=keepdim, **how)
        return reduced(padding, found, input, dims, keepdim)
    if (kind := how.pop("dtype", None)) is not None:
        input = padding.mark_as(input.to(kind, copy=True), input)
    if not (input.dtype.is_floating_point or input.dtype.is_complex) or how:
        raise NotPaddedError("clients of different sizes: a mean with another element type")
    kind = input.dtype
    if kind in (torch.float16, torch.bfloat16):
        # PyTorch rounds once.
        input = padding.mark_as(input.float(), input)
    found = (total(padding, input, dims, keepdim) / many(padding, input, dims)).to(kind)
    found = reduced(padding, found, input, dims, keepdim)
    return as_first_if_compared(padding, found, input)


def total(padding: Padding, input: Any, dims: list[int], keepdim: bool) -> Any:
    return padding.only(input, 0, dims).sum(dims, keepdim=keepdim)


def many(padding: Padding, input: Any, dims: list[int]) -> Any:
    """How many numbers of a client are in some dimensions, rows among them."""
    rows = padding.dims(input)
    others = [input.shape[dim] for dim in dims if dim not in rows]
    own = [padding.number_at(input, dim).own for dim in dims if dim in rows]
    return math.prod(own, start=math.prod(others)).to(input.dtype)


def _variance(
    padding: Padding, input: Any, dim: Any, unbiased: bool, keepdim: bool, correction: Any
) -> Any:
    correction = int(unbiased) if correction is None else correction
    if isinstance(dim, bool) or type(correction) not in (int, float):
        raise NotPaddedError("clients of different sizes: a variance in another form")
    dims = dims_of(dim, input)
    if not are_rows(padding, input, dims):
        found = input.var(dims, correction=correction, keepdim=keepdim)
        return reduced(padding, found, input, dims, keepdim)
    count = many(padding, input, dims)
    off = padding.only(input, 0, dims) - total(padding, input, dims, True) / count
    padding.mark_as(off, input)
    off = padding.only(off, 0, dims)
    found = (off * off).sum(dims, keepdim=keepdim) / (count - correction).clamp(min=0)
    return reduced(padding, found, input, dims, keepdim)


@rule_for("var", "std", is_of_several=True)
def _spread(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    found = _variance(padding, input, dim, unbiased, keepdim, correction)
    if call.name == "var":
        return found
    # Its gradient at zero is zero, as PyTorch has it.
    root = torch.where(found == 0, 0, torch.where(found == 0, 1, found).sqrt())
    return padding.mark_as(root, found) if padding.dims(found) else root


@rule_for("max", "min", is_of_several=True)
def _extreme(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False
) -> Any:
    if isinstance(dim, torch.Tensor):
        return elements(padding, call, input, dim)
    is_max = "max" in call.name
    dims = dims_of(dim, input)
    if are_rows(padding, input, dims):
        padding.has_some(input)
    given = padding.only(input, (least if is_max else greatest)(input.dtype), dims)
    if dim is None:
        return call(given)
    found = call(given, dim, keepdim)
    for part in found:
        reduced(padding, part, input, dims, keepdim)
    return found
