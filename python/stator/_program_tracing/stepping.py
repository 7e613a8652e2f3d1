"""Steps of optimizers that read numbers of tensors into Python, in tensor programs.

A program can't read a number. `RAdam` and `ASGD` have a form that works on tensors alone
(`capturable`); `Adafactor` has none, and is written out here on tensors.

A rate may be a tensor. That it isn't negative is checked when the program runs.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import _adafactor, asgd, radam

from stator._program_tracing.checked import is_all_true

__all__ = ["SUBSTITUTES"]


def _on_tensors(original: Any) -> Callable[..., None]:
    # A function of its own, so that this isn't substituted again.
    plain = types.FunctionType(
        original.__code__, original.__globals__, original.__name__, original.__defaults__
    )
    plain.__kwdefaults__ = original.__kwdefaults__

    def step(*lists: Any, capturable: bool, **settings: Any) -> None:
        *others, counts = lists
        # Differences of what is made of them are small beside them: with 64 bits, as Python has.
        wide = [count.to(torch.float64) for count in counts]
        plain(*others, wide, capturable=True, **settings)
        for count, counted in zip(counts, wide, strict=True):
            count.copy_(counted)

    return step


def _by_factors(
    params: list[Any],
    grads: list[Any],
    row_vars: list[Any],
    col_vars: list[Any],
    variances: list[Any],
    state_steps: list[Any],
    grad_scale: Any = None,
    found_inf: Any = None,
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    has_complex: bool,
) -> None:
    """Adafactor: Shazeer and Stern, 2018 (arXiv 1804.04235), as PyTorch has it."""
    for place, parameter in enumerate(params):
        gradient = -grads[place] if maximize else grads[place]
        least = torch.finfo(parameter.dtype).eps if eps1 is None else eps1
        root = parameter.numel() ** 0.5
        steps = state_steps[place]
        steps.add_(1)
        share = (steps**beta2_decay).to(parameter.dtype)
        rate = steps.rsqrt().clamp(max=lr)
        rate = rate * (parameter.norm(2) / root).clamp(min=eps2)
        if weight_decay != 0:
            parameter.mul_(1 - lr * weight_decay)
        if gradient.dim() > 1:
            rows, columns = row_vars[place], col_vars[place]
            for kept, dim in ((rows, -1), (columns, -2)):
                squares = gradient.norm(dim=dim, keepdim=True).square() / gradient.size(dim)
                kept.lerp_(squares, share)
            variance = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=least)
        else:
            variance = variances[place]
            variance.lerp_(gradient.square(), share)
        update = variance.clamp(min=least * least).rsqrt() * gradient
        clip = (update.norm(2) / (root * d)).clamp(min=1.0)
        parameter.sub_(update * (rate / clip).to(parameter.dtype))


def _with_rate(original: Any) -> Callable[..., None]:
    """The `__init__` of an optimizer, which may be given a rate that is a tensor."""
    plain = types.FunctionType(
        original.__code__,
        original.__globals__,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    plain.__kwdefaults__ = original.__kwdefaults__

    def init(self: Any, params: Any, *args: Any, **settings: Any) -> None:
        if args:
            rate, others = args[0], args[1:]
        else:
            rate, others = settings.get("lr"), ()
        if not isinstance(rate, torch.Tensor):
            plain(self, params, *args, **settings)
            return
        if rate.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        is_all_true(rate >= 0)
        given = params if isinstance(params, torch.Tensor) else list(params)
        own = [isinstance(group, dict) and "lr" in group for group in given]
        named = {name: value for name, value in settings.items() if name != "lr"}
        plain(self, given, 1.0, *others, **named)
        self.defaults["lr"] = rate
        for group, has_own in zip(self.param_groups, own, strict=False):
            if not has_own:
                group["lr"] = rate

    return init


def _with_rates() -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    """For each of PyTorch's optimizers that has a rate."""
    found: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
    for kind in vars(torch.optim).values():
        init = vars(kind).get("__init__") if isinstance(kind, type) else None
        if isinstance(init, types.FunctionType) and issubclass(kind, torch.optim.Optimizer):
            code = init.__code__
            if code.co_varnames[: code.co_argcount][1:3] == ("params", "lr"):
                found.append((init, _with_rate(init)))
    return found


# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    *_with_rates(),
    (radam._single_tensor_radam, _on_tensors(radam._single_tensor_radam)),
    (asgd._single_tensor_asgd, _on_tensors(asgd._single_tensor_asgd)),
    (_adafactor._single_tensor_adafactor, _by_factors),
]
