"""Questions about types."""

from __future__ import annotations

from stator._stator.federated import (
    MismatchedConcreteTypesError,
    MismatchedStructureError,
    MissingDefiningUsageError,
    NotConcreteTypeError,
    SumIncompatibleError,
    UnassignableConcreteTypesError,
    check_concrete_instance_of,
    check_federated_type,
    check_is_structure_of_integers,
    check_is_sum_compatible,
    contains_federated_types,
    contains_tensor_types,
    is_average_compatible,
    is_generic_op_compatible_type,
    is_min_max_compatible,
    is_single_integer_or_matches_structure,
    is_structure_of_floats,
    is_structure_of_integers,
    is_structure_of_tensors,
    preorder_types,
)
from stator._stator.federated import (
    type_contains as contains,
)
from stator._stator.federated import (
    type_contains_only as contains_only,
)
from stator._stator.federated import (
    type_count as count,
)

__all__ = [
    "MismatchedConcreteTypesError",
    "MismatchedStructureError",
    "MissingDefiningUsageError",
    "NotConcreteTypeError",
    "SumIncompatibleError",
    "UnassignableConcreteTypesError",
    "check_concrete_instance_of",
    "check_federated_type",
    "check_is_structure_of_integers",
    "check_is_sum_compatible",
    "contains",
    "contains_federated_types",
    "contains_only",
    "contains_tensor_types",
    "count",
    "is_average_compatible",
    "is_generic_op_compatible_type",
    "is_min_max_compatible",
    "is_single_integer_or_matches_structure",
    "is_structure_of_floats",
    "is_structure_of_integers",
    "is_structure_of_tensors",
    "preorder_types",
]
