"""Sums that are marked as secure: nobody but the clients need see what one of them sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    expect_count,
    leaves,
    mapped,
    nothing,
    stateless,
)

_MOST = 2**52


@_native.hidden
class SecureSumFactory(AggregationFactory):
    """The sum of the clients' integers by `federated_secure_sum`.

    This says what has to be summed securely, and nothing more: the contexts of Stator's compute a
    plain sum, so whoever runs them sees what clients send. An executor that has a protocol for
    secure sums finds the operation in the computation."""

    def __init__(self, bound: int) -> None:
        """bound: how far from zero a client's integers are at most; one that isn't is an error that
        names the client."""
        self._bound = expect_count(bound, "bound", least=1)
        if self._bound > _MOST:
            raise ValueError(f"`bound` is to be 2**52 or less, not {bound!r}.")

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "iu", "integers")
        bound = self._bound
        kinds = [getattr(torch, np.dtype(of.dtype).name) for _, of in leaves(value_type)]

        def shifted(value: Any) -> Any:
            # Secure sums are of what isn't negative.
            return mapped(lambda tensor: tensor.to(torch.int64) + bound, value)

        shift = fl.local_computation(value_type)(shifted)

        def restored(total: Any, clients: Any) -> Any:
            left = iter(kinds)
            return mapped(
                lambda tensor: (tensor - clients.to(torch.int64) * bound).to(next(left)), total
            )

        restore = fl.local_computation(shift.type_signature.result, np.int32)(restored)

        def aggregate(value: Any) -> Any:
            total = fl.federated_secure_sum(fl.federated_map(shift, value), 2 * bound)
            clients = fl.federated_sum(fl.federated_value(1, fl.CLIENTS))
            return fl.federated_map(restore, (total, clients)), nothing()

        return stateless(aggregate, value_type, weight_type)
