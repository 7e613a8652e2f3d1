"""What a signal's handler raises while a replay runs always arrives, once."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional as F

TABLE = torch.arange(8.0).view(4, 2)


def work(count: Tensor, x: Tensor) -> Tensor:
    """Operations that are written in Python, where signals are noticed."""
    count.add_(1)
    for _ in range(40):
        x = F.layer_norm(x, (2,)) + 1
    return x + TABLE[x.long().clamp(0, 1)].sum()


def behind_a_break(count: Tensor, x: Tensor) -> Tensor:
    print(end="")
    return work(count, x)


def handled(count: Tensor, x: Tensor) -> Tensor:
    try:
        print(end="")
        return work(count, x)
    except (TimeoutError, KeyboardInterrupt):
        seen.append("handled")
        raise


seen: list[str] = []


@pytest.fixture
def alarm() -> Iterator[list[type[BaseException]]]:
    kinds: list[type[BaseException]] = [TimeoutError]

    def rings(*_: Any) -> None:
        seen.append("raised")
        raise kinds[0]("rang")

    before = signal.signal(signal.SIGALRM, rings)
    yield kinds
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", [TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("fn", [work, behind_a_break, handled])
def test_interrupted(
    fn: Callable[..., Any], kind: type[BaseException], alarm: list[type[BaseException]]
) -> None:
    alarm[0] = kind
    compiled, x = api.compile(fn), torch.ones(3, 2)
    for _ in range(3):
        compiled(torch.zeros(()), x)
    expected, caught, within = fn(torch.zeros(()), x), 0, 0
    began = time.perf_counter()
    for _ in range(5):
        compiled(torch.zeros(()), x)
    lasts = (time.perf_counter() - began) / 5
    seen.clear()
    for step in range(60):
        count = torch.zeros(())
        try:
            signal.setitimer(signal.ITIMER_REAL, lasts * (step + 1) / 50)
            result = compiled(count, x)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except kind as error:
            caught += 1
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            within += "work" in frames
            assert frames[-1] == "rings"
            assert count.item() in (0, 1)
        else:
            assert torch.equal(result, expected) and count.item() == 1
    assert seen.count("raised") == caught >= within > 0
    assert api.PLAIN or api.hits(compiled) >= 2


@pytest.mark.parametrize("handles", [False, True])
def test_an_error_in_a_backends_code(handles: bool) -> None:
    """It is the program's, in frames of its own, if the program raises one."""

    class Log:
        calls = 0

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        log = Log()

        def fn(i: Tensor, y: Tensor) -> Tensor:
            log.calls += 1
            y.add_(1)
            return TABLE[i].sum() + y

        def caller(i: Tensor, y: Tensor) -> Tensor:
            try:
                return fn(i, y)
            except IndexError:
                return y * 5

        function, results = wrap(caller if handles else fn), []
        for number in (0, 1, 9, 8, 2):
            y = torch.ones(())
            try:
                results.append(function(torch.tensor([number]), y).item())
            except IndexError as error:
                frames = traceback.extract_tb(error.__traceback__)
                results.append((error.args, [frame.name for frame in frames]))
            results.append((y.item(), log.calls))
        return results

    assert run(lambda fn: api.compile(fn, backend="aot_eager")) == run(lambda fn: fn)
