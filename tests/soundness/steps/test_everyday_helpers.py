"""Helpers of everyday code: generic functions, flags, counters, rows of what data has sized."""

from __future__ import annotations

import abc
import collections
import enum
import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


class Ability(enum.IntFlag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


class World:
    """What programs find, and what changes."""

    def __init__(self) -> None:
        self.ability = Ability.READ | Ability.WRITE

        @functools.singledispatch
        def size(value: Any) -> Any:
            return "any"

        @size.register
        def _(value: int) -> Any:
            return value + 1

        @size.register(list)
        @size.register(tuple)
        def _(value: Any) -> Any:
            return [size(item) for item in value]

        @size.register
        def _(value: Tensor) -> Any:
            return value * 2

        self.size = size


class Named(list):
    pass


def dispatched(x: Tensor, w: World) -> Any:
    return w.size(x), w.size([1, (2, x)]), w.size(True), w.size(1.5), w.size(Named([3])), x + 1


def dispatched_for(x: Tensor, w: World) -> Any:
    found = w.size.dispatch(bool) is w.size.dispatch(int), w.size.dispatch(float)(1.0)
    return found, x + 1


def classes_of_numbers(x: Tensor, w: World) -> Any:
    best, most, none = x.argmax().item(), x.max().item(), (x > 5).sum().item()
    known = best.__class__ is int, most.__class__.__name__, none.__class__ is bool
    return w.size(best), w.size(most), known, [w.size(n) for n in x.tolist()]


def length_of_flag(x: Tensor, w: World) -> Any:
    return x * len(w.ability), [one.name for one in w.ability], Ability.RUN in w.ability


def most_common(x: Tensor, w: World) -> Any:
    counts: collections.Counter[str] = collections.Counter()
    for name, part in zip("abc", (x > 0.5).long(), strict=True):
        counts[name] += part.item()
    counts["b"] += 1
    return counts.most_common(1), max(counts.items(), key=operator.itemgetter(1)), x + 1


def by_getters(x: Tensor, w: World) -> Any:
    pairs = dict(zip("abc", x.tolist(), strict=True))
    best = sorted(pairs.items(), key=operator.itemgetter(1), reverse=True)
    return best, min(best, key=operator.itemgetter(1, 0)), max(iter(best), key=lambda p: p[1])


def lengths(x: Tensor, w: World) -> Any:
    rows: dict[int, list[float]] = collections.defaultdict(list)
    for place, value in enumerate(x.tolist()):
        rows[place % 2].append(value)
    return sum(map(len, rows.values())), max(map(len, rows.values())), rows, x + 1


def lengths_of_tensors(x: Tensor, w: World) -> Any:
    parts = [x[x > 0.5], x[x <= 0.5]]
    return list(map(len, parts)), sum(map(len, parts)), x + 1


def rows_of_the_kept(x: Tensor, w: World) -> Any:
    total = x.sum()
    for place in (x > 0.5).nonzero():
        total = total + x[place[0]] * 2
    return total, [row + 1 for row in x[x > 0.7]]


def chunked(x: Tensor, w: World) -> Any:
    count = torch.div(x.size(0), 3, rounding_mode="trunc")
    parts = x.view(count, 3)
    return parts * 2, parts.stride(), parts.as_strided((1, 2), parts.stride())


PROGRAMS = [
    dispatched,
    dispatched_for,
    classes_of_numbers,
    length_of_flag,
    most_common,
    by_getters,
    lengths,
    lengths_of_tensors,
    rows_of_the_kept,
    chunked,
]

ROWS = [[0.9, 0.6, 0.1], [0.8, 0.7, 0.2], [0.1, 0.2, 0.9], [0.5, 0.5, 0.5], [0.9, 0.8, 0.7]]


def play(call: Callable[[Tensor, World], Any]) -> list[str]:
    world, played = World(), []

    def step() -> None:
        played.extend(repr(call(torch.tensor(row), world)) for row in ROWS)

    step()
    world.ability = Ability.RUN
    step()
    world.size.register(bool, lambda value: "truth")
    world.size.register(Named, lambda value: "named")
    step()

    class Real(abc.ABC):  # noqa: B024
        pass

    Real.register(float)
    world.size.register(Real, lambda value: "real")
    step()
    world.size = World().size
    world.ability = Ability.READ | Ability.WRITE | Ability.RUN
    step()
    return played


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("pays", [True, False])
def test_as_plain_python(program: Callable[..., Any], pays: bool) -> None:
    compiled = stator.compile(program, recompile_limit=99)
    expected = play(program)
    with stator.config.patch(skip_unprofitable=pays):
        assert play(compiled) == expected


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_no_graph_breaks(program: Callable[..., Any]) -> None:
    compiled, world = stator.compile(program), World()
    with stator.config.patch(skip_unprofitable=False):
        for factor in (1.0, 0.99, 1.0, 0.98):
            compiled(torch.tensor([0.9, 0.6, 0.1]) * factor, world)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0), stats.reason
