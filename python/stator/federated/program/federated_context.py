"""Contexts in which computations give references, so that several run at the same time."""

from __future__ import annotations

import abc
from typing import Any, TypeAlias

from stator._stator.federated import (
    SERVER,
    FederatedType,
    SequenceType,
    StructType,
    TensorType,
    get_context_stack,
)
from stator.federated._abstract import Computation, SyncContext
from stator.federated.program import structure_utils
from stator.federated.program.value_reference import (
    MaterializableValue,
    MaterializableValueReference,
)

#: What a computation is called with: values, references, data of clients, other computations.
ComputationArg: TypeAlias = structure_utils.Structure[MaterializableValue] | object | Computation


class FederatedContext(SyncContext):
    """What calling a computation means in a program: a result is a structure of references."""

    @abc.abstractmethod
    def invoke(
        self, comp: Computation, arg: ComputationArg | None
    ) -> structure_utils.Structure[MaterializableValueReference]:
        """References to the result of `comp` for `arg`, which is None if it takes nothing.

        Raises `ValueError` if the result is more than what `contains_only_server_placed_data`.
        """


def contains_only_server_placed_data(type_signature: Any) -> bool:
    """Whether values of a type consist of what a program may have: tensors and sequences, at the
    server or placed nowhere, and structs of them. What isn't a type never does.

    >>> contains_only_server_placed_data(FederatedType(TensorType(np.int32), SERVER))
    True
    >>> contains_only_server_placed_data(FederatedType(TensorType(np.int32), CLIENTS))
    False
    """
    if isinstance(type_signature, StructType):
        return all(contains_only_server_placed_data(field) for _, field in type_signature.items())
    if isinstance(type_signature, FederatedType):
        return type_signature.placement == SERVER and contains_only_server_placed_data(
            type_signature.member
        )
    return isinstance(type_signature, (SequenceType, TensorType))


def check_in_federated_context() -> None:
    """Raises `ValueError` unless the current context is a `FederatedContext`: a program asks first,
    rather than when it is given results where it expects references."""
    current = get_context_stack().current
    if isinstance(current, FederatedContext):
        return
    try:
        raise ValueError(
            "the current context isn't one of a federated program\n"
            "  expected: a FederatedContext\n"
            f"  found:    {type(current).__name__}\n"
            "  hint:     with framework.get_context_stack().install(\n"
            "                program.NativeFederatedContext(execution.LocalContext())): ..."
        )
    except ValueError as error:
        # It's the caller's: a frame that raises again isn't added.
        error.__traceback__ = None
        raise
