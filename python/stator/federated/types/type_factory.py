"""Types of common functions."""

from __future__ import annotations

from stator._stator.federated import (
    binary_op,
    reduction_op,
    unary_op,
)

__all__ = [
    "binary_op",
    "reduction_op",
    "unary_op",
]
