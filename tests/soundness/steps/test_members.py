"""Members of enumerations as keys of dictionaries that are written, and as places in lists, deques and tensors."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import copied, same


class Split(enum.Enum):
    TRAIN = "train"
    TEST = "test"


class Phase(enum.IntEnum):
    WARM = 0
    MAIN = 1
    COOL = 2

    def __index__(self) -> int:
        raise AssertionError("C code takes the integer that a member is")


class Loud(enum.Enum):
    """Its members are equal to their texts."""

    X = "x"
    Y = "y"

    def __eq__(self, other: object) -> bool:
        return other in (self.value, self.name)

    def __hash__(self) -> int:
        return hash(self.value)


class Named(str, enum.Enum):
    X = "x"
    Y = "y"


class Noting(list[Any]):
    """It tells the types of its keys."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, (type(key).__name__, value))


State = dict[str, Any]
Program = Callable[[Tensor, int, State], Any]
PROGRAMS: list[Program] = []
# Those that break the graph.
CUT: list[Program] = []


def kept(program: Program) -> Program:
    PROGRAMS.append(program)
    return program


def cut(program: Program) -> Program:
    CUT.append(program)
    return program


@kept
def counted(x: Tensor, n: int, state: State) -> Any:
    split = list(Split)[n % 2]
    state["counts"][split] += 1
    state["losses"][split] = x.sum().item()
    return state["counts"][Split.TRAIN], dict(state["losses"]), x * 2


@kept
def deleted(x: Tensor, n: int, state: State) -> Any:
    state["losses"][Split.TEST] = x.mean().item() * n
    state["losses"].pop(Split.TRAIN, None)
    first = list(state["losses"])
    state["losses"][Split.TRAIN] = n
    del state["losses"][Split.TEST]
    return first, list(state["losses"]), x + 1


@kept
def placed(x: Tensor, n: int, state: State) -> Any:
    phase = Phase(n % 3)
    state["seen"][phase] += 1
    state["last"][phase] = x[phase].item()
    y = x.clone()
    y[phase] = 0.0
    return y, x[phase], x[[0, 1]][Phase.MAIN], list(state["last"])


@kept
def left_out(x: Tensor, n: int, state: State) -> Any:
    state["grown"].extend([n, n, n])
    del state["grown"][Phase.MAIN]
    return len(state["grown"]), x * n


@cut
def placed_in_tuples(x: Tensor, n: int, state: State) -> Any:
    y = torch.stack([x, x * 2])
    y[Phase(n % 2), ...] += 1
    return y, y[Phase(n % 2), Phase.COOL]


@cut
def told(x: Tensor, n: int, state: State) -> Any:
    state["noting"][Phase(n % 3)] = x.sum().item()
    return x * 2


@cut
def equal_to_texts(x: Tensor, n: int, state: State) -> Any:
    state["texts"][[Loud.X, Loud.Y][n % 2]] = x.sum().item()
    state["texts"][[Named.X, Named.Y][n % 2]] = n
    return list(state["texts"]), state["texts"]["x"], x * 2


def fresh() -> State:
    return {
        "counts": dict.fromkeys(Split, 0),
        "losses": {},
        "seen": [0, 0, 0],
        "last": collections.deque([0.0, 0.0, 0.0]),
        "grown": [],
        "noting": Noting([0, 0, 0]),
        "texts": {"x": 0, "y": 0},
    }


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("program", [*PROGRAMS, *CUT], ids=lambda program: program.__name__)
def test_equal_plain_python(program: Program, floor: bool) -> None:
    compiled = api.compile(program, recompile_limit=64)
    ours, theirs = fresh(), fresh()
    with stator.config.patch(skip_unprofitable=floor):
        for call in range(18):
            x = torch.tensor([0.5 * call, -1.0, float(call % 4)])
            n = (call * 5 + call // 4) % 6
            assert same(compiled(x, n, ours), program(x, n, theirs)), call
            assert same(copied(list(map(list, ours.values()))), list(map(list, theirs.values())))
            assert same(list(ours["counts"].values()), list(theirs["counts"].values()))
            assert same(list(ours["losses"].values()), list(theirs["losses"].values()))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_break(program: Program) -> None:
    compiled = api.compile(program, recompile_limit=64)
    state = fresh()
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            compiled(torch.tensor([0.5 * call, -1.0, 2.0]), call % 2, state)
    assert api.breaks(compiled) == 0, api.reason(compiled)


def test_a_class_that_changes() -> None:
    class Way(enum.Enum):
        LEFT = 1
        RIGHT = 2

    def program(x: Tensor, counts: dict[Any, Any]) -> Any:
        counts[Way.LEFT] = x.sum().item()
        return x * 2

    compiled = stator.compile(program)
    ours: dict[Any, Any] = {Way.LEFT: 0.0, "left": 0.0}
    theirs = dict(ours)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            if call == 4:
                Way.__hash__ = lambda way: hash("left")  # type: ignore[method-assign]
                Way.__eq__ = lambda way, other: other == "left"  # type: ignore[method-assign]
            x = torch.tensor([1.0, float(call)])
            assert same(compiled(x, ours), program(x, theirs))
            assert list(map(repr, ours.items())) == list(map(repr, theirs.items())), call
