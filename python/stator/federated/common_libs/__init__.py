"""What the language is built on: the container of values with and without names."""

from __future__ import annotations

from stator.federated.common_libs import (
    structure,
)

__all__ = [
    "structure",
]
