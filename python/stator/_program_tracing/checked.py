"""What PyTorch checks by reading tensors, in tensor programs.

A program can't decide by data whether to raise. Where a check fails, it takes an index that isn't
there: that is an error when the program runs, at the client.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.distributions import Distribution, Geometric, constraints, kl
from torch.distributions.utils import broadcast_all

__all__ = ["SUBSTITUTES", "is_all_true"]


def is_all_true(valid: Any) -> bool:
    """True; an error when the program runs, where it isn't."""
    failed = torch.logical_not(valid).any().to(torch.int64)
    torch.zeros(1).gather(0, failed.reshape(1))
    return True


class _Torch:
    """PyTorch, as far as distributions' checks know it."""

    Size = torch.Size
    Tensor = torch.Tensor
    _is_all_true = staticmethod(is_all_true)


def _checked(original: Any) -> Any:
    # A function of its own, with other globals.
    return types.FunctionType(
        original.__code__,
        {**original.__globals__, "torch": _Torch},
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )


def _is_symmetric(self: Any, value: Any) -> Any:
    """Which matrices are symmetric. PyTorch returns sooner where they aren't square."""
    if value.shape[-1] != value.shape[-2]:
        return torch.zeros(value.shape[:-2], dtype=torch.bool)
    return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


def _is_positive_definite(self: Any, value: Any) -> Any:
    """The same of those that are positive definite, too."""
    if value.shape[-1] != value.shape[-2]:
        return torch.zeros(value.shape[:-2], dtype=torch.bool)
    return _is_symmetric(self, value) & torch.linalg.cholesky_ex(value).info.eq(0)


def _geometric(self: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
    """The beginning of a `Geometric`, which has a check of its own: that nothing has chance 0."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    given = logits if probs is None else probs
    (value,) = broadcast_all(given)
    if probs is None:
        self.logits = value
    else:
        self.probs = value
    sizes = torch.Size() if isinstance(given, (int, float)) else given.size()
    Distribution.__init__(self, sizes, validate_args=validate_args)
    if self._validate_args and probs is not None:
        is_all_true(value > 0)


def _kl_divergence(p: Any, q: Any) -> Any:
    """The divergence of two distributions. PyTorch remembers what it has looked up; a program looks
    it up each time."""
    for left in type(p).__mro__:
        for right in type(q).__mro__:
            if (left, right) in kl._KL_REGISTRY:
                return kl._KL_REGISTRY[left, right](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


def _bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number occurs. A program has as many bins as it says: a number beyond them is
    an index that isn't there."""
    if not minlength:
        return torch.ops.aten.bincount(input, weights, minlength)
    if weights is None:
        ones = torch.ones_like(input, dtype=torch.int64)
    else:
        ones = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    return torch.zeros(minlength, dtype=ones.dtype).index_add(0, input.to(torch.int64), ones)


def _gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """The loss of normal distributions, whose variances are checked."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(input)
    else:
        is_all_true(torch.logical_not(var < 0))
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
        elif (
            input.dim() != var.dim()
            or sum(b for a, b in zip(input.size(), var.size(), strict=True) if a != b) != 1
        ):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (Distribution.__init__, _checked(Distribution.__init__)),
    (torch.bincount, _bincount),
    (torch.Tensor.bincount, _bincount),
    (constraints._Symmetric.check, _is_symmetric),
    (constraints._PositiveDefinite.check, _is_positive_definite),
    (Geometric.__init__, _geometric),
    (torch.nn.functional.gaussian_nll_loss, _gaussian_nll_loss),
    (kl.kl_divergence, _kl_divergence),
    (Distribution._validate_sample, _checked(Distribution._validate_sample)),
]
