"""What C code finds equal within containers: an object equals itself, even if it's a NaN."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


@dataclasses.dataclass
class Pair:
    """Is compared by a tuple of its fields."""

    left: Any
    right: Any


def searched(x: Tensor, given: float) -> Any:
    total, mean = x.sum().item(), x.mean().item()
    found = total in (1, 2, total), total in [mean, total], total in (mean, 1.0), given in (given,)
    return found, total not in (0.0, 7.0), x + 1


def compared(x: Tensor, given: float) -> Any:
    total, mean = x.sum().item(), x.mean().item()
    equal = (total,) == (total,), (total, mean) == (mean, total), (given, 1) != (given, 1)
    return equal, Pair(total, 1) == Pair(total, 1), [total] == [total], x + 1


def moved(x: Tensor, given: float) -> Any:
    total = x.sum().item()
    kept = [total, given]
    pair = Pair(total, given)
    return pair.left in (kept[0],), (pair.right,) == (kept[1],), {"a": total} == {"a": kept[0]}, x


def of_two(x: Tensor, given: float) -> Any:
    larger = max(given, -math.inf)
    return larger in (given,), (larger,) == (given,), [given].count(larger), x + 1


def behind_a_break(x: Tensor, given: float) -> Any:
    total, first = x.sum().item(), float(x[0])
    digits = total.hex()
    return digits, Pair(total, 1) == Pair(total, 1), total in (first, total), first


NAN = math.nan
ROWS = [
    [1.0, 2.0, 3.0, NAN, 4.0, 2.0, NAN],
    [NAN, NAN, 1.0, 2.0, NAN, 3.0],
    [1.0, NAN, 1.0, NAN, 0.0, -0.0],
]


@pytest.mark.parametrize("settings", [{}, {"skip_unprofitable": False}], ids=["default", "all"])
@pytest.mark.parametrize("values", ROWS, ids=["later", "first", "in turn"])
@pytest.mark.parametrize("program", [searched, compared, moved, of_two, behind_a_break])
def test_a_nan_in_a_container_equals_itself(
    program: Callable[..., Any], values: list[float], settings: dict[str, Any]
) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(**settings):
        for value in values:
            x = torch.tensor([value, 1.0])
            assert repr(compiled(x, value)) == repr(program(x, value))


def test_two_numbers_that_are_one_object() -> None:
    def program(left: float, right: float, x: Tensor) -> Any:
        return (left,) == (right,), left in (right, 9.5), (left, 1) != (right, 1), x * left

    x = torch.ones(2)
    compiled = stator.compile(program, dynamic=True)
    other = float("nan")
    calls = [(1.0, 2.0), (3.0, 2.0), (2.5, 2.5), (NAN, NAN), (NAN, other), (2.0, NAN), (NAN, 2.0)]
    with stator.config.patch(skip_unprofitable=False):
        for left, right in calls * 2:
            expected, found = program(left, right, x), compiled(left, right, x)
            assert repr(found) == repr(expected), (left, right)
