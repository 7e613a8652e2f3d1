"""What a server makes of the clients' mean update.

The clients' update is what the server's weights are to be reduced by, so it takes the place of a
gradient: Reddi et al., Adaptive Federated Optimization, 2021 (arXiv 2003.00295), algorithm 2.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator._stator import federated as _native
from stator.federated.learning._models import expect_real

Moments = OrderedDict[str, Any]


@dataclasses.dataclass(frozen=True)
class ServerOptimizer:
    """A step from weights and an update to weights, with what it remembers of former ones.

    initialize: what it remembers at first, given the weights; a dictionary of tensors.
    step: given what it remembers, the weights and the update, both dictionaries of tensors, what it
        remembers from then on and the new weights. Both run within local computations.
    """

    initialize: Callable[[Any], Moments]
    step: Callable[[Any, Any, Any], tuple[Moments, Any]]


def expect_server(given: Any) -> ServerOptimizer | None:
    """The optimizer of the server that an argument is, if there is one."""
    if given is None or isinstance(given, ServerOptimizer):
        return given
    hint = "; it is to be called" if callable(given) else ""
    raise TypeError(
        f"`server_optimizer` is to be a ServerOptimizer, such as learning.sgd(1.0), not "
        f"{given!r}{hint}."
    )


def _expect_rate(value: Any, name: str, below: float = np.inf) -> None:
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, bool):
        raise TypeError(f"`{name}` is to be a number, not {value!r}.")
    if not 0 <= value < below:
        range_of = "finite" if below == np.inf else f"less than {below:g}"
        raise ValueError(f"`{name}` is to be 0 or more and {range_of}, not {value!r}.")


@_native.hidden
def sgd(learning_rate: float = 1.0, momentum: float = 0.0) -> ServerOptimizer:
    """Steps along the update. With a rate of 1 and no momentum the server's weights become the mean
    of the clients'."""
    _expect_rate(learning_rate, "learning_rate")
    _expect_rate(momentum, "momentum")

    def initialize(weights: Any) -> Moments:
        return _zeros(weights, "momentum") if momentum else OrderedDict()

    def step(moments: Any, weights: Any, update: Any) -> tuple[Moments, Any]:
        if momentum:
            moments = OrderedDict(
                (f"momentum.{name}", momentum * moments[f"momentum.{name}"] + update[name])
                for name in weights
            )
            update = {name: moments[f"momentum.{name}"] for name in weights}
        return moments, _moved(weights, {name: learning_rate * update[name] for name in weights})

    return ServerOptimizer(initialize, step)


@_native.hidden
def adagrad(
    learning_rate: float = 0.1, *, beta1: float = 0.0, tau: float = 1e-3
) -> ServerOptimizer:
    """FedAdagrad: steps divided by the root of the sum of all squares."""
    return _adaptive(learning_rate, beta1, tau, lambda second, square: second + square)


@_native.hidden
def adam(
    learning_rate: float = 0.1, *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
) -> ServerOptimizer:
    """FedAdam: steps divided by the root of a running mean of squares."""
    _expect_rate(beta2, "beta2", below=1)
    return _adaptive(
        learning_rate, beta1, tau, lambda second, square: beta2 * second + (1 - beta2) * square
    )


@_native.hidden
def yogi(
    learning_rate: float = 0.1, *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
) -> ServerOptimizer:
    """FedYogi: as FedAdam, but the squares' mean changes by no more than the square."""
    _expect_rate(beta2, "beta2", below=1)

    def second_moment(second: Any, square: Any) -> Any:
        return second - (1 - beta2) * square * torch.sign(second - square)

    return _adaptive(learning_rate, beta1, tau, second_moment)


def _adaptive(
    learning_rate: float, beta1: float, tau: float, second_moment: Callable[[Any, Any], Any]
) -> ServerOptimizer:
    _expect_rate(learning_rate, "learning_rate")
    _expect_rate(beta1, "beta1", below=1)
    _expect_rate(tau, "tau")

    def initialize(weights: Any) -> Moments:
        expect_real(weights, "an optimizer that divides by squares")
        # As in the paper: the first steps aren't divided by nothing.
        seconds = {f"second.{name}": torch.full_like(weights[name], tau**2) for name in weights}
        return OrderedDict({**_zeros(weights, "first"), **seconds})

    def step(moments: Any, weights: Any, update: Any) -> tuple[Moments, Any]:
        made: Moments = OrderedDict()
        steps = {}
        for name in weights:
            made[f"first.{name}"] = beta1 * moments[f"first.{name}"] + (1 - beta1) * update[name]
        for name in weights:
            second = second_moment(moments[f"second.{name}"], update[name] ** 2)
            made[f"second.{name}"] = second
            steps[name] = learning_rate * made[f"first.{name}"] / (torch.sqrt(second) + tau)
        return made, _moved(weights, steps)

    return ServerOptimizer(initialize, step)


def _zeros(weights: Any, kind: str) -> Moments:
    return OrderedDict((f"{kind}.{name}", torch.zeros_like(weights[name])) for name in weights)


def _moved(weights: Any, steps: Any) -> Any:
    return OrderedDict((name, weights[name] - steps[name]) for name in weights)
