"""Programs on this package's contexts: calls at the same time, references, errors, data of clients."""

from __future__ import annotations

import asyncio
import doctest
import gc
import logging
import threading
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework, program
from stator.federated.execution import LocalContext
from stator.federated.program import (
    federated_context,
    memory_release_manager,
    structure_utils,
    value_reference,
)

INTS = fl.FederatedType(np.int32, fl.CLIENTS)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    context = program.NativeFederatedContext(LocalContext())
    with framework.get_context_stack().install(context):
        yield


def run(of: Any) -> Any:
    return asyncio.run(of)


def python_function(function: Any) -> Any:
    """A sum of what a Python function gives for what clients hold."""
    work = fl.local_computation(np.int32, result=np.int32)(function)

    @fl.federated_computation(INTS)
    def summed(values: Any) -> Any:
        return fl.federated_sum(fl.federated_map(work, values))

    return summed


@fl.federated_computation(INTS)
def total(values: Any) -> Any:
    return fl.federated_sum(values)


@fl.federated_computation(fl.FederatedType(np.int32, fl.SERVER), INTS)
def both(first: Any, values: Any) -> Any:
    added = fl.federated_sum(values)
    return OrderedDict(first=first, added=added, pair=(added, first))


def test_results_are_references_to_what_the_context_gives() -> None:
    async def main() -> None:
        found = both(np.int32(7), [1, 2])
        assert type(found) is OrderedDict and type(found["pair"]) is tuple
        assert isinstance(found["added"], program.NativeValueReference)
        assert str(found["added"].type_signature) == "int32"
        assert "pending int32" in repr(found["added"])
        plain = await program.materialize_value(found)
        assert plain == {"first": 7, "added": 3, "pair": (3, 7)}
        assert type(plain["added"]) is np.int32
        assert "computed int32" in repr(found["added"])

    run(main())


def test_results_are_arguments_of_further_calls() -> None:
    async def main() -> None:
        first = total([1, 2])
        second = both(first, [first, 10])
        assert await second["added"].get_value() == 13
        third = both(second["pair"][0], values=[second["first"]])
        assert await program.materialize_value(third) == {"first": 13, "added": 3, "pair": (3, 13)}

    run(main())


def test_calls_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=30)

    def wait(x: Any) -> Any:
        barrier.wait()
        return x

    waiting = python_function(wait)

    async def main() -> Any:
        # None of them ends before all have begun.
        return await program.materialize_value([waiting([number]) for number in range(3)])

    assert run(main()) == [0, 1, 2]


def test_the_event_loop_goes_on_meanwhile() -> None:
    event = threading.Event()

    def wait(x: Any) -> Any:
        assert event.wait(30)
        return x

    waiting = python_function(wait)

    async def main() -> Any:
        found = waiting([4])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(found.get_value(), 0.05)
        # Whoever stopped waiting didn't stop it.
        event.set()
        return await found.get_value()

    assert run(main()) == 4


def test_a_value_is_found_after_its_event_loop() -> None:
    async def call() -> Any:
        found = total([1, 2])
        await found.get_value()
        return found

    found = run(call())
    assert run(found.get_value()) == 3


def test_a_result_without_values_is_computed_all_the_same() -> None:
    done = threading.Event()

    class Context(framework.AsyncContext):
        async def invoke(self, comp: Any, arg: Any) -> Any:
            await asyncio.sleep(0.02)
            done.set()

    class Computation(fl.Computation):
        type_signature = fl.FunctionType(None, fl.StructType([]))

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return framework.get_context_stack().current.invoke(self, None)

        def __hash__(self) -> int:
            return 1

    async def main() -> None:
        with framework.get_context_stack().install(program.NativeFederatedContext(Context())):
            assert Computation()() == []
        gc.collect()
        await asyncio.sleep(0.1)

    run(main())
    assert done.is_set()


def failing(x: Any) -> Any:
    raise KeyError("of the user")  # here


def test_errors_show_the_user_s_code_and_where_it_was_called() -> None:
    broken = python_function(failing)

    async def main() -> None:
        found = broken([1, 2])  # called
        other = both(found, [1])
        with pytest.raises(KeyError) as caught:
            await found.get_value()
        text = "".join(traceback.format_exception(caught.value))
        assert 'raise KeyError("of the user")  # here' in text
        assert "concurrent/futures" not in text and "to_thread" not in text
        notes = caught.value.__notes__
        line = traceback.extract_stack()[-1].lineno
        assert any(f"{__file__}:{line - 8}." in note and "`test_errors" in note for note in notes)
        # What depends on it says where that was called as well.
        with pytest.raises(KeyError) as second:
            await other["added"].get_value()
        assert sum("was called in" in note for note in second.value.__notes__) == 2

    run(main())


