"""Iterators that existed before a trace begins, where at later calls something else is what they go over, or has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .iterators import PROGRAMS, alternate, note, numbers_of, outcome, tensors
from .results import same


def both_advanced(x: Tensor, left: Iterator[Any], right: Iterator[Any]) -> Any:
    note()
    x = x + next(left) * 2
    x = x * next(right)
    return x + next(left)


def test_two_iterators_may_be_one() -> None:
    def apart() -> Any:
        return torch.ones(3), iter(tensors(5)), iter(tensors(5, 7.0))

    def one() -> Any:
        items = iter(tensors(5))
        return torch.ones(3), items, items

    def within() -> Any:
        items = iter(range(5))
        return torch.ones(3), map(float, items), items

    alternate(both_advanced, apart, one, within)
    alternate(both_advanced, one, apart)


def test_an_iterator_may_be_within_another() -> None:
    def fn(x: Tensor, pairs: Iterator[Any], items: Iterator[Any]) -> Any:
        for place, item in pairs:
            note()
            x = x + place * item
            x = x - next(items, 0)
        return x

    def apart() -> Any:
        return torch.ones(3), enumerate(iter(tensors(5))), iter(tensors(4, 3.0))

    def within() -> Any:
        items = iter(tensors(5))
        return torch.ones(3), enumerate(items), items

    alternate(fn, apart, within)
    alternate(fn, within, apart)


def test_pairs_of_one_iterator() -> None:
    def fn(x: Tensor, pairs: Iterator[Any]) -> Any:
        for left, right in pairs:
            note()
            x = x * left - right
        return x

    def one() -> Any:
        items = iter(tensors(5))
        return torch.ones(3), zip(items, items)

    alternate(fn, lambda: (torch.ones(3), zip(tensors(3), tensors(4, 2.0))), one)
    alternate(fn, one, lambda: (torch.ones(3), zip(tensors(3), tensors(4, 2.0))))


def test_how_many_are_zipped() -> None:
    def fn(x: Tensor, groups: Iterator[Any]) -> Any:
        for group in groups:
            note()
            x = x * len(group) + group[0]
        return x

    def of(count: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), zip(*[tensors(3)] * count))

    alternate(fn, of(1), of(2), of(3), of(2))

    def nested(x: Tensor, groups: Iterator[Any]) -> Any:
        for place, group in groups:
            note()
            x = x * len(group) + place
        return x

    def inner(count: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), enumerate(zip(*[tensors(3)] * count)))

    alternate(nested, inner(1), inner(2), inner(3))


def grows(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    for item in items:
        note()
        if len(queue) < 7:
            queue.append(item * 2)
        x = x + item
    return x


def appends_first(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    note()
    queue.append(x * 3)
    for item in items:
        x = x + item
    return x


def drops(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    for item in items:
        note()
        if len(queue) > 2:
            del queue[-1]
        x = x + item
    return x, len(queue)


def clears(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    note()
    x = x + next(items)
    queue.clear()
    note()
    x = x * 2
    return x, next(items, None)


def replaces(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    for place, item in enumerate(items):
        note()
        x = x + item
        if place + 1 < len(queue):
            queue[place + 1] = x
    return x


@pytest.mark.parametrize("program", [grows, appends_first, drops, clears, replaces])
def test_the_list_may_be_written(program: Callable[..., Any]) -> None:
    def apart() -> Any:
        return torch.ones(3), iter(tensors(4)), tensors(3, 5.0)

    def one() -> Any:
        queue = tensors(4)
        return torch.ones(3), iter(queue), queue

    def backwards() -> Any:
        queue = tensors(4)
        return torch.ones(3), reversed(queue), queue

    def within() -> Any:
        queue = tensors(4)
        return torch.ones(3), map(torch.neg, queue), queue

    alternate(program, apart, one, backwards, within)
    alternate(program, one, apart, backwards)
    alternate(program, backwards, one)


def test_one_that_has_ended_and_one_at_its_end() -> None:
    """Only the second goes on where its list grows."""

    def fn(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
        note()
        queue.append(x * 3)
        for place, item in items:
            x = x + item * (place + 1)
        return x

    def ended() -> Any:
        queue: list[Any] = []
        items = iter(queue)
        assert next(items, None) is None
        return torch.ones(3), items, queue

    def at_its_end() -> Any:
        queue: list[Any] = []
        return torch.ones(3), iter(queue), queue

    def numbered(make: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            x, items, queue = make()
            return x, enumerate(items), queue

        return made

    def paired(make: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            x, items, queue = make()
            return x, zip(range(3), items), queue

        return made

    for program in (fn, appends_first):
        for first, second in ((ended, at_its_end), (at_its_end, ended)):
            alternate(program, first, second)
            alternate(program, numbered(first), numbered(second))
            alternate(program, paired(first), paired(second))


def adds_a_key(x: Tensor, items: Iterator[Any], held: dict[str, Any]) -> Any:
    for item in items:
        note()
        x = x + numbers_of(item)
        if len(held) < 6:
            held[f"new{len(held)}"] = x
    return x


def sets_values(x: Tensor, items: Iterator[Any], held: dict[str, Any]) -> Any:
    for item in items:
        note()
        x = x + numbers_of(item)
        for key in list(held):
            held[key] = x * 2
    return x


def swaps_a_key(x: Tensor, items: Iterator[Any], held: dict[str, Any]) -> Any:
    for item in items:
        note()
        x = x + numbers_of(item)
        held["other"] = held.pop(next(iter(held)))
    return x


@pytest.mark.parametrize("view", ["keys", "values", "items"])
@pytest.mark.parametrize("program", [adds_a_key, sets_values, swaps_a_key])
def test_the_dictionary_may_be_written(program: Callable[..., Any], view: str) -> None:
    def new() -> dict[str, Any]:
        return {f"k{i}": v for i, v in enumerate(tensors(3))}

    def apart() -> Any:
        return torch.ones(3), iter(getattr(new(), view)()), new()

    def one() -> Any:
        held = new()
        return torch.ones(3), iter(getattr(held, view)()), held

    alternate(program, apart, one)
    alternate(program, one, apart)


def test_changed_before_the_call() -> None:
    """Iterators whose container has changed under them since they were made."""

    def shrunk() -> Any:
        items = tensors(4)
        pieces = iter(items)
        next(pieces), next(pieces), next(pieces)
        del items[1:]
        return torch.ones(3), pieces

    def shrunk_behind() -> Any:
        items = tensors(4)
        pieces = reversed(items)
        del items[1:]
        return torch.ones(3), pieces

    def grown() -> Any:
        items = tensors(2)
        pieces = iter(items)
        next(pieces)
        items.extend(tensors(2, 8.0))
        return torch.ones(3), pieces

    def ended() -> Any:
        items = tensors(1)
        pieces = iter(items)
        list(pieces)
        items.extend(tensors(2, 8.0))
        return torch.ones(3), pieces

    def resized() -> Any:
        held = {i: v for i, v in enumerate(tensors(3))}
        pieces = iter(held.values())
        next(pieces)
        held[9] = torch.ones(3)
        return torch.ones(3), pieces

    def other_keys() -> Any:
        held = {i: v for i, v in enumerate(tensors(3))}
        pieces = iter(held.values())
        next(pieces)
        del held[0]
        held[9] = torch.ones(3) * 4
        return torch.ones(3), pieces

    def as_it_was() -> Any:
        return torch.ones(3), iter({i: v for i, v in enumerate(tensors(3))}.values())

    makes = [shrunk, shrunk_behind, grown, ended, resized, other_keys, as_it_was]
    for program in PROGRAMS:
        alternate(program, *makes)
        alternate(program, *reversed(makes))


def test_other_items() -> None:
    """Their types, sizes and values are guarded as those of other reads."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in items:
            note()
            if isinstance(item, str):
                x = x * len(item)
            elif item is None:
                x = x - 1
            elif isinstance(item, (int, float)) and item > 2:
                x = x + item
            elif isinstance(item, Tensor):
                x = x + item.sum() * item.dim()
        return x

    rows: list[list[Any]] = [
        [torch.ones(3), torch.ones(2, 2), torch.ones(()), torch.ones(3, dtype=torch.int64)],
        [1, 2, 3, 4, True],
        [1.0, 5.0, float("nan"), None],
        ["a", "bb", None, 4],
        [None] * 4,
        [[1], (2,), {}, torch.ones(2)],
    ]
    alternate(fn, *[lambda row=row: (torch.ones(3), iter(row)) for row in rows])
    alternate(fn, *[lambda row=row: (torch.ones(3), iter(tuple(row))) for row in rows])


