"""Members of enumerations of texts and integers as keys: a dictionary finds them by what they equal, whatever key it holds."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ..worlds import World, agree


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shade(enum.Enum):
    DARK = "dark"

    def __eq__(self, other: object) -> bool:
        return other == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class Plain(enum.Enum):
    ONE = 1


class Name(str):
    pass


TRAIN = Name("train")


def read_by_member(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d[Mode.TRAIN], x * d[Level.LOW]


def read_by_value(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d["train"], x * d[1]


def read_by_a_text_of_its_own(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d[TRAIN]


def read_by_own_equality(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d.get(Shade.DARK, 2), Shade.DARK in d


def asked(x: Tensor, d: dict[Any, Any]) -> Any:
    return Mode.EVAL in d, d.get(Level.HIGH, 3.0), d.get("eval"), 2 in d, d.get(Plain.ONE)


def written_by_value(x: Tensor, d: dict[Any, Any]) -> Any:
    before = d[Mode.TRAIN]
    d["train"] = before + 1
    d[1] = x.sum().item()
    return d[Mode.TRAIN], before, d[Level.LOW]


def written_by_member(x: Tensor, d: dict[Any, Any]) -> Any:
    before = d["train"]
    d[Mode.TRAIN] = x * 2
    d[Level.LOW] = 0.5
    return d["train"] + 1, before, d[1]


def only_written(x: Tensor, d: dict[Any, Any]) -> Any:
    d["train"] = x * 2
    return d[Mode.TRAIN] + 1, len(d)


def counted(x: Tensor, d: dict[Any, Any]) -> Any:
    d[Mode.TRAIN] += 1
    d[Level.LOW] += x.sum().item()
    return d[Mode.TRAIN], d[Level.LOW]


def taken_out(x: Tensor, d: dict[Any, Any]) -> Any:
    gone = d.pop(Mode.EVAL, None)
    d.setdefault("eval", x.sum().item())
    return gone, d[Mode.EVAL], list(d)


FUNCTIONS = [
    read_by_member,
    read_by_value,
    read_by_a_text_of_its_own,
    read_by_own_equality,
    asked,
    written_by_value,
    written_by_member,
    only_written,
    counted,
    taken_out,
]


def of_values() -> dict[Any, Any]:
    return {"train": 1.5, "eval": 2.5, "dark": 0.5, 1: 0.5, 2: 1.5}


def of_members() -> dict[Any, Any]:
    return {Mode.TRAIN: 1.5, Mode.EVAL: 2.5, Level.LOW: 0.5, Plain.ONE: 4.0}


def of_both() -> dict[Any, Any]:
    return collections.OrderedDict({"train": 1.5, Mode.EVAL: 2.5, 1: 0.5, Level.HIGH: 1.5})


def _others(world: World) -> None:
    for number, key in enumerate(list(world.args[0])):
        world.args[0][key] = number + 0.25


def _without(world: World) -> None:
    world.args[0].pop("eval", None)
    world.args[0].pop("dark", None)
    world.args[0].pop(2, None)


def _anew(world: World) -> None:
    found = {"train": 7.0, 1: 8.0, Mode.EVAL: 9.0, "dark": 3.0}
    world.args[0].clear()
    world.args[0].update(found)


@pytest.mark.parametrize("step", [_others, _without, _anew])
@pytest.mark.parametrize("make", [of_values, of_members, of_both])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_found_by_what_they_equal(
    fn: Callable[..., Any], make: Callable[[], dict[Any, Any]], step: Callable[[World], None]
) -> None:
    agree(lambda: World(fn, (make(),)), step, replays=False)


@pytest.mark.parametrize("make", [of_values, of_members])
def test_each_call_finds_what_is_there(make: Callable[[], dict[Any, Any]]) -> None:
    def changed(world: World) -> None:
        world.args[0][Mode.TRAIN] = world.args[0]["train"] + 1.0
        world.args[0][Level.LOW] += 1.0

    agree(lambda: World(read_by_member, (make(),)), *[changed] * 6, replays=False, again=1)
    agree(lambda: World(read_by_value, (make(),)), *[changed] * 6, replays=False, again=1)
    x = torch.ones(2)
    assert torch.equal(read_by_member(x, make())[0], x * 1.5)
