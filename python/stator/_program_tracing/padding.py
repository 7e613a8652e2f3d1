"""Running a program at once for clients that have different numbers of rows.

Each client's rows are padded up to as many as any has: by its first row, so that what is computed
of the padding is as finite as the client's own. Operations keep rows apart, or have a rule here
for leaving the padding out; an operation without a rule leaves the program as it is (`NotPadded`).
What has no dimension of rows depends on a client's own rows alone, and so do gradients: padding
reaches it by nothing but `torch.where` with the mask, whose gradient for padding is zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import resolve_name
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["NotPaddedError", "Padding", "Rows", "counted", "padded", "tensors_in"]


class NotPaddedError(Exception):
    """Clients with other numbers of rows can't run together; the text says why."""


def padded(columns: Sequence[Any], lengths: Sequence[int]) -> list[torch.Tensor]:
    """The inputs of clients in one tensor each, with a first dimension of clients. What is a list
    has a tensor for each client: rows, as many as `lengths` says."""
    counts = torch.tensor(lengths)
    rows = torch.arange(max(lengths))
    places = torch.where(rows < counts.unsqueeze(1), rows, 0)
    places = places + (counts.cumsum(0) - counts).unsqueeze(1)
    return [torch.cat(column)[places] if isinstance(column, list) else column for column in columns]


_REQUIRED = re.compile(r"require (?:%\d+\.size\(0\) ==|0 <) %\d+\.size\(0\)")
_FLOAT = re.compile(r"(%\d+) = builtins\.float\(%\d+\)")
_NAME = re.compile(r"%\d+")


def counted(text: str) -> set[int] | None:
    """Which results of a program are the number of rows as a `float`. `None`: it decides by that
    number, or computes with such a `float`."""
    lines = text.splitlines()
    names = {found[1] for line in lines if (found := _FLOAT.fullmatch(line))}
    results: list[str] = []
    for line in lines:
        if line.startswith("require "):
            if not _REQUIRED.fullmatch(line):
                return None
        elif line.startswith("return "):
            results = [found[0] for found in re.finditer(r"%\d+(?=: )", line)]
        elif names and names & set(_NAME.findall(line.partition(" = ")[2])):
            return None
    return {at for at, name in enumerate(results) if name in names}


def _refuse(*_: Any) -> Any:
    raise NotPaddedError("it computes with the number of rows")


class Rows(int):
    """The number of rows, where a program reads it: each client has its own."""

    def __float__(self) -> float:
        # Such a number is a result of the program's, and nothing else (`counted`).
        return float(int.__index__(self))

    __hash__ = int.__hash__


for _name in (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow", "rlshift"),
    *("rrshift", "and", "or", "xor", "rand", "ror", "rxor", "lt", "le", "gt", "ge", "eq", "ne"),
    *("neg", "pos", "abs", "invert", "int", "round", "trunc", "floor", "ceil", "bool"),
):
    setattr(Rows, f"__{_name}__", _refuse)

_Inner = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class _Call:
    """An operation, called as its rule says."""

    def __init__(self, func: Any, inner: _Inner) -> None:
        self.func = func
        self.name = _name_of(func)
        self._inner = inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner(self.func, args, kwargs)


