"""Training steps as people write them."""

from . import going_back, loops, optimizing
from .parts import STYLES, batch

__all__ = ["STYLES", "batch", "going_back", "loops", "optimizing"]
