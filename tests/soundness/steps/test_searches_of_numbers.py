"""`in`, `index` and `count` of numbers that were read, in lists and tuples of the trace's own and from outside."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


def own(x: Tensor) -> Any:
    numbers = x.tolist()
    best = max(numbers)
    return numbers.index(best), numbers.count(numbers[0]), best in numbers, x * numbers.index(best)


def among_constants(x: Tensor) -> Any:
    n = x[0].item()
    found = n in (0.5, "text", None, 2), [1.5, n].count(1.5), (n, "a", 3.0).index(3.0)
    return found, n in [x[1].item(), 4.0], x + 1


def outside(x: Tensor) -> Any:
    n = x[0].item()
    found = n in HISTORY, HISTORY.count(n), HISTORY.count(1.0)
    HISTORY.append(n)
    return found, HISTORY.index(n), n in HISTORY, x + 1


def raising(x: Tensor) -> Any:
    try:
        return [0.5, x[1].item()].index(x[0].item()), x + 1
    except ValueError as error:
        return str(error), x - 1


def of_other_things(x: Tensor) -> Any:
    row = [x[0].item(), [1], (2,), {"a": 1}]
    return row.count([1]), (2,) in row, row.index({"a": 1}), x + 1


def of_sizes(x: Tensor) -> Any:
    n = x.shape[0]
    return n in (2, 3), [4, n].index(n), (n, int(x[0].item() * 4)).count(2), x + n


def recent(x: Tensor) -> Any:
    RECENT.append(x[0].item())
    rises = RECENT[-1] < RECENT[0]
    return rises, max(RECENT), min(RECENT), sum(RECENT), sorted(RECENT), x + max(RECENT)


HISTORY: list[Any] = []
RECENT: deque[float] = deque(maxlen=3)
PROGRAMS = [own, among_constants, outside, raising, of_other_things, of_sizes, recent]
NUMBERS = [
    (0.5, 0.25),
    (0.5, 0.25),
    (0.75, 0.75),
    (2.0, 1.5),
    (1.0, 1.5),
    (-0.0, 0.0),
    (float("nan"), 0.5),
    (float("nan"), float("nan")),
    (0.5, 0.25, 3.0),
    (3.0, 0.25, 0.5),
    (0.5, 0.5),
]


def outcomes(program: Callable[[Tensor], Any]) -> list[Any]:
    HISTORY[:] = [1.0, "start", 0.75]
    RECENT.clear()
    RECENT.append(0.625)
    found: list[Any] = []
    for call, numbers in enumerate(NUMBERS):
        if call == 8:
            HISTORY[0] = 3.0
            RECENT.appendleft(9.0)
        try:
            result: Any = program(torch.tensor(numbers))
        except ValueError as error:
            result = str(error)
        found.append((copied(result), list(HISTORY), list(RECENT)))
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_right_whatever_the_numbers_are(program: Callable[[Tensor], Any]) -> None:
    expected = outcomes(program)
    stator.reset()
    compiled = stator.compile(program, recompile_limit=64)
    with stator.config.patch(skip_unprofitable=False):
        assert same(outcomes(compiled), expected)


@pytest.mark.parametrize(
    "program", [own, among_constants, of_sizes, recent], ids=lambda program: program.__name__
)
def test_a_search_breaks_no_graph(program: Callable[[Tensor], Any]) -> None:
    stator.reset()
    RECENT.clear()
    RECENT.append(0.625)
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for first in (0.5, 0.625, 0.875):
            compiled(torch.tensor([first, 0.75]))
    stats = stator.stats(compiled)
    assert stats.breaks == 0, stats.reason
