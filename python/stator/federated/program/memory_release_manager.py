"""Releasing to memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from stator.federated.program.release_manager import ReleasableStructure, ReleaseManager
from stator.federated.program.value_reference import materialize_value


class MemoryReleaseManager(ReleaseManager[ReleasableStructure, Hashable]):
    """Keeps what is released: for notebooks and tests.

    >>> manager = MemoryReleaseManager()
    >>> asyncio.run(manager.release({"loss": 0.5}, 1))
    >>> dict(manager.values())
    {1: {'loss': 0.5}}
    """

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, ReleasableStructure] = OrderedDict()

    async def release(self, value: ReleasableStructure, key: Hashable) -> None:
        """Keeps a value, in the place of one with the same key. Raises `TypeError` if the key can't
        be that of a dictionary."""
        hash(key)
        self._values[key] = await materialize_value(value)  # type: ignore[arg-type]

    def values(self) -> OrderedDict[Hashable, ReleasableStructure]:
        """What was released, by its keys, in the order in which they came first."""
        return OrderedDict(self._values)

    def remove_all(self) -> None:
        """Forgets all."""
        self._values.clear()
