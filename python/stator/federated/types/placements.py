"""Where federated values live."""

from __future__ import annotations

from stator._stator.federated import (
    CLIENTS,
    SERVER,
    PlacementLiteral,
    uri_to_placement_literal,
)

__all__ = [
    "CLIENTS",
    "SERVER",
    "PlacementLiteral",
    "uri_to_placement_literal",
]
