"""Values that may still be computed, and how one waits for them."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias, Union

import numpy as np

from stator._stator.federated import SequenceType, TensorType
from stator.federated._abstract import TypedObject
from stator.federated.program import structure_utils

_Array: TypeAlias = bool | int | float | complex | str | bytes | np.generic | np.ndarray[Any, Any]

#: The type of what a reference stands for.
MaterializableTypeSignature: TypeAlias = TensorType | SequenceType
#: What a reference gives.
MaterializedValue: TypeAlias = _Array | Iterable[_Array]
#: The same, in containers.
MaterializedStructure: TypeAlias = structure_utils.Structure[MaterializedValue]
#: A value, or a reference to one.
MaterializableValue: TypeAlias = Union[MaterializedValue, "MaterializableValueReference"]
#: The same, in containers.
MaterializableStructure: TypeAlias = structure_utils.Structure[MaterializableValue]


class MaterializableValueReference(TypedObject):
    """Stands for a value that may be somewhere else, or not be computed yet.

    Derive from it for values of a platform of your own:

        class Remote(MaterializableValueReference):
            @property
            def type_signature(self):
                return TensorType(np.int32)

            async def get_value(self):
                return await fetch(...)
    """

    @property
    @abc.abstractmethod
    def type_signature(self) -> MaterializableTypeSignature:
        """The type of the value."""

    @abc.abstractmethod
    async def get_value(self) -> MaterializedValue:
        """The value, once it is there. Raises what computing it raised."""


async def materialize_value(value: MaterializableStructure) -> Any:
    """The structure with values in the place of references, which are awaited at the same time.

    >>> asyncio.run(materialize_value({"loss": 0.5, "rounds": [1, 2]}))
    {'loss': 0.5, 'rounds': [1, 2]}

    Objects that aren't containers of `structure_utils` stay as they are. Raises what a reference
    raises; if several do, what the first to do so raises.
    """
    values = structure_utils.flatten(value)
    return structure_utils.unflatten_as(value, await asyncio.gather(*map(_materialized, values)))


async def _materialized(value: Any) -> Any:
    if isinstance(value, MaterializableValueReference):
        return await value.get_value()
    return value
