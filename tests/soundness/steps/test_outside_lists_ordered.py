"""`list.sort(key=...)` of a list that was there before the trace: an argument, or one in a frame behind a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


class Candidate:
    def __init__(self, score: float, x: Tensor) -> None:
        self.score, self.x = score, x

    def by_length(self) -> float:
        return self.score / 2


def best_ones(x: Tensor, kept: list[Any]) -> Any:
    kept.extend((value, x * 2) for value in x.tolist())
    kept.sort(key=lambda pair: pair[0], reverse=True)
    del kept[4:]
    return [score for score, _ in kept], kept[0][1] + 1


def beam(x: Tensor, kept: list[Any]) -> Any:
    beams = [(0.0, x)]
    for _ in range(3):
        found = []
        for score, h in beams:
            values, places = (h + score).topk(2)
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                found.append((score + value, h * (place + 1)))
        found.sort(key=lambda pair: pair[0], reverse=True)
        beams = []
        for score, h in found:
            if score > 0:
                beams.append((score, h))
            if len(beams) == 2:
                break
        if not beams:
            return None
    return beams


def of_objects(x: Tensor, kept: list[Any]) -> Any:
    kept.append(Candidate(x[0].item(), x))
    kept.append(Candidate(x[1].item(), x + 1))
    kept.sort(key=Candidate.by_length)
    if len(kept) > 3:
        kept.pop()
    return [one.score for one in kept], kept[0].x


def in_place_twice(x: Tensor, kept: list[Any]) -> Any:
    if x.sum() > 2:
        kept.append((x[0].item(), len(kept)))
    kept.sort(key=lambda pair: -pair[1])
    first = kept[0] if kept else None
    kept.sort(key=lambda pair: pair[0])
    return first, list(kept), x + 1


def that_raises(x: Tensor, kept: list[Any]) -> Any:
    kept.append((x[0].item(), x))
    try:
        kept.sort(key=lambda pair: 1 / (pair[0] - 2))
    except ZeroDivisionError as error:
        kept.pop()
        return str(error), len(kept), x * 2
    return [score for score, _ in kept]


def that_is_changed(x: Tensor, kept: list[Any]) -> Any:
    kept.append((x[0].item(), x))
    try:
        kept.sort(key=lambda pair: kept.append(pair) or pair[0])  # type: ignore[func-returns-value]
    except ValueError as error:
        return str(error), len(kept)
    return len(kept)


def that_is_looked_at(x: Tensor, kept: list[Any]) -> Any:
    kept.append((x[0].item(), x))
    kept.sort(key=lambda pair: pair[0] + len(kept))
    return len(kept), kept[-1][0]


PROGRAMS = [
    best_ones,
    beam,
    of_objects,
    in_place_twice,
    that_raises,
    that_is_changed,
    that_is_looked_at,
]
DATA = [
    [1.0, 2.0, 3.0],
    [3.0, 1.0, 2.0],
    [2.0, 2.0, 1.0],
    [-1.0, -4.0, -2.0],
    [5.0, float("nan"), 1.0],
    [0.5, 0.25, 4.0],
    [0.25, 0.5, 4.0],
]


def plainly(kept: list[Any]) -> list[Any]:
    return [vars(one) if isinstance(one, Candidate) else one for one in kept]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("first", [0, 2, 4])
def test_as_plain_python(program: Callable[..., Any], first: int) -> None:
    compiled = stator.compile(program)
    expected: list[Any] = []
    found: list[Any] = []
    for row in DATA[first:] + DATA + DATA:
        x = torch.tensor(row, dtype=torch.float64)
        left = copied(program(x, expected))
        right = copied(compiled(x, found))
        assert same(left, right), row
        assert same(plainly(expected), plainly(found)), row
        if len(found) > 6:
            # Somebody else takes some.
            del expected[1:4], found[1:4]


def test_a_beam_search_is_no_break() -> None:
    compiled = stator.compile(beam)
    for value in range(8):
        x = torch.tensor([1.0, 2.5, 3.0], dtype=torch.float64) + value
        assert same(beam(x, []), compiled(x, []))
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.native) == (0, 0), stats.reason


def test_one_from_outside_is_no_break() -> None:
    compiled = stator.compile(best_ones)
    expected: list[Any] = []
    found: list[Any] = []
    for value in range(12):
        x = torch.tensor([1.0, 2.5, 3.0], dtype=torch.float64) + value
        assert same(best_ones(x, expected), compiled(x, found))
    assert stator.stats(compiled).breaks == 0
