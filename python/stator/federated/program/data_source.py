"""Where the data of a program's rounds comes from."""

from __future__ import annotations

import abc

from stator._stator.federated import FederatedType
from stator.federated._abstract import Serializable


class FederatedDataSourceIterator(Serializable):
    """Gives data for one round after the other.

    It is `Serializable`: as part of a program's state it goes on where it was.
    """

    @property
    @abc.abstractmethod
    def federated_type(self) -> FederatedType:
        """The type of what `select` gives."""

    @abc.abstractmethod
    def select(self, k: int | None = None) -> object:
        """The data of the next round: an argument for computations.

        k: how many clients; what that means, and whether it has to be given, is the data source's.
        """


class FederatedDataSource(abc.ABC):
    """Data of a platform, for rounds."""

    @property
    @abc.abstractmethod
    def federated_type(self) -> FederatedType:
        """The type of what its iterators give."""

    @abc.abstractmethod
    def iterator(self) -> FederatedDataSourceIterator:
        """Begins with the first round."""
