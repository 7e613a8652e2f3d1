"""Programs on the contexts of this package: in this process, and on the machines of Ray."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import sys
from collections import OrderedDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stator._stator import federated as _native
from stator.federated._abstract import AsyncContext, ChecksResult, Computation
from stator.federated.program import structure_utils
from stator.federated.program.federated_context import (
    ComputationArg,
    FederatedContext,
    contains_only_server_placed_data,
)
from stator.federated.program.value_reference import (
    MaterializableTypeSignature,
    MaterializableValueReference,
    MaterializedValue,
    materialize_value,
)


@_native.hidden
class NativeValueReference(MaterializableValueReference):
    """Stands for what a task of asyncio's gives.

    task: gives the value.
    type_signature: the type of the value.
    """

    def __init__(
        self, task: asyncio.Future[Any], type_signature: MaterializableTypeSignature
    ) -> None:
        if not asyncio.isfuture(task):
            raise TypeError(f"`task` is to be a task of asyncio's, not {task!r}.")
        self._task = task
        self._type_signature = type_signature
        self._path: tuple[tuple[str | None, int], ...] = ()

    @classmethod
    def _part(
        cls, task: asyncio.Future[Any], of: Any, path: tuple[tuple[str | None, int], ...]
    ) -> NativeValueReference:
        """Stands for a part of what a task gives."""
        found = cls(task, of)
        found._path = path
        return found

    @property
    def type_signature(self) -> MaterializableTypeSignature:
        """The type of the value."""
        return self._type_signature

    async def get_value(self) -> MaterializedValue:
        """The value, once it is computed. Whoever stops waiting doesn't stop the computation.

        Raises what the computation raised, with a note that says where it was called.
        """
        value = self._task.result() if self._task.done() else await asyncio.shield(self._task)
        for name, index in self._path:
            value = _field(value, name, index)
        return value  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NativeValueReference):
            return NotImplemented
        return self._key() == other._key()

    # What is equal to a value later on is found by no dictionary.
    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[Any, ...]:
        return id(self._task), self._path, self._type_signature

    def __repr__(self) -> str:
        state = "computed" if self._task.done() else "pending"
        return f"<{state} {self._type_signature}>"


@_native.hidden
class NativeFederatedContext(FederatedContext):
    """Has another context run computations, several at a time.

    ctx: any context: `execution.LocalContext`, `ray.RayContext`, `framework.AsyncExecutionContext`,
        or one of your own. One whose `invoke` isn't awaited is called in threads.
    threads: how many computations such a context runs at a time at most (not in the peer).

        context = program.NativeFederatedContext(execution.LocalContext())
        with framework.get_context_stack().install(context):
            state, metrics = train(state, iterator.select(10))  # references, at once
            loss = await metrics["loss"].get_value()

    Results may be arguments of further computations, which wait for them. A computation
    raises `RuntimeError` outside of an event loop, and `ValueError` if its result isn't at the
    server.
    """

    def __init__(self, ctx: Any, *, threads: int = 16) -> None:
        if isinstance(ctx, FederatedContext) or not callable(getattr(ctx, "invoke", None)):
            raise TypeError(
                "`ctx` is to be a context that runs computations\n"
                f"  found:    {ctx!r}\n"
                "  hint:     program.NativeFederatedContext(execution.LocalContext())"
            )
        self._ctx = ctx
        self._is_async = isinstance(ctx, AsyncContext) or inspect.iscoroutinefunction(ctx.invoke)
        self._pool = ThreadPoolExecutor(threads, "stator-program")
        self._tasks: set[asyncio.Task[Any]] = set()

    def invoke(self, comp: Computation, arg: ComputationArg | None) -> Any:
        """References to the result of `comp` for `arg`, which may hold references."""
        of = comp.type_signature
        if not isinstance(of, _native.FunctionType):
            raise TypeError(
                "only a computation of a function type can be run\n"
                f"  expected: a function\n  found:    {of}"
            )
        if not contains_only_server_placed_data(of.result):
            raise ValueError(
                "a program is given what is at the server, not what clients have\n"
                "  expected: a result of structs, tensors and sequences, at the server or placed "
                f"nowhere\n  found:    {of.result}"
            )
        shape = _shape(of.result, ())
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "a computation of a federated program is called outside of an event loop\n"
                "  hint:     call it in an `async def` function, and that by `asyncio.run`"
            ) from None
        task = loop.create_task(_native.Hidden(self._run(comp, arg, _caller())))
        # The loop itself holds tasks weakly, and a result without values has no references.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return _references(shape, task)

    async def _run(self, comp: Computation, arg: Any, caller: str) -> Any:
        try:
            arg = await _argument(arg)
            result = await self._called(comp, arg)
            if isinstance(comp, ChecksResult) and isinstance(arg, Mapping):
                await self._in_thread(comp.check_result, arg, result)
            return result
        except Exception as error:
            # Where it is awaited may be far from where it was called.
            if caller not in getattr(error, "__notes__", ()):
                error.add_note(caller)
            raise

    async def _called(self, comp: Computation, arg: Any) -> Any:
        if self._is_async:
            return await self._ctx.invoke(comp, arg)
        result = await self._in_thread(self._ctx.invoke, comp, arg)
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        # As `asyncio.to_thread` does, whose threads have to be free for files.
        call = functools.partial(contextvars.copy_context().run, _held, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _held(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives. A future holds no `StopIteration`, and would never be done."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("the computation raised StopIteration") from error


class _Leaf:
    """A place in a result at which there is a value."""

    def __init__(self, of: Any, path: tuple[tuple[str | None, int], ...]) -> None:
        self.of = of
        self.path = path


def _shape(of: Any, path: tuple[tuple[str | None, int], ...]) -> Any:
    """The containers of a result, with a leaf for each value."""
    if isinstance(of, _native.FederatedType):
        return _shape(of.member, path)
    if not isinstance(of, _native.StructType):
        return _Leaf(of, path)
    names = [name for name, _ in of.items()]
    found = [
        _shape(field, (*path, (name, index))) for index, (name, field) in enumerate(of.items())
    ]
    container: Any = of.python_container if isinstance(of, _native.StructWithPythonType) else None
    if container is None and len({name is None for name in names}) > 1:
        raise ValueError(
            "either all fields of a result have names or none has\n"
            f"  found:    {of}\n"
            "  hint:     let the computation give a dictionary or a tuple"
        )
    if container is None:
        return dict(zip(names, found, strict=True)) if names and names[0] is not None else found
    if issubclass(container, Mapping):
        return container(zip(names, found, strict=True))
    if issubclass(container, tuple) and hasattr(container, "_fields"):
        return container(*found)
    if issubclass(container, (list, tuple)):
        return container(found)
    raise ValueError(
        "references can't be held by containers of this class\n"
        "  expected: a list, tuple, named tuple or dictionary\n"
        f"  found:    {container.__name__}"
    )


def _references(shape: Any, task: asyncio.Task[Any]) -> Any:
    return structure_utils.map_structure(
        lambda leaf: NativeValueReference._part(task, leaf.of, leaf.path), shape
    )


def _field(value: Any, name: str | None, index: int) -> Any:
    """A field of a result."""
    try:
        if isinstance(value, _native.Struct):
            return _native.to_elements(value)[index][1]
        return value[name] if isinstance(value, Mapping) else value[index]
    except (LookupError, TypeError):
        raise TypeError(
            "a context has given what isn't of the computation's type\n"
            f"  expected: a field {index if name is None else name!r}\n"
            f"  found:    {type(value).__name__}"
        ) from None


# Other sequences are the data of clients, which may be loaded as it is read.
_HOLDERS = (list, tuple, UserList, deque, Mapping, _native.Struct)


async def _argument(arg: Any) -> Any:
    """The argument with values in the place of references, and Python's containers for Structs.
    What has no references is passed on as it is."""
    references: list[Any] = []
    _find(arg, references)
    return _replaced(arg, iter(await materialize_value(references)))


def _find(arg: Any, found: list[Any]) -> None:
    """Finds references, in the order in which they are replaced."""
    if isinstance(arg, MaterializableValueReference):
        found.append(arg)
    elif isinstance(arg, _HOLDERS):
        for _, part in _parts(arg):
            _find(part, found)


def _parts(holder: Any) -> Any:
    if isinstance(holder, _native.Struct):
        return _native.to_elements(holder)
    return holder.items() if isinstance(holder, Mapping) else enumerate(holder)


def _replaced(arg: Any, values: Iterator[Any]) -> Any:
    if isinstance(arg, MaterializableValueReference):
        return next(values)
    if not isinstance(arg, _HOLDERS):
        return arg
    before = list(_parts(arg))
    parts = [(key, _replaced(part, values)) for key, part in before]
    if isinstance(arg, _native.Struct):
        names = {name is None for name, _ in parts}
        if names == {False}:
            return OrderedDict(parts)
        return _native.Struct(parts) if len(names) == 2 else tuple(part for _, part in parts)
    if all(part is old for (_, part), (_, old) in zip(parts, before, strict=True)):
        return arg
    return structure_utils.rebuilt(arg, parts)


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


def _caller() -> str:
    """Says where the program calls a computation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    code = frame.f_code
    return (
        f"The computation was called in `{code.co_qualname}`, at "
        f"{code.co_filename}:{frame.f_lineno}."
    )
