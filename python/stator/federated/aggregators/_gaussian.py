"""Sums of clipped values with Gaussian noise of its own in each release.

The bound is fixed (McMahan et al., Learning Differentially Private Recurrent Language Models, 2018,
arXiv 1710.06963), or follows a quantile of the clients' norms (Andrew et al., Differentially
Private Learning with Adaptive Clipping, 2021, arXiv 1905.03871).
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator.federated.aggregators._accounting import Budget
from stator.federated.aggregators._factories import mapped
from stator.federated.aggregators._norms import clipped, norm

_NUMBER = fl.TensorType(np.float64)
# The bound stays where float32 can hold the clipped values.
_BOUNDS = 1e-30, 1e30


@dataclasses.dataclass(frozen=True)
class FixedClip:
    """Values clipped to `clip`; the sum has noise of `noise_multiplier * clip`."""

    noise_multiplier: float
    clients: float
    clip: float
    budget: Budget

    def rounds(self, value_type: Any) -> tuple[Any, Any]:
        """The computation of the first state, and the function of a round."""
        deviation = self.noise_multiplier * self.clip

        def released(total: Any, releases: Any) -> Any:
            noised = mapped(lambda tensor: tensor + noise(tensor, deviation), total)
            mean = mapped(lambda tensor: tensor / self.clients, noised)
            return OrderedDict(releases=releases + 1, noised_sum=noised), mean

        bound = clipping(value_type, self.clip)
        release = fl.local_computation(value_type, np.int32)(released)
        spend = fl.local_computation(np.int32)(self.budget.spent)

        def following(state: Any, value: Any) -> Any:
            total = fl.federated_sum(fl.federated_map(bound, value))
            found = fl.federated_map(release, (total, state.releases))
            return found[0], found[1], fl.federated_map(spend, found[0].releases)

        first = zeros(release.type_signature.result[0])
        return beginning(lambda: mapped(torch.clone, first)), following


@dataclasses.dataclass(frozen=True)
class AdaptiveClip:
    """Values clipped to a bound that follows a quantile of their norms.

    The sum of the values and the count of those within the bound are released together. A client
    moves the count by one half, once that half of the clients is subtracted, so that both cost as
    much as one release with `noise_multiplier`: `value_multiplier` is what is left for the values.
    """

    noise_multiplier: float
    clients: float
    initial_clip: float
    target_quantile: float
    learning_rate: float
    count_deviation: float
    budget: Budget

    @property
    def value_multiplier(self) -> float:
        """Theorem 1 of the paper."""
        precision = self.noise_multiplier**-2 - (2 * self.count_deviation) ** -2
        return 1 / math.sqrt(precision)

    def rounds(self, value_type: Any) -> tuple[Any, Any]:
        """The computation of the first state, and the function of a round."""
        multiplier = self.value_multiplier

        def bounded(value: Any, clip: Any) -> Any:
            size = norm(value)
            within = torch.where(size <= clip, 0.5, -0.5).to(torch.float64)
            return clipped(value, size, clip), within

        def released(total: Any, within: Any, clip: Any, releases: Any) -> Any:
            noised = mapped(lambda tensor: tensor + noise(tensor, multiplier * clip), total)
            count = within + noise(within, self.count_deviation)
            mean = mapped(lambda tensor: tensor / self.clients, noised)
            share = count / self.clients + 0.5
            factor = torch.exp(-self.learning_rate * (share - self.target_quantile))
            state = OrderedDict(
                releases=releases + 1,
                noised_sum=noised,
                noised_count=count,
                clip=torch.clamp(clip * factor, *_BOUNDS),
            )
            return state, mean

        def spent(releases: Any, clip: Any) -> Any:
            return OrderedDict(clip=clip.clone(), **self.budget.spent(releases))

        bound = fl.local_computation(value_type, _NUMBER)(bounded)
        release = fl.local_computation(value_type, _NUMBER, _NUMBER, np.int32)(released)
        spend = fl.local_computation(np.int32, _NUMBER)(spent)

        def following(state: Any, value: Any) -> Any:
            clip = state.clip
            sent = fl.federated_map(bound, (value, fl.federated_broadcast(clip)))
            total, within = fl.federated_sum(sent[0]), fl.federated_sum(sent[1])
            found = fl.federated_map(release, (total, within, clip, state.releases))
            told = fl.federated_map(spend, (found[0].releases, clip))
            return found[0], found[1], told

        first = zeros(release.type_signature.result[0])

        def begin() -> Any:
            clip = torch.tensor(self.initial_clip, dtype=torch.float64)
            return OrderedDict(mapped(torch.clone, first), clip=clip)

        return beginning(begin), following


def noise(like: Any, deviation: Any) -> Any:
    """Gaussian noise in the form of a tensor."""
    return (deviation * torch.randn_like(like)).to(like.dtype)


def clipping(value_type: Any, clip: float) -> Any:
    """A computation that holds a value to a norm."""

    def bounded(value: Any) -> Any:
        size = norm(value)
        return clipped(value, size, torch.full_like(size, clip))

    return fl.local_computation(value_type)(bounded)


def beginning(begin: Any) -> Any:
    """The computation of a first state, of a function that makes it at the server."""
    begin_locally = fl.local_computation(begin)
    return fl.federated_computation(lambda: fl.federated_eval(begin_locally, fl.SERVER))


def zeros(of: Any) -> Any:
    """Tensors of a type."""
    if not isinstance(of, fl.StructType):
        return torch.zeros(tuple(of.shape), dtype=getattr(torch, np.dtype(of.dtype).name))
    parts = [(name, zeros(field)) for name, field in of.items()]
    if any(name is not None for name, _ in parts):
        return OrderedDict(parts)
    return tuple(part for _, part in parts)
