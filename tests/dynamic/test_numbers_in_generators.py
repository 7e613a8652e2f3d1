"""Symbolic ints that a generator is given: what it decides by them is a fact of the trace, as anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

DATA = torch.arange(12.0)


def counted(n: int, low: int) -> Iterator[int]:
    yield from range(n - low)


def ranged(n: int, low: int) -> Iterator[int]:
    for i in range(n - low):  # noqa: UP028 - a frame of its own decides
        yield i


def compared(n: int, low: int) -> Iterator[int]:
    i = low
    while i < n:
        yield i - low
        i += 1


def chosen(n: int, low: int) -> Iterator[int]:
    for i in range(len(DATA)):
        if i + low < n:
            yield i


def stepped(n: int, low: int) -> Iterator[int]:
    yield from range(0, len(DATA), n - low)


Numbers = Callable[[int, int], Iterator[int]]


def looped(numbers: Numbers, n: int, low: int) -> Tensor:
    total = torch.zeros(())
    for i in numbers(n, low):
        total = total * 2 + DATA[i]
    return total


def stacked(numbers: Numbers, n: int, low: int) -> Tensor:
    return torch.stack([DATA[i] for i in numbers(n, low)])


def advanced(numbers: Numbers, n: int, low: int) -> Any:
    taken = numbers(n, low)
    first = next(taken)
    second = next(taken, None)
    return DATA[first] + 1, None if second is None else DATA[second]


def unpacked(numbers: Numbers, n: int, low: int) -> Any:
    first, *others = numbers(n, low)
    return DATA[first] + len(others), others


def summed(numbers: Numbers, n: int, low: int) -> Tensor:
    return DATA * sum(numbers(n, low)) + len(list(numbers(n, low)))


def mapped(numbers: Numbers, n: int, low: int) -> Any:
    return sum({i: DATA[i] for i in numbers(n, low)}.values())


def enumerated(numbers: Numbers, n: int, low: int) -> Any:
    return [
        DATA[i] * j
        for i, pair in enumerate(zip(numbers(n, low), numbers(n, low), strict=False))
        for j in pair
    ]


SEEN = {"seen": 0}


def noting(n: int, low: int) -> Iterator[int]:
    for i in range(n - low):
        SEEN["seen"] += 1
        yield i


@pytest.mark.parametrize("dynamic", [None, True])
# CPython has one object for an int up to 256.
@pytest.mark.parametrize("low", [0, 300])
@pytest.mark.parametrize("numbers", [counted, ranged, compared, chosen, stepped, noting])
@pytest.mark.parametrize("uses", [looped, stacked, advanced, unpacked, summed, mapped, enumerated])
def test_each_number(
    uses: Callable[[Numbers, int, int], Any], numbers: Numbers, low: int, dynamic: bool | None
) -> None:
    compiled = stator.compile(uses, dynamic=dynamic)
    for n in (3, 4, 3, 5, 4, 1, 2, 6):
        before = SEEN["seen"]
        found = compiled(numbers, n + low, low)
        seen, SEEN["seen"] = SEEN["seen"], before
        wanted = uses(numbers, n + low, low)
        assert seen == SEEN["seen"]
        assert repr(found) == repr(wanted), n
