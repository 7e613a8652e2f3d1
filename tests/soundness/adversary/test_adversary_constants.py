"""Constants whose identity shows: a NaN, which C code finds only as the object that it is, and `is` of equal values."""

from __future__ import annotations

import collections
import dataclasses
import heapq
from typing import Any

import torch
from torch import Tensor

from ..objects import Node, X
from ..probe import Steps, right_after

NAN = float("nan")


def _other() -> float:
    return float("nan")


@right_after
def test_nan_in_a_list() -> Steps:
    values, key = [1.0, NAN], [NAN]
    yield (lambda x: x * (key[0] in values) + values.count(key[0])), (X,)
    key[0] = _other()
    yield None
    values[1] = key[0]
    yield None


@right_after
def test_nan_as_argument() -> Steps:
    yield (lambda x, a, b: x * (a in [b]) + (a in (b,)) + ((a,) == (b,))), (X, NAN, NAN)
    yield X, NAN, _other()


@right_after
def test_nan_as_key() -> Steps:
    table, key = {NAN: 1.0, 2: 3.0}, [NAN]

    def fn(x: Tensor) -> Tensor:
        for other in table:
            x = x * table[other]
        return x + table.get(key[0], 5.0) + (key[0] in table)

    yield fn, (X,)
    key[0] = _other()
    yield None
    table[key[0]] = 7.0
    yield None
    del table[NAN]
    yield None


@right_after
def test_nan_in_a_set() -> Steps:
    values, key = {NAN, 1.0}, [NAN]
    yield (lambda x: x * (key[0] in values) + len(values | {key[0]})), (X,)
    key[0] = _other()
    yield None


@right_after
def test_nan_in_a_deque() -> Steps:
    values, key = collections.deque([NAN, 1.0]), [NAN]
    yield (lambda x: x * values.count(key[0]) + (key[0] in values)), (X,)
    key[0] = _other()
    yield None


@right_after
def test_nan_in_ordered_tuples() -> Steps:
    """Tuples compare the first elements that are different objects and unequal."""
    values = [(NAN, 2), (NAN, 1)]
    yield (lambda x: (x * sorted(values)[0][1], min(values)[1], values[0] < values[1])), (X,)
    values[1] = (_other(), 1)
    yield None
    values[0] = (values[1][0], 2)
    yield None


@right_after
def test_nan_in_tuples_that_are_put_in_order() -> Steps:
    values = [(NAN, 2), (NAN, 1)]

    def fn(x: Tensor) -> Any:
        own, heap = list(values), list(values)
        own.sort()
        heapq.heapify(heap)
        heapq.heappush(heap, values[0])
        return x * own[0][1], heap[0][1], heapq.heappushpop(heap, values[1])[1], len(heap)

    yield fn, (X,)
    values[1] = (_other(), 1)
    yield None
    values[0] = (values[1][0], 2)
    yield None


@right_after
def test_nan_that_is_removed() -> Steps:
    values, key = [2.0, NAN], [NAN]

    def fn(x: Tensor) -> Any:
        own, waiting = list(values), collections.deque(values)
        for container in (own, waiting):
            try:
                container.remove(key[0])
            except ValueError:
                x = x + 1
        return x, len(own), len(waiting)

    yield fn, (X,)
    key[0] = _other()
    yield None
    values[1] = key[0]
    yield None


@right_after
def test_nan_in_compared_instances() -> Steps:
    @dataclasses.dataclass
    class Point:
        a: float
        b: tuple[float, ...] = ()

    one, two = Point(NAN, (NAN,)), Point(NAN, (NAN,))
    yield (lambda x: x * (one == two)), (X,)
    two.a = _other()
    yield None
    two.a, two.b = NAN, (_other(),)
    yield None


@right_after
def test_nan_is_counted() -> Steps:
    def fn(x: Tensor, values: list[float]) -> Any:
        return x * len(set(values)), len(dict.fromkeys(values)), len(collections.Counter(values))

    yield fn, (X, [NAN, NAN])
    yield X, [NAN, _other()]


@right_after
def test_large_numbers_are_one_object() -> Steps:
    one, two = Node(10**6), Node(0)
    two.n = one.n
    yield (lambda x: x * 2 if one.n is two.n else x), (X,)
    two.n = int("1000000")
    yield None
    two.n = one.n
    yield None
    one.n = two.n = 5
    yield None
    two.n = int("5")
    yield None


@right_after
def test_argument_is_an_element() -> Steps:
    number = int("100000000000")
    values = [number]
    yield (lambda x, n: x * 2 if n is values[0] else x), (X, number)
    yield X, int("100000000000")


@right_after
def test_bytes_are_one_object() -> Steps:
    values = [b"ab", b""]
    values[1] = values[0]
    yield (lambda x: x * 2 if values[0] is values[1] else x), (X,)
    values[1] = bytes([97, 98])
    yield None


@right_after
def test_text_is_what_the_code_says() -> Steps:
    settings = {"mode": "train"}
    mode = "train"

    def fn(x: Tensor, wanted: str = mode) -> Tensor:
        return x * 2 if settings["mode"] is wanted else x

    yield fn, (X,)
    settings["mode"] = "".join(["tr", "ain"])
    yield None
    settings["mode"] = mode
    yield None


@right_after
def test_tensor_is_no_sequence() -> Steps:
    values: list[Any] = [torch.ones(2, 3)]

    def fn(x: Tensor) -> Tensor:
        match values[0]:
            case [first, *_]:
                return x + first.sum()
            case {"a": _}:
                return x - 1
            case found:
                return x * found.numel()

    yield fn, (X,)
    values[0] = [X, X]
    yield None
    values[0] = {"a": 1}
    yield None
