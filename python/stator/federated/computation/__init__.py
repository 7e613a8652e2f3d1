"""Computations, and how their arguments are packed."""

from __future__ import annotations

from stator.federated.computation import (
    function_utils,
)

__all__ = [
    "function_utils",
]
