"""Deques of the last few numbers: an element is asked for by a node once the numbers have been found to differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import same

Window = deque[Any]
Program = Callable[[Tensor, int, Window], Any]
PROGRAMS: list[Program] = []


def kept(program: Program) -> Program:
    PROGRAMS.append(program)
    return program


@kept
def ends(x: Tensor, n: int, window: Window) -> Any:
    window.append(x.sum().item())
    return window[-1] * x, window[0]


@kept
def middle(x: Tensor, n: int, window: Window) -> Any:
    window.append(x.sum().item())
    return window[1] + x, window[-2]


@kept
def two(x: Tensor, n: int, window: Window) -> Any:
    window.extend(x.tolist())
    return window[0] + x, window[1], window[-3]


@kept
def unchanged(x: Tensor, n: int, window: Window) -> Any:
    return window[-1] + x, window[0], window[1]


@kept
def taken(x: Tensor, n: int, window: Window) -> Any:
    first = window.popleft()
    second = window[0]
    window.append(float(n))
    return first + x, second, window[0]


@kept
def smoothed(x: Tensor, n: int, window: Window) -> Any:
    window.append(x.sum().item())
    trend = window[-1] - window[0]
    return sum(window) / len(window), trend, max(window), x * trend


@kept
def gone_over(x: Tensor, n: int, window: Window) -> Any:
    last = window[-1]
    for value in window:
        x = x + value
    return x, last


@kept
def last_of_one(x: Tensor, n: int, window: Window) -> Any:
    alone: Window = deque(maxlen=1)
    alone.append(window[0])
    alone.append(x.sum().item())
    return alone[0], alone[-1], x + alone[0]


def fill(call: int, window: Window) -> None:
    """What happens between calls."""
    window.append(0.25 * call)
    if call == 9:
        window.clear()
        window.extend([3, 4, 5, 6])
    if call == 13:
        window.extend([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    if call == 16:
        window.popleft()


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("most", [3, 6, None])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_equal_plain_python(program: Program, most: int | None, floor: bool) -> None:
    compiled = api.compile(program, recompile_limit=64)
    ours: Window = deque([1.0, 2.0, 3.0], maxlen=most)
    theirs = deque(ours, maxlen=most)
    with stator.config.patch(skip_unprofitable=floor):
        for call in range(24):
            fill(call, ours)
            fill(call, theirs)
            x = torch.tensor([0.5 * call, 3.0 - call])
            assert same(compiled(x, call % 3, ours), program(x, call % 3, theirs)), call
            assert same(list(ours), list(theirs)) and ours.maxlen == theirs.maxlen, call


@pytest.mark.parametrize("most", [3, 6])
@pytest.mark.parametrize("program", [ends, middle, unchanged, smoothed])
def test_few_traces(program: Program, most: int) -> None:
    compiled = api.compile(program)
    window: Window = deque([1.0, 2.0, 3.0], maxlen=most)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(20):
            if program is unchanged:
                window.append(0.25 * call)
            compiled(torch.tensor([2.0 + call, 1.0]), 2, window)
    # One with what it held as constants, and what follows where room is made.
    found = stator.stats(compiled)
    assert found.traces <= 5 and found.hits >= 15, (found.traces, found.hits)


def test_another_length() -> None:
    """What holds at most so many is guarded."""
    compiled = api.compile(ends, recompile_limit=64)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(24):
            most = (2, 3, None)[call // 4 % 3]
            ours: Window = deque([1.0 * call, 2, 3.0][: most or 3], maxlen=most)
            theirs = deque(ours, maxlen=most)
            x = torch.tensor([0.5 * call, 3.0])
            assert same(compiled(x, 0, ours), ends(x, 0, theirs)), call
            assert same(list(ours), list(theirs))
