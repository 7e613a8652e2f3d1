"""Walks and questions about trees."""

from __future__ import annotations

from stator._stator.federated import (
    NonuniqueNameError,
    check_aggregate_not_dependent_on_aggregate,
    check_broadcast_not_dependent_on_aggregate,
    check_contains_no_new_unbound_references,
    check_contains_no_unbound_references,
    check_contains_only_reducible_intrinsics,
    check_has_single_placement,
    check_has_unique_names,
    contains_called_intrinsic,
    contains_no_unbound_references,
    find_aggregations_in_tree,
    visit_postorder,
    visit_preorder,
)
from stator._stator.federated import (
    computation_count as count,
)
from stator._stator.federated import (
    tree_contains as contains,
)
from stator._stator.federated import (
    tree_contains_only as contains_only,
)

__all__ = [
    "NonuniqueNameError",
    "check_aggregate_not_dependent_on_aggregate",
    "check_broadcast_not_dependent_on_aggregate",
    "check_contains_no_new_unbound_references",
    "check_contains_no_unbound_references",
    "check_contains_only_reducible_intrinsics",
    "check_has_single_placement",
    "check_has_unique_names",
    "contains",
    "contains_called_intrinsic",
    "contains_no_unbound_references",
    "contains_only",
    "count",
    "find_aggregations_in_tree",
    "visit_postorder",
    "visit_preorder",
]