class Padding:
    """Which tensors of a run have a dimension of padded rows."""

    def __init__(self, count: torch.Tensor, rows: int, inputs: Sequence[torch.Tensor]) -> None:
        """count: how many rows a client has; rows: how many with the padding; inputs: those that
        have rows, in their first dimension."""
        self.count = count
        self.rows = rows
        self._mask = torch.arange(rows) < count
        self._dims: Any = WeakIdKeyDictionary()
        for tensor in inputs:
            self.mark(tensor, 0)

    def mark(self, tensor: Any, dim: int) -> Any:
        """A tensor has rows in a dimension."""
        if tensor.shape[dim] != self.rows:
            raise NotPaddedError("rows are somewhere else than expected")
        self._dims[tensor] = dim
        return tensor

    def dim(self, value: Any) -> int | None:
        """Where a tensor has rows."""
        found: int | None = self._dims.get(value) if isinstance(value, torch.Tensor) else None
        return found

    def only(self, tensor: Any, otherwise: Any) -> Any:
        """A tensor with a number in the place of padding."""
        dim = self.dim(tensor)
        if dim is None:
            return tensor
        return torch.where(
            self.mask(tensor, dim), tensor, torch.full((), otherwise, dtype=tensor.dtype)
        )

    def mask(self, tensor: Any, dim: int) -> Any:
        """Which rows of a tensor are a client's own, for a tensor with rows in a dimension."""
        return self._mask.reshape([-1, *[1] * (tensor.dim() - dim - 1)])

    def is_met(self, value: Any) -> bool:
        """Whether something in containers has rows, or is their number."""
        if isinstance(value, (tuple, list)):
            return any(self.is_met(part) for part in value)
        if isinstance(value, dict):
            return any(self.is_met(part) for part in value.values())
        return isinstance(value, Rows) or self.dim(value) is not None

    def called(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inner: _Inner
    ) -> Any:
        """What an operation gives, by its rule where rows are given."""
        if not self.is_met(args) and not self.is_met(kwargs):
            return inner(func, args, kwargs)
        name = _name_of(func)
        rule = _RULES.get(name)
        if rule is None or kwargs.get("out") is not None:
            raise NotPaddedError(f"clients of different sizes: there is no rule for {name}")
        return rule(self, _Call(func, inner), *args, **kwargs)


def _name_of(func: Any) -> str:
    """What an operation is called, whether it is a function, a method or an operator."""
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") == "__get__" and owner is not None:
        return str(owner.__name__)
    name: str = (resolve_name(func) or getattr(func, "__name__", "")).rpartition(".")[2]
    return name.strip("_") if name.startswith("__") else name


_RULES: dict[str, Callable[..., Any]] = {}


def rule_for(*names: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        for name in names:
            _RULES[name] = function
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


@rule_for(
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
    *("xlogy", "hypot", "logit", "positive", "requires_grad_", "zeros_like", "ones_like"),
    "full_like",
    # Where a program draws nothing, these do nothing.
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"),
)
def _elements(padding: Padding, call: Any, /, *args: Any, **kwargs: Any) -> Any:
    """An element of the result is made of one of each tensor, which are broadcast."""
    given = list(tensors_in((args, kwargs)))
    ends = {tensor.dim() - dim for tensor in given if (dim := padding.dim(tensor)) is not None}
    kind = next((tensor.dtype for tensor in given), None)
    if len(ends) > 1 or kind is None:
        raise NotPaddedError("clients of different sizes: rows beside rows in another dimension")
    for tensor in given:
        for end in ends:
            if padding.dim(tensor) is None and tensor.dim() >= end and tensor.shape[-end] != 1:
                raise NotPaddedError("clients of different sizes: rows beside something else")

    def counted(value: Any) -> Any:
        if not isinstance(value, Rows):
            return value
        if kind == torch.bool or len(given) != 1 or not kind.is_floating_point:
            raise NotPaddedError("clients of different sizes: their number has another type")
        return padding.count.to(kind)

    args = tuple(counted(value) for value in args)
    found = call(*args, **{name: counted(value) for name, value in kwargs.items()})
    for end in ends:
        padding.mark(found, found.dim() - end)
    return found


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


apart("linear", behind=1)
apart("embedding", "one_hot", "bucketize")
apart("conv1d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", only_first=True, behind=2)
apart("conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", only_first=True, behind=3)
apart("conv3d", "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", only_first=True, behind=4)
apart("adaptive_max_pool1d", only_first=True, behind=2)
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


@rule_for("softmax", "log_softmax", "cumsum", "flip")
def _along(padding: Padding, call: Any, /, input: Any, dim: Any, *args: Any, **kwargs: Any) -> Any:
    """Something is done along one dimension, and sizes stay."""
    without_rows(padding, dim, args, kwargs)
    rows = padding.dim(input)
    dims = [positive(each, input) for each in (dim if isinstance(dim, (tuple, list)) else [dim])]
    if rows is None or rows in dims:
        raise NotPaddedError("clients of different sizes: something is done along rows")
    return padding.mark(call(input, dim, *args, **kwargs), rows)


# Products.


@rule_for("matmul", "rmatmul", "mm", "mv", "bmm", "dot")
def _matmul(padding: Padding, call: Any, /, left: Any, right: Any) -> Any:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        a, b = padding.dim(left), padding.dim(right)
        inner = left.dim() - 1, max(right.dim() - 2, 0)
        if a == inner[0] and b == inner[1]:
            # Rows are summed up.
            return call(padding.only(left, 0), padding.only(right, 0))
        if b is None and a is not None and a != inner[0] and right.dim() <= 2:
            return padding.mark(call(left, right), a)
        if a is None and b is not None and b == right.dim() - 1 and b and left.dim() <= 2:
            found = call(left, right)
            return padding.mark(found, found.dim() - 1)
        if a == b == 0 and left.dim() == right.dim() >= 3:
            return padding.mark(call(left, right), 0)
    raise NotPaddedError("clients of different sizes: a product of rows with rows")


# Rows that become one.


def dims_of(dim: Any, of: Any) -> list[int]:
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(of.dim()))
    return [positive(each, of) for each in (dim if isinstance(dim, (tuple, list)) else [dim])]


