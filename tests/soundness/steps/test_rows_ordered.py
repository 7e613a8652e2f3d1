"""Tuples, lists and objects that hold numbers which were read: compared, put in order, kept in heaps."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import stator


class Beam(NamedTuple):
    score: float
    tokens: tuple[int, ...]


@dataclass(order=True)
class Ranked:
    score: float
    name: str = field(compare=False)


class Counted:
    """Its comparisons show."""

    asked: list[str] = []

    def __init__(self, score: float, name: str) -> None:
        self.score, self.name = score, name

    def __lt__(self, other: Counted) -> bool:
        self.asked.append(self.name + other.name)
        return self.score < other.score


def compared(x: Tensor) -> Any:
    a, b, c = x.tolist()
    return (a, 1) < (b, 0), (1, a) >= (1, b), [a, "x"] == [b, "x"], ((a,), c) > ((b,), a), x + 1


def of_other_lengths(x: Tensor) -> Any:
    a, b, _ = x.tolist()
    return (a,) < (b, 1), [a, b] <= [a], (a, b) != (a, b, a), (1, a) < (2, "b"), x + 1


def with_sizes(x: Tensor) -> Any:
    n = int((x.abs() > 1).sum())
    return (n, "a") > (1, "b"), (n, 2.5) == (2, 2.5), sorted([(n, 1), (2, 0), (1, 3)]), x + 1


def sorted_rows(x: Tensor) -> Any:
    rows = [(value, place) for place, value in enumerate(x.tolist())]
    return sorted(rows), sorted(rows, reverse=True), rows, x * rows[0][0]


def sorted_in_place(x: Tensor) -> Any:
    rows = [[value, "abc"[place]] for place, value in enumerate(x.tolist())]
    rows.sort()
    others = list(rows)
    others.sort(reverse=True)
    return rows, others, x + 1


def extremes_of_rows(x: Tensor) -> Any:
    rows = [(value, -place) for place, value in enumerate(x.tolist())]
    best = max((value * 2, place) for value, place in rows)
    return max(rows), min(rows), best, max((v, 0) for v, p in rows if p > 5) if x.dim() > 1 else 0


def with_defaults(x: Tensor) -> Any:
    numbers = x.tolist()
    rows = [(value, place) for place, value in enumerate(numbers)]
    return (
        max((value for value in numbers), default=0.0),
        max((row for row in rows), default=(0.0, -1)),
        min((row for row in rows[:0]), default=(0.0, -1)),
        max(rows, default=None),
        max(numbers[1:], default=1.5) + 1,
        x + 1,
    )


def by_rows(x: Tensor) -> Any:
    beams = [Beam(value, (place, 7)) for place, value in enumerate(x.tolist())]
    return (
        sorted(beams, key=lambda beam: (-beam.score, beam.tokens)),
        max(beams, key=lambda beam: (beam.score, beam.tokens)),
        min((beam for beam in beams), key=lambda beam: (beam.score, 0)),
        x + 1,
    )


def sorted_in_place_by_keys(x: Tensor) -> Any:
    numbers = x.tolist()
    names = list(zip("abc", numbers, strict=True))
    seen = []

    def key(pair: tuple[str, float]) -> tuple[float, str]:
        seen.append(len(names))
        return -pair[1], pair[0]

    names.sort(key=key)
    others = list(names)
    others.sort(key=lambda pair: pair[1], reverse=True)
    return names, others, seen, x + 1


def of_data_classes(x: Tensor) -> Any:
    ranked = [Ranked(value, name) for name, value in zip("abc", x.tolist(), strict=True)]
    ordered = sorted(ranked)
    ranked.sort(reverse=True)
    pairs = [(one, one.name) for one in ranked]
    pairs.sort(key=lambda pair: pair[0])
    best = max(ranked, key=lambda one: one)
    return [one.name for one in ordered + ranked + [max(ranked), best]], pairs[0][1], x + 1


def of_counted(x: Tensor) -> Any:
    Counted.asked.clear()
    counted = [Counted(value, name) for name, value in zip("abc", x.tolist(), strict=True)]
    found = [one.name for one in sorted(counted) + [min(counted)]]
    by_key = sorted(counted, key=lambda one: one, reverse=True)
    return found, [one.name for one in by_key], list(Counted.asked), x + 1


def heaps(x: Tensor) -> Any:
    heap: list[tuple[float, int]] = []
    for place, value in enumerate(x.tolist()):
        heapq.heappush(heap, (value, place))
    first = heapq.heappop(heap)
    second = heapq.heappushpop(heap, (first[0] + 0.5, 9))
    third = heapq.heapreplace(heap, (0.25, 8))
    numbers = x.tolist() + [1.0, 2.0]
    heapq.heapify(numbers)
    return first, second, third, heap, numbers, heapq.nsmallest(2, [(v, "n") for v in numbers])


def heap_of_objects(x: Tensor) -> Any:
    heap: list[Ranked] = []
    for name, value in zip("abc", x.tolist(), strict=True):
        heapq.heappush(heap, Ranked(value, name))
    return [heapq.heappop(heap).name for _ in range(3)], x + 1


def rows_of_data_classes(x: Tensor) -> Any:
    rows = [
        (Ranked(value, name), -place)
        for place, (name, value) in enumerate(zip("abc", x.tolist(), strict=True))
    ]
    heap = list(rows)
    heapq.heapify(heap)
    best = heapq.heappop(heap)
    heapq.heappush(heap, (Ranked(0.5, "d"), 7))
    ordered = sorted(rows)
    least = heapq.nsmallest(2, [row[0] for row in rows])
    found = [row[1] for row in [best, *heap, *ordered, max(rows), min(rows)]]
    return found, [one.name for one in least], x + 1


def compared_rows_of_data_classes(x: Tensor) -> Any:
    a, b, c = [(Ranked(value, "n"), place) for place, value in enumerate(x.tolist())]
    found = a < b, b >= c, a == (Ranked(2.0, "m"), 0), a != c
    return found, "less" if c < a else "not less", x + 1


def zipped(x: Tensor) -> Any:
    names, numbers = ["c", "a", "b"], x.tolist()
    pairs = zip(numbers, names, strict=True)
    ordered = sorted(pairs, reverse=True), list(pairs)
    best = min(zip(numbers, names, strict=False))[1], max(zip(numbers, range(9), strict=False))
    empty = max(zip(numbers[:0], names, strict=False), default="none")
    return ordered, best, empty, x + 1


def numbered_rows(x: Tensor) -> Any:
    by_key = max(enumerate(x.tolist()), key=lambda pair: pair[1])[0]
    return by_key, min(enumerate(x.tolist())), sorted(enumerate(x.tolist()), reverse=True), x + 1


def zipped_as_it_is_made(x: Tensor) -> Any:
    """What is ordered is made in between."""
    made: list[float] = []

    def numbers() -> Iterator[float]:
        for value in x.tolist():
            made.append(value)
            yield value

    return (
        max(zip(numbers(), "abc", strict=False)),
        sorted(zip(numbers(), "abc", strict=False)),
        made,
    )


def without_an_order(x: Tensor) -> Any:
    rows: list[Any] = [(value, None) for value in x.tolist()]
    try:
        return sorted(rows), x + 1
    except TypeError as error:
        return str(error), x + 1


PROGRAMS = [
    compared,
    of_other_lengths,
    with_sizes,
    sorted_rows,
    sorted_in_place,
    extremes_of_rows,
    with_defaults,
    by_rows,
    sorted_in_place_by_keys,
    of_data_classes,
    of_counted,
    heaps,
    heap_of_objects,
    rows_of_data_classes,
    compared_rows_of_data_classes,
    zipped,
    numbered_rows,
    zipped_as_it_is_made,
    without_an_order,
]

DATA = [
    [1.0, 2.0, 3.0],
    [3.0, 1.0, 2.0],
    [2.0, 2.0, 1.0],
    [0.0, -0.0, 5.0],
    [4.0, 4.0, 4.0],
    [-1.0, float("inf"), 2.0],
    [1.0, 3.0, float("nan")],
    [float("nan"), 3.0, 1.0],
    [1.0, 2.0, 3.0],
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("first", [0, 2, 4, 6])
def test_as_plain_python(program: Callable[[Tensor], Any], first: int) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for row in DATA[first:] + DATA + DATA:
            x = torch.tensor(row, dtype=torch.float64)
            assert repr(program(x)) == repr(compiled(x)), row


@pytest.mark.parametrize("program", PROGRAMS[:-2], ids=lambda it: it.__name__)
def test_one_trace_for_one_order(program: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for scale in (1.0, 0.5, 2.0, 3.0):
            x = torch.tensor([0.7, 0.9, 0.8], dtype=torch.float64) * (scale if scale < 1.1 else 1.0)
            assert repr(program(x + 1)) == repr(compiled(x + 1))
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0), stats.reason


def test_a_list_that_its_key_changes() -> None:
    def changed(x: Tensor) -> Any:
        numbers = [(value, 0) for value in x.tolist()]
        try:
            numbers.sort(key=lambda pair: numbers.append((0.0, 1)) or pair)  # type: ignore[func-returns-value]
        except ValueError as error:
            return str(error), numbers, x + 1
        return numbers, x + 1

    compiled = stator.compile(changed)
    with stator.config.patch(skip_unprofitable=False):
        for row in DATA[:5]:
            x = torch.tensor(row)
            assert repr(changed(x)) == repr(compiled(x))


def test_a_key_that_raises() -> None:
    def raising(x: Tensor) -> Any:
        numbers = [(value, place) for place, value in enumerate(x.tolist())]
        try:
            numbers.sort(key=lambda pair: (1 / (pair[0] - 2), pair[1]))
        except ZeroDivisionError as error:
            return str(error), numbers, x + 1
        return numbers, x + 1

    compiled = stator.compile(raising)
    with stator.config.patch(skip_unprofitable=False):
        for row in DATA[:6] + DATA[:6]:
            x = torch.tensor(row)
            assert repr(raising(x)) == repr(compiled(x))


class ByTensors:
    """Data says which one is less."""

    def __init__(self, score: Tensor) -> None:
        self.score = score

    def __lt__(self, other: ByTensors) -> Tensor:
        return self.score < other.score

    def __gt__(self, other: ByTensors) -> Tensor:
        return self.score > other.score


KEPT: deque[Tensor] = deque(maxlen=3)


def compared_by_tensors(x: Tensor) -> Any:
    a, b, c = [ByTensors(part) for part in x]
    KEPT.append(x.sum())
    return max(a, b).score, min(b, c).score, min(deque([b, c])).score, max(KEPT), max(deque(x)) + 1


def test_objects_that_data_orders() -> None:
    KEPT.clear()
    expected = [compared_by_tensors(torch.tensor(row)) for row in DATA]
    KEPT.clear()
    compiled = stator.compile(compared_by_tensors, recompile_limit=99)
    with stator.config.patch(skip_unprofitable=False):
        found = [compiled(torch.tensor(row)) for row in DATA]
    assert repr(found) == repr(expected)
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason


def test_rows_whose_class_says_otherwise_later(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(rows_of_data_classes)
    with stator.config.patch(skip_unprofitable=False):
        for row in DATA[:3] * 2:
            x = torch.tensor(row, dtype=torch.float64)
            assert repr(rows_of_data_classes(x)) == repr(compiled(x)), row
        monkeypatch.setattr(Ranked, "__lt__", lambda self, other: self.score > other.score)
        for row in DATA[:3] * 2:
            x = torch.tensor(row, dtype=torch.float64)
            assert repr(rows_of_data_classes(x)) == repr(compiled(x)), row
        monkeypatch.setattr(Ranked, "__eq__", lambda self, other: True)
        for row in DATA[:3] * 2:
            x = torch.tensor(row, dtype=torch.float64)
            assert repr(rows_of_data_classes(x)) == repr(compiled(x)), row
