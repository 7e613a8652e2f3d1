"""The classes of types."""

from __future__ import annotations

from stator._stator.federated import (
    AbstractType,
    FederatedType,
    FunctionType,
    PlacementType,
    SequenceType,
    StructType,
    StructWithPythonType,
    TensorType,
    Type,
    TypeNotAssignableError,
    TypesNotEquivalentError,
    UnexpectedTypeError,
    to_type,
)

__all__ = [
    "AbstractType",
    "FederatedType",
    "FunctionType",
    "PlacementType",
    "SequenceType",
    "StructType",
    "StructWithPythonType",
    "TensorType",
    "Type",
    "TypeNotAssignableError",
    "TypesNotEquivalentError",
    "UnexpectedTypeError",
    "to_type",
]