def reduced(padding: Padding, found: Any, input: Any, dims: list[int], keepdim: bool) -> Any:
    """What is left of a tensor without some dimensions, marked."""
    rows = padding.dim(input)
    if rows is None or rows in dims:
        return found
    return padding.mark(found, rows if keepdim else rows - sum(dim < rows for dim in dims))


def _reduction(fill: Callable[[torch.dtype], Any], *names: str) -> None:
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
        given = padding.only(input, fill(input.dtype)) if padding.dim(input) in dims else input
        return reduced(padding, call(given, **how), input, dims, keepdim)

    rule_for(*names)(rule)


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
_reduction(least, "amax", "logsumexp")
_reduction(greatest, "amin")


@rule_for("prod")
def _prod(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False, **how: Any
) -> Any:
    dims = dims_of(dim, input)
    given = padding.only(input, 1) if padding.dim(input) in dims else input
    found = call(given, **how) if dim is None else call(given, dim, keepdim, **how)
    return reduced(padding, found, input, dims, keepdim)


@rule_for("mean")
def _mean(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False, **how: Any
) -> Any:
    dims = dims_of(dim, input)
    if padding.dim(input) not in dims:
        found = call(input, dim=dim, keepdim=keepdim, **how)
        return reduced(padding, found, input, dims, keepdim)
    if (kind := how.pop("dtype", None)) is not None:
        input = padding.mark(input.to(kind, copy=True), padding.dim(input) or 0)
    if not input.dtype.is_floating_point or how:
        raise NotPaddedError("clients of different sizes: a mean with another element type")
    return _total(padding, input, dims, keepdim) / _many(padding, input, dims)


def _total(padding: Padding, input: Any, dims: list[int], keepdim: bool) -> Any:
    return padding.only(input, 0).sum(dims, keepdim=keepdim)


def _many(padding: Padding, input: Any, dims: list[int]) -> Any:
    """How many numbers of a client are in some dimensions, rows among them."""
    others = [input.shape[dim] for dim in dims if dim != padding.dim(input)]
    return (padding.count * math.prod(others)).to(input.dtype)


def _variance(
    padding: Padding, input: Any, dim: Any, unbiased: bool, keepdim: bool, correction: Any
) -> Any:
    correction = int(unbiased) if correction is None else correction
    if isinstance(dim, bool) or type(correction) not in (int, float):
        raise NotPaddedError("clients of different sizes: a variance in another form")
    dims = dims_of(dim, input)
    if padding.dim(input) not in dims:
        found = input.var(dims, correction=correction, keepdim=keepdim)
        return reduced(padding, found, input, dims, keepdim)
    many = _many(padding, input, dims)
    off = padding.only(input, 0) - _total(padding, input, dims, True) / many
    padding.mark(off, padding.dim(input) or 0)
    off = padding.only(off, 0)
    return (off * off).sum(dims, keepdim=keepdim) / (many - correction).clamp(min=0)


