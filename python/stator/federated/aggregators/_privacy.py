"""Differential privacy: clipped values, noise drawn once for a release, and what it costs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stator._stator import federated as _native
from stator.federated.aggregators._accounting import Budget
from stator.federated.aggregators._factories import (
    AggregationFactory,
    AggregationProcess,
    expect_count,
    expect_number,
    process,
)
from stator.federated.aggregators._gaussian import AdaptiveClip, FixedClip
from stator.federated.aggregators._trees import Tree


class DifferentiallyPrivateFactory(AggregationFactory):
    """The mean of clipped values, with Gaussian noise; see `gaussian_fixed`,
    `gaussian_adaptive` and `tree_aggregation`."""

    def __init__(self, mechanism: FixedClip | AdaptiveClip | Tree) -> None:
        self._mechanism = mechanism

    @classmethod
    @_native.hidden
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
        noise = expect_number(noise_multiplier, "noise_multiplier", above=0)
        clients = expect_number(clients_per_round, "clients_per_round", above=0)
        clip = expect_number(clip, "clip", above=0)
        budget = Budget(delta, _sampled_gaussian(noise, clients, population))
        return cls(FixedClip(noise, clients, clip, budget))

    @classmethod
    @_native.hidden
    def gaussian_adaptive(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        *,
        initial_clip: float = 0.1,
        target_quantile: float = 0.5,
        learning_rate: float = 0.2,
        count_deviation: float | None = None,
        delta: float | None,
        population: int | None = None,
    ) -> DifferentiallyPrivateFactory:
        """As `gaussian_fixed`, with a bound that follows a quantile of the clients' norms, which is
        private as well. After each round it is multiplied by `exp(-learning_rate * (share -
        target_quantile))`, where `share` is that of the clients whose norm was within it, with
        noise. The values' noise is more than `noise_multiplier * clip` by as much as that count
        takes of the budget: both together cost what `gaussian_fixed` costs.

        The bound of a round is measured as `clip`; the next one is in the state, with the count
        (`noised_count`, half of the clients subtracted).

        initial_clip: the bound of the first round.
        target_quantile: which share of the clients is to be within the bound.
        learning_rate: how fast it follows.
        count_deviation: the standard deviation of the count's noise, more than half of
            `noise_multiplier`; where nothing is said, a twentieth of `clients_per_round`, or
            `noise_multiplier` if that is more.
        """
        noise = expect_number(noise_multiplier, "noise_multiplier", above=0)
        clients = expect_number(clients_per_round, "clients_per_round", above=0)
        if count_deviation is None:
            count_deviation = max(clients / 20, noise)
        mechanism = AdaptiveClip(
            noise,
            clients,
            expect_number(initial_clip, "initial_clip", above=0),
            expect_number(target_quantile, "target_quantile", above=0, below=1),
            expect_number(learning_rate, "learning_rate", above=0),
            expect_number(count_deviation, "count_deviation", above=noise / 2),
            Budget(delta, _sampled_gaussian(noise, clients, population)),
        )
        return cls(mechanism)

    @classmethod
    @_native.hidden
    def tree_aggregation(
        cls,
        noise_multiplier: float,
        clients_per_round: float,
        clip: float,
        *,
        tree_rounds: int,
        participations: int,
        delta: float | None,
    ) -> DifferentiallyPrivateFactory:
        """Clips each client's value to a norm of `clip`, and adds noise so that the sum over all
        rounds so far has little: that of a binary tree. It is for clients that aren't chosen by
        chance. Results are divided by `clients_per_round`; with `learning.sgd()` at the server the
        weights have the noise of the sum: this is DP-FTRL.

        What holds is (epsilon, delta)-differential privacy with respect to the values of one
        client, which might be zeros. States hold the noise (`nodes`), which later results need:
        whoever sees a state sees through it. Results, weights and measurements may be seen. A round
        draws noise once, for the node that it completes.

        noise_multiplier: the standard deviation of a node's noise, in multiples of `clip`.
        tree_rounds: how many rounds a tree has. After them a new one begins, and its noise comes on
            top of what there is.
        participations: in how many rounds of a tree a client is at most. Who chooses the clients
            has to see to it.
        """
        noise = expect_number(noise_multiplier, "noise_multiplier", above=0)
        clients = expect_number(clients_per_round, "clients_per_round", above=0)
        clip = expect_number(clip, "clip", above=0)
        rounds = expect_count(tree_rounds, "tree_rounds", least=1)
        if rounds >= 1 << 30:
            raise ValueError(f"`tree_rounds` is to be less than 2**30, not {rounds}.")
        participations = expect_count(participations, "participations", least=1)
        if participations > rounds:
            raise ValueError(
                f"`participations` is {participations}, which is more than `tree_rounds`, {rounds}."
            )

        def event(accounting: Any) -> Any:
            return accounting.SingleEpochTreeAggregationDpEvent(noise, 1)

        budget = Budget(delta, event, "REPLACE_SPECIAL")
        return cls(Tree(noise, clients, clip, rounds, participations, budget))

    @property
    def is_private(self) -> bool:
        return True

    @property
    def least_clients(self) -> int:
        return 0

    @_native.hidden
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        value_type = self._check(value_type, weight_type, "f", "floating-point numbers")
        initialize, following = self._mechanism.rounds(value_type)
        return process(initialize, following, value_type, weight_type)


@_native.hidden
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


def _sampled_gaussian(
    noise_multiplier: float, clients: float, population: int | None
) -> Callable[[Any], Any]:
    """A release of a sum over clients, some of a population."""
    if population is not None:
        expect_count(population, "population", least=1)
        if population < clients:
            raise ValueError(
                f"`population` is {population}, which is less than `clients_per_round`, "
                f"{clients:g}."
            )

    def event(accounting: Any) -> Any:
        gaussian = accounting.GaussianDpEvent(noise_multiplier)
        if population is None or clients >= population:
            return gaussian
        return accounting.PoissonSampledDpEvent(clients / population, gaussian)

    return event
