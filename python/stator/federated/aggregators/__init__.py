"""Aggregators: what a server makes of the clients' values, composed of factories.

    factory = aggregators.clipping_factory(1.0, aggregators.MeanFactory())
    process = factory.create(value_type, weight_type)
    state = process.initialize()
    state, result, measurements = process.next(state, values, weights)

A factory may be given another one, which goes on with what it makes of the values. Needs torch.
"""

from __future__ import annotations

from stator.federated.aggregators._factories import AggregationFactory, AggregationProcess
from stator.federated.aggregators._norms import (
    QuantileEstimation,
    clipping_factory,
    zeroing_factory,
)
from stator.federated.aggregators._privacy import DifferentiallyPrivateFactory, charged
from stator.federated.aggregators._quantization import (
    DeterministicDiscretizationFactory,
    StochasticDiscretizationFactory,
)
from stator.federated.aggregators._robust import KrumFactory, MedianFactory, TrimmedMeanFactory
from stator.federated.aggregators._secure import SecureSumFactory
from stator.federated.aggregators._sparsification import SparsificationFactory
from stator.federated.aggregators._sums import MeanFactory, SumFactory, UnweightedMeanFactory

__all__ = [
    "AggregationFactory",
    "AggregationProcess",
    "DeterministicDiscretizationFactory",
    "DifferentiallyPrivateFactory",
    "KrumFactory",
    "MeanFactory",
    "MedianFactory",
    "QuantileEstimation",
    "SecureSumFactory",
    "SparsificationFactory",
    "StochasticDiscretizationFactory",
    "SumFactory",
    "TrimmedMeanFactory",
    "UnweightedMeanFactory",
    "charged",
    "clipping_factory",
    "zeroing_factory",
]
