"""The interfaces of executors: what runs computations, for those who write their own."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

from stator._stator import federated as _native
from stator.federated._abstract import TypedObject


class RetryableError(Exception):
    """Running failed, and may succeed if it is tried again."""


class ClientsLostError(RetryableError):
    """The work of some clients couldn't be done, through no fault of the program. Nothing of the
    call counts: it may be made again, also without them.

    clients: which ones, counted from 0 in their order.
    """

    def __init__(self, message: str, clients: range) -> None:
        super().__init__(message, clients)
        self.message = message
        self.clients = clients

    def __str__(self) -> str:
        return self.message


class ExecutorValue(TypedObject):
    """A value that an executor holds; it may not have been computed yet."""

    @property
    @abc.abstractmethod
    def reference(self) -> Any:
        """What the executor knows the value by."""

    @abc.abstractmethod
    async def compute(self) -> Any:
        """The value as a Python object."""


class Executor(abc.ABC):
    """Runs computations."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what it holds."""

    @abc.abstractmethod
    async def create_value(self, value: Any, type_spec: Any = None) -> ExecutorValue:
        """Takes in a Python object, or a computation, of type `type_spec`."""

    @abc.abstractmethod
    async def create_call(
        self, comp: ExecutorValue, arg: ExecutorValue | None = None
    ) -> ExecutorValue:
        """What the computation gives for the argument."""

    @abc.abstractmethod
    async def create_struct(self, elements: Iterable[Any]) -> ExecutorValue:
        """A struct of values."""

    @abc.abstractmethod
    async def create_selection(self, source: ExecutorValue, index: int) -> ExecutorValue:
        """One field of a struct."""


class ExecutorFactory(abc.ABC):
    """Makes executors and owns them."""

    @abc.abstractmethod
    def create_executor(self, cardinalities: Mapping[_native.PlacementLiteral, int]) -> Executor:
        """An executor for so many places at each placement."""

    @abc.abstractmethod
    def clean_up_executor(self, cardinalities: Mapping[_native.PlacementLiteral, int]) -> None:
        """Lets go of the executor for so many places at each placement."""
