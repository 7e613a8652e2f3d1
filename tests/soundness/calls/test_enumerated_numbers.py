"""`int()`, `float()` and such of members of `IntEnum` and `IntFlag`, also where the class has methods of its own for it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


def world() -> dict[str, Any]:
    class Level(enum.IntEnum):
        LOW = 2
        HIGH = 5

    class Way(enum.IntFlag):
        NONE = 0
        LEFT = 1
        RIGHT = 2

    class Own(enum.IntEnum):
        A = 3

        def __int__(self) -> int:
            return 10 + scale[0]

        def __float__(self) -> float:
            return 0.5 + scale[0]

    scale = [1]
    return {"level": Level.LOW, "way": Way.LEFT | Way.RIGHT, "own": Own.A, "scale": scale}


def as_int(x: Tensor, of: dict[str, Any]) -> Any:
    return x * int(of["level"]) + int(of["way"]), int(of["level"])


def as_float(x: Tensor, of: dict[str, Any]) -> Any:
    return x * float(of["level"]), float(of["way"]), complex(of["level"])


def arithmetic(x: Tensor, of: dict[str, Any]) -> Any:
    level = of["level"]
    return x + abs(level), round(level), divmod(level, 2), pow(level, 2), bool(of["way"])


def combined(x: Tensor, of: dict[str, Any]) -> Any:
    way = of["way"] ^ type(of["way"]).LEFT
    return x + int(way | type(way).LEFT), int(way), repr(way)


def of_its_own(x: Tensor, of: dict[str, Any]) -> Any:
    return x * int(of["own"]), float(of["own"]), abs(of["own"])


def other_member(of: dict[str, Any]) -> None:
    of["level"] = type(of["level"]).HIGH
    of["way"] = type(of["way"])(2)


def other_type(of: dict[str, Any]) -> None:
    of["level"] = 4
    of["way"] = type(of["level"])(1) if isinstance(of["level"], enum.Enum) else True


def method_later(of: dict[str, Any]) -> None:
    kind = type(of["level"])
    if isinstance(of["level"], enum.Enum):
        type.__setattr__(kind, "__int__", lambda self: 77)
        type.__setattr__(kind, "__float__", lambda self: 7.5)
        type.__setattr__(kind, "__abs__", lambda self: 70)
    of["scale"][0] += 1


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("change", [other_member, other_type, method_later])
@pytest.mark.parametrize("fn", [as_int, as_float, arithmetic, combined, of_its_own])
def test_enumerated_numbers(
    fn: Callable[..., Any], change: Callable[..., None], forced: bool
) -> None:
    def play(call: Callable[..., Any]) -> list[Any]:
        of, shown = world(), []
        for index in range(8):
            if index in (4, 6):
                change(of)
            try:
                first, *others = call(torch.arange(3.0), of)
                shown.append([first.tolist(), *map(repr, others)])
            except (TypeError, AttributeError) as error:
                shown.append([str(error)])
        return shown

    plain = play(fn)
    with stator.config.patch(skip_unprofitable=not forced, strict=forced):
        compiled = stator.compile(fn)
        assert play(compiled) == plain
    if forced and change is other_member and fn is not of_its_own:
        assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
