"""Questions about single building blocks."""

from __future__ import annotations

from stator._stator.federated import (
    is_called_aggregation,
    is_called_intrinsic,
    is_identity_function,
)

__all__ = [
    "is_called_aggregation",
    "is_called_intrinsic",
    "is_identity_function",
]
