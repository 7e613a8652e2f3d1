"""Transformations of trees, and what names are bound to meanwhile."""

from __future__ import annotations

import abc
from typing import Any

from stator._stator.federated import (
    ComputationBuildingBlock,
    SymbolTree,
    get_map_of_unbound_references,
    get_unique_names,
    transform_postorder,
    transform_postorder_with_symbol_bindings,
    transform_preorder,
)


class BoundVariableTracker(abc.ABC):
    """What a `SymbolTree` knows of a name: derive from it to know more.

    It calls `update` when it is told that the name is used.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def update(self, value: Any = None) -> None:  # noqa: B027
        """Takes note of a use of the name."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """How it looks in the text of a tree."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, BoundVariableTracker):
            return NotImplemented
        if self.name != other.name:
            return False
        if isinstance(self.value, ComputationBuildingBlock) and isinstance(
            other.value, ComputationBuildingBlock
        ):
            # References equal themselves only: what counts here is how blocks look.
            return str(self.value) == str(other.value) and bool(
                self.value.type_signature.is_equivalent_to(other.value.type_signature)
            )
        return bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


class ReferenceCounter(BoundVariableTracker):
    """Counts how often a name is used."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.count = 0

    def update(self, value: Any = None) -> None:
        self.count += 1

    def __str__(self) -> str:
        return f"Instance count: {self.count}; value: {self.value}; name: {self.name}."

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReferenceCounter):
            return NotImplemented
        return self.count == other.count and super().__eq__(other)

    __hash__ = None


__all__ = [
    "BoundVariableTracker",
    "ReferenceCounter",
    "SymbolTree",
    "get_map_of_unbound_references",
    "get_unique_names",
    "transform_postorder",
    "transform_postorder_with_symbol_bindings",
    "transform_preorder",
]
