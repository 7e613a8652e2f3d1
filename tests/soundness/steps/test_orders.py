"""Numbers that were read, put in order: nodes, whatever the order is. And what C code reads that it's only given to call."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


def sorted_floats(x: Tensor) -> Any:
    numbers = x.tolist()
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2], sorted(numbers, reverse=True), ordered, x + ordered[0]


def sorted_integers(x: Tensor) -> Any:
    lengths = (x.abs() * 3).long().tolist()
    ordered = sorted(lengths)
    return ordered, sorted(lengths, reverse=True)[0] + 1, x * ordered[-1]


def sorted_in_place(x: Tensor) -> Any:
    numbers = x.tolist()
    numbers.sort()
    others = [number * 2 for number in numbers]
    others.sort(reverse=True)
    return numbers, others, numbers[0] + others[0], x + 1


def extremes(x: Tensor) -> Any:
    numbers = x.tolist()
    return max(numbers), min(numbers), max(numbers) - min(numbers), max(0.0, numbers[0]), x + 1


def running(x: Tensor) -> Any:
    best = float("-inf")
    for part in x.unbind():
        best = max(best, part.item())
    return best, x * best


def place_of_the_largest(x: Tensor) -> Any:
    numbers = x.tolist()
    first = max(range(len(numbers)), key=numbers.__getitem__)
    last = min(range(len(numbers)), key=numbers.__getitem__)
    return first, last, x[first] - x[last]


PROGRAMS = [
    sorted_floats,
    sorted_integers,
    sorted_in_place,
    extremes,
    running,
    place_of_the_largest,
]

DATA = [
    [1.0, 2.0, 3.0],
    [3.0, 1.0, 2.0],
    [2.0, 2.0, 1.0],
    [0.0, -0.0, 5.0],
    [-0.0, 0.0, -5.0],
    [4.0, 4.0, 4.0],
    [-1.0, float("inf"), 2.0],
    [1.0, 3.0, float("nan")],
    [float("nan"), 3.0, 1.0],
    [1.0, float("nan"), 2.0],
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("first", [0, 3, 4, 7, 8, 9])
def test_orders(program: Callable[[Tensor], Any], first: int) -> None:
    compiled = stator.compile(program)
    data = [row for row in DATA if program is not sorted_integers or all(abs(v) < 9 for v in row)]
    first = min(first, len(data) - 1)
    with stator.config.patch(skip_unprofitable=False):
        for row in data[first:] + data:
            x = torch.tensor(row, dtype=torch.float64)
            expected, found = copied(program(x)), copied(compiled(x))
            assert same(expected, found), (row, expected, found)
            assert repr(expected) == repr(found)
    stats = stator.stats(compiled)
    if first == 0:
        assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0), stats.reason


def by_items(x: Tensor) -> Any:
    numbers = x.tolist()
    return max(range(1, 3), key=numbers.__getitem__), x + 1


def sorted_by_items(x: Tensor) -> Any:
    numbers = x.tolist()
    return sorted(range(3), key=numbers.__getitem__), x + 1


def sorted_by_a_dictionary(x: Tensor) -> Any:
    scores = dict(zip("abc", x.tolist()))
    return sorted("abc", key=scores.get), max(scores, key=scores.__getitem__), x + 1


def filtered(x: Tensor) -> Any:
    flags = (x > 1.5).long().tolist()
    return list(filter(flags.__getitem__, range(3))), x + 1


def mapped(x: Tensor) -> Any:
    numbers = x.tolist()
    return list(map(numbers.__getitem__, [2, 0])), list(map(numbers.count, [1.0])), x + 1


def by_a_partial(x: Tensor) -> Any:
    numbers = x.tolist()
    called = functools.partial(numbers.__getitem__)
    return max(range(3), key=called), x + 1


def taken_while(x: Tensor) -> Any:
    numbers = set((x > 1.5).long().tolist())
    return list(itertools.takewhile(numbers.__contains__, [1, 0])), x + 1


def largest_few(x: Tensor) -> Any:
    numbers = x.tolist()
    return heapq.nlargest(2, range(3), key=numbers.__getitem__), heapq.nsmallest(2, numbers), x + 1


def searched(x: Tensor) -> Any:
    numbers = x.tolist()
    return numbers.index(max(numbers)), x + 1


def by_place(x: Tensor) -> Any:
    numbers = x.tolist()
    row = tuple(numbers)
    last = [list.__getitem__(numbers, -1), tuple.__getitem__(row, 1), row.__getitem__(0)]
    try:
        last.append(numbers.__getitem__(3))
    except IndexError as error:
        last.append(str(error))
    few = heapq.nlargest(2, range(len(numbers)), key=numbers.__getitem__)
    return few, last, numbers.__getitem__(slice(0, 2)), x + 1


CALLED_BACK = [
    by_place,
    by_items,
    sorted_by_items,
    sorted_by_a_dictionary,
    filtered,
    mapped,
    by_a_partial,
    taken_while,
    largest_few,
    searched,
]


@pytest.mark.parametrize("program", CALLED_BACK, ids=lambda it: it.__name__)
def test_what_c_code_reads_through_a_method(program: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for row in DATA[:7] + DATA[:7]:
            x = torch.tensor(row, dtype=torch.float64)
            assert same(copied(program(x)), copied(compiled(x))), row


def alone(x: Tensor) -> Any:
    numbers = x[:1].tolist()
    counts = (x[:1] > 1).long().tolist()
    return max(numbers), min(counts), max(counts), sorted(numbers), x + max(numbers)


def test_one_number() -> None:
    compiled = stator.compile(alone)
    with stator.config.patch(skip_unprofitable=False):
        for row in DATA:
            x = torch.tensor(row, dtype=torch.float64)
            assert repr(alone(x)) == repr(compiled(x)), row


@pytest.mark.parametrize("zeros", [[0.0, -0.0, 5.0], [-0.0, 0.0, 5.0], [5.0, -0.0, 0.0]])
def test_equal_numbers_stay_in_their_order(zeros: list[float]) -> None:
    """`==` doesn't tell zeros apart, and their signs do."""

    def ordered(x: Tensor) -> list[list[float]]:
        numbers = x.tolist()
        others = list(numbers)
        others.sort(reverse=True)
        return [sorted(numbers), sorted(numbers, reverse=True), others]

    compiled = stator.compile(ordered)
    with stator.config.patch(skip_unprofitable=False):
        for row in (zeros, zeros, zeros[::-1], zeros):
            x = torch.tensor(row, dtype=torch.float64)
            assert repr(compiled(x)) == repr(ordered(x))
    assert stator.stats(compiled).breaks == 0
