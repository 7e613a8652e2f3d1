"""Log records that tensors are among: given by replays as in plain Python, with what the tensors hold there."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

STREAM = io.StringIO()
logger = logging.getLogger("tests.told_tensors")


@pytest.fixture(autouse=True)
def shown() -> Iterator[None]:
    handler = logging.StreamHandler(STREAM)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    taken()
    with stator.config.patch(skip_unprofitable=False):
        yield
    logger.handlers.clear()


def taken() -> str:
    """What was shown since the last time."""
    text = STREAM.getvalue()
    STREAM.seek(0)
    STREAM.truncate()
    return text


def lines(x: Tensor, state: dict[str, Tensor]) -> Any:
    y = x * 2
    logger.info("%s %s mean=%.4f std=%.2e", "y", tuple(y.shape), y.mean(), y.std())
    logger.info("whole %s", y)
    logger.debug("nobody sees %s", y)
    logger.warning("row %s and %d", [y[0], {"best": y.argmax()}], 3)
    return y + 1


def written_before(x: Tensor, state: dict[str, Tensor]) -> Any:
    state["total"].add_(x.sum())
    logger.info("total %s", state["total"])
    return x + 1


def written_behind(x: Tensor, state: dict[str, Tensor]) -> Any:
    y = x * 2
    logger.info("before %s %s", y, state["total"])
    y.add_(1)
    state["total"].add_(1)
    logger.info("behind %s %s", y, state["total"])
    return y


def through_a_view(x: Tensor, state: dict[str, Tensor]) -> Any:
    y = x * 2
    logger.info("before %s", y)
    y.data[0] = 7
    y.detach().numpy()[1] = 5
    return y


def by_a_way_out(x: Tensor, state: dict[str, Tensor]) -> Any:
    logger.info("at first %s", x)
    if x.sum() > 0:
        x = x + 1
        logger.info("up %s", x)
    return x * 2


def with_gradients(x: Tensor, state: dict[str, Tensor]) -> Any:
    w = torch.ones(4, requires_grad=True)
    loss = (x * w).sum()
    logger.info("loss %s of %s", loss, w)
    loss.backward()
    assert w.grad is not None
    return w.grad


WHOLE = (lines, written_before)
PROGRAMS = (*WHOLE, written_behind, through_a_view, by_a_way_out, with_gradients)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_records(program: Callable[..., Any]) -> None:
    compiled = stator.compile(program)
    states = [{"total": torch.zeros(())} for _ in range(2)]
    for call in range(6):
        found = []
        for function, state in zip((program, compiled), states, strict=True):
            x = torch.randn(4, generator=torch.Generator().manual_seed(call))
            result = function(x, state)
            found.append((result, taken(), state["total"].item()))
        assert torch.equal(found[0][0], found[1][0]), call
        assert found[0][1:] == found[1][1:], call
    stats = stator.stats(compiled)
    assert stats.hits
    if program in WHOLE:
        assert (stats.traces, stats.breaks) == (1, 0), stats.reason


def test_records_that_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """They hold the tensors themselves."""
    logger.propagate = True
    compiled = stator.compile(lines)
    for call in range(4):
        x = torch.randn(4, generator=torch.Generator().manual_seed(call))
        kept = []
        for function in (lines, compiled):
            with caplog.at_level(logging.INFO):
                function(x, {})
            messages = [record.getMessage() for record in caplog.records]
            whole = [record.args for record in caplog.records if record.msg == "whole %s"]
            assert isinstance(whole[0], tuple)
            kept.append((messages, whole[0][0]))
            caplog.clear()
        assert kept[0][0] == kept[1][0]
        assert torch.equal(kept[0][1], kept[1][1])


def test_how_tensors_are_shown_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(lines)
    x = torch.randn(4)
    for call in range(6):
        if call == 2:
            torch.set_printoptions(precision=2)
        if call == 4:
            torch.set_printoptions(profile="default")
            monkeypatch.setattr(Tensor, "__repr__", lambda tensor, **_: f"<{tensor.numel()}>")
        found = []
        for function in (lines, compiled):
            function(x, {})
            found.append(taken())
        assert found[0] == found[1], call