@rule_for("var", "std")
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
    rows = padding.dim(found)
    return root if rows is None else padding.mark(root, rows)


@rule_for("max", "min")
def _extreme(
    padding: Padding, call: Any, /, input: Any, dim: Any = None, keepdim: bool = False
) -> Any:
    if isinstance(dim, torch.Tensor):
        return _elements(padding, call, input, dim)
    is_max = "max" in call.name
    dims = dims_of(dim, input)
    given = input
    if padding.dim(input) in dims:
        given = padding.only(input, (least if is_max else greatest)(input.dtype))
    if dim is None:
        return call(given)
    found = call(given, dim, keepdim)
    for part in found:
        reduced(padding, part, input, dims, keepdim)
    return found


# Losses.


def _loss(padding: Padding, losses: Any, how: str, many: Callable[[], Any] | None = None) -> Any:
    """What is made of each row's losses; `many`: what the mean divides by."""
    if how == "none":
        return losses
    dims = list(range(losses.dim()))
    total = _total(padding, losses, dims, False)
    if how == "sum":
        return total
    if how != "mean":
        raise NotPaddedError("clients of different sizes: a loss that is reduced in another way")
    return total / (_many(padding, losses, dims) if many is None else many())


@rule_for(
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
    *("binary_cross_entropy_with_logits", "soft_margin_loss"),
)
def _difference(
    padding: Padding, call: Any, /, input: Any, target: Any, *args: Any, **how: Any
) -> Any:
    reduction = how.pop("reduction", "mean")
    without_rows(padding, args, how)
    dim = padding.dim(input)
    if args or dim != padding.dim(target) or dim is None or input.shape != target.shape:
        raise NotPaddedError("clients of different sizes: a loss of rows and something else")
    if any(isinstance(value, torch.Tensor) for value in how.values()):
        raise NotPaddedError("clients of different sizes: a loss with weights")
    losses = padding.mark(call(input, target, reduction="none", **how), dim)
    return _loss(padding, losses, reduction)


@rule_for("cross_entropy", "nll_loss")
def _classes(
    padding: Padding, call: Any, /, input: Any, target: Any, *args: Any, **how: Any
) -> Any:
    reduction, ignored = how.pop("reduction", "mean"), how.get("ignore_index", -100)
    if args or padding.dim(input) != 0 or padding.dim(target) != 0 or input.dim() < 2:
        raise NotPaddedError("clients of different sizes: a loss of rows and something else")
    if any(isinstance(value, torch.Tensor) for value in how.values()):
        raise NotPaddedError("clients of different sizes: a loss with weights")
    losses = padding.mark(call(input, target, reduction="none", **how), 0)
    if target.dtype.is_floating_point:
        return _loss(padding, losses, reduction)

    def many() -> Any:
        counts = padding.mark(target != ignored, 0)
        return padding.only(counts, False).sum().to(input.dtype)

    return _loss(padding, losses, reduction, many)


# Gradients.


@rule_for("grad")
def _grad(padding: Padding, call: Any, /, outputs: Any, inputs: Any, *args: Any, **how: Any) -> Any:
    without_rows(padding, outputs, args, how)
    found = call(outputs, inputs, *args, **how)
    given = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    for gradient, tensor in zip(found, given, strict=True):
        dim = padding.dim(tensor)
        if gradient is not None and dim is not None:
            padding.mark(gradient, dim)
    return found


# Sizes and shapes.


@rule_for("size", "shape")
def _size(padding: Padding, call: Any, /, input: Any, dim: Any = None) -> Any:
    sizes = [
        Rows(size) if at == padding.dim(input) else size for at, size in enumerate(input.shape)
    ]
    return tuple(sizes) if dim is None else sizes[dim]


@rule_for("zeros", "ones", "empty", "full")
def _made(padding: Padding, call: Any, /, size: Any, *args: Any, **how: Any) -> Any:
    is_full = not isinstance(size, (tuple, list))
    sizes = (size, *args) if is_full else size
    at = [at for at, each in enumerate(sizes) if isinstance(each, Rows)]
    without_rows(padding, how, () if is_full else args)
    if len(at) != 1:
        raise NotPaddedError("clients of different sizes: a tensor with rows in two dimensions")
    found = call(size, *args, **how)
    return padding.mark(found, at[0])


