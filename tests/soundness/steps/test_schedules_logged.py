"""Rates that change from step to step, rounded for a log and copied into checkpoints: one trace serves all."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


class Schedule:
    """What a training loop changes between steps."""

    def __init__(self) -> None:
        self.lr = 0.1
        self.options = {"lr": 0.1, "betas": [0.9, 0.1], "name": "a", "nested": {"decay": 0.5}}
        self.log: list[Any] = []
        self.kept: Any = None


def rounded(state: Schedule, x: Tensor) -> Any:
    state.log.append(round(state.lr, 6))
    return x * state.lr, [round(rate, 3) for rate in (state.lr, state.lr * 2)]


def rounded_to_none(state: Schedule, x: Tensor) -> Any:
    return x * state.lr, round(state.lr, 0), round(min(state.lr, 1.0) * 100)


def decided(state: Schedule, x: Tensor) -> Any:
    return x * 2 if round(state.lr, 2) > 0.05 else x * 3


def as_key(state: Schedule, x: Tensor) -> Any:
    return x, {round(state.lr, 2): 1}, f"{round(state.lr, 4)}"


def checkpoint(state: Schedule, x: Tensor) -> Any:
    state.kept = copy.deepcopy(state.options)
    state.kept["epoch"] = len(state.log)
    return x * state.kept["lr"], state.kept["nested"] is state.options["nested"]


def checkpoint_of_its_own(state: Schedule, x: Tensor) -> Any:
    state.kept = copy.deepcopy({"lr": state.lr, "all": [state.lr * 2, state.options]})
    state.options["lr"] += 1.0
    return x * state.kept["lr"], state.kept["all"][1]["lr"]


def checkpoint_of_what_was_read(state: Schedule, x: Tensor) -> Any:
    state.kept = copy.deepcopy({"loss": x.sum().item(), "options": state.options})
    return x, state.kept["loss"] * 2


def of_an_object(state: Schedule, x: Tensor) -> Any:
    other = copy.deepcopy(state)
    other.lr *= 2
    return x * other.lr, state.lr, other.options


ONE_TRACE = {
    rounded,
    rounded_to_none,
    checkpoint,
    checkpoint_of_its_own,
    checkpoint_of_what_was_read,
}
PROGRAMS: list[Callable[..., Any]] = [*ONE_TRACE, decided, as_key, of_an_object]


def change(state: Schedule, call: int) -> None:
    state.lr *= 0.7
    state.options["lr"] = state.lr
    state.options["nested"]["decay"] += 0.25  # type: ignore[index]
    state.options["betas"][1] *= 0.5  # type: ignore[index]
    if call == 9:
        state.lr = math.inf
    if call == 10:
        state.lr = 0.1


@pytest.mark.parametrize("fn", sorted(PROGRAMS, key=lambda fn: fn.__name__))
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_rates(fn: Callable[..., Any], dynamic: bool | None) -> None:
    plain, found = Schedule(), Schedule()
    compiled = stator.compile(fn, dynamic=dynamic)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=16):
        for call in range(14):
            x = torch.full((2,), 1.0 + call)
            assert same(copied(fn(plain, x)), copied(compiled(found, x))), call
            assert same(copied(vars(plain)), copied(vars(found))), call
            for state in (plain, found):
                change(state, call)
    if fn in ONE_TRACE and dynamic is None:
        stats = stator.stats(compiled)
        assert stats.breaks == 0 and stats.traces <= 5, stats
