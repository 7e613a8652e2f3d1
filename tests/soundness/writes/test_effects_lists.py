"""Outside lists written: recorded, replayed, and after their contents have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..worlds import Step, World, agree

# Lists


class Lists:
    """Lists to write to."""

    def __init__(self) -> None:
        self.items: list[Any] = [3, 1, 2]
        self.tensors: list[Any] = [torch.ones(3), torch.zeros(3)]
        self.other: list[Any] = [3, 1, 2]


def append(x: Tensor, s: Lists) -> Tensor:
    n = len(s.items)
    s.items.append(5)
    return x * s.items[-1] + n + len(s.items)


def extend(x: Tensor, s: Lists) -> Tensor:
    s.items.extend(value * 2 for value in (1, 2))
    s.items += [7]
    return x * sum(s.items)


def insert(x: Tensor, s: Lists) -> Tensor:
    s.items.insert(1, 9)
    return x * s.items[1] + s.items[2]


def pop(x: Tensor, s: Lists) -> Tensor:
    if len(s.items) < 2:
        s.items[:] = [4, 5, 6, 7]
    return x * s.items.pop() + s.items.pop(0)


def remove(x: Tensor, s: Lists) -> Tensor:
    if 1 in s.items:
        s.items.remove(1)
    return x * len(s.items)


def clear(x: Tensor, s: Lists) -> Tensor:
    n = len(s.items)
    s.items.clear()
    return x * n + len(s.items)


def reverse_and_sort(x: Tensor, s: Lists) -> Tensor:
    s.items.reverse()
    first = s.items[0]
    s.items.sort(key=lambda value: -value)
    return x * first + s.items[0]


def set_item(x: Tensor, s: Lists) -> Tensor:
    before = s.items[0]
    s.items[0] = 8
    s.items[-1] = s.items[0]
    return x * before + s.items[2]


def set_slice(x: Tensor, s: Lists) -> Tensor:
    s.items[1:] = [6, 6, 6]
    s.items[::2] = (1, 1)
    return x * sum(s.items)


def delete_item(x: Tensor, s: Lists) -> Tensor:
    s.items.append(0)
    del s.items[0]
    del s.items[1:]
    return x * s.items[0]


def repeat(x: Tensor, s: Lists) -> Tensor:
    s.items *= 2
    del s.items[3:]
    return x * len(s.items)


def keep_tensors(x: Tensor, s: Lists) -> Tensor:
    old = s.tensors[0]
    s.tensors[0] = x * 2
    s.tensors[1] = old
    return s.tensors[0] + s.tensors[1]


def keep_containers(x: Tensor, s: Lists) -> Tensor:
    made = [x + 1, {"x": x}]
    s.items[:] = [made, made, s.tensors, s.items]
    return x + 1


def swap(x: Tensor, s: Lists) -> Tensor:
    s.items[0], s.items[1] = s.items[1], s.items[0]
    return x * s.items[0]


def through_an_alias(x: Tensor, s: Lists) -> Tensor:
    alias = s.items
    alias[0] = 9
    s.kept = alias  # type: ignore[attr-defined]
    return x * s.items[0]


def raise_and_catch(x: Tensor, s: Lists) -> Tensor:
    s.items.clear()
    try:
        s.items.pop()
    except IndexError:
        return x * 3
    return x


def two_names(x: Tensor, s: Lists) -> Tensor:
    s.items[0] = 4
    return x * s.other[0]


def two_names_in_turn(x: Tensor, s: Lists) -> Tensor:
    s.items[0] = 4
    s.other[0] = 5
    s.items[0] = 6
    return x + 1


LISTS = [
    append,
    extend,
    insert,
    pop,
    remove,
    clear,
    reverse_and_sort,
    set_item,
    set_slice,
    delete_item,
    repeat,
    keep_tensors,
    keep_containers,
    swap,
    through_an_alias,
    raise_and_catch,
    two_names,
    two_names_in_turn,
]


def _refill(world: World) -> None:
    world.args[0].items[:] = [3, 1, 2]


def _refill_otherwise(world: World) -> None:
    world.args[0].items[:] = [2, 9, 1, 4]


def _alias(world: World) -> None:
    world.args[0].other = world.args[0].items


@pytest.mark.parametrize("fn", LISTS, ids=lambda fn: fn.__name__)
def test_list_written(fn: Callable[..., Any]) -> None:
    refill: Step = _refill
    steps = (refill, _refill_otherwise, _refill, _alias, _refill, _refill)
    compiled = agree(lambda: World(fn, (Lists(),)), *steps, replays=False, again=1)
    if not api.PLAIN:
        assert compiled.stats.native == 0, compiled.stats.reason
        assert compiled.stats.hits >= 1


def test_list_keeps_its_identity() -> None:
    def fn(x: Tensor, values: list[Any]) -> Tensor:
        values[:] = [x, 1]
        return x + 1

    values: list[Any] = [0]
    compiled = api.compile(fn)
    for _ in range(3):
        x = torch.ones(3)
        compiled(x, values)
        assert values[0] is x
        assert values[1] == 1


def test_list_that_holds_itself() -> None:
    def fn(x: Tensor, values: list[Any]) -> Tensor:
        values.extend([values, 3])
        values.append((values, 1) == 1)
        return x * len(values)

    agree(lambda: World(fn, ([1],)), lambda world: world.args[0].clear(), replays=False)
