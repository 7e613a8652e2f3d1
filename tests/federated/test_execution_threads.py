"""The work of clients: in threads, with the caller's settings, and what users see of failures."""

from __future__ import annotations

import contextvars
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator._stator import federated as native
from stator.federated.execution import LocalContext

CLIENTS = fl.FederatedType(np.int32, fl.CLIENTS)


def mapping(function: Callable[..., Any], result: Any = np.int32) -> Any:
    """A computation that maps a Python function over what clients hold."""
    block = native.callable_computation(
        function,
        fl.FunctionType(np.int32, result),
        name=function.__name__,
        declared=f"`{function.__name__}`",
    )
    work = fl.framework.ConcreteComputation.from_building_block(block)

    @fl.federated_computation(CLIENTS)
    def mapped(values):
        return fl.federated_map(work, values)

    return mapped


def run(computation: Any, values: Any, threads: int) -> Any:
    with fl.framework.get_context_stack().install(LocalContext(threads=threads)):
        return computation(values)


def test_clients_work_at_the_same_time() -> None:
    # Each waits for the other: in one thread this would never end.
    barrier = threading.Barrier(2, timeout=20)

    def work(value):
        barrier.wait()
        return value

    assert run(mapping(work), [1, 2], 2) == [1, 2]


def test_one_thread_is_the_callers() -> None:
    threads = []

    def work(value):
        threads.append(threading.current_thread())
        return value

    assert run(mapping(work), list(range(5)), 1) == list(range(5))
    assert set(threads) == {threading.current_thread()}
    threads.clear()
    assert run(mapping(work), [7], 4) == [7]
    assert set(threads) == {threading.current_thread()}


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_results_stand_in_the_order_of_the_clients(threads: int) -> None:
    def work(value):
        time.sleep((value * 7919 % 13) / 2000)
        return np.int32(value * value)

    expected = [value * value for value in range(40)]
    assert run(mapping(work), list(range(40)), threads) == expected


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_failure_counts(threads: int) -> None:
    begun = []

    def work(value):
        begun.append(value)
        time.sleep(0.05 if value == 3 else 0.001)
        if value >= 3:
            raise KeyError(value)
        return value

    with pytest.raises(KeyError) as caught:
        run(mapping(work), list(range(100)), threads)
    assert caught.value.args == (3,)
    assert caught.value.__notes__ == ["at client 3"]
    assert len(begun) < 100


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_shows_the_users_frames_only(threads: int) -> None:
    def helper(value):
        return 1 // int(value)

    def work(value):
        return np.int32(helper(value))

    with pytest.raises(ZeroDivisionError) as caught:
        run(mapping(work), [1, 0, 2], threads)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    here = "test_a_failure_shows_the_users_frames_only"
    assert frames == [here, "run", "work", "helper"]
    assert traceback.format_exception_only(caught.value)[-1] == "at client 1\n"


