"""Calling computations: every operation against NumPy, for several numbers of clients."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import stator.federated as fl
from stator._stator import federated as native
from stator.federated.execution import LocalContext

COUNTS = [0, 1, 2, 7]
DTYPES = [np.int8, np.int32, np.uint16, np.int64, np.float16, np.float32, np.float64]


def clients(of: Any) -> fl.FederatedType:
    return fl.FederatedType(of, fl.CLIENTS)


def server(of: Any) -> fl.FederatedType:
    return fl.FederatedType(of, fl.SERVER)


def computation(function: Callable[..., Any], parameter: Any, result: Any, **how: Any) -> Any:
    """A computation that runs a Python function."""
    block = native.callable_computation(
        function, fl.FunctionType(parameter, result), name=function.__name__, **how
    )
    return fl.framework.ConcreteComputation.from_building_block(block)


def plus(dtype: Any) -> Any:
    return computation(lambda a, b: a + b, [dtype, dtype], dtype, unpack=True)


def random(dtype: Any, count: int, shape: tuple[int, ...] = ()) -> list[Any]:
    made = np.random.default_rng(count).integers(0, 15, (count, *shape)).astype(dtype)
    return list(made)


def same(found: Any, expected: Any) -> None:
    """That both are equal, and of the same dtype."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_sums(count: int, dtype: Any, shape: tuple[int, ...]) -> None:
    @fl.federated_computation(clients((dtype, shape)))
    def total(values):
        return fl.federated_sum(values)

    values = random(dtype, count, shape)
    naive = np.zeros(shape, dtype)
    for value in values:
        naive = naive + value
    same(total(values), naive)
    assert isinstance(total(values), np.generic if shape == () else np.ndarray)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_least_and_greatest(count: int, dtype: Any) -> None:
    @fl.federated_computation(clients((dtype, (2,))))
    def ends(values):
        return fl.federated_min(values), fl.federated_max(values)

    values = random(dtype, count, (2,))
    least, greatest = ends(values)
    if count:
        same(least, np.min(values, axis=0))
        same(greatest, np.max(values, axis=0))
    else:
        of = np.finfo(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype)
        infinite = np.issubdtype(dtype, np.floating)
        same(least, np.full(2, np.inf if infinite else of.max, dtype))
        same(greatest, np.full(2, -np.inf if infinite else of.min, dtype))


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("weight", [np.int8, np.int32, np.float32])
def test_means(count: int, dtype: Any, weight: Any) -> None:
    @fl.federated_computation(clients((dtype, (2,))), clients(weight))
    def means(values, weights):
        return fl.federated_mean(values), fl.federated_mean(values, weights)

    values, weights = random(dtype, count, (2,)), random(weight, count)
    weights[0] = weight(100)
    plain, weighted = means(values, weights)
    assert plain.dtype == weighted.dtype == dtype
    accuracy = 1e-2 if dtype == np.float16 else 1e-6
    np.testing.assert_allclose(plain, np.mean(values, axis=0), rtol=accuracy)
    # A sum of int8 would overflow.
    naive = np.average(values, axis=0, weights=np.asarray(weights, np.float64))
    np.testing.assert_allclose(weighted, naive, rtol=accuracy)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_means_of_nothing_are_no_numbers() -> None:
    @fl.federated_computation(clients(np.float32), clients(np.int32))
    def means(values, weights):
        return fl.federated_mean(values), fl.federated_mean(values, weights)

    assert np.isnan(means([], [])).all()
    plain, weighted = means([np.float32(1)], [0])
    assert plain == 1 and np.isnan(weighted)


@pytest.mark.parametrize("count", COUNTS)
def test_structs_are_combined_field_by_field(count: int) -> None:
    of = collections.OrderedDict(a=np.int32, b=[np.float32, (np.float64, (2,))])

    @fl.federated_computation(clients(of))
    def total(values):
        return fl.federated_sum(values)

    values = [
        collections.OrderedDict(a=np.int32(i), b=[np.float32(i / 2), np.full(2, float(i))])
        for i in range(count)
    ]
    result = total(values)
    assert type(result) is collections.OrderedDict and type(result["b"]) is list
    same(result["a"], np.int32(sum(range(count))))
    same(result["b"][0], np.float32(sum(range(count)) / 2))
    same(result["b"][1], np.full(2, float(sum(range(count)))))


