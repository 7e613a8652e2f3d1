"""Types from types."""

from __future__ import annotations

from stator._stator.federated import (
    strip_placement,
    transform_type_postorder,
)

__all__ = [
    "strip_placement",
    "transform_type_postorder",
]
