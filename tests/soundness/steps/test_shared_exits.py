"""Questions of operations on numbers, of which many leave a trace by one exit: each of them fails once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from .results import same


class Log:
    def __init__(self) -> None:
        self.count = 0
        self.lines: list[Any] = []
        self.table: dict[Any, Any] = {}
        self.total = torch.zeros(())


def quotients(log: Log, numbers: list[Tensor]) -> Any:
    return [1.0 / number.item() for number in numbers]


def counted(log: Log, numbers: list[Tensor]) -> Any:
    """What is written between the questions is written once."""
    made = []
    for number in numbers:
        log.count += 1
        log.lines.append(log.count)
        made.append(1.0 / number.item())
        log.table["last"] = made[-1]
    return made


def written(log: Log, numbers: list[Tensor]) -> Any:
    """A tensor is written between some of them: from there on another exit is needed."""
    made = []
    for number in numbers:
        value = number.item()
        made.append(1.0 / value)
        made.append(value**0.5)
        log.total.add_(1)
        made.append((value + 1) ** 0.5)
    return made


def handled(log: Log, numbers: list[Tensor]) -> Any:
    made = []
    for number in numbers:
        try:
            made.append(1.0 / number.item())
        except ZeroDivisionError as error:
            log.lines.append(str(error))
            made.append(-1.0)
    return made


def helper(log: Log, number: Tensor, scale: list[float]) -> float:
    log.count += 1
    scale.append(number.item())
    return 2.0 / scale[-1] + scale[0] ** 0.5


def inlined(log: Log, numbers: list[Tensor]) -> Any:
    scale: list[float] = []
    made = [helper(log, number, scale) for number in numbers]
    scale.reverse()
    return made, scale, torch.tensor(made) * 2


def iterated(log: Log, numbers: list[Tensor]) -> Any:
    """Iterators and containers of the call's own are as they were at the exit."""
    names, seen, waiting = iter("abcdefgh"), set(), {}
    for number in numbers:
        name = next(names)
        seen.add(name)
        waiting[name] = 1.0 / number.item()
        if name == "b":
            seen.remove("a")
            del waiting["a"]
    return next(names), sorted(seen), waiting


def asked(log: Log, numbers: list[Tensor]) -> Any:
    """The program asks in between."""
    made = []
    for number in numbers:
        value = number.item()
        made.append(1.0 / value)
        if value > 2:
            log.lines.append("large")
            made.append(value**0.5)
    return made


FUNCTIONS = [quotients, counted, written, handled, inlined, iterated, asked]


def play(function: Any, seed: int, wrap: Callable[[Any], Any]) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    log, results, called = Log(), [], wrap(function)
    for call in range(12):
        numbers = [torch.rand((), generator=generator) * 3 + 0.5 for _ in range(5)]
        if call % 3 == 2:
            # One of them is what it hasn't been.
            at = int(torch.randint(5, (), generator=generator))
            numbers[at] = torch.tensor([0.0, -1.0, 2.5][call // 3 % 3])
        log.total = torch.zeros(())
        try:
            result: Any = called(log, numbers)
        except Exception as error:
            trace = error.__traceback__
            lines = []
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == __file__:
                    lines.append(trace.tb_lineno)
                trace = trace.tb_next
            result = type(error).__name__, str(error), lines[1:]
        results.append(repr((result, log.count, log.lines, log.table, log.total)))
    return results


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("seed", range(6))
def test_each_question_leaves_as_plain_python_goes(function: Any, seed: int) -> None:
    expected = play(function, seed, lambda it: it)
    assert play(function, seed, lambda it: api.compile(it, backend="eager")) == expected


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("function", [quotients, counted, handled, inlined, iterated])
def test_they_share_an_exit(function: Any, caplog: pytest.LogCaptureFixture) -> None:
    import stator

    compiled = api.compile(function, backend="eager")
    numbers = [torch.tensor(float(number)) for number in range(1, 6)]
    stator.set_logs(graph_code=True)
    with caplog.at_level("DEBUG", logger="stator"):
        compiled(Log(), numbers)
    decisions = [line for line in caplog.text.splitlines() if " = decide(" in line]
    assert len(decisions) >= 5
    assert all(line.endswith(", decide)") for line in decisions[1:])


def ordered(x: Tensor, numbers: Tensor) -> tuple[list[int], list[int], Tensor]:
    told = numbers.tolist()
    order = sorted(told)
    again = sorted([number * 2 for number in told])
    return order, again, x + (order[1] in (3, 5, 7, 11, 13))


def test_what_one_instruction_asks_counts_once() -> None:
    x = torch.ones(2)
    compiled = api.compile(ordered, backend="eager")
    for start in (1, 4, 6):
        numbers = torch.arange(start, start + 3 * 40, 3)
        assert same(compiled(x, numbers), ordered(x, numbers))
    if not api.PLAIN:
        assert api.breaks(compiled) == 0
    for seed in range(3):
        numbers = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        assert same(compiled(x, numbers), ordered(x, numbers))
