"""Warnings and log records in calls that change who is told of them: a replay tells it when its writes are done."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

X = torch.ones(3)
LOG = logging.getLogger("stator-test-changes")
TOLD: list[str] = []


class Keeper(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        TOLD.append(record.getMessage())


HANDLER = Keeper()
FORMER: list[Any] = []


def level_set_back(x: Tensor) -> Tensor:
    HANDLER.level = logging.ERROR
    LOG.info("unheard")
    HANDLER.level = logging.NOTSET
    LOG.info("heard")
    return x * 2


def level_left(x: Tensor) -> Tensor:
    LOG.info("heard")
    HANDLER.level = logging.ERROR
    return x * 2


def handler_taken_out(x: Tensor) -> Tensor:
    LOG.info("heard")
    LOG.handlers.remove(HANDLER)
    y = x * 2
    LOG.handlers.append(HANDLER)
    LOG.info("again")
    return y


def disabled_meanwhile(x: Tensor) -> Tensor:
    LOG.info("heard")
    LOG.disabled = True
    LOG.info("unheard")
    LOG.disabled = False
    return x * 2


def ignored(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x * 2
        warnings.warn("unheard")
    warnings.warn("heard")
    return y


def filters_replaced(x: Tensor) -> Tensor:
    kept = warnings.filters
    warnings.filters = [("ignore", None, Warning, None, 0)]  # type: ignore[misc]
    warnings.warn("unheard")
    warnings.filters = kept  # type: ignore[misc]
    return x * 2


def raised_as_errors(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("raised")
        except UserWarning as warning:
            return x * 2, str(warning)
    return x


def told_and_changed_elsewhere(x: Tensor) -> Tensor:
    LOG.info("heard")
    FORMER.append(len(FORMER))
    return x * 2


PROGRAMS = [
    level_set_back,
    level_left,
    handler_taken_out,
    disabled_meanwhile,
    ignored,
    filters_replaced,
    raised_as_errors,
    told_and_changed_elsewhere,
]


def play(call: Callable[[Tensor], Any]) -> list[Any]:
    LOG.propagate, LOG.disabled = False, False
    LOG.setLevel(logging.INFO)
    LOG.handlers[:] = [HANDLER]
    HANDLER.level = logging.NOTSET
    FORMER.clear()
    played = []
    for number in range(8):
        if number == 5:
            LOG.setLevel(logging.ERROR)
        TOLD.clear()
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("ignore" if number == 6 else "always")
            result = call(X)
        heard = [str(it.message) for it in given]
        played.append((repr(result), list(TOLD), heard, HANDLER.level, list(FORMER)))
        HANDLER.level = logging.NOTSET
    return played


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("pays", [True, False])
def test_each_is_told_as_it_is_then(program: Callable[[Tensor], Any], pays: bool) -> None:
    expected = play(program)
    with stator.config.patch(skip_unprofitable=pays):
        assert play(stator.compile(program)) == expected


def test_what_nobody_asks_may_change() -> None:
    compiled = stator.compile(told_and_changed_elsewhere)
    with stator.config.patch(skip_unprofitable=False):
        play(compiled)
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
