"""Nobody's memory is handed to somebody else: results share none with arguments, with each other, nor
with what a user's function keeps; and what nobody else holds isn't copied."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator._stator import federated as native
from stator.federated.execution import LocalContext

torch = pytest.importorskip("torch")

ROW = fl.TensorType(np.float32, [3])
MODEL = fl.to_type(collections.OrderedDict(w=ROW, b=fl.to_type([ROW, ROW])))
AT_SERVER = fl.FederatedType(ROW, fl.SERVER)
AT_CLIENTS = fl.FederatedType(ROW, fl.CLIENTS)


def arrays(value: Any) -> Iterator[Any]:
    """The arrays in a result or an argument."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, torch.Tensor):
        yield value.numpy()
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays(item)
    elif isinstance(value, (list, tuple, native.Struct)):
        for item in value:
            yield from arrays(item)


def row(number: float) -> Any:
    return np.full(3, number, np.float32)


def tensor(number: float) -> Any:
    return torch.full((3,), float(number))


def model(make: Callable[[float], Any]) -> Any:
    return collections.OrderedDict(w=make(1), b=[make(2), make(3)])


def function(body: Callable[..., Any], parameter: Any, result: Any) -> Any:
    """A computation that runs a Python function."""
    ty = fl.FunctionType(parameter, result)
    block = native.callable_computation(body, ty, name=body.__name__)
    return fl.framework.ConcreteComputation.from_building_block(block)


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def zipped(sent, values):
    return fl.federated_zip((fl.federated_broadcast(sent), values))


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def broadcast(sent, values):
    return fl.federated_broadcast(sent), values, [sent, sent]


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def mapped(sent, values):
    first = fl.federated_computation(lambda pair: pair[0], [ROW, ROW])
    return fl.federated_map(first, (fl.federated_broadcast(sent), values))


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def by_program(sent, values):
    same = fl.local_computation(lambda a, b: (a, b, a), ROW, ROW)
    return fl.federated_map(same, (fl.federated_broadcast(sent), values))


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def by_function(sent, values):
    same = function(lambda pair: [pair[0], pair[1], pair[0]], [ROW, ROW], [ROW, ROW, ROW])
    return fl.federated_map(same, (fl.federated_broadcast(sent), values))


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def collected(sent, values):
    keep = fl.federated_computation(lambda a, b: b, ROW, ROW)
    last = fl.federated_computation(lambda a: a, ROW)
    return fl.federated_aggregate(values, row(0), keep, keep, last), sent


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def extremes(sent, values):
    return fl.federated_min(values), fl.federated_sum(values), sent


@fl.federated_computation(AT_SERVER, AT_CLIENTS)
def selected(sent, values):
    keys = fl.federated_value(np.array([1, 1], np.int32), fl.CLIENTS)
    most = fl.federated_value(np.int32(3), fl.SERVER)
    whole = fl.federated_computation(lambda of, key: of, ROW, np.int32)
    return fl.federated_select(keys, most, sent, whole), values


PROGRAMS = [zipped, broadcast, mapped, by_program, by_function, collected, extremes, selected]


@pytest.mark.parametrize("make", [row, tensor])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_their_own(program: Any, count: int, threads: int, make: Any) -> None:
    sent, values = make(7), [make(index) for index in range(count)]
    before = [array.copy() for array in arrays([sent, values])]
    with fl.framework.get_context_stack().install(LocalContext(threads=threads)):
        result = program(sent, values)
    found = list(arrays(result))
    assert found
    for one, other in itertools.combinations(found, 2):
        assert not np.shares_memory(one, other)
    for one, given in itertools.product(found, arrays([sent, values])):
        assert not np.shares_memory(one, given)
    for array in found:
        array += 100
    for given, old in zip(arrays([sent, values]), before, strict=True):
        np.testing.assert_array_equal(given, old)


@pytest.mark.parametrize("make", [row, tensor])
def test_structs_and_sequences_are_their_own(make: Any) -> None:
    @fl.federated_computation(MODEL, fl.SequenceType(ROW))
    def same(of, rows):
        return {"once": of, "again": of, "rows": rows, "part": of.b[0]}

    of, rows = model(make), [make(5)] * 2
    result = same(of, rows)
    found = list(arrays(result))
    assert len(found) == 9
    for one, other in itertools.combinations([*found, *arrays([of, rows[0]])], 2):
        assert not np.shares_memory(one, other)


def test_constants_are_not_shared_between_calls() -> None:
    @fl.federated_computation
    def constant():
        return fl.to_value(row(1), ROW)

    constant()[:] = 5
    np.testing.assert_array_equal(constant(), row(1))


def test_views_are_copied() -> None:
    of = np.arange(9, dtype=np.float32).reshape(3, 3)
    same = fl.federated_computation(lambda x: x, ROW)
    for given in (of[0], of[:, 1], torch.from_numpy(of)[2], memoryview(of[0]).obj):
        same(given)[:] = -1
    assert (of >= 0).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("made", [lambda: np.zeros(3, np.float32), lambda: torch.zeros(3)])
def test_what_a_function_keeps_is_copied(threads: int, made: Callable[[], Any]) -> None:
    """A function may use one buffer for all its results."""
    buffer = made()

    def work(value):
        buffer[:] = float(value[0])
        return buffer

    @fl.federated_computation(AT_CLIENTS)
    def all_rows(values):
        return fl.federated_map(function(work, ROW, ROW), values)

    with fl.framework.get_context_stack().install(LocalContext(threads=threads)):
        if threads == 1:
            result = all_rows([row(index) for index in range(4)])
            assert [list(each) for each in result] == [[index] * 3 for index in range(4)]
        else:
            result = all_rows([row(5)] * 4)
    for each in result:
        each[:] = 99
    assert float(buffer[0]) in (3.0, 5.0)


def test_a_function_gets_tensors_of_its_own() -> None:
    def work(pair):
        for each in pair:
            each += 1
        return pair[0]

    @fl.federated_computation(AT_SERVER, AT_CLIENTS)
    def added(sent, values):
        both = (fl.federated_broadcast(sent), values)
        return fl.federated_map(function(work, [ROW, ROW], ROW), both)

    sent, values = tensor(1), [tensor(index) for index in range(3)]
    assert [float(each[0]) for each in added(sent, values)] == [2.0] * 3
    assert float(sent[0]) == 1.0
    assert [float(each[0]) for each in values] == [0.0, 1.0, 2.0]


def test_nothing_is_copied_that_nobody_else_holds() -> None:
    """What a function makes and lets go of is what the caller gets."""
    made = []

    def work(value):
        new = np.zeros(3, np.float32)
        made.append(new.__array_interface__["data"][0])
        return {"a": new}

    def work_in_torch(value):
        new = torch.zeros(3)
        made.append(new.data_ptr())
        return (new,)

    for body, result in ((work, {"a": ROW}), (work_in_torch, (ROW,))):
        made.clear()
        found = next(arrays(function(body, ROW, result)(row(0))))
        assert [found.__array_interface__["data"][0]] == made
        assert found.flags.writeable