def test_one_item_twice() -> None:
    """Two items may be one tensor, which the trace writes to."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        last = x
        for item in items:
            note()
            item.add_(last)
            x = x + last.sum()
            last = item
        return x, last

    def apart() -> Any:
        return torch.ones(3), iter(tensors(4))

    def one() -> Any:
        return torch.ones(3), iter([torch.ones(3)] * 4)

    def pairs() -> Any:
        a, b = tensors(2)
        return a, iter([b, a, b, a])

    alternate(fn, apart, one, pairs)
    alternate(fn, one, apart)


def test_items_are_those_of_the_list() -> None:
    """What the program reads of the list itself is what the iterator gives."""

    def fn(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
        found = []
        for item in items:
            note()
            found.append(item is queue[0])
            found.append(item is queue[-1])
            x = x + item * len(queue)
        return x, found

    def of(queue: list[Any], other: list[Any]) -> Callable[[], Any]:
        return lambda: (torch.ones(3), iter(queue), other)

    items = tensors(3)
    alternate(fn, of(items, items), of(items, items[::-1]), of(items, tensors(3)))


def test_an_operation_raises() -> None:
    """What it raises leaves the iterator where plain Python leaves it."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in items:
            note()
            x = x + next(items, item)
            x = x + item
        return x

    def of(*sizes: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), iter([torch.ones(size) for size in sizes]))

    alternate(fn, of(3, 3, 3, 3), of(3, 3, 3, 2, 3), of(3, 3, 2, 3, 3), of(2, 3), of(3, 2))


