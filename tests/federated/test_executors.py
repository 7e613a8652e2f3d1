"""Contexts that run computations by executors that users write, beside the peer's."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stator.federated as ours


@pytest.fixture(params=["ours", "peer"])
def fl(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Each package, with the context that was there put back after the test."""
    if request.param == "ours":
        yield ours
    else:
        yield pytest.importorskip("federated_language")


def factory(fl: ModuleType, log: list[Any], failures: int = 0) -> Any:
    """Executors that write down what they are asked for, and compute sums."""
    framework = fl.framework

    class Value(framework.ExecutorValue):
        def __init__(self, value: Any, type_signature: Any) -> None:
            self._value, self._type = value, type_signature

        @property
        def reference(self) -> Any:
            return self._value

        @property
        def type_signature(self) -> Any:
            return self._type

        async def compute(self) -> Any:
            log.append("compute")
            return self._value

    class Executor(framework.Executor):
        def close(self) -> None:
            log.append("close")

        async def create_value(self, value: Any, type_spec: Any = None) -> Any:
            await asyncio.sleep(0)
            if isinstance(type_spec, fl.FunctionType):
                log.append(f"function {type_spec}")
            else:
                log.append(f"value {value} {type_spec}")
            return Value(value, type_spec)

        async def create_call(self, comp: Any, arg: Any = None) -> Any:
            log.append("call" if arg is None else f"call {arg.reference}")
            nonlocal failures
            if failures > 0:
                failures -= 1
                raise framework.RetryableError("again")
            result = comp.type_signature.result
            if arg is None:
                return Value(7, result)
            value = arg.reference
            if value == -1:
                raise KeyError("the user's own")
            if isinstance(value, list):
                value = sum(part.reference for part in value)
            return Value(value, result)

        async def create_struct(self, elements: Any) -> Any:
            log.append(f"struct {[part.reference for part in elements]}")
            return Value(list(elements), None)

        async def create_selection(self, source: Any, index: int) -> Any:
            raise NotImplementedError

    class Factory(framework.ExecutorFactory):
        def create_executor(self, cardinalities: Any) -> Any:
            log.append(("create", {str(key): count for key, count in cardinalities.items()}))
            return Executor()

        def clean_up_executor(self, cardinalities: Any) -> None:
            log.append(("clean up", {str(key): count for key, count in cardinalities.items()}))

    return Factory()


def programs(fl: ModuleType) -> dict[str, Any]:
    @fl.federated_computation(np.int32)
    def one(x):
        return x

    @fl.federated_computation(np.int32, np.int32)
    def two(x, y):
        return x

    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def at_clients(x):
        return fl.federated_sum(x)

    @fl.federated_computation
    def none():
        return 5

    return {"one": one, "two": two, "at_clients": at_clients, "none": none}


LOGS: dict[str, tuple[Any, list[Any]]] = {
    "one": (
        3,
        [
            ("create", {}),
            "value 3 int32",
            "function (int32 -> int32)",
            "call 3",
            "compute",
        ],
    ),
    "two": (
        7,
        [
            ("create", {}),
            "value 3 int32",
            "value 4 int32",
            "struct [3, 4]",
            "function (<x=int32,y=int32> -> int32)",
        ],
    ),
    "at_clients": (
        [1, 2],
        [
            ("create", {"CLIENTS": 2}),
            "value [1, 2] {int32}@CLIENTS",
            "function ({int32}@CLIENTS -> int32@SERVER)",
        ],
    ),
    "none": (7, [("create", {}), "function ( -> int32)", "call", "compute"]),
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "one": (3,),
    "two": (3, 4),
    "at_clients": ([1, 2],),
    "none": (),
}


def install(fl: ModuleType, context: Any) -> Any:
    return fl.framework.get_context_stack().install(context)


@pytest.mark.parametrize("name", ["one", "two", "none"])
def test_executors_are_asked(fl: ModuleType, name: str) -> None:
    log: list[Any] = []
    with install(fl, fl.framework.SyncExecutionContext(factory(fl, log))):
        result = programs(fl)[name](*ARGUMENTS[name])
    expected, begin = LOGS[name]
    assert result == expected
    assert log[: len(begin)] == begin


def test_the_number_of_clients_is_passed(fl: ModuleType) -> None:
    log: list[Any] = []
    context = fl.framework.SyncExecutionContext(factory(fl, log))
    with install(fl, context), pytest.raises(AttributeError):
        programs(fl)["at_clients"]([1, 2])
    assert log[:3] == LOGS["at_clients"][1]
    assert log[-1] == ("clean up", {"CLIENTS": 2})
    assert context.executor_factory is not None


def test_failures_are_retried(fl: ModuleType) -> None:
    log: list[Any] = []
    with install(fl, fl.framework.SyncExecutionContext(factory(fl, log, failures=2))):
        assert programs(fl)["one"](3) == 3
    assert log.count(("create", {})) == 3
    assert log.count(("clean up", {})) == 2


def test_awaiting(fl: ModuleType) -> None:
    log: list[Any] = []
    context = fl.framework.AsyncExecutionContext(factory(fl, log))

    async def run() -> Any:
        with install(fl, context):
            one = programs(fl)["one"]
            return await asyncio.gather(one(1), one(2))

    assert asyncio.run(run()) == [1, 2]


def test_transforming(fl: ModuleType) -> None:
    log: list[Any] = []
    context = fl.framework.SyncExecutionContext(
        factory(fl, log),
        compiler_fn=lambda computation: log.append("compile") or computation,
        transform_args=lambda args: (
            {key: value + 10 for key, value in args.items()}
            if isinstance(args, dict)
            else [value + 10 for value in args]
            if isinstance(args, list)
            else args + 10
        ),
        transform_result=lambda result: ("made", result),
        cardinality_inference_fn=lambda value, of: {fl.CLIENTS: 9},
    )
    with install(fl, context):
        compiled = programs(fl)
        assert compiled["one"](3) == ("made", 13)
        assert compiled["one"](4) == ("made", 14)
        assert compiled["two"](3, 4) == ("made", 27)
    # The same computation is compiled once.
    assert log.count("compile") == 2
    assert ("create", {"CLIENTS": 9}) in log


def test_only_the_executors_frames_show() -> None:
    context = ours.framework.SyncExecutionContext(factory(ours, []))
    with install(ours, context), pytest.raises(KeyError) as caught:
        programs(ours)["one"](-1)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames == ["test_only_the_executors_frames_show", "create_call"]

    asynchronous = ours.framework.AsyncExecutionContext(factory(ours, []))

    async def run() -> Any:
        with install(ours, asynchronous):
            return await programs(ours)["one"](-1)

    with pytest.raises(KeyError) as caught:
        asyncio.run(run())
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["run", "create_call"]


def test_from_inside_a_running_loop() -> None:
    async def run() -> Any:
        with install(ours, ours.framework.SyncExecutionContext(factory(ours, []))):
            return programs(ours)["one"](3)

    assert asyncio.run(run()) == 3
