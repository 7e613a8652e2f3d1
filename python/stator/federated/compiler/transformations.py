"""Passes: trees in, trees out that mean the same."""

from __future__ import annotations

from stator._stator.federated import (
    inline_block_locals,
    merge_chained_selections,
    remove_unused_block_locals,
    replace_called_lambda_with_block,
    selections_by_index,
    uniquify_reference_names,
)

__all__ = [
    "inline_block_locals",
    "merge_chained_selections",
    "remove_unused_block_locals",
    "replace_called_lambda_with_block",
    "selections_by_index",
    "uniquify_reference_names",
]