@rule_for("arange")
def _arange(padding: Padding, call: Any, /, end: Any, **how: Any) -> Any:
    without_rows(padding, how)
    return padding.mark(call(end, **how), 0)


@rule_for("reshape", "view")
def _reshape(padding: Padding, call: Any, /, input: Any, *shape: Any) -> Any:
    """Rows stay the first dimension."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    without_rows(padding, *sizes[1:])
    if any(type(size) is not int for size in sizes[1:]):
        raise NotPaddedError("clients of different sizes: rows are reshaped")
    rest = math.prod(input.shape[1:])
    others = math.prod(sizes[1:])
    if padding.dim(input) != 0 or not sizes or isinstance(sizes[0], torch.dtype) or not rest:
        raise NotPaddedError("clients of different sizes: rows are reshaped")
    if isinstance(sizes[0], Rows):
        # One of the others may be what is left.
        is_kept = others == rest or sizes[1:].count(-1) == 1
    else:
        is_kept = sizes[0] == -1 and others == rest
    if not is_kept:
        raise NotPaddedError("clients of different sizes: rows are reshaped")
    return padding.mark(call(input, *shape), 0)


@rule_for("flatten")
def _flatten(
    padding: Padding, call: Any, /, input: Any, start_dim: int = 0, end_dim: int = -1
) -> Any:
    dim, start = padding.dim(input), positive(start_dim, input)
    if dim is None or dim >= start:
        raise NotPaddedError("clients of different sizes: rows are reshaped")
    return padding.mark(call(input, start_dim, end_dim), dim)


@rule_for("unsqueeze")
def _unsqueeze(padding: Padding, call: Any, /, input: Any, dim: int) -> Any:
    rows, at = padding.dim(input) or 0, dim + input.dim() + 1 if dim < 0 else dim
    return padding.mark(call(input, dim), rows + (at <= rows))


@rule_for("squeeze")
def _squeeze(padding: Padding, call: Any, /, input: Any, dim: int) -> Any:
    at, rows = positive(dim, input), padding.dim(input) or 0
    if at == rows:
        raise NotPaddedError("clients of different sizes: rows are reshaped")
    found = call(input, dim)
    return padding.mark(found, rows - (found.dim() < input.dim() and at < rows))


@rule_for("transpose", "swapaxes", "swapdims")
def _transpose(padding: Padding, call: Any, /, input: Any, dim0: int, dim1: int) -> Any:
    order = list(range(input.dim()))
    a, b = positive(dim0, input), positive(dim1, input)
    order[a], order[b] = b, a
    return padding.mark(call(input, dim0, dim1), order.index(padding.dim(input) or 0))


@rule_for("permute")
def _permute(padding: Padding, call: Any, /, input: Any, *dims: Any) -> Any:
    order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    order = [positive(dim, input) for dim in order]
    return padding.mark(call(input, *dims), order.index(padding.dim(input) or 0))


@rule_for("T", "t", "mT", "H", "mH")
def _turned(padding: Padding, call: Any, /, input: Any) -> Any:
    if input.dim() != 2:
        raise NotPaddedError("clients of different sizes: rows are reshaped")
    return padding.mark(call(input), 1 - (padding.dim(input) or 0))


@rule_for("getitem")
def _item(padding: Padding, call: Any, /, input: Any, key: Any) -> Any:
    """Numbers, slices and new dimensions, with all rows; places that rows say."""
    if isinstance(key, torch.Tensor) and key.dtype != torch.bool and padding.dim(input) is None:
        return padding.mark(call(input, key), padding.dim(key) or 0)
    without_rows(padding, key)
    rows = padding.dim(input)
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [each for each in keys if not isinstance(each, torch.Tensor)]:
        at = keys.index(Ellipsis)
        used = sum(each is not None and each is not Ellipsis for each in keys)
        keys[at : at + 1] = [slice(None)] * (input.dim() - used)
    dim, place = 0, 0
    for each in keys:
        if each is None:
            place += 1
        elif isinstance(each, slice):
            if dim == rows:
                if each != slice(None):
                    break
                return padding.mark(call(input, key), place)
            dim, place = dim + 1, place + 1
        elif type(each) is int and (dim != rows or not each):
            # All clients have a first row.
            if dim == rows and len(keys) == 1:
                return call(input, key)
            if dim == rows:
                break
            dim += 1
        else:
            break
    else:
        if rows is not None and rows >= dim:
            return padding.mark(call(input, key), place + rows - dim)
    raise NotPaddedError("clients of different sizes: some rows are taken")


@rule_for("select")
def _select(padding: Padding, call: Any, /, input: Any, dim: int, index: Any) -> Any:
    at, rows = positive(dim, input), padding.dim(input)
    without_rows(padding, index)
    if rows is None or at == rows:
        raise NotPaddedError("clients of different sizes: some rows are taken")
    return padding.mark(call(input, dim, index), rows - (at < rows))


@rule_for("cat", "concat", "stack")
def _joined(padding: Padding, call: Any, /, tensors: Any, dim: int = 0) -> Any:
    dims = {padding.dim(tensor) for tensor in tensors}
    if len(dims) != 1:
        raise NotPaddedError("clients of different sizes: rows are joined with something else")
    rows = dims.pop()
    found = call(tensors, dim)
    at = positive(dim, found)
    is_new = found.dim() > tensors[0].dim()
    if rows is None or (at == rows and not is_new):
        raise NotPaddedError("clients of different sizes: rows are joined")
    return padding.mark(found, rows + (is_new and at <= rows))


# Sums by place.


@rule_for("index_add", "index_add_", "scatter_add", "scatter_add_")
def _added(
    padding: Padding, call: Any, /, input: Any, dim: int, index: Any, source: Any, **how: Any
) -> Any:
    without_rows(padding, input, how)
    rows = padding.dim(source)
    if rows is None or padding.dim(index) != (0 if index.dim() == 1 else rows):
        raise NotPaddedError("clients of different sizes: rows are added to something else")
    if index.dim() == 1 and rows != positive(dim, input):
        raise NotPaddedError("clients of different sizes: rows are added to something else")
    return call(input, dim, index, padding.only(source, 0), **how)


# Attention within each row.


@rule_for("scaled_dot_product_attention")
def _attention(
    padding: Padding, call: Any, /, query: Any, key: Any, value: Any, *args: Any, **how: Any
) -> Any:
    without_rows(padding, args, how)
    if {padding.dim(each) for each in (query, key, value)} != {0} or query.dim() < 3:
        raise NotPaddedError("clients of different sizes: attention among rows")
    return padding.mark(call(query, key, value, *args, **how), 0)


@rule_for("multi_head_attention_forward")
def _heads(
    padding: Padding, call: Any, /, query: Any, key: Any, value: Any, *args: Any, **how: Any
) -> Any:
    hidden = how.pop("key_padding_mask", None)
    without_rows(padding, args, how)
    is_apart = {padding.dim(each) for each in (query, key, value)} == {1} and query.dim() == 3
    if not is_apart or (hidden is not None and padding.dim(hidden) != 0):
        raise NotPaddedError("clients of different sizes: attention among rows")
    found, weights = call(query, key, value, *args, key_padding_mask=hidden, **how)
    return padding.mark(found, 1), weights if weights is None else padding.mark(weights, 0)


# Recurrent networks: rows are independent sequences.


@rule_for("gru", "rnn_tanh", "rnn_relu", "lstm")
def _recurrent(
    padding: Padding, call: Any, /, input: Any, hx: Any, params: Any, biases: Any, *args: Any
) -> Any:
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    if len(args) != 5 or padding.is_met(params) or {padding.dim(each) for each in states} != {1}:
        raise NotPaddedError("clients of different sizes: steps of a recurrent network")
    rows = 0 if args[-1] else 1
    if padding.dim(input) != rows:
        raise NotPaddedError("clients of different sizes: steps of a recurrent network")
    output, *ends = call(input, hx, params, biases, *args)
    return padding.mark(output, rows), *(padding.mark(end, 1) for end in ends)
