"""Rules for padded rows (`padding.py`): products, losses, layers of networks, gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch

from stator._program_tracing.padding import (
    Padding,
    apart,
    compared,
    elements,
    is_tensor,
    many,
    positive,
    rule_for,
    total,
    without_rows,
)
from stator._program_tracing.padding_numbers import NotPaddedError, Number

__all__ = ["Padding"]

# Products.


@rule_for("matmul", "rmatmul", "mm", "mv", "bmm", "dot", is_of_several=True)
def _matmul(padding: Padding, call: Any, /, left: Any, right: Any) -> Any:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        if left.dim() <= 2 and right.dim() <= 2:
            return _of_matrices(padding, call, left, right)
        a, b = padding.dim(left), padding.dim(right)
        inner = left.dim() - 1, max(right.dim() - 2, 0)
        if a is not None and b is not None:
            _expect_same_number(padding.number(left), padding.number(right))
        if a == inner[0] and b == inner[1]:
            # Rows are summed up.
            return call(padding.only(left, 0), padding.only(right, 0))
        if b is None and a is not None and a != inner[0] and right.dim() <= 2:
            return padding.mark_as(call(left, right), left)
        if a == b == 0 and left.dim() == right.dim() >= 3:
            return padding.mark_as(call(left, right), left)
        if a is None and b == 0 and right.dim() >= 3 and left.dim() <= 2:
            return padding.mark_as(call(left, right), right)
    raise NotPaddedError("clients of different sizes: a product of rows with rows")


def _of_matrices(padding: Padding, call: Any, left: Any, right: Any) -> Any:
    """A product of matrices and vectors."""
    a, b = padding.dims(left), padding.dims(right)
    inner = left.dim() - 1, max(right.dim() - 2, 0)
    if (inner[0] in a) != (inner[1] in b):
        raise NotPaddedError("clients of different sizes: a product of rows with others")
    if inner[0] in a:
        _expect_same_number(padding.number_at(left, inner[0]), padding.number_at(right, inner[1]))
    # Rows may be summed up.
    found = call(padding.only(left, 0, inner[:1]), padding.only(right, 0, inner[1:]))
    dims, numbers = [], []
    if left.dim() == 2 and 0 in a:
        dims, numbers = [0], [padding.number_at(left, 0)]
    if right.dim() == 2 and 1 in b:
        dims, numbers = [*dims, found.dim() - 1], [*numbers, padding.number_at(right, 1)]
    if len(dims) > 1:
        return compared(padding, found, dims, numbers)
    return padding.mark(found, dims, numbers) if dims else found


def _expect_same_number(one: Number, other: Number) -> None:
    if one.key != other.key:
        raise NotPaddedError("clients of different sizes: rows beside fewer rows")


@rule_for("addmv", "addmm", "baddbmm", is_of_several=True)
def _added_product(
    padding: Padding, call: Any, /, input: Any, left: Any, right: Any, **how: Any
) -> Any:
    beta, alpha = how.pop("beta", 1), how.pop("alpha", 1)
    without_rows(padding, beta, alpha, how)
    product = _matmul(padding, torch.matmul, left, right)
    if not padding.is_met(product) and not padding.is_met(input):
        return product * alpha + input * beta
    scaled = product * alpha
    if padding.dims(product):
        padding.mark_as(scaled, product)
    own = input * beta
    if padding.dims(input):
        padding.mark_as(own, input)
    return elements(padding, _Sum, own, scaled)


class _Sum:
    """The operation, as its rule is given it."""

    name = "add"

    def __new__(cls, *args: Any) -> Any:
        return torch.add(*args)


@rule_for("outer", "ger", is_of_several=True)
def _outer(padding: Padding, call: Any, /, left: Any, right: Any) -> Any:
    a, b = padding.dim(left), padding.dim(right)
    found = call(left, right)
    if a is not None and b is not None:
        return compared(padding, found, [0, 1], [padding.number(left), padding.number(right)])
    return padding.mark_as(found, left, [0]) if b is None else padding.mark_as(found, right, [1])


_OPERANDS = re.compile(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)(?:->([a-zA-Z]*))?")


@rule_for("einsum", is_of_several=True)
def _einsum(padding: Padding, call: Any, /, equation: Any, *operands: Any) -> Any:
    given = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    )
    written = isinstance(equation, str) and _OPERANDS.fullmatch(equation.replace(" ", ""))
    if not written:
        raise NotPaddedError("clients of different sizes: a product in another form")
    parts, result = written[1].split(","), written[2]
    if result is None:
        letters = sorted(written[1].replace(",", ""))
        result = "".join(letter for letter in letters if letters.count(letter) == 1)
    rows: dict[str, Number] = {}
    for part, operand in zip(parts, given, strict=True):
        for dim, number in zip(padding.dims(operand), padding.numbers(operand), strict=True):
            _expect_same_number(rows.setdefault(part[dim], number), number)
    for part, operand in zip(parts, given, strict=True):
        if {dim for dim, letter in enumerate(part) if letter in rows} != {*padding.dims(operand)}:
            raise NotPaddedError("clients of different sizes: a product of rows with others")
        if any(part.count(letter) > 1 for letter in rows):
            raise NotPaddedError("clients of different sizes: a product of rows with others")
    summed = [letter for letter in rows if letter not in result]
    found = call(
        equation,
        *(
            padding.only(operand, 0, [dim for dim, each in enumerate(part) if each in summed])
            for part, operand in zip(parts, given, strict=True)
        ),
    )
    dims = [result.index(letter) for letter in rows if letter in result]
    numbers = [rows[letter] for letter in rows if letter in result]
    if len(dims) > 1 and all(len(padding.dims(operand)) < len(dims) for operand in given):
        return compared(padding, found, dims, numbers)
    return padding.mark(found, dims, numbers) if dims else found


apart("pinv", "matrix_exp", behind=2)


@rule_for("inv", "inverse", "det", "logdet", "slogdet", "cholesky")
def _of_matrix(padding: Padding, call: Any, /, matrix: Any, **how: Any) -> Any:
    """Of each row's matrix, or of one that rows make with rows."""
    without_rows(padding, how)
    rows = padding.dims(matrix)
    if rows != (0, 1) or matrix.dim() != 2:
        if len(rows) != 1 or matrix.dim() - rows[0] <= 2:
            raise NotPaddedError("clients of different sizes: rows are mixed")
        found = call(matrix, **how)
        for part in found if isinstance(found, tuple) else [found]:
            padding.mark(part, rows)
        return found
    found = call(_with_identity(padding, matrix), **how)
    return found if call.name.endswith("det") else padding.mark(found, rows)