def test_an_iterator_that_ends_too_early_is_an_error() -> None:
    def ended(x: Any) -> Any:
        return next(iter(()))

    broken = python_function(ended)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await asyncio.wait_for(broken([1]).get_value(), 30)
        assert isinstance(caught.value.__cause__, StopIteration)

    run(main())


def test_errors_that_nobody_waits_for_are_told(caplog: pytest.LogCaptureFixture) -> None:
    broken = python_function(failing)

    async def main() -> None:
        found = broken([1])
        await asyncio.sleep(0.2)
        del found
        gc.collect()

    with caplog.at_level(logging.ERROR):
        run(main())
        gc.collect()
    assert "never retrieved" in caplog.text and "of the user" in caplog.text


def test_calls_that_can_not_be() -> None:
    @fl.federated_computation(INTS)
    def same(values: Any) -> Any:
        return values

    async def main() -> None:
        with pytest.raises(ValueError, match="at the server") as caught:
            same([1])
        assert "{int32}@CLIENTS" in str(caught.value)
        with pytest.raises(TypeError):
            total()
        with pytest.raises(TypeError, match="text"):
            await total(["text"]).get_value()

    with pytest.raises(RuntimeError, match="event loop"):
        total([1])
    run(main())


def test_async_contexts_are_awaited_in_the_event_loop() -> None:
    class Context(framework.AsyncContext):
        async def invoke(self, comp: Any, arg: Any) -> Any:
            assert threading.current_thread() is threading.main_thread()
            return LocalContext().invoke(comp, arg)

    class Awaited(framework.SyncContext):
        def invoke(self, comp: Any, arg: Any) -> Any:
            assert threading.current_thread() is not threading.main_thread()
            return Context().invoke(comp, arg)

    async def main() -> None:
        for context in (Context(), Awaited()):
            with framework.get_context_stack().install(program.NativeFederatedContext(context)):
                assert await total([1, 2]).get_value() == 3

    run(main())


def test_a_context_is_not_wrapped_twice() -> None:
    with pytest.raises(TypeError, match="LocalContext"):
        program.NativeFederatedContext(program.NativeFederatedContext(LocalContext()))


def test_the_check_says_what_to_do() -> None:
    program.check_in_federated_context()
    with framework.get_context_stack().install(LocalContext()):
        with pytest.raises(ValueError, match="NativeFederatedContext"):
            program.check_in_federated_context()


class Loaded(Sequence[Any]):
    """Data that counts how often a client's is loaded."""

    def __init__(self) -> None:
        self.loads: list[int] = []

    def __len__(self) -> int:
        return 5

    def __getitem__(self, position: Any) -> Any:
        if not 0 <= position < 5:
            raise IndexError(position)
        self.loads.append(position)
        return position * 10


def test_data_of_clients_is_passed_on_as_it_is() -> None:
    data = Loaded()
    seen: list[Any] = []

    class Context(framework.AsyncContext):
        async def invoke(self, comp: Any, arg: Any) -> Any:
            seen.append(arg)
            return np.int32(0)

    async def main() -> None:
        with framework.get_context_stack().install(program.NativeFederatedContext(Context())):
            rows = [{"x": np.arange(3)}]
            await program.materialize_value([total(data), total(rows)])
            assert seen[0] is data and seen[1] is rows

    run(main())
    assert data.loads == []


# Data.


def test_clients_are_chosen_the_same_way_after_a_resumption() -> None:
    source = program.ClientDataSource(Loaded(), INTS, seed=3)
    assert source.federated_type is INTS and isinstance(source, program.FederatedDataSource)
    iterator = source.iterator()
    assert iterator.federated_type is INTS
    first = [iterator.select(2) for _ in range(3)]
    assert all(len(set(rows)) == 2 for rows in first) and iterator.round_number == 3
    written = iterator.to_bytes()
    after = [iterator.select(3) for _ in range(5)]
    again = type(source.iterator()).from_bytes(written)
    assert again.round_number == 3 and [again.select(3) for _ in range(5)] == after
    assert again == iterator and again != source.iterator()
    # In another process it is the data source that was made there.
    other = program.ClientDataSource(Loaded(), INTS, seed=3).iterator()
    assert [type(other).from_bytes(written).select(3)] == after[:1] and other != iterator
    assert iterator.select() == [0, 10, 20, 30, 40]
    seen = {row for _ in range(50) for row in iterator.select(1)}
    assert seen == {0, 10, 20, 30, 40}


