"""A tuple or number with a size that varies, in two places that outlive a call: one object, in the recorded call too."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

KEPT: list[Any] = []
Keep = types.SimpleNamespace()


def in_the_result(x: Tensor) -> bool:
    def step(x: Tensor) -> Any:
        pair = ("a", x.shape[0])
        KEPT.append(pair)
        return [pair]

    return call(step, x)[0] is KEPT[-1]


def as_the_result(x: Tensor) -> bool:
    def step(x: Tensor) -> Any:
        pair = ("a", x.shape[0])
        KEPT.append(pair)
        return pair

    return call(step, x) is KEPT[-1]


def in_a_slice(x: Tensor) -> bool:
    def step(x: Tensor) -> Any:
        KEPT.append(("a", x.shape[0]))
        KEPT.append(("b", 2))
        return KEPT[-2:]

    return call(step, x)[0] is KEPT[-2]


def in_two_written_places(x: Tensor) -> bool:
    def step(x: Tensor) -> Any:
        Keep.pair = (x.shape[0], "a")
        KEPT.append(Keep.pair)
        Keep.table = {"pair": Keep.pair}
        return x

    call(step, x)
    return Keep.pair is KEPT[-1] and Keep.table["pair"] is Keep.pair


def large_number(x: Tensor) -> bool:
    def step(x: Tensor) -> Any:
        Keep.number = x.shape[0] * 1000
        KEPT.append(Keep.number)
        return {"number": Keep.number}

    return call(step, x)["number"] is KEPT[-1] and Keep.number is KEPT[-1]


COMPILED: dict[Any, Any] = {}


def call(step: Callable[[Tensor], Any], x: Tensor) -> Any:
    return COMPILED.setdefault(step.__code__, stator.compile(step))(x)


@pytest.mark.parametrize(
    "is_one", [in_the_result, as_the_result, in_a_slice, in_two_written_places, large_number]
)
def test_one_object(is_one: Callable[[Tensor], bool]) -> None:
    COMPILED.clear()
    KEPT.clear()
    with stator.config.patch(skip_unprofitable=False):
        for rows in (2, 2, 3, 4, 3, 2, 300, 400):
            assert is_one(torch.ones(rows))
