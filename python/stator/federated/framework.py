"""For those who build on the language: errors, placements, building blocks and passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator._stator.federated import (
    Arguments,
    ComputationReturnedNoneError,
    ComputationWrapper,
    ConcreteComputation,
    ContextError,
    ContextStack,
    FederatedComputationContext,
    NonuniqueNameError,
    PlacementLiteral,
    PolymorphicComputation,
    RuntimeErrorContext,
    TypeNotAssignableError,
    TypesNotEquivalentError,
    UnexpectedBlockError,
    UnexpectedTypeError,
    after,
    around,
    before,
    check_concrete_instance_of,
    check_is_structure_of_integers,
    contains_federated_types,
    contains_tensor_types,
    ensure_federated_value,
    get_context_stack,
    infer_cardinalities,
    infer_type,
    is_generic_op_compatible_type,
    is_single_integer_or_matches_structure,
    is_structure_of_floats,
    is_structure_of_integers,
    is_structure_of_tensors,
    pack_args_into_struct,
    preorder_types,
    set_default_context,
    set_no_default_context,
    structure_with_type,
    to_structure_with_type,
    transform_type_postorder,
    type_contains,
    type_contains_only,
    type_count,
    type_to_py_container,
    unpack_arg,
    unpack_args_from_struct,
    uri_to_placement_literal,
    with_context,
    wrap_as_zero_or_one_arg_callable,
)
from stator.federated._abstract import (
    AsyncContext,
    Computation,
    SymbolBindingContext,
    SyncContext,
)
from stator.federated._executors import (
    Executor,
    ExecutorFactory,
    ExecutorValue,
    RetryableError,
)

if TYPE_CHECKING:
    from stator.federated._execution_contexts import (
        AsyncExecutionContext,
        SyncExecutionContext,
    )

__all__ = [
    "Arguments",
    "AsyncContext",
    "AsyncExecutionContext",
    "Computation",
    "ComputationReturnedNoneError",
    "ComputationWrapper",
    "ConcreteComputation",
    "ContextError",
    "ContextStack",
    "Executor",
    "ExecutorFactory",
    "ExecutorValue",
    "FederatedComputationContext",
    "NonuniqueNameError",
    "PlacementLiteral",
    "PolymorphicComputation",
    "RetryableError",
    "RuntimeErrorContext",
    "SymbolBindingContext",
    "SyncContext",
    "SyncExecutionContext",
    "TypeNotAssignableError",
    "TypesNotEquivalentError",
    "UnexpectedBlockError",
    "UnexpectedTypeError",
    "after",
    "around",
    "before",
    "check_concrete_instance_of",
    "check_is_structure_of_integers",
    "contains_federated_types",
    "contains_tensor_types",
    "ensure_federated_value",
    "get_context_stack",
    "infer_cardinalities",
    "infer_type",
    "is_generic_op_compatible_type",
    "is_single_integer_or_matches_structure",
    "is_structure_of_floats",
    "is_structure_of_integers",
    "is_structure_of_tensors",
    "pack_args_into_struct",
    "preorder_types",
    "set_default_context",
    "set_no_default_context",
    "structure_with_type",
    "to_structure_with_type",
    "transform_type_postorder",
    "type_contains",
    "type_contains_only",
    "type_count",
    "type_to_py_container",
    "unpack_arg",
    "unpack_args_from_struct",
    "uri_to_placement_literal",
    "with_context",
    "wrap_as_zero_or_one_arg_callable",
]


def __getattr__(name: str) -> Any:
    # These need asyncio, whose import would take most of the time that this one takes.
    if name in ("AsyncExecutionContext", "SyncExecutionContext"):
        from stator.federated import _execution_contexts

        return getattr(_execution_contexts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
