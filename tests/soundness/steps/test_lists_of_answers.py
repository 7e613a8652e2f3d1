"""`mask.tolist()` of a few truth values: each is a decision."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from .results import agree, copied, runs_whole

HELD = SimpleNamespace(log=[], done=None)
NAMES = ["a", "b", "c", "d"]


def named(x: Tensor) -> Any:
    kept = [name for name, is_in in zip(NAMES, (x > 0).tolist(), strict=True) if is_in]
    return x * len(kept), kept


def counted(x: Tensor) -> Any:
    flags = (x > 0).tolist()
    return sum(flags), any(flags), all(flags), x.sum(), flags.count(True)


def finished(x: Tensor) -> Any:
    HELD.done = (x > 2) if HELD.done is None else HELD.done | (x > 2)
    flags = HELD.done.tolist()
    if all(flags):
        HELD.done = None
        return "all", x
    alive = [index for index, flag in enumerate(flags) if not flag]
    return x[alive].sum(), alive, flags


def kept(x: Tensor) -> Any:
    flags = x.gt(0).tolist()
    HELD.log.append(flags)
    flags.append(None)
    return x + 1, flags


def behind_a_write(x: Tensor) -> Any:
    total = torch.zeros(4)
    total += x
    HELD.log.append(len(HELD.log))
    flags = (total > 0).tolist()
    total *= 2
    return total, flags


def none_at_all(x: Tensor) -> Any:
    return (x[:0] > 0).tolist(), x + 1


def in_two_dimensions(x: Tensor) -> Any:
    return (x.view(2, 2) > 0).tolist(), x + 1


def many(x: Tensor) -> Any:
    return (x.repeat(5) > 0).tolist(), x + 1


def with_drawn(x: Tensor) -> Any:
    noise = torch.rand(4)
    flags = (x + noise > 0.5).tolist()
    return flags, torch.rand(1), x


FUNCTIONS: list[Callable[[Tensor], Any]] = [
    named,
    counted,
    finished,
    kept,
    behind_a_write,
    none_at_all,
    in_two_dimensions,
    many,
    with_drawn,
]
WHOLE = {named, counted, kept, behind_a_write}

ROWS = [
    [1.0, -1.0, 2.0, 0.0],
    [1.0, -1.0, 2.0, 0.0],
    [3.0, -3.0, 1.0, -5.0],
    [1.0, 1.0, 2.0, 0.0],
    [3.0, 3.0, 3.0, 3.0],
    [1.0, -1.0, 2.0, 0.0],
    [1.0, 1.0, 2.0, 0.0],
    [0.1, -1.0, 0.2, 0.0],
]


def run(fn: Callable[[Tensor], Any]) -> list[Any]:
    torch.manual_seed(1)
    HELD.log, HELD.done = [], None
    found = []
    for rows in ROWS:
        result = copied(fn(torch.tensor(rows)))
        found.append((result, copied(HELD.log), copied(HELD.done), torch.rand(1)))
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor], Any]) -> None:
    api.reset()
    expected = run(fn)
    compiled = api.compile(fn)
    found = run(compiled)
    agree(expected, found)
    if fn in WHOLE:
        runs_whole(compiled, 4)