def _with_identity(padding: Padding, matrix: Any) -> Any:
    """A matrix that rows make with rows, in which padding is beside itself alone: so a client's own
    rows have in its inverse what they have without."""
    identity = torch.eye(padding.rows, dtype=matrix.dtype)
    return torch.where(padding.mask(matrix), matrix, identity)


@rule_for("tril", "triu", is_of_several=True)
def _triangle(padding: Padding, call: Any, /, input: Any, diagonal: Any = 0) -> Any:
    without_rows(padding, diagonal)
    rows = padding.dims(input)
    matrix = {input.dim() - 2, input.dim() - 1}
    if {*rows} != matrix and not matrix.isdisjoint(rows):
        raise NotPaddedError("clients of different sizes: rows are mixed")
    return padding.mark_as(call(input, diagonal), input)


@rule_for("diagonal", "diag", "trace")
def _diagonal(padding: Padding, call: Any, /, input: Any, *args: Any, **how: Any) -> Any:
    """What rows make with themselves; or a matrix that has nothing else."""
    if call.name == "diag" and padding.dims(input) == (0,) and input.dim() == 1 and not args:
        return padding.mark(call(input, **how), (0, 1))
    if padding.dims(input) != (0, 1) or input.dim() != 2 or args or how:
        raise NotPaddedError("clients of different sizes: a diagonal in another form")
    if call.name == "trace":
        return padding.only(input, 0).trace()
    return padding.mark(call(input), 0)


@rule_for("fill_diagonal_")
def _filled_diagonal(padding: Padding, call: Any, /, input: Any, value: Any) -> Any:
    """The same, written."""
    without_rows(padding, value)
    if padding.dims(input) != (0, 1) or input.dim() != 2:
        raise NotPaddedError("clients of different sizes: a diagonal in another form")
    call(input, value)
    return input


@rule_for("solve_triangular", "solve", is_of_several=True)
def _solved(padding: Padding, call: Any, /, matrix: Any, right: Any, **how: Any) -> Any:
    """Each column for itself; or rows by a matrix that rows make with rows."""
    without_rows(padding, how)
    rows = padding.dims(right)
    if padding.dims(matrix) == (0, 1) and matrix.dim() == 2 and right.dim() <= 2 and 0 in rows:
        _expect_same(padding, matrix, right)
        found = call(_with_identity(padding, matrix), padding.only(right, 0, [0]), **how)
        return padding.mark(found, rows, padding.number(right))
    without_rows(padding, matrix)
    if right.dim() < 2 or rows != (right.dim() - 1,) or not how.get("left", True):
        raise NotPaddedError("clients of different sizes: rows are mixed")
    found = call(matrix, right, **how)
    return padding.mark(found, found.dim() - 1)


