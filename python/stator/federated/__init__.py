"""Federated computations: functions over values that live at many clients and at a server."""

from __future__ import annotations

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
    to_type,
)

__all__ = [
    "CLIENTS",
    "SERVER",
    "AbstractType",
    "FederatedType",
    "FunctionType",
    "PlacementType",
    "SequenceType",
    "StructType",
    "StructWithPythonType",
    "TensorType",
    "Type",
    "to_type",
]
