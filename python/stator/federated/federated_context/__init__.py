"""The context in which federated computations are traced."""

from __future__ import annotations

from stator.federated.federated_context import (
    federated_computation_utils,
    value_utils,
)

__all__ = [
    "federated_computation_utils",
    "value_utils",
]
