"""Loops that data ends: few traces for any number of iterations, lists that grow, and first calls that are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import copied, same

COUNTS = (70, 3, 0, 200, 7, 64, 65, 20, 130, 1, 100, 50)


def check(
    function: Callable[..., Any], calls: list[Callable[[], tuple[Any, ...]]], rounds: int = 2
) -> stator.Stats:
    """Plain and compiled, each call with arguments of its own; what they hold afterwards counts too."""
    compiled = api.compile(function, backend="eager")
    for call in calls * rounds:
        ends = []
        for each in (function, compiled):
            arguments = call()
            try:
                result = each(*arguments)
            except Exception as error:
                result = type(error).__name__, str(error)
            ends.append(copied([result, list(arguments)]))
        assert same(*ends), ends
    return stator.stats(compiled)


def until(function: Callable[..., Any], *others: Any) -> stator.Stats:
    def call(count: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.ones(2), torch.tensor(float(count)), *copied(list(others)))

    return check(function, [call(count) for count in COUNTS])


def compared(x: Tensor, limit: Tensor) -> list[Tensor]:
    found = []
    while x[0] < limit:
        x = x + 1
        found.append(x)
    return found


def asked(x: Tensor, limit: Tensor) -> Tensor:
    while (x < limit).all():
        x = x + 1
    return x


def negated(x: Tensor, limit: Tensor) -> Tensor:
    while not (x >= limit).any():
        x = x * 1 + 1
    return x


def both(x: Tensor, limit: Tensor) -> Tensor:
    while x[0] < limit and x[1] < limit:
        x = x + 1
    return x


def nested(x: Tensor, limit: Tensor) -> Tensor:
    while x[0] < limit:
        y = x[1]
        while y < limit:
            y = y * 2 + 1
        x = x + 1
    return x


def one_after_the_other(x: Tensor, limit: Tensor) -> Tensor:
    while x[0] < limit:
        y = x
        while y[0] < limit:
            y = y * 2 + 1
        z = x
        while z[0] < limit:
            z = z + 7
        x = x + 3
    return x


@pytest.mark.parametrize(
    ("loop", "traces"),
    [
        *((compared, 3), (asked, 3), (negated, 3), (both, 3)),
        # CPython 3.12 and later spell these loops otherwise than 3.11: the traces are as many.
        *((nested, 6), (one_after_the_other, 12)),
    ],
)
def test_ways_out_of_a_loop_meet_where_they_lead(loop: Callable[..., Any], traces: int) -> None:
    stats = until(loop)
    assert (stats.traces, stats.native) == (traces, 0), stats


def test_a_list_that_grows_is_no_trace_for_each_length() -> None:
    def collect(x: Tensor, limit: Tensor) -> list[Tensor]:
        found = []
        while x[0] <= limit:
            x = x + 1
            found.append(x)
        return found

    stats = until(collect)
    assert stats.traces <= 4 and stats.native == 0, stats


def test_a_list_that_grows_and_is_returned_with_others() -> None:
    def collect(x: Tensor, limit: Tensor) -> tuple[Any, ...]:
        found, numbers = [x], []
        while True:
            x = x + 1
            found.append(x)
            numbers.append(x.sum().item())
            if x[0] > limit:
                break
        return x, found, {"numbers": numbers}

    until(collect)


GROWN: dict[str, str] = {
    "its length": "if len(found) > 100: break",
    "its last": "x = x + 0 * found[-1]",
    "its truth": "x = x + 1 if found else x",
    "what it held": "found[0].add_(1)",
    "through another name": "other = found; other.append(x * 2); other[0].mul_(1)",
    "a new one": "found = found[-3:]",
    "emptied": "if x[1] > 70: found.clear()",
    "shortened": "if x[1] > 66: found.pop(0)",
    "unpacked": "y = [*found, x]; found = y",
    "as a key's value": "held = {'found': found}; held['found'].append(x)",
    "summed": "x = x + 0 * sum(found[-2:])",
    "compared": "x = x + 0 if x in [found] else x",
    "reversed": "found.reverse()",
    "a closure": "add = lambda t: found.append(t); add(x)",
    "in itself": "found = [found[-1], x]",
    "asked for by is": "x = x + 0 if found[-1] is x else x * 2",
}


@pytest.mark.parametrize("use", GROWN.values(), ids=GROWN)
@pytest.mark.parametrize("end", ["found", "found, len(found)", "torch.stack(found[-2:])"])
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_a_list_that_grows_may_be_looked_at(use: str, end: str) -> None:
    names: dict[str, Any] = {"torch": torch}
    lines = (
        "def step(x, limit):",
        "    found = [x]",
        "    while x[0] <= limit:",
        "        x = x + 1",
        "        found.append(x)",
        f"        {use}",
        f"    return x, {end}",
    )
    exec("\n".join(lines), names)
    until(names["step"])


def test_what_the_list_holds_may_be_changed_from_outside() -> None:
    shared: list[Tensor] = []

    @stator.disable
    def meddle(found: list[Tensor]) -> None:
        shared.append(found[-1])
        if len(found) % 50 == 0:
            found.append(found[0] * 100)

    def collect(x: Tensor, limit: Tensor) -> tuple[Any, ...]:
        found = [x]
        while x[0] <= limit:
            x = x + 1
            found.append(x)
            meddle(found)
        return found, x

    until(collect)


def long_root(x: Tensor, rate: Tensor) -> Tensor:
    error = x * x - 2
    while error.abs() > 1e-5:
        x = x - rate * error / (2 * x)
        error = x * x - 2
    return x


def test_the_first_call_of_a_long_loop_is_soon_left_alone() -> None:
    def call(rate: float) -> Callable[[], tuple[Any, ...]]:
        return lambda: (
            torch.tensor(5.0, dtype=torch.float64),
            torch.tensor(rate, dtype=torch.float64),
        )

    compiled = api.compile(long_root, backend="eager")
    assert torch.equal(compiled(*call(0.005)()), long_root(*call(0.005)()))
    stats = stator.stats(compiled)
    # Some 3000 iterations: recorded as far as they bring something new.
    assert stats.traces == 2 and stats.breaks < 10, stats
    stats = check(long_root, [call(rate) for rate in (0.005, 0.01, 1.0, 0.5, 0.007)])
    assert stats.traces <= 4 and stats.native == 0, stats


def test_what_comes_behind_a_long_loop_is_recorded_where_its_caller_waits() -> None:
    def outer(x: Tensor, rate: Tensor) -> Tensor:
        found = long_root(x, rate)
        return (found + 1).sin() * 2

    def call() -> tuple[Tensor, Tensor]:
        return torch.tensor(5.0, dtype=torch.float64), torch.tensor(0.005, dtype=torch.float64)

    compiled = api.compile(outer, backend="eager")
    assert torch.equal(compiled(*call()), outer(*call()))
    # The one behind `long_root` too.
    assert stator.stats(compiled).traces == 3
    stats = check(outer, [call])
    assert stats.native == 0, stats


def test_the_rest_of_a_long_loop_may_raise_and_write() -> None:
    log: list[float] = []

    def step(x: Tensor, limit: Tensor, fail: bool) -> Tensor:
        try:
            while True:
                x = x + 1
                if x[0] > limit:
                    if fail:
                        raise ValueError(len(log))
                    break
        except ValueError as error:
            log.append(float(str(error)))
            x = -x
        finally:
            log.append(x[0].item())
        return x

    def call(count: int, fail: bool) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.ones(2), torch.tensor(float(count)), fail)

    compiled = api.compile(step, backend="eager")
    for count, fail in ((900, True), (900, False), (3, True), (1500, True), (0, False)):
        logs = []
        for each in (step, compiled):
            log.clear()
            result = each(*call(count, fail)())
            logs.append([result, list(log)])
        assert same(*logs), logs
