"""Building blocks, and what is done with them."""

from __future__ import annotations

from stator.federated.compiler import (
    building_block_analysis,
    building_block_factory,
    building_blocks,
    intrinsic_defs,
    transformation_utils,
    transformations,
    tree_analysis,
)

__all__ = [
    "building_block_analysis",
    "building_block_factory",
    "building_blocks",
    "intrinsic_defs",
    "transformation_utils",
    "transformations",
    "tree_analysis",
]
