"""The rules for padded rows of all files."""

from __future__ import annotations

from stator._program_tracing import (
    padding_layers,
    padding_order,
    padding_pairs,
    padding_puts,
    padding_shapes,
    padding_windows,
)
from stator._program_tracing.padding import Padding

__all__ = ["FILES", "Padding"]

FILES = (
    *(padding_layers, padding_order, padding_pairs, padding_puts, padding_shapes),
    padding_windows,
)
"""They add their rules where they are imported."""
