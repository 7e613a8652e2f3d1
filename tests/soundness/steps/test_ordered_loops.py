"""Loops over ordered dictionaries that data leaves, in which the graph breaks, and that iterators of the caller's go on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


@stator.disable
def note(*given: Any) -> None:
    pass


def best(x: Tensor, held: OrderedDict[str, Any]) -> Any:
    found: dict[str, float] = {}
    for name, scale in held.items():
        value = (x * scale).sum().item()
        if name not in found or value > found[name]:
            found[name] = value
        if value > 2:
            found["first"] = scale
    return found


def names_and_values(x: Tensor, held: OrderedDict[str, Any]) -> Any:
    taken = []
    for name in held:
        if (x.sum() > len(taken)).item():
            taken.append(name)
    for scale in held.values():
        if (x * scale).sum() > 1:
            taken.append(scale)
    return taken, x * len(taken)


def broken(x: Tensor, held: OrderedDict[str, Any]) -> Any:
    for name, scale in held.items():
        x = x + scale
        note(name)
        x = x * 0.5
    return x


def views_behind_a_break(x: Tensor, held: OrderedDict[str, Any]) -> Any:
    names, scales, entries = held.keys(), held.values(), held.items()
    iterator = iter(entries)
    first = next(iterator)
    note(x)
    return x * first[1], list(names), sum(scales), len(entries), list(iterator), names, entries


def written(x: Tensor, held: OrderedDict[str, Any]) -> Any:
    """The loop writes values, which no iterator notices, and the order behind it."""
    for name in held:
        if (x * held[name]).sum() > 2:
            held[name] = held[name] * 0.5
    held.move_to_end(next(iter(held)))
    return x, list(held.items())


def given_out(x: Tensor, held: OrderedDict[str, Any]) -> Any:
    iterator = iter(held.items())
    return next(iterator), iterator, held.values(), x * 2


PROGRAMS = [best, names_and_values, broken, views_behind_a_break, written, given_out]


class Counted(OrderedDict[str, Any]):
    """One with methods of its own, which no iterator of C code calls."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)


def held(call: int, of: Any = OrderedDict) -> Any:
    """Another order from the fourth call on, another length from the sixth on."""
    made = of((name, 1.0 + i) for i, name in enumerate("abcd"))
    if call >= 3:
        made.move_to_end("a")
    if call >= 5:
        del made["c"]
        made["e"] = 0.5
        made["f"] = 7.0
    return made


def shown(result: Any) -> Any:
    """Iterators and views as what they give."""
    if isinstance(result, tuple):
        return tuple(map(shown, result))
    is_shown = isinstance(result, Iterator) or type(result).__name__.startswith("odict")
    return (type(result).__name__, list(result)) if is_shown else copied(result)


@pytest.mark.parametrize("of", [OrderedDict, Counted])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_loops(fn: Callable[..., Any], of: Any) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=32):
        for call in range(16):
            plain, found = held(call % 8, of), held(call % 8, of)
            x = torch.full((2,), (-1.0, 0.3, 2.0)[call % 3])
            expected = shown(fn(x, plain))
            assert same(expected, shown(compiled(x, found))), call
            assert list(plain.items()) == list(found.items()), call
    stats = stator.stats(compiled)
    assert stats.native == 0, stats.reason
    if of is OrderedDict and fn not in (broken, views_behind_a_break, written, given_out):
        assert stats.breaks == 0, stats.reason


def test_an_iterator_of_the_callers() -> None:
    def pair(x: Tensor, entries: Any) -> Any:
        name, scale = next(entries)
        return name, x * scale, next(entries, None)

    compiled = stator.compile(pair)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            plain, found = iter(held(call).items()), iter(held(call).items())
            for _ in range(2):
                assert same(
                    copied(pair(torch.ones(2), plain)), copied(compiled(torch.ones(2), found))
                )
            assert list(plain) == list(found)
    assert stator.stats(compiled).breaks == 0


@pytest.mark.parametrize("count", [1, 3, 9])
def test_iterators_of_one_type(count: int) -> None:
    """Those over keys, values and entries are told from each other."""

    def some(x: Tensor, given: Any) -> Any:
        taken = [item for item, _ in zip(given, range(count), strict=False)]
        return x * len(taken), taken

    def behind(x: Tensor, given: Any) -> Any:
        taken = []
        for item in given:
            if x.sum() > 0:
                taken.append(item)
        return taken

    of = held(0)
    of["c"] = "c"
    makes = [of.values, of.items, of.keys, lambda: reversed(of), of.items, of.values]
    for fn in (some, behind):
        compiled = stator.compile(fn)
        with stator.config.patch(skip_unprofitable=False):
            for make in makes * 2:
                for value in (1.0, -1.0):
                    x = torch.full((2,), value)
                    plain, found = iter(make()), iter(make())
                    assert same(copied(fn(x, plain)), copied(compiled(x, found)))
                    assert list(plain) == list(found)


def test_an_order_that_changes_meanwhile() -> None:
    def moved(x: Tensor, of: OrderedDict[str, Any]) -> Any:
        for name in of:
            if x.sum() > 0:
                of.move_to_end(name)
            x = x * of[name]
        return x

    compiled = stator.compile(moved)
    with stator.config.patch(skip_unprofitable=False):
        for value in (-1.0, 1.0, -1.0, 1.0, 1.0):
            seen = []
            for run in (moved, compiled):
                of = held(0)
                try:
                    seen.append((run(torch.full((2,), value), of).tolist(), list(of)))
                except RuntimeError as error:
                    seen.append((str(error), list(of)))
            assert seen[0] == seen[1]


def test_the_order_of_the_table() -> None:
    """`dict.items(d)` shows another one than the dictionary keeps."""

    def table(x: Tensor, of: OrderedDict[str, Any]) -> Any:
        seen = []
        for name, _ in dict.items(of):
            if x.sum() > len(seen):
                seen.append(name)
            note(name)
        return seen

    compiled = stator.compile(table)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            x = torch.full((2,), float(call))
            assert compiled(x, held(call)) == table(x, held(call))
