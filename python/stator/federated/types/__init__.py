"""Types, and what can be asked of them."""

from __future__ import annotations

from stator.federated.types import (
    computation_types,
    placements,
    type_analysis,
    type_factory,
    type_transformations,
)

__all__ = [
    "computation_types",
    "placements",
    "type_analysis",
    "type_factory",
    "type_transformations",
]
