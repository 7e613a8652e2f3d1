"""The nodes of the syntax tree."""

from __future__ import annotations

from stator._stator.federated import (
    AnyMessage,
    Block,
    Call,
    CompiledComputation,
    ComputationBuildingBlock,
    Data,
    Intrinsic,
    Lambda,
    Literal,
    Placement,
    Reference,
    Selection,
    UnexpectedBlockError,
)
from stator._stator.federated import (
    StructBlock as Struct,
)

__all__ = [
    "AnyMessage",
    "Block",
    "Call",
    "CompiledComputation",
    "ComputationBuildingBlock",
    "Data",
    "Intrinsic",
    "Lambda",
    "Literal",
    "Placement",
    "Reference",
    "Selection",
    "Struct",
    "UnexpectedBlockError",
]
