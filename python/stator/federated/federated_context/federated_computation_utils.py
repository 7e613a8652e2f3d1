"""From a function to a building block."""

from __future__ import annotations

from stator._stator.federated import zero_or_one_arg_fn_to_building_block

__all__ = ["zero_or_one_arg_fn_to_building_block"]