@pytest.mark.parametrize("count", COUNTS)
def test_maps(count: int) -> None:
    double = computation(lambda x: np.int32(2 * x), np.int32, np.int32)

    @fl.federated_computation(clients(np.int32), server(np.int32))
    def maps(values, value):
        sent = fl.federated_broadcast(value)
        return (
            fl.federated_map(double, values),
            fl.federated_map(double, value),
            fl.federated_map(double, sent),
        )

    mapped, at_server, everywhere = maps(list(range(count)), 5)
    same(mapped, np.array([2 * i for i in range(count)], np.int32 if count else np.float64))
    same(at_server, np.int32(10))
    same(everywhere, np.full(count, 10, np.int32 if count else np.float64))


@pytest.mark.parametrize("count", COUNTS)
def test_aggregates(count: int) -> None:
    zero = fl.to_type([np.int32, np.int32])
    accumulate = computation(
        lambda so_far, value: [so_far[0] + value, np.int32(so_far[1] + 1)],
        [zero, np.int32],
        zero,
        unpack=True,
    )
    merge = computation(lambda a, b: [a[0] + b[0], a[1] + b[1]], [zero, zero], zero, unpack=True)
    report = computation(lambda pair: np.float32(pair[0] / max(pair[1], 1)), zero, np.float32)

    @fl.federated_computation(clients(np.int32))
    def aggregate(values):
        return fl.federated_aggregate(values, [0, 0], accumulate, merge, report)

    values = random(np.int32, count)
    same(aggregate(values), np.float32(np.mean(values) if count else 0))


@pytest.mark.parametrize("count", COUNTS)
def test_evaluates_at_each_place(count: int) -> None:
    calls = []
    made = computation(lambda: calls.append(1) or np.int32(len(calls)), None, np.int32)

    @fl.federated_computation(clients(np.int32))
    def evaluate(values):
        return fl.federated_eval(made, fl.CLIENTS), fl.federated_eval(made, fl.SERVER)

    at_clients, at_server = evaluate([0] * count)
    assert sorted([*at_clients, at_server]) == list(range(1, count + 2))
    assert len(calls) == count + 1


@pytest.mark.parametrize("count", COUNTS)
def test_secure_sums(count: int) -> None:
    @fl.federated_computation(clients([np.int32, (np.int64, (2,))]))
    def sums(values):
        return fl.federated_secure_sum(values, 14), fl.federated_secure_sum_bitwidth(values, [4, 5])

    values = [[np.int32(i), np.full(2, i)] for i in range(count)]
    total = sum(range(count))
    for result in sums(values):
        same(result[0], np.int32(total))
        same(result[1], np.full(2, total))


def test_secure_sums_check_what_clients_bring() -> None:
    @fl.federated_computation(clients(np.int32))
    def most(values):
        return fl.federated_secure_sum(values, 10)

    @fl.federated_computation(clients(np.int32))
    def bits(values):
        return fl.federated_secure_sum_bitwidth(values, 3)

    assert most([10, 0]) == 10
    assert bits([7, 0]) == 7
    for function, values, message in [
        (most, [1, 11], "client:   1\n.*federated_secure_sum\n.*from 0 to 10\n.*found:    11"),
        (most, [-1], "client:   0\n.*\n.*\n.*found:    -1"),
        (bits, [0, 0, 8], "client:   2\n.*federated_secure_sum_bitwidth\n.*3 bits"),
    ]:
        with pytest.raises(ValueError, match=message):
            function(values)


@pytest.mark.parametrize("select", [fl.federated_select, fl.federated_secure_select])
@pytest.mark.parametrize("count", COUNTS)
def test_selects(count: int, select: Any) -> None:
    calls = []
    of = (np.float32, (4,))
    pick = computation(
        lambda row, key: calls.append(key) or row[key], [of, np.int32], np.float32, unpack=True
    )

    @fl.federated_computation(clients((np.int32, (2,))), server(np.int32), server(of))
    def selected(keys, most, database):
        return select(keys, most, database, pick)

    database = np.array([10, 20, 30, 40], np.float32)
    keys = [np.array([i % 4, (i * i) % 3], np.int32) for i in range(count)]
    assert selected(keys, 3, database) == [[database[a], database[b]] for a, b in keys]
    # A slice that several clients ask for is made once.
    assert len(calls) == len(set(calls))
    with pytest.raises(ValueError, match=r"client:   0\n.*from 0 to max_key, 1\n.*found:    2"):
        selected([np.array([0, 2], np.int32)], 1, database)