def test_data_decides() -> None:
    """An exit in the middle of a trace leaves the iterator where plain Python leaves it."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        note()
        x = x + next(items)
        if x.sum() > 12:
            return x, "first"
        x = x + next(items)
        if x.sum() > 24:
            return x, "second"
        x = x + next(items, 0)
        return x, "third"

    def of(first: float) -> Callable[[], Any]:
        return lambda: (torch.ones(3), iter(tensors(4, first)))

    alternate(fn, of(1.0), of(6.0), of(3.0), of(-9.0))


def test_code_within_a_node_changes_it() -> None:
    """A hook runs while the graph does: before a replay advances the iterator."""

    def run(fn: Callable[..., Any], compiled: Any, change: Callable[..., Any]) -> None:
        for call in range(4):
            results = []
            for each in (fn, compiled):
                queue = [torch.ones(3, requires_grad=True) * (i + 1 + call) for i in range(4)]
                items = iter(queue)
                leaf = torch.ones(3, requires_grad=True)
                leaf.register_hook(lambda grad, q=queue, it=items: change(q, it))
                found = outcome(each, leaf, items)
                results.append((found, outcome(lambda it=items: len(list(it))), len(queue)))
            assert same(*results), results

    def before(leaf: Tensor, items: Iterator[Any]) -> Any:
        note()
        first = next(items)
        (leaf * first.detach()).sum().backward()
        return first.sum().item()

    def behind(leaf: Tensor, items: Iterator[Any]) -> Any:
        note()
        (leaf * 2).sum().backward()
        return next(items).sum().item(), next(items, torch.zeros(1)).sum().item()

    changes = [
        lambda q, it: q.clear(),
        lambda q, it: q.append(torch.ones(3)),
        lambda q, it: next(it) * 0,
        lambda q, it: q.pop(0) * 0,
        lambda q, it: None,
    ]
    with stator.config.patch(skip_unprofitable=False):
        for fn in (before, behind):
            for change in changes:
                run(fn, stator.compile(fn), lambda q, it, change=change: change(q, it) and None)
