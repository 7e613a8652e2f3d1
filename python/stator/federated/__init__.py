"""Federated computations: functions over values that live at many clients and at a server."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from stator._stator.federated import (
    CLIENTS,
    SERVER,
    AbstractType,
    FederatedType,
    FunctionType,
    PlacementType,
    SequenceType,
    StructType,
    StructWithPythonType,
    TensorType,
    Type,
    Value,
    array_from_proto,
    array_from_proto_content,
    array_is_compatible_dtype,
    array_is_compatible_shape,
    array_shape_from_proto,
    array_shape_is_compatible_with,
    array_shape_is_fully_defined,
    array_shape_is_scalar,
    array_shape_to_proto,
    array_to_proto,
    array_to_proto_content,
    can_cast_dtype,
    dtype_from_proto,
    dtype_to_proto,
    federated_aggregate,
    federated_broadcast,
    federated_collect,
    federated_computation,
    federated_eval,
    federated_map,
    federated_max,
    federated_mean,
    federated_min,
    federated_secure_select,
    federated_secure_sum,
    federated_secure_sum_bitwidth,
    federated_select,
    federated_sum,
    federated_value,
    federated_zip,
    infer_dtype,
    is_valid_dtype,
    local_computation,
    num_elements_in_array_shape,
    parse_type,
    sequence_map,
    sequence_reduce,
    sequence_sum,
    to_type,
    to_value,
)
from stator.federated import execution, framework
from stator.federated._abstract import (
    Computation,
    Serializable,
    TypedObject,
)

#: What stands for an array: NumPy's values, and Python's own numbers and strings.
Array: TypeAlias = bool | int | float | complex | str | bytes | np.generic | np.ndarray[Any, Any]
#: The size of each dimension, `None` where it isn't known; `None` if the rank isn't known.
ArrayShape: TypeAlias = Sequence[int | None] | None

__all__ = [
    "CLIENTS",
    "SERVER",
    "AbstractType",
    "Array",
    "ArrayShape",
    "Computation",
    "FederatedType",
    "FunctionType",
    "PlacementType",
    "SequenceType",
    "Serializable",
    "StructType",
    "StructWithPythonType",
    "TensorType",
    "Type",
    "TypedObject",
    "Value",
    "array_from_proto",
    "array_from_proto_content",
    "array_is_compatible_dtype",
    "array_is_compatible_shape",
    "array_shape_from_proto",
    "array_shape_is_compatible_with",
    "array_shape_is_fully_defined",
    "array_shape_is_scalar",
    "array_shape_to_proto",
    "array_to_proto",
    "array_to_proto_content",
    "can_cast_dtype",
    "dtype_from_proto",
    "dtype_to_proto",
    "execution",
    "federated_aggregate",
    "federated_broadcast",
    "federated_collect",
    "federated_computation",
    "federated_eval",
    "federated_map",
    "federated_max",
    "federated_mean",
    "federated_min",
    "federated_secure_select",
    "federated_secure_sum",
    "federated_secure_sum_bitwidth",
    "federated_select",
    "federated_sum",
    "federated_value",
    "federated_zip",
    "framework",
    "infer_dtype",
    "is_valid_dtype",
    "local_computation",
    "num_elements_in_array_shape",
    "parse_type",
    "sequence_map",
    "sequence_reduce",
    "sequence_sum",
    "to_type",
    "to_value",
]

#: Packages that are imported when they are first asked for.
_PACKAGES = frozenset(
    {"common_libs", "compiler", "computation", "federated_context", "program", "types"}
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
