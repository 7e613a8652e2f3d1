"""Differential privacy: clipped values, one draw of noise for what is released, and what it costs.

McMahan et al., Learning Differentially Private Recurrent Language Models, 2018 (arXiv 1710.06963).
What a release costs is counted in Rényi differential privacy by the package `dp-accounting`; the
constants it gives are part of the computation, which adds them up itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    expect_count,
    expect_number,
    mapped,
    process,
)
from stator.federated.aggregators._norms import clipped, norm


class DifferentiallyPrivateFactory(AggregationFactory):
    """The mean of clipped values, with Gaussian noise; see `gaussian_fixed`."""

    def __init__(
        self,
        noise_multiplier: float,
        clients_per_round: float,
        clip: float,
        delta: float | None,
        population: int | None,
    ) -> None:
        self._noise = expect_number(noise_multiplier, "noise_multiplier", above=0)
        self._clients = expect_number(clients_per_round, "clients_per_round", above=0)
        self._clip = expect_number(clip, "clip", above=0)
        self._delta = None if delta is None else expect_number(delta, "delta", above=0, below=1)
        if population is not None:
            expect_count(population, "population", least=1)
            if population < self._clients:
                raise ValueError(
                    f"`population` is {population}, which is less than `clients_per_round`, "
                    f"{self._clients:g}."
                )
        self._costs = None if delta is None else _costs(self._noise, self._clients, population)

    @classmethod
    def gaussian_fixed(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        clip: float,
        *,
        delta: float | None,
        population: int | None = None,
    ) -> DifferentiallyPrivateFactory:
        """Clips each client's value to a norm of `clip`, adds Gaussian noise to the sum, and
        divides by `clients_per_round`, whatever the number of clients is: it was said before.

        What holds is (epsilon, delta)-differential privacy with respect to one client more or less,
        as long as nothing but states and results is seen. Noise is drawn once for a release, and
        kept with its sum in the state. It comes from PyTorch's generator, which isn't
        cryptographic: whoever knows its seed knows the noise.

        noise_multiplier: the noise's standard deviation, in multiples of `clip`.
        clients_per_round: how many clients a round has on average.
        clip: what a client's value may be, as a norm. What isn't finite counts as zero.
        delta: measures epsilon for this delta over all releases; needs the package
            `dp-accounting`. `None`: nothing is measured.
        population: how many clients there are, if each is in a round by chance, independently of
            the others (Poisson sampling), with a probability of `clients_per_round / population`.
            `None`: any client may be in any round.
        """
        return cls(noise_multiplier, clients_per_round, clip, delta, population)

    @property
    def is_private(self) -> bool:
        return True

    @property
    def least_clients(self) -> int:
        return 0

    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "f", "floating-point numbers")
        deviation = self._noise * self._clip

        def bounded(value: Any) -> Any:
            size = norm(value)
            return clipped(value, size, torch.full_like(size, self._clip))

        def released(total: Any, releases: Any) -> Any:
            noised = mapped(lambda tensor: tensor + deviation * torch.randn_like(tensor), total)
            mean = mapped(lambda tensor: tensor / self._clients, noised)
            return OrderedDict(releases=releases + 1, noised_sum=noised), mean

        def spent(releases: Any) -> Any:
            return OrderedDict() if self._costs is None else self._epsilon(releases)

        bound = fl.local_computation(value_type)(bounded)
        release = fl.local_computation(value_type, np.int32)(released)
        of_state = release.type_signature.result[0]
        spend = fl.local_computation(np.int32)(spent)
        zeros = _zeros(of_state)
        begin_locally = fl.local_computation(lambda: mapped(torch.clone, zeros))

        def initialize() -> Any:
            return fl.federated_eval(begin_locally, fl.SERVER)

        def following(state: Any, value: Any) -> Any:
            total = fl.federated_sum(fl.federated_map(bound, value))
            found = fl.federated_map(release, (total, state.releases))
            return found[0], found[1], fl.federated_map(spend, found[0].releases)

        return process(fl.federated_computation(initialize), following, value_type, weight_type)

    def _epsilon(self, releases: Any) -> Any:
        """Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, 2020 (arXiv
        2004.00010), proposition 12: the least bound over all orders."""
        orders, costs = (torch.tensor(each, dtype=torch.float64) for each in self._costs or ())
        total, delta = costs * releases, torch.tensor(self._delta, dtype=torch.float64)
        bounds = total + torch.log1p(-1 / orders) - torch.log(delta * orders) / (orders - 1)
        # So near to nothing that the distance alone is below delta.
        bounds = torch.where(delta**2 + torch.expm1(-total) > 0, 0.0, bounds)
        return OrderedDict(epsilon=bounds.min().clamp(min=0))


def charged(state: Mapping[str, Any], releases: int = 1) -> OrderedDict[str, Any]:
    """The state of a process with more releases charged than it knows of: those of rounds that were
    taken from an earlier state, and whose results somebody has seen. Each draws noise anew, so each
    costs what a release costs.

    state: of a process that trains with a `DifferentiallyPrivateFactory`, or of its aggregator.
    """
    expect_count(releases, "releases", least=0)
    if "releases" in state:
        return OrderedDict(state, releases=np.int32(state["releases"] + releases))
    if "aggregator" not in state:
        raise ValueError("`state` isn't that of a process with a DifferentiallyPrivateFactory.")
    return OrderedDict(state, aggregator=charged(state["aggregator"], releases))


def _costs(
    noise_multiplier: float, clients: float, population: int | None
) -> tuple[list[float], list[float]]:
    """Orders, and what a release costs at each."""
    try:
        import dp_accounting
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the privacy budget is counted by the package dp-accounting, which isn't installed: "
            "`pip install stator[privacy]`, or give `delta=None` to count it elsewhere.",
            name=error.name,
        ) from error
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    if population is not None and clients < population:
        event = dp_accounting.PoissonSampledDpEvent(clients / population, event)
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(event)
    # The bound means nothing for orders near 1.
    found = [
        (float(order), float(cost))
        for order, cost in zip(accountant.orders, accountant.rdp, strict=True)
        if order > 1.01 and np.isfinite(cost)
    ]
    return [order for order, _ in found], [cost for _, cost in found]


def _zeros(of: Any) -> Any:
    """Tensors of a type."""
    if not isinstance(of, fl.StructType):
        return torch.zeros(tuple(of.shape), dtype=getattr(torch, np.dtype(of.dtype).name))
    parts = [(name, _zeros(field)) for name, field in of.items()]
    if any(name is not None for name, _ in parts):
        return OrderedDict(parts)
    return tuple(part for _, part in parts)