def test_samplers_choose() -> None:
    pytest.importorskip("torch")
    from stator.federated import learning

    sampler = learning.UniformSampler(5, 2, seed=1)
    source = program.ClientDataSource(Loaded(), INTS, sampler=sampler)
    iterator = source.iterator()
    for number in range(3):
        assert iterator.select() == [10 * at for at in sampler.sample(number)]
    with pytest.raises(ValueError, match="sampler"):
        iterator.select(2)

    class Refusing(Loaded):
        def __getitem__(self, position: Any) -> Any:
            if position in sampler.sample(0):
                raise learning.ClientUnavailableError
            return super().__getitem__(position)

    cohort = learning.Cohort(sampler, quorum=2)
    iterator = program.ClientDataSource(Refusing(), INTS, sampler=cohort).iterator()
    with pytest.raises(learning.QuorumError):
        iterator.select()
    # It is tried again with others, also by who goes on.
    iterator = type(iterator).from_bytes(iterator.to_bytes())
    found = None
    while found is None:
        try:
            found = iterator.select()
        except learning.QuorumError:
            assert iterator.round_number == 0
    assert len(found) == 2 and iterator.round_number == 1


def test_wrong_data() -> None:
    for wrong in (fl.FederatedType(np.int32, fl.SERVER), fl.TensorType(np.int32), None):
        with pytest.raises(TypeError, match="federated_type"):
            program.ClientDataSource([1], wrong)
    with pytest.raises(ValueError, match="no clients"):
        program.ClientDataSource([], INTS)
    with pytest.raises(ValueError, match="seed"):
        program.ClientDataSource([1], INTS, seed=-1)
    with pytest.raises(TypeError, match="sampler"):
        program.ClientDataSource([1], INTS, sampler=3)
    iterator = program.ClientDataSource([1, 2], INTS).iterator()
    for k in (0, 3, -1, True, 1.0):
        with pytest.raises(ValueError, match="from 1 to 2"):
            iterator.select(k)
    with pytest.raises(TypeError, match="iterator"):
        program.ClientDataSourceIterator()
    with pytest.raises(TypeError, match="iterator"):
        program.ClientDataSourceIterator.from_bytes(iterator.to_bytes())
    for data in (b"", b"[]", b"{}", b"\xff"):
        with pytest.raises(ValueError, match="no iterator"):
            type(iterator).from_bytes(data)
    other = program.ClientDataSource([1, 2, 3], INTS).iterator()
    with pytest.raises(ValueError, match="another data source"):
        type(other).from_bytes(iterator.to_bytes())


def test_groups_release_to_all_though_one_raises() -> None:
    class Failing(program.ReleaseManager[Any, Any]):
        async def release(self, value: Any, key: Any) -> None:
            raise OSError(f"disk {key}")

    memory = program.MemoryReleaseManager()
    group = program.GroupingReleaseManager([Failing(), memory, Failing()])
    with pytest.raises(OSError, match="disk k") as caught:
        run(group.release(1, "k"))
    assert memory.values() == {"k": 1}
    assert caught.value.__notes__ == ["Another release manager of the group raised OSError: disk k"]


def test_managers_may_be_unable_to_remove() -> None:
    class States(program.ProgramStateManager[Any]):
        async def get_versions(self) -> Any:
            return [1]

        async def load(self, version: int, structure: Any) -> Any: ...

        async def save(self, program_state: Any, version: int) -> None: ...

    with pytest.raises(NotImplementedError, match="States"):
        run(States().remove_all())


@pytest.mark.parametrize(
    "module", [federated_context, memory_release_manager, structure_utils, value_reference]
)
def test_examples_of_docstrings(module: Any) -> None:
    names = {**vars(module), "asyncio": asyncio, "np": np, "CLIENTS": fl.CLIENTS}
    found = doctest.testmod(module, globs=names)
    assert found.attempted > 0 and found.failed == 0


def test_what_is_saved_is_what_it_was_when_it_was_saved(tmp_path: Any) -> None:
    iterator = program.ClientDataSource(Loaded(), INTS).iterator()
    manager: Any = program.FileProgramStateManager(tmp_path)

    async def main() -> Any:
        saving = asyncio.create_task(manager.save(iterator, 1))
        while not saving.done():
            await asyncio.sleep(0)
            # The program goes on meanwhile.
            iterator.select(1)
        return await manager.load(1, iterator)

    assert run(main()).round_number == 0 < iterator.round_number
