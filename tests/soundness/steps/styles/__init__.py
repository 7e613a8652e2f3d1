"""Training steps as people write them."""

from . import frameworks, going_back, loops, optimizing
from .parts import STYLES, batch

__all__ = ["STYLES", "batch", "frameworks", "going_back", "loops", "optimizing"]