def test_aggregation_names_the_client_too() -> None:
    def accumulate(pair):
        if pair[1] == 7:
            raise KeyError("seven")
        return pair[0] + pair[1]

    pair = fl.to_type((np.int32, np.int32))

    def operator(function: Any) -> Any:
        block = native.callable_computation(function, fl.FunctionType(pair, np.int32), name="f")
        return fl.framework.ConcreteComputation.from_building_block(block)

    @fl.federated_computation(np.int32)
    def identity(x):
        return x

    @fl.federated_computation(CLIENTS)
    def aggregate(values):
        operators = operator(accumulate), operator(accumulate), identity
        return fl.federated_aggregate(values, 0, *operators)

    assert aggregate([1, 2, 3]) == 6
    with pytest.raises(KeyError) as caught:
        aggregate([1, 7, 3])
    assert caught.value.__notes__ == ["at client 1"]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_function_returns_is_checked(threads: int) -> None:
    def work(value):
        return value if value < 2 else 1.5

    with pytest.raises(TypeError) as caught:
        run(mapping(work), [0, 1, 2], threads)
    assert str(caught.value) == (
        "the result of `work` doesn't fit its type\n  expected: int32\n  found:    1.5 (float)"
    )
    assert caught.value.__notes__ == ["at client 2"]
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames] == ["test_what_a_function_returns_is_checked", "run"]

    def pair(value):
        return {"a": value}

    of = fl.StructType([("a", np.int32), ("b", np.int32)])
    with pytest.raises(TypeError, match="the result of `pair` has other fields\n.*a field 'b'"):
        run(mapping(pair, of), [0, 1], threads)


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_have_the_callers_context_variables(threads: int) -> None:
    def work(value):
        return np.int32(VARIABLE.get())

    token = VARIABLE.set(5)
    try:
        assert run(mapping(work), [1, 2, 3], threads) == [5, 5, 5]
    finally:
        VARIABLE.reset(token)
    assert run(mapping(work), [1, 2, 3], threads) == [0, 0, 0]
    with np.errstate(all="raise"):

        def divide(value):
            return np.int32(np.float32(1) / np.float32(value))

        with pytest.raises(FloatingPointError):
            run(mapping(divide), [1, 0, 1], threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_functions_cannot_write_to_what_others_have_too(threads: int) -> None:
    row = fl.TensorType(np.float32, [2])

    def work(rows):
        rows[0] += 1
        return rows[0]

    both = fl.to_type([row, row])
    block = native.callable_computation(work, fl.FunctionType(both, row), name="work")
    added = fl.framework.ConcreteComputation.from_building_block(block)

    @fl.federated_computation(fl.FederatedType(row, fl.SERVER), fl.FederatedType(row, fl.CLIENTS))
    def mapped(sent, values):
        return fl.federated_map(added, [fl.federated_broadcast(sent), values])

    sent, values = np.zeros(2, np.float32), [np.ones(2, np.float32)] * 3
    with (
        fl.framework.get_context_stack().install(LocalContext(threads=threads)),
        pytest.raises(ValueError, match="read-only"),
    ):
        mapped(sent, values)
    assert not sent.any() and sent.flags.writeable


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Jobs in the background of a shell ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_the_work(threads: int, interruptible: None) -> None:
    import _thread

    begun = []

    def work(value):
        begun.append(value)
        if value == 0:
            _thread.interrupt_main()
        time.sleep(0.2)
        return value

    with pytest.raises(KeyboardInterrupt):
        run(mapping(work), list(range(100)), threads)
    assert len(begun) < 100


def test_an_interrupt_does_not_wait_for_work_that_cannot_be_ended(interruptible: None) -> None:
    import _thread

    free, outcomes = threading.Event(), []

    def work(value):
        if value == 0:
            _thread.interrupt_main()
        try:
            free.wait(60)
        finally:
            outcomes.append(free.is_set())
        return value

    with pytest.raises(KeyboardInterrupt) as caught:
        run(mapping(work), list(range(8)), 2)
    assert not hasattr(caught.value, "__notes__")
    assert not outcomes
    # Those which were left behind end their client's work, and begin no other.
    free.set()
    deadline = time.monotonic() + 60
    while len(outcomes) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert outcomes == [True, True]


def test_an_interrupt_ends_python_code_in_threads(interruptible: None) -> None:
    import _thread

    ended = []

    def work(value):
        try:
            _thread.interrupt_main()
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt:
            ended.append(threading.current_thread())
            raise

    with pytest.raises(KeyboardInterrupt):
        run(mapping(work), [1, 2], 2)
    assert len(ended) == 2


def adding() -> Any:
    """Adds two numbers without any Python code."""
    pair = fl.to_type([np.int32, np.int32])
    both = native.Reference("pair", pair)
    plus = native.Intrinsic("generic_plus", fl.FunctionType(pair, np.int32))
    block = native.Lambda("pair", pair, native.Call(plus, both))
    return fl.framework.ConcreteComputation.from_building_block(block)


def test_an_interrupt_ends_operations_too(interruptible: None) -> None:
    import _thread

    timer = threading.Timer(0.05, _thread.interrupt_main)
    reached = []

    def start():
        timer.start()
        return np.int32(0)

    def witness(value):
        reached.append(value)
        return value

    def local(function: Any, parameter: Any) -> Any:
        ty = fl.FunctionType(parameter, np.int32)
        block = native.callable_computation(function, ty, name="f")
        return fl.framework.ConcreteComputation.from_building_block(block)

    @fl.federated_computation(fl.SequenceType(np.int32))
    def rounds(numbers):
        total = local(start, None)()
        for _ in range(100):
            total = fl.sequence_reduce(numbers, total, adding())
        return local(witness, np.int32)(total)

    with pytest.raises(KeyboardInterrupt):
        rounds([1] * 20_000)
    assert not reached


def test_reading_lets_other_threads_run() -> None:
    import sys

    row = fl.federated_computation(lambda x: [x] * 2000, np.int32)
    data = fl.federated_computation(lambda x: [row(x)] * 20, np.int32).to_bytes()
    ready, seen = threading.Event(), []

    def other():
        ready.wait()
        seen.append(True)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    thread.start()
    try:
        # Nobody takes the interpreter's lock who isn't given it.
        sys.setswitchinterval(1000)
        ready.set()
        fl.framework.ConcreteComputation.from_bytes(data)
        assert seen
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_computations_can_be_called_from_many_threads() -> None:
    @fl.federated_computation(CLIENTS)
    def total(values):
        return fl.federated_sum(values)

    def work(value):
        return total([value, value])

    outer = mapping(work)
    results: list[Any] = []

    def call(by):
        results.append((by, outer([by, by + 1, by + 2])))

    threads = [threading.Thread(target=call, args=(by,)) for by in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(by, [2 * by, 2 * by + 2, 2 * by + 4]) for by in range(8)]


def test_only_functions_of_this_process_cannot_be_serialized() -> None:
    def work(value):
        return value

    with pytest.raises(TypeError, match="a Python function can't be serialized"):
        mapping(work).to_bytes()


def test_programs_are_serialized_and_loaded() -> None:
    loaded = []

    def load(content):
        loaded.append(content)
        by = int(content.decode())
        return lambda x, y: np.int32(x + by * y)

    of = fl.FunctionType(fl.StructType([("x", np.int32), ("y", np.int32)]), np.int32)
    program = ("example.org/adds", b"10")
    block = native.callable_computation(load(b"10"), of, name="adds", unpack=True, program=program)
    adds = fl.framework.ConcreteComputation.from_building_block(block)
    assert adds(1, 2) == 21
    read = fl.framework.ConcreteComputation.from_bytes(adds.to_bytes())
    with pytest.raises(NotImplementedError, match=r"can run\n  found:    example.org/adds"):
        read(1, 2)
    native.register_loader("example.org/adds", load)
    assert [read(1, 2), read(2, 2)] == [21, 22]
    # A program is loaded once.
    assert len(loaded) == 2
    assert read.to_bytes() == adds.to_bytes()


def test_data_is_loaded() -> None:
    data = native.AnyMessage("example.org/data", b"7")
    block = native.Lambda(None, None, native.Data(data, fl.to_type(np.int32)))
    computation = fl.framework.ConcreteComputation.from_building_block(block)
    with pytest.raises(NotImplementedError, match=r"data of this type\n  found:    example.org"):
        computation()
    native.register_loader("example.org/data", int)
    assert computation() == 7


def test_programs_that_draw_give_each_client_its_own_numbers() -> None:
    torch = pytest.importorskip("torch")
    from stator._program_tracing.drawing import Draws

    row = fl.TensorType(np.float32, [64])

    @fl.local_computation(row)
    def noisy(x):
        return x + torch.randn(64)

    @fl.federated_computation(fl.FederatedType(row, fl.CLIENTS))
    def noised(values):
        return fl.federated_collect(fl.federated_map(noisy, values))

    values = [np.zeros(64, np.float32)] * 40
    torch.manual_seed(0)
    draws, expected = Draws(), []
    for client in range(40):
        draws.become(0, client)
        expected.append(torch.randn(64).numpy())
    for threads in (1, 4):
        for _ in range(3):
            torch.manual_seed(0)
            found = run(noised, values, threads)
            assert (np.stack(list(found)) == np.stack(expected)).all()
