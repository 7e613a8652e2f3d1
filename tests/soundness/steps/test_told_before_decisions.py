"""Decisions behind warnings and log records: a replay that leaves there has given those that came before, and no other."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import stats

LOG = logging.getLogger("stator-test-told-before")
OTHER = LOG.getChild("other")


def note(x: Tensor, where: str) -> Tensor:
    LOG.info("%s: %.2f", where, x.sum().item())
    return x * 1.5


def loop(x: Tensor, found: list[Any]) -> Any:
    for i in range(3):
        x = note(x, f"step {i}")
        if x.sum() > 20:
            LOG.warning(f"stops at {i} with {x.sum().item():.2f}")
            return x
        found.append(x.mean().item())
    LOG.info("done")
    return x + 1


def between_writes(x: Tensor, found: list[Any]) -> Any:
    found.append("first")
    LOG.info("one")
    x.add_(1)
    if x.sum() > 9:
        found.append("large")
        OTHER.info("two, %s", found[-1])
        x.mul_(2)
    found.append(len(found))
    LOG.info("three")
    return x if x.sum() > 20 else x - 1


def numbers(x: Tensor, found: list[Any]) -> Any:
    total = x.sum().item()
    LOG.info("of %s", total)
    rate = 1 / total if total else 0.0
    LOG.info("rate %.3f", rate)
    return x * (rate**0.5 if rate > 0 else 1.0)


def raises(x: Tensor, found: list[Any]) -> Any:
    found.append("begun")
    LOG.info("before")
    if x.sum() > 9:
        raise ValueError(f"{x.sum().item():.1f} is too large")
    LOG.info("behind")
    return x + 1


def operation_raises(x: Tensor, found: list[Any]) -> Any:
    x.add_(1)
    LOG.info("before")
    y = torch.zeros(5)
    y[x.long().clamp(-9, 9)] = 1.0
    LOG.info("behind")
    return y


def handles(x: Tensor, found: list[Any]) -> Any:
    LOG.info("before")
    try:
        y = torch.zeros(5)[x.long().clamp(-9, 9)]
    except IndexError as error:
        found.append(str(error))
        LOG.info("handled")
        y = x
    return y + 1 if x.sum() > 3 else y - 1


def warns(x: Tensor, found: list[Any]) -> Any:
    warnings.warn("the first", stacklevel=2)
    if x.sum() > 9:
        warnings.warn("the second", DeprecationWarning, stacklevel=1)
        return x - 1
    warnings.warn("the third", stacklevel=2)
    return x + 1


def of_containers(x: Tensor, found: list[Any]) -> Any:
    parts = [1, 2]
    LOG.info("of %s", tuple(parts))
    y = x + 1 if x.sum() > 9 else x - 1
    return y, parts


def changed_behind(x: Tensor, found: list[Any]) -> Any:
    parts = [1, 2]
    LOG.info("of %s", parts)
    parts.append(3)
    y = x + 1 if x.sum() > 9 else x - 1
    return y, parts


def inner(x: Tensor, found: list[Any]) -> Any:
    def scaled(y: Tensor) -> Tensor:
        LOG.info("inner", stacklevel=2)
        return y * 2 if y.max() > 2 else y * 3

    y = scaled(x)
    LOG.info("outer")
    return scaled(y) + y


CASES = [
    loop,
    between_writes,
    numbers,
    raises,
    operation_raises,
    handles,
    warns,
    of_containers,
    changed_behind,
    inner,
]
INPUTS = [
    [1.0, 1, 1],
    [4.0, 4, 4],
    [0.0, 0, 0],
    [-3.0, 1, 1],
    [9.0, 1, 2],
    [2.0, 2, 2],
    [float("nan"), 1, 1],
    [1.0, 1, 1],
]


class Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(
            (record.getMessage(), record.levelno, record.lineno, record.funcName, record.name)
        )


@pytest.fixture(autouse=True)
def keeper() -> Iterator[Keeper]:
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    keeper = Keeper()
    LOG.addHandler(keeper)
    # A logger's first question fills its cache.
    LOG.isEnabledFor(logging.INFO), LOG.isEnabledFor(logging.WARNING), OTHER.isEnabledFor(20)
    yield keeper
    LOG.removeHandler(keeper)


def outcome(function: Callable[..., Any], values: list[float], keeper: Keeper) -> Any:
    x, found = torch.tensor(values), []
    keeper.records.clear()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            result = repr(function(x, found))
        except Exception as error:
            result = repr(error), error.__traceback__.tb_next.tb_lineno
    told = [(str(one.message), one.category, one.lineno) for one in given]
    told = [one for one in told if "limit" not in one[0]]
    return result, repr(x), repr(found), list(keeper.records), told


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_told_before(function, keeper):
    compiled = stator.compile(function, recompile_limit=32)
    for _ in range(3):
        for values in INPUTS:
            found, plain = (outcome(it, values, keeper) for it in (compiled, function))
            assert found == plain


@pytest.mark.parametrize(
    "function", [loop, between_writes, numbers, of_containers, inner], ids=lambda it: it.__name__
)
def test_no_break(function, keeper):
    compiled = stator.compile(function)
    for _ in range(2):
        for values in INPUTS[:6]:
            compiled(torch.tensor(values), [])
    assert stats(compiled).breaks == 0, stats(compiled).reason
    assert stats(compiled).native == 0, stats(compiled).reason


def test_listeners_change(keeper):
    """Who is told is asked again at each replay."""
    compiled = stator.compile(loop)
    for values in INPUTS:
        compiled(torch.tensor(values), [])

    class Other(Keeper):
        def emit(self, record: logging.LogRecord) -> None:
            LISTENED.append(record.getMessage())
            super().emit(record)

    other = Other()
    LOG.addHandler(other)
    try:
        for values in INPUTS:
            found, plain = (outcome(it, values, keeper) for it in (compiled, loop))
            assert found == plain
            assert len(other.records) == 2 * len(found[3])
            other.records.clear()
    finally:
        LOG.removeHandler(other)
    for level in (logging.ERROR, logging.INFO):
        LOG.setLevel(level)
        for values in INPUTS:
            found, plain = (outcome(it, values, keeper) for it in (compiled, loop))
            assert found == plain


LISTENED: list[str] = []
