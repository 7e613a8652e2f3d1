"""Values held to a norm: the Euclidean one, of all of a client's tensors together.

The bound is a number, or follows a quantile of the clients' norms: Andrew et al., Differentially
Private Learning with Adaptive Clipping, 2021 (arXiv 1905.03871), without the noise.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    Wrapping,
    expect_number,
    mapped,
    process,
    tensors,
)

_NUMBER = fl.TensorType(np.float32)


@_native.hidden
@dataclasses.dataclass(frozen=True)
class QuantileEstimation:
    """A bound that follows a quantile of the clients' norms. After each round it is multiplied by
    `exp(-learning_rate * (share - target_quantile))`, where `share` is that of the clients whose
    norm was within it.

    initial_estimate: the bound of the first round.
    target_quantile: which share of the clients is to be within it.
    learning_rate: how fast it follows.
    multiplier, increment: what the bound is made of: `multiplier * estimate + increment`.
    """

    initial_estimate: float = 1.0
    target_quantile: float = 0.5
    learning_rate: float = 0.2
    multiplier: float = 1.0
    increment: float = 0.0

    def __post_init__(self) -> None:
        for name in ("initial_estimate", "learning_rate", "multiplier"):
            expect_number(getattr(self, name), name, above=0)
        expect_number(self.target_quantile, "target_quantile", above=0, below=1)
        if self.increment != 0:
            expect_number(self.increment, "increment", above=0)


@_native.hidden
def clipping_factory(
    clipping_norm: float | QuantileEstimation, inner: AggregationFactory
) -> AggregationFactory:
    """Scales values down whose norm is above `clipping_norm`, so that it is that. What isn't finite
    becomes zero. Measures the bound (`clipping_norm`) and how many values were above it
    (`clipped`)."""
    return _Bounded("clipping_norm", "clipped", clipping_norm, inner, clipped)


@_native.hidden
def zeroing_factory(
    zeroing_norm: float | QuantileEstimation, inner: AggregationFactory
) -> AggregationFactory:
    """Makes zeros of values whose norm is above `zeroing_norm`, or isn't finite. Measures the bound
    (`zeroing_norm`) and how many were (`zeroed`)."""
    return _Bounded("zeroing_norm", "zeroed", zeroing_norm, inner, _zeroed)


def norm(value: Any) -> Any:
    """The norm of all tensors together; infinity where something isn't finite."""
    squares = [tensor.to(torch.float64).pow(2).sum() for tensor in tensors(value)]
    found = torch.sqrt(sum(squares, torch.zeros((), dtype=torch.float64)))
    return torch.where(torch.isfinite(found), found, torch.full_like(found, float("inf")))


def clipped(value: Any, size: Any, bound: Any) -> Any:
    # The one where the norm is at most the bound: such values stay as they are, to the bit.
    scale = torch.where(size > bound, bound / size, torch.ones_like(size))
    scaled = mapped(lambda tensor: (tensor * scale).to(tensor.dtype), value)
    return _finite(scaled, size)


def _zeroed(value: Any, size: Any, bound: Any) -> Any:
    return _finite(value, torch.where(size > bound, torch.full_like(size, float("inf")), size))


def _finite(value: Any, size: Any) -> Any:
    return mapped(
        lambda tensor: torch.where(torch.isfinite(size), tensor, torch.zeros_like(tensor)), value
    )


class _Bounded(Wrapping):
    """Changes what is above a bound, and counts it."""

    def __init__(
        self,
        bound_name: str,
        count_name: str,
        bound: float | QuantileEstimation,
        inner: AggregationFactory,
        change: Any,
    ) -> None:
        super().__init__(inner)
        self._names = bound_name, count_name
        self._change = change
        self._estimation = bound if isinstance(bound, QuantileEstimation) else None
        first = bound.initial_estimate if isinstance(bound, QuantileEstimation) else bound
        self._first = expect_number(first, bound_name, above=0)

    @property
    def name(self) -> str:
        return f"{self._names[0].removesuffix('_norm')}_factory"

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "f", "floating-point numbers")
        inner = self._inner.create(value_type, weight_type)
        estimation = self._estimation
        begin = fl.local_computation(lambda: torch.tensor(self._first))

        def bound_of(estimate: Any) -> Any:
            if estimation is None:
                return estimate
            return estimation.multiplier * estimate + estimation.increment

        def bounded(value: Any, estimate: Any) -> Any:
            size, bound = norm(value), bound_of(estimate).to(torch.float64)
            above, outside = (size > bound).to(torch.int32), (size > estimate).to(torch.int32)
            return self._change(value, size, bound), above, outside

        def adapted(estimate: Any, outside: Any, clients: Any) -> Any:
            if estimation is None:
                return estimate
            share = 1 - outside / clients.clamp(min=1)
            factor = torch.exp(-estimation.learning_rate * (share - estimation.target_quantile))
            return torch.where(clients > 0, estimate * factor, estimate)

        change = fl.local_computation(value_type, _NUMBER)(bounded)
        bounding = fl.local_computation(_NUMBER)(bound_of)
        adapt = fl.local_computation(_NUMBER, np.int32, np.int32)(adapted)
        bound_name, count_name = self._names

        def following(state: Any, value: Any, *weight: Any) -> Any:
            estimate = state.estimate
            changed = fl.federated_map(change, (value, fl.federated_broadcast(estimate)))
            out = inner.next(state.inner, changed[0], *weight)
            measurements = {
                bound_name: fl.federated_map(bounding, estimate),
                count_name: fl.federated_sum(changed[1]),
            }
            if inner.measures:
                measurements["inner"] = out.measurements
            if estimation is not None:
                clients = fl.federated_sum(fl.federated_value(1, fl.CLIENTS))
                outside = fl.federated_sum(changed[2])
                estimate = fl.federated_map(adapt, (estimate, outside, clients))
            state = fl.federated_zip(OrderedDict(estimate=estimate, inner=out.state))
            return state, out.result, fl.federated_zip(OrderedDict(measurements))

        def initialize() -> Any:
            estimate = fl.federated_eval(begin, fl.SERVER)
            return fl.federated_zip(OrderedDict(estimate=estimate, inner=inner.initialize()))

        return process(fl.federated_computation(initialize), following, value_type, weight_type)
