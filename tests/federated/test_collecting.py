"""What the clients have comes to the server as a sequence, and PyTorch code gets sequences stacked."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import stator.federated as fl

ROW = fl.TensorType(np.float32, [2])


def test_values_come_in_the_order_of_the_clients() -> None:
    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def collected(values: Any) -> Any:
        return fl.federated_collect(values)

    assert str(collected.type_signature) == "({int32}@CLIENTS -> int32*@SERVER)"
    assert collected([3, 1, 2]) == [3, 1, 2]
    assert collected([]) == []
    again = fl.framework.ConcreteComputation.from_bytes(collected.to_bytes())
    assert again([5, 6]) == [5, 6]
    assert "federated_collect(" in str(collected.to_building_block())


def test_a_sequence_of_what_is_the_same_everywhere() -> None:
    @fl.federated_computation(
        fl.FederatedType(np.int32, fl.SERVER), fl.FederatedType(np.int32, fl.CLIENTS)
    )
    def collected(value: Any, clients: Any) -> Any:
        return fl.federated_collect((fl.federated_broadcast(value), clients))

    assert collected(7, [1, 2]) == [(7, 1), (7, 2)]


def test_what_is_at_the_server_is_not_collected() -> None:
    with pytest.raises(TypeError, match="federated_collect: the argument `value`"):
        fl.federated_computation(
            lambda value: fl.federated_collect(value), fl.FederatedType(np.int32, fl.SERVER)
        )


def test_collected_values_are_reduced_as_sequences() -> None:
    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def total(values: Any) -> Any:
        def add(value: Any) -> Any:
            return fl.sequence_sum(value)

        added = fl.federated_computation(add, fl.SequenceType(np.int32))
        return fl.federated_map(added, fl.federated_collect(values))

    assert total([3, 4]) == 7


def test_pytorch_code_takes_the_elements_as_one_tensor() -> None:
    torch = pytest.importorskip("torch")
    element = OrderedDict(a=ROW, b=[np.int64, np.float64])

    @fl.local_computation(fl.SequenceType(element), np.float32)
    def medians(elements: Any, factor: Any) -> Any:
        number, other = elements["b"]
        return elements["a"].median(0).values * factor, number.sum(), other.sum()

    @fl.federated_computation(fl.FederatedType(element, fl.CLIENTS))
    def process(values: Any) -> Any:
        two = fl.federated_value(2.0, fl.SERVER)
        return fl.federated_map(medians, (fl.federated_collect(values), two))

    assert (
        str(medians.type_signature) == "(<elements=<a=float32[2],b=<int64,float64>>*,"
        "factor=float32> -> <float32[2],int64,float64>)"
    )
    again = fl.framework.ConcreteComputation.from_bytes(process.to_bytes())
    for run in (process, again, process):
        for shift in (0, 5):
            rows = [[1 + shift, 8], [3, 6], [2, 7 - shift]]
            found = run([{"a": np.float32(row), "b": [2, 0.5]} for row in rows])
            expected = torch.tensor(rows, dtype=torch.float32).median(0).values * 2
            assert found[0].tolist() == expected.tolist()
            assert found[1:] == (6, 1.5)


def test_a_sequence_at_each_client() -> None:
    pytest.importorskip("torch")

    @fl.local_computation(fl.SequenceType(ROW))
    def mean(rows: Any) -> Any:
        return rows.mean(0)

    @fl.federated_computation(fl.FederatedType(fl.SequenceType(ROW), fl.CLIENTS))
    def process(values: Any) -> Any:
        return fl.federated_sum(fl.federated_map(mean, values))

    ones, twos = np.ones((2,), np.float32), np.full((2,), 2, np.float32)
    for clients in ([[ones, twos], [twos]], [[ones], [twos], [ones]]):
        expected = sum(np.mean(client, 0) for client in clients)
        np.testing.assert_array_equal(process(clients), expected)
    with pytest.raises(ValueError, match="a sequence without elements") as raised:
        process([[ones], [], [twos]])
    assert raised.value.__notes__[-1] == "at client 1"


def test_lists_that_are_structs_are_no_sequences() -> None:
    pytest.importorskip("torch")
    pair = fl.StructWithPythonType([(None, ROW), (None, ROW)], list)

    @fl.local_computation(fl.SequenceType(pair))
    def local(pairs: Any) -> Any:
        return pairs[0].sum(0), pairs[1].sum(0)

    row = np.ones((2,), np.float32)
    assert [part.tolist() for part in local([[row, 2 * row], [row, 3 * row]])] == [[2, 2], [5, 5]]


def test_elements_whose_sizes_are_unknown_are_refused() -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="a sequence of tensors whose sizes are known"):
        fl.local_computation(fl.SequenceType(fl.TensorType(np.float32, [None])))(lambda x: x.sum())
