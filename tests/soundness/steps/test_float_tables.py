"""Floats that a list or tuple has at a number that counts or was read: found by a node, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


class Schedule:
    """Made anew for plain Python and for the compiled function: some programs write to it."""

    def __init__(self) -> None:
        self.weights = [0.0, 0.25, 0.5, 0.75, 1.0, float("nan"), -0.0, 8.0]
        self.rates = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
        self.mixed = [1, 2.0, 3, 4.0, 5, 6.0, 7, 8.0]
        self.step = 0
        self.seen: list[float] = []


Program = Callable[[Tensor, Schedule], Any]


def by_counter(x: Tensor, schedule: Schedule) -> Any:
    weight = schedule.weights[schedule.step]
    schedule.step += 1
    return x * weight, f"{weight:.2f}"


def clipped(x: Tensor, schedule: Schedule) -> Any:
    last = len(schedule.rates) - 1
    rate = schedule.rates[min(schedule.step * 2, last)]
    schedule.step += 1
    return x - rate * x.abs(), rate


def from_the_end(x: Tensor, schedule: Schedule) -> Any:
    schedule.step += 1
    return x + schedule.rates[-schedule.step], schedule.rates[schedule.step // 2]


def by_data(x: Tensor, schedule: Schedule) -> Any:
    rate = schedule.rates[int(x.argmax().item())]
    schedule.seen.append(rate)
    return x * rate, sum(schedule.seen)


def decided(x: Tensor, schedule: Schedule) -> Any:
    weight = schedule.weights[schedule.step]
    schedule.step += 1
    return x * weight if weight > 0.4 else x


def both_kinds(x: Tensor, schedule: Schedule) -> Any:
    weight = schedule.mixed[schedule.step]
    schedule.step += 1
    return x * weight, weight


def written(x: Tensor, schedule: Schedule) -> Any:
    schedule.weights[schedule.step] += 1.0
    weight = schedule.weights[schedule.step]
    schedule.step += 1
    return x * weight, list(schedule.weights[:2])


def past_the_end(x: Tensor, schedule: Schedule) -> Any:
    schedule.step += 3
    try:
        return x * schedule.rates[schedule.step], schedule.step
    except IndexError as error:
        return x, str(error)


def as_a_key(x: Tensor, schedule: Schedule) -> Any:
    rate = schedule.rates[schedule.step]
    schedule.step += 1
    return {rate: x + 1}


WHOLE = (by_counter, clipped, from_the_end, by_data)
PROGRAMS: tuple[Program, ...] = (
    *WHOLE,
    decided,
    both_kinds,
    written,
    past_the_end,
    as_a_key,
)


@pytest.mark.parametrize("profitable", [True, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_floats(program: Program, profitable: bool) -> None:
    compiled = stator.compile(program)
    plain, found = Schedule(), Schedule()
    with stator.config.patch(skip_unprofitable=profitable):
        for call in range(7):
            x = torch.randn(8, generator=torch.Generator().manual_seed(call))
            if call == 5:
                for schedule in (plain, found):
                    schedule.rates = tuple(rate * 2 for rate in schedule.rates)
                    schedule.weights[call] = 2.5
            assert same(copied(program(x, plain)), copied(compiled(x, found))), call
            assert same(plain.__dict__, found.__dict__), call
    stats = stator.stats(compiled)
    if program in WHOLE and not profitable:
        assert stats.breaks == 0, stats.reason
        assert stats.traces <= 4


def test_what_is_found_is_the_tables_own() -> None:
    """As in plain Python, when recorded and when replayed."""
    schedule = Schedule()
    compiled = stator.compile(lambda x, schedule: (x + 1, schedule.rates[schedule.step]))
    with stator.config.patch(skip_unprofitable=False):
        for step in range(5):
            schedule.step = step
            assert compiled(torch.ones(2), schedule)[1] is schedule.rates[step]
