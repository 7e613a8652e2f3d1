"""Outside containers that are written and iterated over: an iterator has a position in what was written.

A replay writes at its end what the recorded call wrote on its way, so an iterator that is made before is one over
the old contents: it raises, or stands at another element.
"""

from __future__ import annotations

import collections
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..worlds import World, agree


class Tables:
    """Containers of each kind, and a place to keep an iterator."""

    def __init__(self) -> None:
        self.list: list[Any] = [1, 2]
        self.dict: dict[str, int] = {"k1": 1, "k2": 2}
        self.set = {1, 2}
        self.queue = collections.deque([1, 2])
        self.kept: Iterator[Any] = iter(())

    def put_back(self) -> None:
        """As at first, in the same objects."""
        self.list[:] = [1, 2]
        self.dict.clear()
        self.dict.update(k1=1, k2=2)
        self.set.intersection_update({1, 2})
        self.queue.clear()
        self.queue.extend([1, 2])


def passed(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        next(iterator)
    return iterator


# A break between the write and the end of the loop.


def list_grown_in_front(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 5)
    for item in s.list:
        if item == 2:
            stator.graph_break()
        x = x * 2 + item
    return x


def list_grown_behind(x: Tensor, s: Tables) -> Tensor:
    s.list.append(3)
    iterator = passed(iter(s.list), 3)
    stator.graph_break()
    return x + sum(iterator)


def list_shortened(x: Tensor, s: Tables) -> Tensor:
    del s.list[0]
    iterator = passed(iter(s.list), 1)
    stator.graph_break()
    return x + sum(iterator)


def list_backwards(x: Tensor, s: Tables) -> Tensor:
    s.list.extend([3, 4])
    iterator = passed(reversed(s.list), 1)
    stator.graph_break()
    return x + sum(iterator)


def list_enumerated(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 7)
    for index, item in enumerate(s.list):
        stator.graph_break()
        x = x * 2 + item * index
    return x


def lists_zipped(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 7)
    for item, name in zip(s.list, "abc"):
        stator.graph_break()
        x = x * 2 + item * ord(name)
    return x


def keys(x: Tensor, s: Tables) -> Tensor:
    s.dict["new"] = 5
    for key in s.dict:
        stator.graph_break()
        x = x * 2 + s.dict[key]
    return x


def values(x: Tensor, s: Tables) -> Tensor:
    del s.dict["k1"]
    for value in s.dict.values():
        stator.graph_break()
        x = x * 2 + value
    return x


def items(x: Tensor, s: Tables) -> Tensor:
    s.dict["new"] = 5
    for key, value in s.dict.items():
        stator.graph_break()
        x = x * 2 + value * len(key)
    return x


def elements(x: Tensor, s: Tables) -> Tensor:
    s.set.add(7)
    for value in s.set:
        stator.graph_break()
        x = x * 2 + value
    return x


def queue(x: Tensor, s: Tables) -> Tensor:
    s.queue.append(3)
    iterator = passed(iter(s.queue), 1)
    stator.graph_break()
    return x + sum(iterator)


def in_a_generator(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 7)
    generator = (item * 2 for item in s.list)
    x = x + next(generator) + next(generator)
    stator.graph_break()
    return x + sum(generator)


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=1)


def beside_a_token(x: Tensor, s: Tables) -> Tensor:
    s.list.append(3)
    token = VARIABLE.set(5)
    try:
        for item in s.list:
            stator.graph_break()
            x = x * 2 + item * VARIABLE.get()
    finally:
        VARIABLE.reset(token)
    return x + VARIABLE.get()


def dict_written_behind_the_iterator(x: Tensor, s: Tables) -> Tensor:
    iterator = passed(iter(s.dict), 1)
    s.dict["k1"] = 9
    stator.graph_break()
    return x + len(list(iterator))


def dict_grown_behind_the_iterator(x: Tensor, s: Tables) -> Tensor:
    iterator = passed(iter(s.dict), 1)
    s.dict["new"] = 9
    stator.graph_break()
    try:
        return x + len(list(iterator))
    except RuntimeError:
        return x - 1


def set_grown_behind_the_iterator(x: Tensor, s: Tables) -> Tensor:
    iterator = passed(iter(s.set), 1)
    s.set.add(9)
    stator.graph_break()
    try:
        return x + len(list(iterator))
    except RuntimeError:
        return x - 1


# Iterators that the call leaves in an object.


def kept_list(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 5)
    s.kept = passed(iter(s.list), 3)
    return x + 1


def kept_keys(x: Tensor, s: Tables) -> Tensor:
    s.dict["new"] = 1
    s.kept = passed(iter(s.dict), 2)
    return x + 1


def kept_elements(x: Tensor, s: Tables) -> Tensor:
    s.set.add(7)
    s.kept = passed(iter(s.set), 1)
    return x + 1


def kept_generator(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 5)
    s.kept = passed((item for item in s.list), 3)
    return x + 1


def kept_over_another(x: Tensor, s: Tables) -> Tensor:
    s.list.insert(0, 5)
    s.kept = passed(iter(s.dict), 1)
    return x + 1


BREAKING = [
    list_grown_in_front,
    list_grown_behind,
    list_shortened,
    list_backwards,
    list_enumerated,
    lists_zipped,
    keys,
    values,
    items,
    elements,
    queue,
    in_a_generator,
    beside_a_token,
    dict_written_behind_the_iterator,
    dict_grown_behind_the_iterator,
    set_grown_behind_the_iterator,
]
KEEPING = [kept_list, kept_keys, kept_elements, kept_generator, kept_over_another]


@pytest.mark.parametrize("fn", BREAKING + KEEPING, ids=lambda fn: fn.__name__)
def test_iterators_stand_in_what_was_written(fn: Callable[..., Tensor]) -> None:
    def make() -> World:
        tables = Tables()

        def left() -> list[Any]:
            # What is left of the iterator, and what its container holds.
            try:
                rest: Any = list(tables.kept)
            except RuntimeError as error:
                rest = str(error)
            tables.kept = iter(())
            found = [
                rest,
                list(tables.list),
                dict(tables.dict),
                set(tables.set),
                list(tables.queue),
            ]
            tables.put_back()
            return found

        return World(fn, (tables,), left)

    def grow(world: World) -> None:
        tables = world.args[0]
        tables.list.append(8)
        tables.dict["k8"] = 8
        tables.set.add(8)
        tables.queue.append(8)

    fn(torch.ones(3), Tables())  # It runs at all.
    agree(make, grow, replays=False)


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_loops_over_what_was_written_are_replayed() -> None:
    for fn in (list_grown_in_front, keys, elements):
        tables = Tables()
        compiled = api.compile(fn)
        for _ in range(3):
            compiled(torch.ones(2), tables)
            tables.put_back()
        assert api.hits(compiled) == 2, fn.__name__
