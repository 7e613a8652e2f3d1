"""For those who build on the language: errors, placements, building blocks and passes."""

from __future__ import annotations

from stator._stator.federated import (
    ContextError,
    NonuniqueNameError,
    PlacementLiteral,
    TypeNotAssignableError,
    TypesNotEquivalentError,
    UnexpectedBlockError,
    UnexpectedTypeError,
    uri_to_placement_literal,
)

__all__ = [
    "ContextError",
    "NonuniqueNameError",
    "PlacementLiteral",
    "TypeNotAssignableError",
    "TypesNotEquivalentError",
    "UnexpectedBlockError",
    "UnexpectedTypeError",
    "uri_to_placement_literal",
]