@pytest.mark.parametrize("count", COUNTS)
def test_zips(count: int) -> None:
    @fl.federated_computation(
        clients(np.int32), clients(np.float32), fl.FederatedType(np.bool_, fl.CLIENTS, True)
    )
    def zipped(a, b, c):
        return fl.federated_zip(collections.OrderedDict(a=a, rest=(b, c)))

    a, b = random(np.int32, count), random(np.float32, count)
    expected = [collections.OrderedDict(a=x, rest=(y, np.True_)) for x, y in zip(a, b, strict=True)]
    assert zipped(a, b, True) == expected

    @fl.federated_computation(server(np.int32), server(np.float32))
    def at_server(a, b):
        return fl.federated_zip([a, b])

    assert at_server(1, 2.5) == [1, 2.5]


@pytest.mark.parametrize("length", [0, 1, 5])
def test_sequences(length: int) -> None:
    double = computation(lambda x: np.int32(2 * x), np.int32, np.int32)

    @fl.federated_computation(fl.SequenceType(np.int32), clients(fl.SequenceType(np.int32)))
    def sequences(values, at_clients):
        return (
            fl.sequence_map(double, values),
            fl.sequence_sum(values),
            fl.sequence_reduce(values, 100, plus(np.int32)),
            fl.sequence_map(double, at_clients),
            fl.sequence_sum(at_clients),
        )

    values = list(range(length))
    mapped, total, reduced, each, totals = sequences(values, [values, [7]])
    assert mapped == [2 * x for x in values]
    assert total == sum(values) and total.dtype == np.int32
    assert reduced == 100 + sum(values)
    assert each == [[2 * x for x in values], [14]]
    assert totals == [sum(values), 7]


def test_generic_operations() -> None:
    pair = fl.to_type([np.int32, (np.float32, (2,))])
    argument = native.Reference("a", fl.StructType([pair, pair]))
    values = [[6, np.array([1, 3], np.float32)], [3, np.array([2, 2], np.float32)]]
    for uri, expected in [
        ("generic_plus", [9, [3, 5]]),
        ("generic_multiply", [18, [2, 6]]),
        ("generic_divide", [2, [0.5, 1.5]]),
    ]:
        operation = native.Intrinsic(uri, fl.FunctionType(argument.type_signature, pair))
        block = native.Lambda("a", argument.type_signature, native.Call(operation, argument))
        result = fl.framework.ConcreteComputation.from_building_block(block)(values)
        same(result[0], np.int32(expected[0]))
        same(result[1], np.array(expected[1], np.float32))
    zero = native.Lambda(None, None, native.Intrinsic("generic_zero", pair))
    result = fl.framework.ConcreteComputation.from_building_block(zero)()
    same(result[0], np.int32(0))
    same(result[1], np.zeros(2, np.float32))


def test_values_at_places_and_calls_of_computations() -> None:
    @fl.federated_computation(np.int32)
    def inner(x):
        return x, 3

    @fl.federated_computation(np.int32)
    def outer(x):
        made = inner(x)
        return made[0], made[1], inner(made[1])

    assert outer(5) == (5, 3, (3, 3))

    @fl.federated_computation
    def without():
        return fl.federated_value((1, 2.5), fl.SERVER)

    assert without() == (1, 2.5)

    @fl.federated_computation(fl.FunctionType(np.int32, np.int32), np.int32)
    def apply(function, x):
        return function(function(x))

    assert apply(computation(lambda x: np.int32(x + 1), np.int32, np.int32), 3) == 5
    with pytest.raises(TypeError, match="`function` is another function"):
        apply(inner, 3)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Data:
    x: Any
    y: Any


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ([np.int32, np.int32], [1, 2]),
        ((np.int32, np.int32), (1, 2)),
        (collections.OrderedDict(x=np.int32, y=np.int32), collections.OrderedDict(x=1, y=2)),
        ({"x": np.int32, "y": np.int32}, {"y": 2, "x": 1}),
        (Point(np.int32, np.int32), Point(1, 2)),
        (Data(np.int32, np.int32), Data(1, 2)),
    ],
    ids=["list", "tuple", "OrderedDict", "dict", "named tuple", "dataclass"],
)
def test_containers_come_back(of: Any, value: Any) -> None:
    @fl.federated_computation(of)
    def identity(x):
        return x

    result = identity(value)
    assert type(result) is type(value) and result == value

    seen = []
    looked = computation(lambda x: seen.append(x) or x, of, of)
    assert looked(value) == value
    assert type(seen[0]) is type(value)