def _expect_same(padding: Padding, matrix: Any, right: Any) -> None:
    if padding.number(matrix).key != padding.number(right).key:
        raise NotPaddedError("clients of different sizes: rows beside fewer rows")


@rule_for("cholesky_solve", is_of_several=True)
def _solved_by_factor(padding: Padding, call: Any, /, right: Any, factor: Any, *args: Any) -> Any:
    without_rows(padding, args)
    rows = padding.dims(right)
    if padding.dims(factor) == (0, 1) and factor.dim() == right.dim() == 2 and 0 in rows:
        _expect_same(padding, factor, right)
        found = call(padding.only(right, 0, [0]), _with_identity(padding, factor), *args)
        return padding.mark(found, rows, padding.number(right))
    without_rows(padding, factor)
    if rows != (right.dim() - 1,):
        raise NotPaddedError("clients of different sizes: rows are mixed")
    found = call(right, factor, *args)
    return padding.mark(found, found.dim() - 1)


@rule_for("histc")
def _histogram(
    padding: Padding, call: Any, /, input: Any, bins: Any = 100, min: Any = 0, max: Any = 0
) -> Any:
    """How many are in each of the bins between two numbers."""
    without_rows(padding, bins, min, max)
    if isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor) or min == max:
        raise NotPaddedError("clients of different sizes: bins that rows say")
    return call(padding.only(input, math.inf), bins, min, max)


# Losses.


def _loss(padding: Padding, losses: Any, how: str, count: Callable[[], Any] | None = None) -> Any:
    """What is made of each row's losses; `count`: what the mean divides by."""
    if how == "none":
        return losses
    dims = list(range(losses.dim()))
    whole = total(padding, losses, dims, False)
    if how == "sum":
        return whole
    if how == "batchmean":
        return whole / padding.number(losses).own.to(losses.dtype)
    if how != "mean":
        raise NotPaddedError("clients of different sizes: a loss that is reduced in another way")
    return whole / (many(padding, losses, dims) if count is None else count())


def _beside_rows(padding: Padding, weights: Any, losses: Any) -> None:
    """Weights that are the same for each row, or are of rows."""
    for weight in weights:
        if not isinstance(weight, torch.Tensor):
            continue
        dim, own = padding.dim(losses) or 0, padding.dim(weight)
        is_of_rows = own is not None and losses.dim() - dim == weight.dim() - own
        if not is_of_rows and (own is not None or weight.dim() >= losses.dim() - dim):
            raise NotPaddedError("clients of different sizes: a loss with other weights")


@rule_for(
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
    *("binary_cross_entropy_with_logits", "soft_margin_loss", "kl_div", "poisson_nll_loss"),
    "hinge_embedding_loss",
)
def _difference(
    padding: Padding, call: Any, /, input: Any, target: Any, *args: Any, **how: Any
) -> Any:
    reduction = how.pop("reduction", "mean")
    dim = padding.dim(input)
    _beside_rows(padding, how.values(), input)
    if args or dim != padding.dim(target) or dim is None or input.shape != target.shape:
        raise NotPaddedError("clients of different sizes: a loss of rows and something else")
    losses = padding.mark(call(input, target, reduction="none", **how), dim)
    return _loss(padding, losses, reduction)


@rule_for("cross_entropy", "nll_loss", is_of_several=True)
def _classes(
    padding: Padding, call: Any, /, input: Any, target: Any, *args: Any, **how: Any
) -> Any:
    reduction, ignored = how.pop("reduction", "mean"), how.get("ignore_index", -100)
    rows = padding.dims(input)
    if args or rows not in ((0,), (0, 1)) or padding.dim(target) != 0 or input.dim() < 2:
        raise NotPaddedError("clients of different sizes: a loss of rows and something else")
    without_rows(padding, how)
    number = padding.number(target)
    _expect_same_number(number, padding.number_at(input, 0))
    if rows == (0, 1):
        # The classes are rows as well.
        is_usual = input.dim() == 2 and target.dim() == 1 and not how.get("label_smoothing")
        if not is_usual or how.get("weight") is not None:
            raise NotPaddedError("clients of different sizes: a loss of rows and something else")
        padding.holds(padding.only(target, 0) < padding.number_at(input, 1).own)
        input = padding.only(input, -math.inf if call.name == "cross_entropy" else 0, [1])
    losses = padding.mark(call(input, target, reduction="none", **how), 0, number)
    if target.dtype.is_floating_point:
        return _loss(padding, losses, reduction)

    def count() -> Any:
        counts = padding.only(padding.mark_as(target != ignored, target), False)
        weight = how.get("weight")
        if weight is None:
            return counts.sum().to(input.dtype)
        return torch.where(counts, weight[torch.where(counts, target, 0)], 0).sum()

    return _loss(padding, losses, reduction, count)


