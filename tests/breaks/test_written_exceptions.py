"""Exceptions that only what was written holds when a graph breaks: they have their tracebacks."""

from __future__ import annotations

import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

Keep = types.SimpleNamespace()
KEPT: list[BaseException] = []
TABLE: dict[str, Any] = {}


def in_attribute(x: Tensor) -> Any:
    try:
        raise KeyError(1)
    except KeyError as error:
        Keep.last = error
    stator.graph_break()
    return Keep.last


def in_list(x: Tensor) -> Any:
    try:
        [].pop()
    except IndexError as error:
        KEPT.append(error)
    stator.graph_break()
    return KEPT[-1]


def in_container_of_an_entry(x: Tensor) -> Any:
    try:
        raise ValueError(2) from KeyError(3)
    except ValueError as error:
        TABLE["failed"] = {"error": error}
    stator.graph_break()
    return TABLE["failed"]["error"]


def behind_a_decision(x: Tensor) -> Any:
    try:
        raise KeyError(4)
    except KeyError as error:
        Keep.last = error
    if x.sum() > 3:
        stator.graph_break()
    return Keep.last


def shown(error: BaseException) -> list[tuple[str, int | None]]:
    return [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("fn", [in_attribute, in_list, in_container_of_an_entry, behind_a_decision])
def test_traceback_of_an_exception_that_is_kept(fn: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for value in (1.0, 1.0, 2.0, 2.0, 1.0, 3.0):
            x = torch.full((2,), value)
            expected, found = fn(x), compiled(x)
            assert (type(found), found.args) == (type(expected), expected.args)
            assert shown(found) == shown(expected)
