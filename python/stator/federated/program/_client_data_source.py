"""The data of clients, as a program takes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from stator._stator import federated as _native
from stator._stator.federated import CLIENTS, FederatedType
from stator.federated._positions import expect_positions
from stator.federated.program.data_source import (
    FederatedDataSource,
    FederatedDataSourceIterator,
)


@_native.hidden
class ClientDataSourceIterator(FederatedDataSourceIterator):
    """Chooses clients for one round after the other: made by `ClientDataSource.iterator`.

    Written as bytes it is the number of the round, without the clients' data. So each data source
    has a class of its own for its iterators, and `type(iterator).from_bytes` gives one of the same
    data source: in a program that was begun anew, of the one that was made there.
    """

    _source: ClassVar[ClientDataSource | None] = None

    def __init__(self) -> None:
        if self._source is None:
            raise TypeError(
                "an iterator is made by its data source\n"
                "  hint:     ClientDataSource(data, federated_type).iterator()"
            )
        self._round = 0
        self._attempt = 0

    @property
    def federated_type(self) -> FederatedType:
        """The type of what `select` gives."""
        return self._of().federated_type

    @property
    def round_number(self) -> int:
        """How many rounds have had their data."""
        return self._round

    def select(self, k: int | None = None) -> list[Any]:
        """What the clients of the next round have.

        k: how many clients are chosen at random, each as likely as any other; where nothing is
            said, those that the sampler chooses, or all if there is none.

        Raises `ValueError` if there aren't so many clients, or a sampler is to choose them. What
        the sampler raises, such as `learning.QuorumError`, leaves the round as it is: the next
        call chooses other clients for it.
        """
        try:
            found = self._of()._select(self._round, self._attempt, k)
        except Exception:
            self._attempt += 1
            raise
        self._round += 1
        self._attempt = 0
        return found

    def to_bytes(self) -> bytes:
        """Where it is, as bytes."""
        told = {**self._of()._told(), "round": self._round, "attempt": self._attempt}
        return json.dumps(told).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ClientDataSourceIterator:
        """The iterator of this data source that goes on where the written one was.

        Raises `ValueError` if that was of a data source with other clients, another type or seed.
        """
        found = cls()
        expected = found._of()._told()
        try:
            told = json.loads(data)
            found._round, found._attempt = int(told.pop("round")), int(told.pop("attempt"))
        except (ValueError, TypeError, LookupError, AttributeError):
            raise ValueError("these bytes are no iterator of a ClientDataSource.") from None
        if told != expected:
            raise ValueError(
                "an iterator of another data source was written\n"
                f"  expected: {expected}\n  found:    {told}"
            )
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClientDataSourceIterator):
            return NotImplemented
        return type(self) is type(other) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def _of(self) -> ClientDataSource:
        assert self._source is not None
        return self._source


@_native.hidden
class ClientDataSource(FederatedDataSource):
    """Data of clients that this process can load.

    data: `data[position]` is what a client has: `learning.ClientData`, or a list.
    federated_type: the type of a round's data, at the clients: such as the second parameter of a
        learning process's `next`.
    sampler: chooses the clients of a round: a `learning.ClientSampler` or `learning.Cohort`, or
        something else whose `sample(round_number, attempt)` gives positions.
    seed: another one chooses other clients, where there is no sampler.

        source = ClientDataSource(data, process.next.type_signature.parameter[1], seed=1)
        iterator = source.iterator()
        rows = iterator.select(10)

    Raises `TypeError` if the type isn't one of clients, `ValueError` if there are no clients or the
    sampler is for another number of them.
    """

    def __init__(
        self,
        data: Sequence[Any],
        federated_type: FederatedType,
        *,
        sampler: Any = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(federated_type, FederatedType) or federated_type.placement != CLIENTS:
            raise TypeError(
                "`federated_type` is to be the type of what clients have\n"
                "  expected: such as {int32*}@CLIENTS\n"
                f"  found:    {federated_type}"
            )
        if not len(data):
            raise ValueError("`data` has no clients.")
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"`seed` is to be an integer, 0 or more, not {seed!r}.")
        if sampler is not None:
            self._check_sampler(sampler, len(data))
        self._data = data
        self._type = federated_type
        self._sampler = sampler
        self._seed = seed
        self._class: type[ClientDataSourceIterator] = type(
            ClientDataSourceIterator.__name__,
            (ClientDataSourceIterator,),
            {
                "_source": self,
                "__module__": __name__,
                "__qualname__": ClientDataSourceIterator.__qualname__,
                "__doc__": ClientDataSourceIterator.__doc__,
            },
        )

    @property
    def federated_type(self) -> FederatedType:
        """The type of a round's data."""
        return self._type

    def iterator(self) -> ClientDataSourceIterator:
        """Begins with the first round."""
        return self._class()

    @staticmethod
    def _check_sampler(sampler: Any, clients: int) -> None:
        chooser = getattr(sampler, "sampler", sampler)
        if not callable(getattr(chooser, "sample", None)):
            raise TypeError(
                f"`sampler` is to be a learning.ClientSampler or learning.Cohort, not {sampler!r}."
            )
        count = getattr(chooser, "clients", clients)
        if count != clients:
            raise ValueError(f"the sampler is for {count} clients, where `data` has {clients}.")

    def _told(self) -> dict[str, Any]:
        """What an iterator that goes on must have in common with the one that was written."""
        return {"clients": len(self._data), "type": str(self._type), "seed": self._seed}

    def _select(self, number: int, attempt: int, k: int | None) -> list[Any]:
        count = len(self._data)
        if k is not None:
            if self._sampler is not None:
                raise ValueError("the sampler says how many clients a round has: leave `k` out.")
            if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= count:
                raise ValueError(f"`k` is to be an integer from 1 to {count}, not {k!r}.")
            drawn = np.random.default_rng([self._seed, number])
            return [self._data[int(at)] for at in drawn.choice(count, int(k), replace=False)]
        if self._sampler is None:
            return [self._data[at] for at in range(count)]
        if callable(getattr(self._sampler, "gather", None)):
            _, rows = self._sampler.gather(self._data.__getitem__, number, attempt)
            return list(rows)
        chosen = self._sampler.sample(number, attempt)
        return [self._data[at] for at in expect_positions(chosen, count, self._sampler)]
