"""What C functions that hand objects on compare: objects that were different may be one in a later call."""

from __future__ import annotations

import collections
import itertools
import operator
from typing import Any

from torch import Tensor

from ..objects import Node, X
from ..probe import Steps, right_after


@right_after
def test_index_of_an_object() -> Steps:
    one, two = Node(1), Node(2)
    values, key = [one, two], [two]
    yield (lambda x: x * operator.indexOf(values, key[0]) + operator.countOf(values, key[0])), (X,)
    values[0] = two
    yield None
    values[1] = one
    yield None


@right_after
def test_index_in_a_deque() -> Steps:
    one, two = Node(1), Node(2)
    values, key = collections.deque([one, two]), [two]
    yield (lambda x: x * values.index(key[0]) + values.count(key[0])), (X,)
    values[0] = two
    yield None


@right_after
def test_groups_of_objects() -> Steps:
    one, two = Node(1), Node(2)
    values = [one, two, one]
    yield (lambda x: x * len([key for key, _ in itertools.groupby(values)])), (X,)
    values[1] = one
    yield None
    values[1] = Node(1)
    yield None


@right_after
def test_identity_asked_by_c_code() -> Steps:
    one, two = Node(1), Node(2)
    first, second = [one, two], [two, two]

    def fn(x: Tensor) -> Tensor:
        same = sum(map(operator.is_, first, second))
        return x * same + sum(itertools.starmap(operator.ne, zip(first, second, strict=True)))

    yield fn, (X,)
    first[0] = two
    yield None
    second[1] = Node(2)
    yield None


@right_after
def test_order_of_tuples() -> Steps:
    class Ordered:
        def __init__(self, n: int) -> None:
            self.n = n

        def __lt__(self, other: Ordered) -> bool:
            return self.n < other.n

    one, two = Ordered(1), Ordered(1)
    values = [(one, 2), (two, 1)]
    yield (lambda x: x * sorted(values)[0][1] + min(values)[1]), (X,)
    values[1] = (one, 1)
    yield None


@right_after
def test_joined_in_place() -> Steps:
    def fn(x: Tensor, left: Any, right: Any) -> Any:
        try:
            return x, operator.iconcat(left, right)
        except TypeError as error:
            return x, str(error)

    yield fn, (X, 1, 2)
    yield X, "a", "b"
    yield X, (1,), (2,)
    yield X, 1.5, 2.5


@right_after
def test_shifts_and_hints() -> Steps:
    values = [1, 2, 3]

    def fn(x: Tensor, n: int) -> Tensor:
        shifted = operator.irshift(n, 1) + operator.ilshift(n, 2)
        return x * shifted + operator.length_hint(values) + operator.length_hint(n, 7)

    yield fn, (X, 9)
    values.append(4)
    yield None
    yield X, 6