def test_structs_without_containers() -> None:
    named = fl.StructType([("a", np.int32), ("b", np.int32)])
    unnamed = fl.StructType([np.int32, np.int32])
    mixed = fl.StructType([("a", np.int32), np.int32])

    def identity(of: Any) -> Any:
        return computation(lambda x: x, of, of)

    assert identity(named)({"b": 2, "a": 1}) == collections.OrderedDict(a=1, b=2)
    assert identity(unnamed)([1, 2]) == (1, 2)
    # The function gets a Struct, which is what a value of this type is.
    assert str(identity(mixed)([1, 2])) == "<a=1,2>"


def test_strings_are_bytes() -> None:
    @fl.federated_computation(np.str_, (np.str_, (2,)))
    def identity(one, row):
        return one, row, "é"

    one, row, literal = identity("ü", ["a", b"b\0"])
    assert one == "ü".encode() and literal == "é".encode()
    assert row.dtype == object and list(row) == [b"a", b"b\0"]


def test_what_fits_a_tensor_type() -> None:
    def identity(of: Any, value: Any) -> Any:
        return computation(lambda x: x, of, of)(value)

    for of, value, expected in [
        (np.float32, 3, np.float32(3)),
        (np.complex64, 2.5, np.complex64(2.5)),
        (np.int64, np.int32(3), np.int64(3)),
        (np.float64, np.float32(0.5), np.float64(0.5)),
        ((np.float32, (2,)), [1, 2.5], np.array([1, 2.5], np.float32)),
        ((np.int8, (2,)), [1, -128], np.array([1, -128], np.int8)),
        ((np.int32, (None,)), [], np.array([], np.int32)),
        (np.int32, np.array(5, np.int32), np.int32(5)),
        ((np.int32, (1,)), np.array([5], ">i4"), np.array([5], np.int32)),
        ((np.float32, None), np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)),
        (np.bool_, True, np.True_),
    ]:
        same(identity(of, value), expected)
    for of, value in [
        (np.int32, 1.5),
        (np.int32, True),
        (np.bool_, 1),
        (np.int8, 300),
        (np.float32, np.float64(1)),
        (np.int32, np.int64(1)),
        (np.int32, np.float32(1)),
        (np.int32, [1]),
        (np.int32, "1"),
        (np.str_, 1),
        (np.int32, object()),
        ((np.int8, (2,)), [1, 300]),
        ((np.float32, (2,)), [1]),
        ((np.float32, (2,)), [[1], [2, 3]]),
        ((np.float32, (2,)), np.ones(3, np.float32)),
        ((np.float32, ()), np.ones(1, np.float32)),
    ]:
        with pytest.raises(TypeError, match="the argument doesn't fit its type\n  expected: "):
            identity(of, value)


def test_the_number_of_clients() -> None:
    @fl.federated_computation
    def count():
        return fl.federated_sum(fl.federated_value(1, fl.CLIENTS))

    @fl.federated_computation(clients(np.int32))
    def total(values):
        return fl.federated_sum(values)

    stack = fl.framework.get_context_stack()
    with pytest.raises(ValueError, match="the number of clients isn't known"):
        count()
    for clients_ in COUNTS:
        with stack.install(LocalContext(clients_)):
            assert count() == clients_
    with (
        stack.install(LocalContext(3)),
        pytest.raises(ValueError, match="3 clients, as this context says\n  found:    2 clients"),
    ):
        total([1, 2])
    with pytest.raises(ValueError, match="`clients` must be 0 or more"):
        LocalContext(-1)
    with pytest.raises(ValueError, match="`threads` must be 1 or more"):
        LocalContext(threads=0)
    assert repr(LocalContext(3, threads=2)) == "LocalContext(3, threads=2)"
    assert isinstance(stack.current, fl.framework.SyncContext)


def test_cardinalities() -> None:
    infer = fl.framework.infer_cardinalities
    int_clients = clients(np.int32)
    everywhere = fl.FederatedType(np.int32, fl.CLIENTS, True)
    assert infer(None, int_clients) == {}
    assert infer(5, fl.to_type(np.int32)) == {}
    assert infer(5, everywhere) == {}
    assert infer([1, 2], int_clients) == {fl.CLIENTS: 2}
    both = fl.to_type([("a", int_clients), ("b", int_clients), ("c", everywhere)])
    assert infer({"a": [1], "b": [2], "c": 3}, both) == {fl.CLIENTS: 1}
    assert infer([[1], [2], 3], both) == {fl.CLIENTS: 1}
    with pytest.raises(ValueError, match="different numbers of CLIENTS"):
        infer([[1], [2, 3], 3], both)
    with pytest.raises(TypeError, match="must be a sequence") as caught:
        infer(5, int_clients)
    assert type(caught.value).__name__ == "InvalidNonAllEqualValueError"
