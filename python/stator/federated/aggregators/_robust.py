"""Aggregators that a few wrong clients can't lead astray.

They compare clients' values with each other, so they hold all of them at the server: memory is that
of clients times model, by nature. Each client counts the same. A value that isn't finite counts as
farthest from all others.
"""

from __future__ import annotations

from typing import Any

import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    expect_count,
    mapped,
    nothing,
    stateless,
    tensors,
    widened,
)


class _Collecting(AggregationFactory):
    """Makes something of the clients' values, stacked."""

    @property
    def counts_clients(self) -> bool:
        return True

    def _create(self, value_type: Any, weight_type: Any, function: Any) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "f", "floating-point numbers")
        local = fl.local_computation(fl.SequenceType(value_type))(function)

        def aggregate(value: Any) -> Any:
            found = fl.federated_map(local, fl.federated_collect(value))
            return found, nothing()

        return stateless(aggregate, value_type, weight_type)


class MedianFactory(_Collecting):
    """The median of the clients' values, for each number alone; between the two middle ones where
    the clients' number is even. Yin et al., Byzantine-Robust Distributed Learning, 2018
    (arXiv 1803.01498). Holds the values of all clients: memory is clients times model, by
    nature."""

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        def median(values: Any) -> Any:
            def of_each(stacked: Any) -> Any:
                ordered, clients = _ordered(stacked)
                middle = torch.stack([(clients - 1) // 2, clients // 2])
                return ordered.index_select(0, middle).mean(0)

            return mapped(of_each, values)

        return self._create(value_type, weight_type, median)


@_native.hidden
class TrimmedMeanFactory(_Collecting):
    """The mean of the clients' values without the least and the greatest ones, for each number
    alone. Yin et al., 2018. Holds the values of all clients: memory is clients times model, by
    nature."""

    def __init__(self, trimmed_share: float = 0.1) -> None:
        """trimmed_share: which share of the clients is left out at each end, rounded down."""
        if not isinstance(trimmed_share, (int, float)) or not 0 <= trimmed_share < 0.5:
            raise ValueError(
                f"`trimmed_share` is to be a number from 0 to less than 0.5, not {trimmed_share!r}."
            )
        self._share = float(trimmed_share)

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        def trimmed_mean(values: Any) -> Any:
            def of_each(stacked: Any) -> Any:
                ordered, clients = _ordered(stacked)
                # A share of 0.29 of 100 clients is a little less than 29 of them.
                left_out = torch.floor(clients.to(torch.float64) * self._share + 1e-9)
                rank = _ranks(ordered).reshape(-1, *[1] * (ordered.dim() - 1))
                kept = (rank >= left_out) & (rank < clients - left_out)
                wide = widened(ordered)
                total = torch.where(kept, wide, torch.zeros_like(wide)).sum(0)
                return (total / (clients - 2 * left_out).to(total.dtype)).to(ordered.dtype)

            return mapped(of_each, values)

        return self._create(value_type, weight_type, trimmed_mean)


@_native.hidden
class KrumFactory(_Collecting):
    """The value of the client that is nearest to others, or the mean of several such (Multi-Krum).
    Blanchard et al., Machine Learning with Adversaries, 2017 (arXiv 1703.02757). Holds the values
    of all clients, and their distances: memory is clients times model and clients squared, by
    nature."""

    def __init__(self, byzantine_clients: int, selected_clients: int = 1) -> None:
        """byzantine_clients: how many clients may be wrong; a round has at least twice as many and
            three.
        selected_clients: of how many clients the mean is taken."""
        self._wrong = expect_count(byzantine_clients, "byzantine_clients", least=0)
        self._selected = expect_count(selected_clients, "selected_clients", least=1)

    @property
    def least_clients(self) -> int:
        return max(2 * self._wrong + 3, self._wrong + self._selected)

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        least = self.least_clients

        def krum(values: Any) -> Any:
            parts = [part.to(torch.float64).reshape(part.shape[0], -1) for part in tensors(values)]
            rows = torch.cat(parts, 1)
            if rows.shape[0] < least:
                raise ValueError("a round has too few clients")
            finite = torch.isfinite(rows).all(1)
            known = torch.where(finite[:, None], rows, 0.0)
            # From what is in their middle, so that those near it have exact products.
            known = known - known.median(0).values
            squares = known.pow(2).sum(1)
            distances = (squares[:, None] + squares - 2 * (known @ known.T)).clamp(min=0)
            both = finite[:, None] & finite
            distances = torch.where(both, distances, float("inf"))
            # The nearest one is the client itself.
            near, clients = _ordered(distances)
            rank = _ranks(near)[:, None]
            counted = (rank >= 1) & (rank < clients - self._wrong - 1)
            scores = torch.where(counted, near, torch.zeros_like(near)).sum(0)
            scores = torch.where(finite, scores, float("inf"))
            chosen = torch.sort(scores, stable=True).indices[: self._selected]
            return mapped(lambda stacked: stacked.index_select(0, chosen).mean(0), values)

        return self._create(value_type, weight_type, krum)


def _ordered(stacked: Any) -> tuple[Any, Any]:
    """The values in order, and how many there are."""
    return torch.sort(stacked, dim=0).values, _ranks(stacked)[-1] + 1


def _ranks(stacked: Any) -> Any:
    """0, 1, ... along the first dimension."""
    return torch.arange(stacked.shape[0])
