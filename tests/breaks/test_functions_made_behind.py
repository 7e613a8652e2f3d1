"""Functions that a trace makes behind a graph break share the namespace of the one that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from differential.support import api
from torch import Tensor

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
