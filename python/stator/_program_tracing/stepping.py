"""Steps of optimizers that read numbers of tensors into Python, in tensor programs.

A program can't read a number. `RAdam` and `ASGD` have a form that works on tensors alone
(`capturable`); `Adafactor` has none, and is written out here on tensors.

Rates, `betas` and `weight_decay` may be tensors. That they are numbers that can be is checked when
the program runs.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import (
    _adafactor,
    adadelta,
    adagrad,
    adam,
    adamax,
    asgd,
    nadam,
    radam,
    rmsprop,
    sgd,
)

from stator._program_tracing.checked import is_all_true

__all__ = ["SUBSTITUTES"]


def _copied(original: Any) -> Any:
    """A function of its own, so that it isn't substituted again."""
    plain = types.FunctionType(
        original.__code__,
        original.__globals__,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    plain.__kwdefaults__ = original.__kwdefaults__
    return plain


def _on_tensors(original: Any) -> Callable[..., None]:
    plain = _copied(original)

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


_STAND_INS: dict[str, Any] = {"lr": 1.0, "betas": (0.5, 0.5), "weight_decay": 1.0}
"""Settings that may be tensors, and what PyTorch's checks are given in the place of these."""


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(isinstance(item, torch.Tensor) for item in value)
    return isinstance(value, torch.Tensor)


def _valid(name: str, value: Any) -> Any:
    """A setting that is a tensor, or holds some, as steps take it. Numbers that can't be are an
    error when the program runs."""
    if isinstance(value, (tuple, list)):
        if not all(isinstance(item, torch.Tensor) for item in value):
            raise ValueError(f"{name} must be either both floats or both Tensors")
        found = tuple([_valid(name, item) for item in value])
        is_all_true(torch.stack([item < 1 for item in found]))
        return found
    if value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element")
    is_all_true(value >= 0)
    return value.squeeze() if value.dim() and name != "lr" else value


def _with_tensors(original: Any) -> Callable[..., None]:
    """The `__init__` of an optimizer, which may be given settings that are tensors."""
    plain = _copied(original)
    names = original.__code__.co_varnames[2 : original.__code__.co_argcount]

    def init(self: Any, params: Any, *args: Any, **settings: Any) -> None:
        given = {**dict(zip(names, args, strict=False)), **settings}
        tensors = [
            (name, value)
            for name, value in given.items()
            if name in _STAND_INS and _holds_tensors(value)
        ]
        if not tensors:
            plain(self, params, *args, **settings)
            return
        groups = params if isinstance(params, torch.Tensor) else list(params)
        own = [[*group] if isinstance(group, dict) else [] for group in groups]
        stand_ins = {name: _STAND_INS[name] for name, _ in tensors}
        plain(self, groups, **{**given, **stand_ins})
        for name, value in tensors:
            value = _valid(name, value)
            self.defaults[name] = value
            for group, has in zip(self.param_groups, own, strict=False):
                if name not in has:
                    group[name] = value

    return init


def _with_settings() -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    """For each of PyTorch's optimizers that has a rate."""
    found: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
    for kind in vars(torch.optim).values():
        init = vars(kind).get("__init__") if isinstance(kind, type) else None
        if isinstance(init, types.FunctionType) and issubclass(kind, torch.optim.Optimizer):
            code = init.__code__
            if code.co_varnames[: code.co_argcount][1:3] == ("params", "lr"):
                found.append((init, _with_tensors(init)))
    return found


def _with_decay(plain: Any) -> Callable[..., None]:
    """Steps that ask whether weights decay. By how much may be a tensor: then they do so before."""

    def step(params: Any, grads: Any, *lists: Any, weight_decay: Any, **settings: Any) -> None:
        if not isinstance(weight_decay, torch.Tensor):
            plain(params, grads, *lists, weight_decay=weight_decay, **settings)
            return
        if settings.get("decoupled_weight_decay", False):
            for parameter in params:
                parameter.mul_(1 - settings["lr"] * weight_decay)
        else:
            sign = -1 if settings.get("maximize", False) else 1
            grads = [
                gradient + sign * weight_decay * parameter
                for parameter, gradient in zip(params, grads, strict=True)
            ]
        plain(params, grads, *lists, weight_decay=0.0, **settings)

    return step


_DECAYING: list[Any] = [
    *(adam._single_tensor_adam, sgd._single_tensor_sgd, nadam._single_tensor_nadam),
    *(adamax._single_tensor_adamax, rmsprop._single_tensor_rmsprop),
    *(adagrad._single_tensor_adagrad, adadelta._single_tensor_adadelta),
]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    *_with_settings(),
    *((of, _with_decay(_copied(of))) for of in _DECAYING),
    (radam._single_tensor_radam, _with_decay(_on_tensors(radam._single_tensor_radam))),
    (asgd._single_tensor_asgd, _with_decay(_on_tensors(asgd._single_tensor_asgd))),
    (_adafactor._single_tensor_adafactor, _by_factors),
]
