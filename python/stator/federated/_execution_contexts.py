"""Contexts that run computations by executors that others write.

The frames of this module don't show in tracebacks: `_native.HiddenInvoke` and `_native.Hidden`
take them out, so that an error shows the executor's code only.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from stator._stator import federated as _native
from stator.federated._abstract import AsyncContext, SyncContext
from stator.federated._executors import (
    Executor,
    ExecutorFactory,
    ExecutorValue,
    RetryableError,
)

# Seconds to wait before trying again: the first time, and at most.
_FIRST_WAIT = 0.002
_LONGEST_WAIT = 30.0


@_native.hidden
class AsyncExecutionContext(AsyncContext):
    """Runs computations by the executors of a factory; `invoke` is awaited."""

    def __init__(
        self,
        executor_fn: ExecutorFactory,
        compiler_fn: Callable[[Any], Any] | None = None,
        *,
        transform_args: Callable[[Any], Any] | None = None,
        transform_result: Callable[[Any], Any] | None = None,
        cardinality_inference_fn: Callable[
            [Any, Any], Mapping[_native.PlacementLiteral, int]
        ] = _native.infer_cardinalities,
    ) -> None:
        super().__init__()
        self._factory = executor_fn
        self._compile = None if compiler_fn is None else functools.lru_cache()(compiler_fn)
        self._transform_args = transform_args
        self._transform_result = transform_result
        self._infer = cardinality_inference_fn

    @property
    def executor_factory(self) -> ExecutorFactory:
        """What makes the executors."""
        return self._factory

    def invoke(self, comp: Any, arg: Any) -> Coroutine[Any, Any, Any]:
        """The result of `comp` for `arg`, to be awaited."""
        return _native.Hidden(self._retry(comp, arg))

    async def _retry(self, comp: Any, arg: Any) -> Any:
        wait = _FIRST_WAIT
        while True:
            try:
                return await self._invoke(comp, arg)
            except RetryableError:
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)

    async def _invoke(self, comp: Any, arg: Any) -> Any:
        if asyncio.iscoroutine(arg):
            arg = await arg
        if not isinstance(comp.type_signature, _native.FunctionType):
            raise ValueError(
                "only a computation of a function type can be run\n"
                f"  expected: a function\n  found:    {comp.type_signature}"
            )
        if arg is not None and self._transform_args is not None:
            arg = _transform(self._transform_args, arg)
        # Compiling loses the Python containers in the type of the result.
        result_type = comp.type_signature.result
        if self._compile is not None:
            comp = self._compile(comp)
        parameter = comp.type_signature.parameter
        cardinalities = {} if arg is None else self._infer(arg, parameter)
        try:
            executor = self._factory.create_executor({**cardinalities})
            if arg is not None:
                arg = await _ingest(executor, arg, parameter)
            function = await executor.create_value(comp, comp.type_signature)
            called = await executor.create_call(function, arg)
            result = await called.compute()
            result = _native.type_to_py_container(result, result_type)
        except Exception:
            self._factory.clean_up_executor({**cardinalities})
            raise
        if self._transform_result is not None:
            result = self._transform_result(result)
        return result


@_native.hidden
class SyncExecutionContext(_native.HiddenInvoke, SyncContext):
    """Runs computations by the executors of a factory."""

    def __init__(
        self,
        executor_fn: ExecutorFactory,
        compiler_fn: Callable[[Any], Any] | None = None,
        *,
        transform_args: Callable[[Any], Any] | None = None,
        transform_result: Callable[[Any], Any] | None = None,
        cardinality_inference_fn: Callable[
            [Any, Any], Mapping[_native.PlacementLiteral, int]
        ] = _native.infer_cardinalities,
    ) -> None:
        super().__init__()
        self._context = AsyncExecutionContext(
            executor_fn,
            compiler_fn,
            transform_args=transform_args,
            transform_result=transform_result,
            cardinality_inference_fn=cardinality_inference_fn,
        )
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def executor_factory(self) -> ExecutorFactory:
        """What makes the executors."""
        return self._context.executor_factory

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        # One loop for all calls, in its own thread: the caller may be inside another loop, and
        # executors may keep locks and queues of the loop from call to call.
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_loop, args=(loop,), name="stator-executors", daemon=True
                )
                thread.start()
                weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
                self._loop = loop
            return self._loop

    def _invoke(self, comp: Any, arg: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(
            self._context.invoke(comp, arg), self._event_loop()
        )
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _ingest(executor: Executor, value: Any, type_spec: Any) -> ExecutorValue:
    """The executor's value for an argument."""
    if isinstance(value, ExecutorValue):
        return value
    is_struct = isinstance(value, _native.Struct)
    if not is_struct or isinstance(type_spec, _native.FederatedType):
        return await executor.create_value(value, type_spec)
    if not isinstance(type_spec, _native.StructType):
        raise ValueError(
            f"a Struct is given for something else\n  expected: {type_spec}\n  found:    {value}"
        )
    names = [name for name, _ in type_spec.items()]
    elements = _native.to_elements(value)
    fits = len(names) == len(elements) and all(
        name in (wanted, None) for (name, _), wanted in zip(elements, names, strict=True)
    )
    if not fits:
        raise TypeError(
            f"a struct has other fields than its type\n  expected: {type_spec}\n  found:    {value}"
        )
    parts = await asyncio.gather(
        *(
            _ingest(executor, element, of)
            for (_, element), (_, of) in zip(elements, type_spec.items(), strict=True)
        )
    )
    return await executor.create_struct(_native.Struct(zip(names, parts, strict=True)))


def _plain(value: Any) -> Any:
    """The value with Python's containers for Structs, also inside its containers."""
    if isinstance(value, _native.Struct):
        elements = _native.to_elements(value)
        if any(name is None for name, _ in elements):
            return tuple(_plain(element) for _, element in elements)
        return OrderedDict((name, _plain(element)) for name, element in elements)
    if type(value) in (list, tuple):
        return type(value)(_plain(element) for element in value)
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _plain(element)) for key, element in value.items())
    return value


def _transform(transform: Callable[[Any], Any], arg: Any) -> Any:
    """The argument that the user's function makes of one: of positional ones and of named ones."""
    if not isinstance(arg, _native.Struct):
        return transform(_plain(arg))
    args, kwargs = _native.unpack_args_from_struct(arg)
    args = transform(_plain(list(args)))
    if not isinstance(args, Sequence):
        raise ValueError(
            "`transform_args` must give a sequence for the positional arguments\n"
            f"  found:    {args!r}"
        )
    kwargs = transform(_plain(dict(kwargs)))
    if not isinstance(kwargs, Mapping):
        raise ValueError(
            f"`transform_args` must give a mapping for the named arguments\n  found:    {kwargs!r}"
        )
    return _native.pack_args_into_struct(args, kwargs)
