"""Values of which the greatest numbers are kept: the others needn't travel."""

from __future__ import annotations

import math
from typing import Any

import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    Wrapping,
    mapped,
    process,
    tensors,
)


@_native.hidden
class SparsificationFactory(Wrapping):
    """Keeps those of a client's numbers that are farthest from zero, over all its tensors; the
    others are zero (top-k: Aji and Heafield, 2017, arXiv 1704.05021)."""

    def __init__(self, kept_share: float, inner: AggregationFactory) -> None:
        """kept_share: which share of the numbers is kept, rounded up; of those that are as far as
        the last one all are."""
        super().__init__(inner)
        is_number = isinstance(kept_share, (int, float)) and not isinstance(kept_share, bool)
        if not is_number or not 0 < kept_share <= 1:
            raise ValueError(
                f"`kept_share` is to be a number above 0 and at most 1, not {kept_share!r}."
            )
        self._share = float(kept_share)

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "f", "floating-point numbers")
        share = self._share

        def kept(value: Any) -> Any:
            sizes = [tensor.abs().reshape(-1).to(torch.float64) for tensor in tensors(value)]
            flat = torch.cat(sizes) if sizes else torch.zeros(0)
            count = math.ceil(flat.shape[0] * share)
            if not count:
                return value
            least = torch.topk(flat, count).values[-1]
            # What is no number stays, so that somebody finds it.
            return mapped(
                lambda tensor: torch.where(tensor.abs() < least, torch.zeros_like(tensor), tensor),
                value,
            )

        keep = fl.local_computation(value_type)(kept)
        inner = self._inner.create(value_type, weight_type)

        def following(state: Any, value: Any, *weight: Any) -> Any:
            out = inner.next(state, fl.federated_map(keep, value), *weight)
            return out.state, out.result, out.measurements

        return process(inner.initialize, following, value_type, weight_type)
