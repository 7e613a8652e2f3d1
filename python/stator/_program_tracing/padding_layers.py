"""Rules for padded rows (`padding.py`): products, losses, layers of networks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch

from stator._program_tracing.padding import (
    Padding,
    apart,
    elements,
    many,
    rule_for,
    total,
    without_rows,
)
from stator._program_tracing.padding_numbers import NotPaddedError

__all__ = ["Padding"]

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
        if a is None and b == 0 and right.dim() >= 3 and left.dim() <= 2:
            return padding.mark(call(left, right), 0)
    raise NotPaddedError("clients of different sizes: a product of rows with rows")


@rule_for("addmv", "addmm", "baddbmm")
def _added_product(
    padding: Padding, call: Any, /, input: Any, left: Any, right: Any, **how: Any
) -> Any:
    beta, alpha = how.pop("beta", 1), how.pop("alpha", 1)
    without_rows(padding, beta, alpha, how)
    product = _matmul(padding, torch.matmul, left, right)
    if not padding.is_met(product) and not padding.is_met(input):
        return product * alpha + input * beta
    rows = padding.dim(product)
    scaled = product * alpha
    if rows is not None:
        padding.mark(scaled, rows)
    own = input * beta
    if (at := padding.dim(input)) is not None:
        padding.mark(own, at)
    return elements(padding, _Sum, own, scaled)


class _Sum:
    """The operation, as its rule is given it."""

    name = "add"

    def __new__(cls, *args: Any) -> Any:
        return torch.add(*args)


@rule_for("outer", "ger")
def _outer(padding: Padding, call: Any, /, left: Any, right: Any) -> Any:
    a, b = padding.dim(left), padding.dim(right)
    if a is not None and b is not None:
        raise NotPaddedError("clients of different sizes: a product of rows with rows")
    return padding.mark(call(left, right), 0 if b is None else 1)


_OPERANDS = re.compile(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)(?:->([a-zA-Z]*))?")


@rule_for("einsum")
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
    rows = {
        part[dim]
        for part, operand in zip(parts, given, strict=True)
        if (dim := padding.dim(operand)) is not None
    }
    if len(rows) != 1:
        raise NotPaddedError("clients of different sizes: a product of rows with rows")
    (letter,) = rows
    for part, operand in zip(parts, given, strict=True):
        if part.count(letter) != (padding.dim(operand) is not None):
            raise NotPaddedError("clients of different sizes: a product of rows with others")
    if letter in result:
        return padding.mark(call(equation, *given), result.index(letter))
    return call(equation, *[padding.only(operand, 0) for operand in given])


apart("inv", "inverse", "pinv", "det", "cholesky", "matrix_exp", "tril", "triu", behind=2)


@rule_for("solve_triangular", "solve")
def _solved(padding: Padding, call: Any, /, matrix: Any, right: Any, **how: Any) -> Any:
    """Each column for itself."""
    without_rows(padding, matrix, how)
    if right.dim() < 2 or padding.dim(right) != right.dim() - 1 or not how.get("left", True):
        raise NotPaddedError("clients of different sizes: rows are mixed")
    found = call(matrix, right, **how)
    return padding.mark(found, found.dim() - 1)


@rule_for("cholesky_solve")
def _solved_by_factor(padding: Padding, call: Any, /, right: Any, factor: Any, *args: Any) -> Any:
    without_rows(padding, factor, args)
    if padding.dim(right) != right.dim() - 1:
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


@rule_for("cross_entropy", "nll_loss")
def _classes(
    padding: Padding, call: Any, /, input: Any, target: Any, *args: Any, **how: Any
) -> Any:
    reduction, ignored = how.pop("reduction", "mean"), how.get("ignore_index", -100)
    if args or padding.dim(input) != 0 or padding.dim(target) != 0 or input.dim() < 2:
        raise NotPaddedError("clients of different sizes: a loss of rows and something else")
    without_rows(padding, how)
    losses = padding.mark(call(input, target, reduction="none", **how), 0)
    if target.dtype.is_floating_point:
        return _loss(padding, losses, reduction)

    def count() -> Any:
        counts = padding.only(padding.mark(target != ignored, 0), False)
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
