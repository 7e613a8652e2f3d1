"""The stack of contexts: installed and taken off on every path, one for each thread."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator._stator.federated import Reference
from stator.federated import framework as fw


class Recording(fw.SyncContext):
    """Keeps what it was asked to run."""

    def __init__(self, result: Any = None) -> None:
        self.result = result
        self.calls: list[tuple[Any, Any]] = []

    def invoke(self, comp: Any, arg: Any) -> Any:
        self.calls.append((comp, arg))
        return self.result


@pytest.fixture
def stack() -> fw.ContextStack:
    return fw.ContextStack("default")


def test_install_and_take_off(stack: fw.ContextStack) -> None:
    assert stack.current == "default"
    with stack.install("a") as installed:
        assert installed == "a"
        with stack.install("b"):
            assert stack.current == "b"
        assert stack.current == "a"
    assert stack.current == "default"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_taken_off_after_an_error(stack: fw.ContextStack, error: type[BaseException]) -> None:
    with pytest.raises(error), stack.install("a"), stack.install("b"):
        raise error
    assert stack.current == "default"


def test_taken_off_when_a_generator_is_closed(stack: fw.ContextStack) -> None:
    def suspended():
        with stack.install("a"):
            yield

    generator = suspended()
    next(generator)
    assert stack.current == "a"
    generator.close()
    assert stack.current == "default"


def test_each_takes_off_its_own(stack: fw.ContextStack) -> None:
    """A generator that ends while others are installed above it leaves those."""

    def suspended():
        with stack.install("a"):
            yield

    generator = suspended()
    next(generator)
    with stack.install("b"):
        generator.close()
        assert stack.current == "b"
    assert stack.current == "default"


def test_not_entered_is_not_installed(stack: fw.ContextStack) -> None:
    unused = stack.install("a")
    assert stack.current == "default"
    del unused
    assert stack.current == "default"


def test_entered_and_dropped_is_taken_off(stack: fw.ContextStack) -> None:
    stack.install("a").__enter__()
    gc.collect()
    assert stack.current == "default"


def test_one_for_each_thread(stack: fw.ContextStack) -> None:
    found = []
    stack.set_default_context("changed")
    with stack.install("a"):
        thread = threading.Thread(target=lambda: found.append(stack.current))
        thread.start()
        thread.join()
    assert found == ["default"]
    assert stack.current == "changed"


def test_closed_in_another_thread(stack: fw.ContextStack) -> None:
    def suspended():
        with stack.install("a"):
            yield

    generator = suspended()
    next(generator)
    thread = threading.Thread(target=generator.close)
    thread.start()
    thread.join()
    assert stack.current == "default"


def test_an_object_that_uses_the_stack_when_it_dies(stack: fw.ContextStack) -> None:
    found = []

    class Dying:
        def __del__(self) -> None:
            found.append(stack.current)

    with stack.install(Dying()):
        pass
    gc.collect()
    assert found == ["default"]


def test_abstract_contexts_need_invoke() -> None:
    with pytest.raises(TypeError):
        fw.SyncContext()
    with pytest.raises(TypeError):
        fw.AsyncContext()


def test_a_call_goes_to_the_context() -> None:
    f = fl.federated_computation(lambda a, b: a, np.int32, np.int32)
    one = fl.federated_computation(lambda: 1)
    context = Recording("result")
    with fw.get_context_stack().install(context):
        assert f(1, b=2) == "result"
        assert f([3, 4]) == "result"
        assert one() == "result"
    (first, second, third) = context.calls
    assert first[0] is f
    assert str(first[1]) == "<a=1,b=2>"
    assert second[1] == [3, 4]
    assert third == (one, None)


def test_async_context() -> None:
    class Waiting(fw.AsyncContext):
        async def invoke(self, comp: Any, arg: Any) -> Any:
            await asyncio.sleep(0)
            return arg

    f = fl.federated_computation(lambda a: a, np.int32)

    async def main() -> Any:
        with fw.get_context_stack().install(Waiting()):
            return await f(5)

    assert asyncio.run(main()) == 5


def test_context_of_a_decorated_function() -> None:
    made: list[Recording] = []

    def make() -> Recording:
        made.append(Recording())
        return made[-1]

    @fw.with_context(make)
    def current() -> Any:
        return fw.get_context_stack().current

    before = fw.get_context_stack().current
    assert [current(), current()] == made
    assert len(made) == 2
    assert fw.get_context_stack().current is before


def test_context_of_a_decorated_async_function() -> None:
    """Each call has its own, also while others wait."""
    stack = fw.get_context_stack()
    before = stack.current

    @fw.with_context(Recording)
    async def currents(count: int) -> list[Any]:
        found = []
        for _ in range(count):
            found.append(stack.current)
            await asyncio.sleep(0)
            assert stack.current is found[-1]
        return found

    async def main() -> list[list[Any]]:
        outside = asyncio.ensure_future(look())
        found = await asyncio.gather(currents(3), currents(4))
        assert await outside is before
        return found

    async def look() -> Any:
        await asyncio.sleep(0)
        return stack.current

    first, second = asyncio.run(main())
    assert len(set(map(id, first))) == len(set(map(id, second))) == 1
    assert first[0] is not second[0]
    assert stack.current is before


def test_error_of_a_decorated_async_function() -> None:
    @fw.with_context(Recording)
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("own")

    before = fw.get_context_stack().current
    with pytest.raises(ValueError, match="own"):
        asyncio.run(fails())
    assert fw.get_context_stack().current is before


def test_tracing_context() -> None:
    stack = fw.get_context_stack()
    context = fw.FederatedComputationContext(stack, "f")
    inner = fw.FederatedComputationContext(stack, "f", context)
    assert (context.name, inner.name) == ("f", "f_1")
    assert inner.parent is context
    assert fw.FederatedComputationContext(stack).name == "FEDERATED"
    with stack.install(context):
        value = fl.federated_value(1, fl.SERVER)
    assert str(value) == "fc_f_symbol_0"
    [(name, block)] = context.symbol_bindings
    assert (name, str(block)) == ("fc_f_symbol_0", "federated_value_at_server(1)")


def test_nothing_stays_installed_when_tracing_fails() -> None:
    before = fw.get_context_stack().current
    with pytest.raises(ZeroDivisionError):
        fl.federated_computation(lambda x: 1 / 0, np.int32)
    assert fw.get_context_stack().current is before


def test_another_symbol_binding_context() -> None:
    class Naming(fw.SymbolBindingContext):
        bound: list[Any] = []

        def invoke(self, comp: Any, arg: Any) -> Any:
            raise AssertionError

        def bind_computation_to_reference(self, comp: Any) -> Any:
            self.bound.append(comp)
            return Reference(f"mine_{len(self.bound)}", comp.type_signature)

        @property
        def symbol_bindings(self) -> list[tuple[str, Any]]:
            return []

    with fw.get_context_stack().install(Naming()):
        value = fl.federated_value(1, fl.SERVER)
    assert str(value) == "mine_1"
    assert [str(block) for block in Naming.bound] == ["federated_value_at_server(1)"]
