"""Functions that a trace makes behind a graph break share the namespace of the one that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

counter = 0


def step(x: Tensor) -> tuple[Tensor, Callable[[int], int]]:
    x = x + len(x.tolist())

    def add(amount: int) -> int:
        global counter
        counter += amount
        return counter

    return x * 2, add


def test_globals_are_those_of_the_module() -> None:
    global counter
    told: list[list[Any]] = []
    compiled = api.compile(step, backend="eager")
    for called in (step, compiled):
        counter = 0
        told.append([])
        for _ in range(3):
            result, add = called(torch.ones(2))
            counter += 100
            told[-1].append((result.tolist(), add(1), counter, add.__globals__ is globals()))
    assert told[0] == told[1]
    # What is behind the break is a trace as well.
    assert "in the result" not in (api.reason(compiled) or "")


def listed(x: Tensor) -> Any:
    numbers = [x[0].item()] if x.sum() > 0 else [x[1].item(), 2.0]
    return [abs(number) for number in numbers], x + 1


def by_keys(x: Tensor) -> Any:
    found: dict[str, list[Any]] = {}
    for number in x.tolist():
        found.setdefault("positive" if number > 0 else "other", []).append(number)
    return {key: sum(numbers) / len(numbers) for key, numbers in found.items()}


def summed(x: Tensor) -> Any:
    factor = 2 if x.sum() > 0 else 3
    return sum(abs(part) * factor for part in x.unbind())


def called(x: Tensor) -> Any:
    factor = 2 if x.sum() > 0 else 3

    def scaled(part: Tensor) -> Any:
        return abs(part) * factor + len(part)

    return scaled(x), counter


def behind_a_break(x: Tensor) -> Any:
    stator.graph_break()
    return [abs(part) for part in x.unbind()], {len(part.shape) for part in (x, x[0])}


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(listed, 0), (by_keys, 0), (summed, 0), (called, 0), (behind_a_break, 1)],
)
def test_builtins_are_found_behind_ways_out(function: Callable[[Tensor], Any], breaks: int) -> None:
    compiled = api.compile(function, recompile_limit=32)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(24):
            x = torch.randn(3, generator=torch.Generator().manual_seed(call % 9))
            assert repr(compiled(x)) == repr(function(x)), call
    assert api.breaks(compiled) == breaks, api.reason(compiled)


def test_a_builtin_that_is_hidden_later() -> None:
    def abs_of_each(x: Tensor) -> Any:
        factor = 2 if x.sum() > 0 else 3
        return [abs(part) * factor for part in x.unbind()]

    compiled = api.compile(abs_of_each)
    rows = [torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0])]
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            for x in rows:
                assert repr(compiled(x)) == repr(abs_of_each(x))
        globals()["abs"] = torch.neg
        try:
            for _ in range(3):
                for x in rows:
                    assert repr(compiled(x)) == repr(
                        [-part * (2 if x is rows[0] else 3) for part in x]
                    )
        finally:
            del globals()["abs"]
        for x in rows:
            assert repr(compiled(x)) == repr(abs_of_each(x))
