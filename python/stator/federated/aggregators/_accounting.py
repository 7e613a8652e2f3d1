"""What releases cost, in Rényi differential privacy.

The package `dp-accounting` says what a release costs at each order. These constants are part of the
computation, which adds them up itself, so that one that was sent elsewhere counts too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator.federated.aggregators._factories import expect_number


class Budget:
    """Epsilon at a `delta`, for so many times an event of the package; nothing where `delta` is
    `None`."""

    def __init__(
        self,
        delta: float | None,
        event: Callable[[Any], Any],
        relation: str = "ADD_OR_REMOVE_ONE",
    ) -> None:
        """event: what costs, given the package.
        relation: of what isn't told apart, by the package's name for it.
        """
        self._delta = None if delta is None else expect_number(delta, "delta", above=0, below=1)
        self._costs = ([], []) if self._delta is None else _costs(event, relation)

    def spent(self, times: Any) -> Any:
        """What is measured for so many times the event; within a local computation."""
        return OrderedDict() if self._delta is None else OrderedDict(epsilon=self.epsilon(times))

    def epsilon(self, times: Any) -> Any:
        """Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, 2020 (arXiv
        2004.00010), proposition 12: the least bound over all orders."""
        orders, costs = (torch.tensor(each, dtype=torch.float64) for each in self._costs)
        total, delta = costs * times, torch.tensor(self._delta, dtype=torch.float64)
        bounds = total + torch.log1p(-1 / orders) - torch.log(delta * orders) / (orders - 1)
        # So near to nothing that the distance alone is below delta.
        bounds = torch.where(delta**2 + torch.expm1(-total) > 0, 0.0, bounds)
        return bounds.min().clamp(min=0)


def accounting() -> Any:
    """The package."""
    try:
        import dp_accounting
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the privacy budget is counted by the package dp-accounting, which isn't installed: "
            "`pip install stator[privacy]`, or give `delta=None` to count it elsewhere.",
            name=error.name,
        ) from error
    return dp_accounting


def _costs(event: Callable[[Any], Any], relation: str) -> tuple[list[float], list[float]]:
    """Orders, and what an event costs at each."""
    package = accounting()
    accountant = package.rdp.RdpAccountant(
        neighboring_relation=package.NeighboringRelation[relation]
    )
    accountant.compose(event(package))
    # The bound means nothing for orders near 1.
    found = [
        (float(order), float(cost))
        for order, cost in zip(accountant.orders, accountant.rdp, strict=True)
        if order > 1.01 and np.isfinite(cost)
    ]
    return [order for order, _ in found], [cost for _, cost in found]
