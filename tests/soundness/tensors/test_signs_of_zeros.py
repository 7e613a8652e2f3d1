"""Floats that are zeros, with PyTorch's compilers: the symbol of one is a constant without a sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


def filled(x: Tensor, value: float, number: int) -> Any:
    return x * value, torch.full((2,), value), x + number


def multiplied(x: Tensor, value: float, number: int) -> Any:
    return x * (number * value) + 1 - x, number * value, 0 * value


def negated(x: Tensor, value: float, number: int) -> Any:
    return torch.full((2,), -value) * x, -(0 * value), value * 0.0 + number


VALUES = (1.5, 2.5, 0.0, -0.0, -2.5, 0.0, 3.5, -0.0)


@pytest.mark.parametrize("numbers", [(0, 1), (2, 3, 0, 4), (0, 0, -3)], ids=str)
@pytest.mark.parametrize("program", [filled, multiplied, negated])
def test_signs_are_kept(program: Callable[..., Any], numbers: tuple[int, ...]) -> None:
    compiled = stator.compile(program, backend="aot_eager", recompile_limit=64)
    x = torch.ones(2)
    with stator.config.patch(skip_unprofitable=False):
        for number in numbers:
            for value in VALUES:
                expected, found = program(x, value, number), compiled(x, value, number)
                assert repr(found) == repr(expected), (value, number)
