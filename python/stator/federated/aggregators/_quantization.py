"""Values as integers: multiples of a step, which are summed exactly and take fewer bits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
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
    leaves,
    mapped,
    process,
    tensors,
)
from stator.federated.aggregators._sums import SumFactory

# What is further from zero, in steps, isn't taken: so no sum of a million clients wraps.
_MOST_STEPS = 2.0**42


class _Discretization(Wrapping):
    """Rounds values to multiples of a step."""

    @_native.hidden
    def __init__(self, step_size: float, inner: AggregationFactory | None = None) -> None:
        """step_size: the distance of neighbouring values.
        inner: how the integers are aggregated; summed, where nothing is said."""
        super().__init__(SumFactory() if inner is None else inner)
        self._step = expect_number(step_size, "step_size", above=0)
        if self.is_weighted or self.counts_clients:
            raise TypeError(f"`inner` is to be a factory of sums, not {self._inner!r}.")

    _rounded: Callable[[Any], Any]

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "f", "floating-point numbers")
        step, rounded = self._step, self._rounded

        def encoded(value: Any) -> Any:
            steps = mapped(lambda tensor: tensor.to(torch.float64) / step, value)
            fits = [(tensor.abs() < _MOST_STEPS).all() for tensor in tensors(steps)]
            fit = torch.stack(fits).all() if fits else torch.ones((), dtype=torch.bool)
            # NaN and infinity have no integer.
            levels = mapped(
                lambda tensor: rounded(torch.where(fit, tensor, 0.0)).to(torch.int64), steps
            )
            return OrderedDict(levels=levels, unfit=(~fit).to(torch.int64))

        encode = fl.local_computation(value_type)(encoded)
        of_levels = encode.type_signature.result
        inner = self._inner.create(of_levels)
        kinds = [getattr(torch, np.dtype(of.dtype).name) for _, of in leaves(value_type)]

        def decoded(summed: Any) -> Any:
            left = iter(kinds)

            def value(levels: Any) -> Any:
                found = levels.to(torch.float64) * step
                unknown = torch.full_like(found, float("nan"))
                kept = torch.where(summed["unfit"] == 0, found, unknown)
                return kept.to(next(left))

            return mapped(value, summed["levels"])

        decode = fl.local_computation(of_levels)(decoded)

        def following(state: Any, value: Any) -> Any:
            out = inner.next(state, fl.federated_map(encode, value))
            return out.state, fl.federated_map(decode, out.result), out.measurements

        return process(inner.initialize, following, value_type, weight_type)


class DeterministicDiscretizationFactory(_Discretization):
    """Rounds values to the nearest multiples of `step_size`, which are summed as 64-bit integers.
    Each client's value is off by half a step at most. A value that isn't finite makes the result
    NaN."""

    _rounded = staticmethod(torch.round)


class StochasticDiscretizationFactory(_Discretization):
    """Rounds values up or down to multiples of `step_size`, at random, so that they are right on
    average; summed as 64-bit integers. As it draws numbers, clients do it one after the other."""

    @staticmethod
    def _rounded(value: Any) -> Any:
        return torch.floor(value + torch.rand_like(value))
