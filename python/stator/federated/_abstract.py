"""The abstract classes of the language, from which users derive their own."""

from __future__ import annotations

import abc
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from stator._stator import federated as _native


class TypedObject(abc.ABC):
    """An object with a type of the language."""

    @property
    @abc.abstractmethod
    def type_signature(self) -> _native.Type:
        """Its type."""


class Computation(TypedObject):
    """A computation: something typed that can be called."""

    @abc.abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it in the current context."""

    @abc.abstractmethod
    def __hash__(self) -> int:
        """Equal computations have equal hashes."""


class Serializable(abc.ABC):
    """An object that can be written as bytes, and read again."""

    @classmethod
    @abc.abstractmethod
    def from_bytes(cls, data: bytes) -> Serializable:
        """The object in `data`."""

    @abc.abstractmethod
    def to_bytes(self) -> bytes:
        """The object as bytes."""


class SyncContext(abc.ABC):
    """What calling a computation means."""

    @abc.abstractmethod
    def invoke(self, comp: Any, arg: Any) -> Any:
        """The result of `comp` for `arg`, which is None if it takes nothing."""


class AsyncContext(abc.ABC):
    """What calling a computation means, where the result is awaited."""

    @abc.abstractmethod
    async def invoke(self, comp: Any, arg: Any) -> Any:
        """The result of `comp` for `arg`, which is None if it takes nothing."""


class ChecksResult:
    """A computation that looks at results. It does so itself where it is given one, and contexts
    that give references have it do so once there is a result."""

    def check_result(self, named: Mapping[str, Any], result: Any) -> None:
        """Raises what calling it raises for such a result.

        named: the arguments, by their names.
        """
        raise NotImplementedError


class SymbolBindingContext(SyncContext):
    """A context that gives names to what is computed in it."""

    @abc.abstractmethod
    def bind_computation_to_reference(self, comp: Any) -> Any:
        """A reference to `comp`."""

    @property
    @abc.abstractmethod
    def symbol_bindings(self) -> list[tuple[str, Any]]:
        """The names given so far, with what they stand for."""


class TracingProvider(abc.ABC):
    """Is told of spans."""

    @abc.abstractmethod
    def span(
        self,
        scope: str,
        sub_scope: str,
        nonce: int,
        parent_span_yield: Any,
        fn_args: tuple[Any, ...] | None,
        fn_kwargs: dict[str, Any] | None,
        trace_opts: dict[str, Any],
    ) -> Generator[Any, TraceResult, None]:
        """Runs up to its `yield` when a span begins, and gets out of it how the span ended."""

    def wrap_rpc(self, parent_span_yield: Any) -> AbstractContextManager[None]:
        """What is entered around a call of another process."""
        return nullcontext()

    def receive_rpc(self) -> Any:
        """What stands for the caller's span in a process that was called."""
        return None


TraceResult = _native.TracedSpan | _native.TracedFunctionReturned | _native.TracedFunctionThrew

for _class in (_native.Value, _native.ComputationBuildingBlock):
    TypedObject.register(_class)
Computation.register(_native.ConcreteComputation)
for _context in (_native.RuntimeErrorContext, _native.LocalContext):
    SyncContext.register(_context)
SymbolBindingContext.register(_native.FederatedComputationContext)
