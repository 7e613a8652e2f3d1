"""`bisect.insort`: what it compares is guarded, and where it puts an object is written."""

from __future__ import annotations

import bisect
import collections
from typing import Any

import pytest
from torch import Tensor

from ..worlds import World, agree


class Ranked:
    """Python code puts these in order."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __lt__(self, other: Ranked) -> bool:
        return self.rank < other.rank

    def __repr__(self) -> str:
        return f"Ranked({self.rank})"


class Kept(list[Any]):
    """It notes what is put in."""

    def insert(self, index: Any, object: Any) -> None:
        self.append((index, object))


def numbers(x: Tensor, kept: list[Any], number: Any) -> Any:
    bisect.insort(kept, number)
    return x * kept[0], len(kept)


def from_the_left(x: Tensor, kept: list[Any], number: Any) -> Any:
    bisect.insort_left(kept, number, 1, hi=len(kept))
    return x + 1


def by_a_key(x: Tensor, kept: list[Any], number: Any) -> Any:
    bisect.insort(kept, number, key=lambda held: -held if isinstance(held, (int, float)) else 0)
    return x + kept[0]


def named(x: Tensor, kept: list[Any], number: Any) -> Any:
    bisect.insort_right(x=number, a=kept)
    return x + 1


def scores(x: Tensor, kept: list[Any], number: Any) -> Any:
    bisect.insort(kept, x.sum().item())
    return x * 2, kept[-1]


def its_own(x: Tensor, kept: list[Any], number: Any) -> Any:
    order = [1, 5, 9]
    bisect.insort(order, number)
    return x * order[1], order


def objects(x: Tensor, kept: list[Any], number: Any) -> Any:
    bisect.insort(kept, Ranked(4))
    return x + len(kept)


def tensors(x: Tensor, kept: list[Any], number: Any) -> Any:
    order = [x.sum(), x.sum() + 2]
    bisect.insort(order, x.sum() + 1)
    return order


def refused(x: Tensor, kept: list[Any], number: Any) -> Any:
    try:
        bisect.insort(kept, "text")
    except TypeError as error:
        return x + 1, str(error)
    return x


NUMBERS = [numbers, from_the_left, by_a_key, named, scores, its_own, tensors, refused]


@pytest.mark.parametrize("function", NUMBERS)
@pytest.mark.parametrize("kind", [list, Kept, collections.deque])
def test_numbers(function: Any, kind: Any) -> None:
    def make() -> World:
        return World(function, (kind([1, 3, 8]), 4))

    def another(world: World) -> None:
        world.args[0].insert(0, -7)

    def number(world: World) -> None:
        world.args = (world.args[0], 2.5)

    agree(make, another, number, another, replays=False, again=2)


def test_one_trace_writes_it() -> None:
    compiled = agree(lambda: World(its_own, (None, 4)))
    assert compiled.stats.breaks == 0


def test_the_code_that_orders_changes() -> None:
    def make() -> World:
        return World(objects, ([Ranked(1), Ranked(6)], 0))

    def turned(world: World) -> None:
        Ranked.__lt__ = lambda self, other: self.rank > other.rank  # type: ignore[method-assign]

    plain = Ranked.__lt__
    try:
        agree(make, lambda world: setattr(world.args[0][0], "rank", 5), replays=False)
        agree(make, turned, replays=False)
    finally:
        Ranked.__lt__ = plain  # type: ignore[method-assign]
