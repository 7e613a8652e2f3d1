"""Sums and means. Memory is that of one value: results are added as they come."""

from __future__ import annotations

from typing import Any

import numpy as np

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    expect_factory,
    mapped,
    nothing,
    process,
    stateless,
    widened,
)


class SumFactory(AggregationFactory):
    """The sum of the clients' values."""

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "iufc", "numbers")
        return stateless(
            lambda value: (fl.federated_sum(value), nothing()), value_type, weight_type
        )


@_native.hidden
class UnweightedMeanFactory(AggregationFactory):
    """The mean of the clients' values, in which each client counts the same."""

    def __init__(self, value_sum_factory: AggregationFactory | None = None) -> None:
        """value_sum_factory: how values are summed; what it gives is divided by the number of
        clients. An exact mean where nothing is said."""
        self._sum = _sum_factory(value_sum_factory)

    @property
    def counts_clients(self) -> bool:
        return True

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "fc", "floating-point numbers")
        if self._sum is None:
            return stateless(
                lambda value: (fl.federated_mean(value), nothing()), value_type, weight_type
            )
        inner = self._sum.create(value_type)
        divide = fl.local_computation(value_type, np.int32)(_divided)

        def following(state: Any, value: Any) -> Any:
            summed = inner.next(state, value)
            clients = fl.federated_sum(fl.federated_value(1, fl.CLIENTS))
            mean = fl.federated_map(divide, (summed.result, clients))
            return summed.state, mean, summed.measurements

        return process(inner.initialize, following, value_type, weight_type)


@_native.hidden
class MeanFactory(AggregationFactory):
    """The mean of the clients' values, weighted by their weights; NaN where these are all zero."""

    def __init__(self, value_sum_factory: AggregationFactory | None = None) -> None:
        """value_sum_factory: how values times weights are summed; what it gives is divided by the
        sum of the weights. An exact mean where nothing is said."""
        self._sum = _sum_factory(value_sum_factory)

    @property
    def is_weighted(self) -> bool:
        return True

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "fc", "floating-point numbers")
        if self._sum is None:
            return stateless(
                lambda value, weight: (fl.federated_mean(value, weight), nothing()),
                value_type,
                weight_type,
            )
        inner = self._sum.create(value_type)

        def multiplied(value: Any, weight: Any) -> Any:
            def scaled(tensor: Any) -> Any:
                wide = widened(tensor)
                return (wide * weight.to(wide.dtype)).to(tensor.dtype)

            return mapped(scaled, value)

        multiply = fl.local_computation(value_type, weight_type)(multiplied)
        divide = fl.local_computation(value_type, weight_type)(_divided)

        def following(state: Any, value: Any, weight: Any) -> Any:
            summed = inner.next(state, fl.federated_map(multiply, (value, weight)))
            mean = fl.federated_map(divide, (summed.result, fl.federated_sum(weight)))
            return summed.state, mean, summed.measurements

        return process(inner.initialize, following, value_type, weight_type)


def _sum_factory(factory: AggregationFactory | None) -> AggregationFactory | None:
    if factory is None or type(factory) is SumFactory:
        return None
    factory = expect_factory(factory, "value_sum_factory")
    if factory.is_weighted or factory.counts_clients or factory.is_private:
        raise TypeError(f"`value_sum_factory` is to be a factory of sums, not {factory!r}.")
    return factory


def _divided(value: Any, by: Any) -> Any:
    def divided(tensor: Any) -> Any:
        wide = widened(tensor)
        return (wide / by.to(wide.dtype)).to(tensor.dtype)

    return mapped(divided, value)