# Normalisation of rows together.


@rule_for("batch_norm")
def _batch_norm(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:
    without_rows(padding, running_mean, running_var, weight, bias, momentum)
    if call.func is not torch.nn.functional.batch_norm or padding.dim(input) or input.dim() < 2:
        raise NotPaddedError("clients of different sizes: rows are normalised in another form")
    if not training:
        found = call(input, running_mean, running_var, weight, bias, False, momentum, eps)
        return padding.mark(found, 0)
    dims = [dim for dim in range(input.dim()) if dim != 1]
    sizes = [1, -1, *[1] * (input.dim() - 2)]
    count = many(padding, input, dims)
    # PyTorch wants more than one number for each channel.
    padding.holds(count > 1)
    mean = total(padding, input, dims, False) / count
    off = padding.mark(input - mean.reshape(sizes), 0)
    variance = total(padding, padding.mark(off * off, 0), dims, False) / count
    if running_mean is not None:
        if momentum is None:
            raise NotPaddedError("clients of different sizes: statistics of all batches so far")
        with torch.no_grad():
            unbiased = variance * (count / (count - 1))
            running_mean.mul_(1 - momentum).add_(mean * momentum)
            running_var.mul_(1 - momentum).add_(unbiased * momentum)
    found = off * torch.rsqrt(variance + eps).reshape(sizes)
    if weight is not None:
        found = found * weight.reshape(sizes)
    if bias is not None:
        found = found + bias.reshape(sizes)
    return padding.mark(found, 0)


# Spectra of so many rows as the program says: there are zeros behind the last one.


@rule_for("fft", "rfft")
def _spectrum(
    padding: Padding, call: Any, /, input: Any, n: Any = None, dim: int = -1, *norm: Any, **how: Any
) -> Any:
    without_rows(padding, n, norm, how)
    at, rows = positive(dim, input), padding.dim(input)
    if at == rows and n is None:
        raise NotPaddedError("clients of different sizes: a spectrum of all rows")
    found = call(padding.only(input, 0, [at]), n, dim, *norm, **how)
    return found if at == rows or rows is None else padding.mark(found, rows)


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


# Recurrent networks: rows are independent sequences, or the steps of one.


@rule_for("gru", "rnn_tanh", "rnn_relu", "lstm")
def _recurrent(
    padding: Padding, call: Any, /, input: Any, hx: Any, params: Any, biases: Any, *args: Any
) -> Any:
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    steps = 1 if args[-1] is True else 0
    if len(args) == 5 and not padding.is_met((hx, params)) and padding.dim(input) == steps:
        padding.has_some(input)
        active = padding.own_rows(input)
        output, *ends = call(input, hx, params, biases, *args, active=active)
        return padding.mark(output, steps), *ends
    if len(args) != 5 or padding.is_met(params) or {padding.dim(each) for each in states} != {1}:
        raise NotPaddedError("clients of different sizes: steps of a recurrent network")
    rows = 0 if args[-1] else 1
    if padding.dim(input) != rows:
        raise NotPaddedError("clients of different sizes: steps of a recurrent network")
    output, *ends = call(input, hx, params, biases, *args)
    return padding.mark(output, rows), *(padding.mark(end, 1) for end in ends)


# Gradients.


@rule_for("grad", is_of_several=True)
def _grad(
    padding: Padding,
    call: Any,
    /,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    *args: Any,
    **how: Any,
) -> Any:
    without_rows(padding, args, how)
    given = [outputs] if is_tensor(outputs) else list(outputs)
    starts = [grad_outputs] if is_tensor(grad_outputs) else list(grad_outputs or ())
    for at, output in enumerate(given):
        start = starts[at] if starts else None
        if padding.dims(output) != padding.dims(start):
            raise NotPaddedError("clients of different sizes: a gradient of rows")
        if start is not None:
            # Nothing comes of padding.
            starts[at] = padding.only(start, 0)
    found = call(given, inputs, starts or None, *args, **how)
    for gradient, tensor in zip(found, [inputs] if is_tensor(inputs) else inputs, strict=True):
        if gradient is not None and padding.dims(tensor):
            padding.mark_as(gradient, tensor)
    return found
