"""`sum` of floats that vary, or that are read from tensors, bit by bit: from CPython 3.12 on it adds at the end what each addition rounded away."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

HUGE = 1.7976931348623157e308
SPECIAL = [0.0, -0.0, 1e16, -1e16, 1.0, 0.1, HUGE, -HUGE, float("inf"), -float("inf"), 5e-324]


def drawn(count: int, usual: bool) -> list[float]:
    if usual:
        return [random.uniform(-1, 1) * 10 ** random.randint(-9, 9) for _ in range(count)]
    return random.choices(SPECIAL, k=count)


def of_list(x: Tensor, numbers: list[float]) -> Any:
    return sum(numbers), x * sum(numbers)


def of_generator(x: Tensor, numbers: list[float]) -> Any:
    return sum(number * 0.5 for number in numbers) + x


def among_integers(x: Tensor, numbers: list[float]) -> Any:
    first, second, *rest = numbers
    n = x.shape[0]
    return (
        sum([n, first, n + 1, second, 3, *rest]),
        sum((n, first, second)),
        sum({1: first, 2: 5}.values()),
    )


def read(x: Tensor, numbers: list[float]) -> Any:
    held = torch.tensor(numbers, dtype=torch.float64)
    return sum(number.item() for number in held), sum(held.tolist()) + x


def read_among_others(x: Tensor, numbers: list[float]) -> Any:
    held = torch.tensor(numbers[:2], dtype=torch.float64)
    return x + sum([x.shape[0], *held.tolist(), *numbers[2:]])


class Meter:
    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, x: Tensor, numbers: list[float]) -> Any:
        self.seen += numbers[:1]
        return x + sum(self.seen) / len(self.seen)


FUNCTIONS = [of_list, of_generator, among_integers, read, read_among_others]


def bits(value: Any) -> str:
    if isinstance(value, Tensor):
        return repr(value.tolist())
    return repr([bits(item) for item in value]) if isinstance(value, tuple) else value.hex()


def agree(make: Callable[[], Any], usual: bool) -> Any:
    plain, compiled = make(), stator.compile(make(), recompile_limit=64)
    for n in [3, 3, 4, 3, 5] * 8:
        arguments = torch.ones(n, dtype=torch.float64), drawn(5, usual)
        assert bits(compiled(*arguments)) == bits(plain(*arguments)), arguments[1]
    return stator.stats(compiled)


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_of_varying_floats(function: Any, usual: bool) -> None:
    random.seed(1)
    stats = agree(lambda: function, usual)
    if usual:
        assert stats.native == 0 and stats.traces <= 4


@pytest.mark.parametrize("usual", [True, False])
def test_of_what_was_seen(usual: bool) -> None:
    random.seed(2)
    agree(Meter, usual)
