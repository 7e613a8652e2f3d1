"""Who takes part in a round: clients are chosen, some drop out, the first ones that report count.

What is chosen depends on a seed and the round's number alone. So there is nothing to save: whoever
resumes at a round chooses the same clients.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from stator._stator import federated as _native
from stator.federated._executors import RetryableError
from stator.federated._positions import expect_positions
from stator.federated.aggregators._factories import expect_count, expect_number


class QuorumError(RetryableError):
    """A round in which too few clients have reported. The state before it is as it was; the round
    may be tried again, with other clients or later.

    round_number, reported, quorum: which round (the first one is 0), how many have, and how many
        should have.
    """

    def __init__(self, round_number: int, reported: int, quorum: int) -> None:
        super().__init__(round_number, reported, quorum)
        self.round_number, self.reported, self.quorum = round_number, reported, quorum

    def __str__(self) -> str:
        return (
            f"a round has {self.reported} clients that report, where its quorum is {self.quorum}: "
            "try it again, choose more clients, or lower the quorum."
        )


class ClientUnavailableError(Exception):
    """A client takes no part: raised by what loads a client's rows."""


class ClientSampler(abc.ABC):
    """Chooses clients for rounds, by their positions."""

    @property
    @abc.abstractmethod
    def clients(self) -> int:
        """How many clients there are to choose from."""

    @abc.abstractmethod
    def sample(self, round_number: int, attempt: int = 0) -> list[int]:
        """The positions of the clients that are asked to take part in a round, each once, in the
        order in which they are asked. The same for the same arguments."""


@_native.hidden
@dataclasses.dataclass(frozen=True)
class UniformSampler(ClientSampler):
    """A fixed number of clients in each round, each as likely as any other.

    population: how many clients there are.
    clients_per_round: how many are asked.
    seed: another one chooses other clients.
    """

    population: int
    clients_per_round: int
    seed: int = 0

    def __post_init__(self) -> None:
        expect_count(self.population, "population", least=1)
        expect_count(self.clients_per_round, "clients_per_round", least=1)
        expect_count(self.seed, "seed", least=0)
        if self.clients_per_round > self.population:
            raise ValueError(
                f"`clients_per_round` is {self.clients_per_round}, which is more than "
                f"`population`, {self.population}."
            )

    @property
    def clients(self) -> int:
        return self.population

    def sample(self, round_number: int, attempt: int = 0) -> list[int]:
        drawn = _generator(self.seed, _CHOICE, round_number, attempt)
        chosen = drawn.choice(self.population, self.clients_per_round, replace=False)
        return [int(position) for position in chosen]


@_native.hidden
@dataclasses.dataclass(frozen=True)
class PoissonSampler(ClientSampler):
    """Each client by chance, independently of the others: what differential privacy counts as
    amplification by sampling (`population=` of `DifferentiallyPrivateFactory.gaussian_fixed`).

    population: how many clients there are.
    probability: of a client to be asked.
    seed: another one chooses other clients. For privacy nobody may know it.
    """

    population: int
    probability: float
    seed: int = 0

    def __post_init__(self) -> None:
        expect_count(self.population, "population", least=1)
        expect_count(self.seed, "seed", least=0)
        if self.probability != 1:
            expect_number(self.probability, "probability", above=0, below=1)

    @property
    def clients(self) -> int:
        return self.population

    def sample(self, round_number: int, attempt: int = 0) -> list[int]:
        drawn = _generator(self.seed, _CHOICE, round_number, attempt)
        asked = np.flatnonzero(drawn.random(self.population) < self.probability)
        return [int(position) for position in asked]


@_native.hidden
@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of a round: those that a sampler chooses, in its order, without those that drop
    out, and no more than wanted.

    sampler: chooses clients.
    report_goal: how many clients are waited for; the sampler chooses more (over-selection), and the
        round is that of the first ones. `None`: all that report.
    quorum: with fewer clients the round raises `QuorumError`.
    dropout: the probability that a client which was asked doesn't report, in a simulation. Which
        ones drop out depends on the sampler's seed and the round alone.
    latency: how many seconds a client takes to report, in a simulation: a function of its position
        and the round's number. The first ones that report are those that take least.
    deadline: after how many seconds nobody is waited for any more.
    """

    sampler: ClientSampler
    report_goal: int | None = None
    quorum: int = 1
    dropout: float = 0.0
    latency: Callable[[int, int], float] | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, ClientSampler):
            raise TypeError(f"`sampler` is to be a ClientSampler, not {self.sampler!r}.")
        expect_count(self.quorum, "quorum", least=0)
        if self.dropout != 0:
            expect_number(self.dropout, "dropout", above=0, below=1)
        if self.report_goal is not None:
            expect_count(self.report_goal, "report_goal", least=1)
            if self.quorum > self.report_goal:
                raise ValueError(
                    f"`quorum` is {self.quorum}, which is more than `report_goal`, "
                    f"{self.report_goal}: no round would ever have it."
                )
        if self.latency is not None and not callable(self.latency):
            raise TypeError(
                "`latency` is to be a function of a client's position and a round's number, not "
                f"{self.latency!r}."
            )
        if self.deadline is not None:
            expect_number(self.deadline, "deadline", above=0)
            if self.latency is None:
                raise ValueError(
                    "`deadline` is for a simulation, which `latency` says: how many seconds each "
                    "client takes. Work on machines of a cluster has `RayContext(timeout=...)`."
                )

    def gather(
        self, load: Callable[[int], Any], round_number: int, attempt: int = 0
    ) -> tuple[list[int], list[Any]]:
        """The positions of a round's clients, and what `load` gives for each. One for which it
        raises `ClientUnavailableError` has dropped out."""
        chosen = self.sampler.sample(round_number, attempt)
        asked = expect_positions(chosen, self.sampler.clients, self.sampler)
        seed = getattr(self.sampler, "seed", 0)
        leaves = _generator(seed, _DROPOUT, round_number, attempt).random(len(asked)) < self.dropout
        there = [position for position, gone in zip(asked, leaves, strict=True) if not gone]
        found: dict[int, Any] = {}
        for position in self._in_time(there, round_number):
            if self.report_goal is not None and len(found) == self.report_goal:
                break
            with contextlib.suppress(ClientUnavailableError):
                found[position] = load(position)
        if len(found) < self.quorum:
            raise QuorumError(round_number, len(found), self.quorum)
        reported = [position for position in there if position in found]
        return reported, [found[position] for position in reported]

    def _in_time(self, there: list[int], round_number: int) -> list[int]:
        """The clients that report in time, the first ones first."""
        if self.latency is None:
            return there
        taken = {position: self.latency(position, round_number) for position in there}
        for position, seconds in taken.items():
            if (
                isinstance(seconds, bool)
                or not isinstance(seconds, numbers.Real)
                or not seconds >= 0
            ):
                raise ValueError(
                    f"`latency` is to give seconds, 0 or more, not {seconds!r} for client "
                    f"{position} in round {round_number}."
                )
        limit = math.inf if self.deadline is None else self.deadline
        in_order = sorted(there, key=taken.__getitem__)
        return [each for each in in_order if taken[each] <= limit and taken[each] < math.inf]


_CHOICE, _DROPOUT = 0, 1


def _generator(seed: int, purpose: int, *numbers: int) -> np.random.Generator:
    """A generator for these numbers alone."""
    return np.random.default_rng([seed, purpose, *numbers])
