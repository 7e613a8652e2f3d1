"""Dictionaries filled by `zip` with a generator, and the greatest key of one that isn't a plain `dict`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import copied, same

State = dict[str, Any]
Program = Callable[[Tensor, int, State], Any]
PROGRAMS: list[Program] = []
CUT: list[Program] = []


def kept(program: Program) -> Program:
    PROGRAMS.append(program)
    return program


def cut(program: Program) -> Program:
    CUT.append(program)
    return program


class Backwards(dict[str, float]):
    """It is gone over in another order."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.keys(), reverse=True))


class Key:
    """A key whose hash tells that it was asked for."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __hash__(self) -> int:
        self.log.append("hashed")
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other


@kept
def named(x: Tensor, n: int, state: State) -> Any:
    norms = dict(zip(["a", "b", "c"], (part.sum().item() for part in x.split(1)), strict=False))
    return norms, norms["a"] * n, x * 2


@kept
def taken_over(x: Tensor, n: int, state: State) -> Any:
    state["norms"].update(zip(("a", "b", "d"), (v.item() * n for v in x), strict=False))
    state["norms"].update(zip(["e"], (v.item() for v in x), strict=False))
    return list(state["norms"]), state["norms"]["d"], x + 1


@kept
def of_lists(x: Tensor, n: int, state: State) -> Any:
    for name, value in zip("abc", x.tolist(), strict=True):
        state["lists"][name] = [n, value]
    best = max(state["lists"], key=lambda name: state["lists"][name][-1])
    return best, min(state["lists"], key=lambda name: state["lists"][name][1]), x * 2


@kept
def counted(x: Tensor, n: int, state: State) -> Any:
    for name, value in zip("abc", x.tolist(), strict=True):
        state["counter"][name] += value
    ordered = sorted(state["counter"], key=state["counter"].get, reverse=True)
    return max(state["counter"], key=state["counter"].get), ordered, x * 2


@cut
def own_order(x: Tensor, n: int, state: State) -> Any:
    state["backwards"]["b"] = x.sum().item()
    best = max(state["backwards"], key=lambda name: state["backwards"][name])
    return best, max(state["backwards"], key=state["backwards"].get), x + n


@cut
def divided(x: Tensor, n: int, state: State) -> Any:
    log: list[Any] = []
    try:
        log.append(dict(zip("abc", (1 / int(v.item() > 0) for v in x), strict=False)))
    except ZeroDivisionError as error:
        log.append(str(error))
    return log, x + 1


@cut
def keys_that_tell(x: Tensor, n: int, state: State) -> Any:
    log: list[str] = []

    def values() -> Iterator[float]:
        for v in x:
            log.append("value")
            yield v.item()

    found = dict(zip([Key(log), Key(log)], values(), strict=False))
    return list(found.values()), log


@cut
def keys_that_differ(x: Tensor, n: int, state: State) -> Any:
    of_numbers = dict(zip(x.tolist(), (v.item() for v in x), strict=False))
    of_texts = dict(zip([f"{n}", "1"], (v.item() for v in x), strict=False))
    state["norms"].update(zip([f"{n}", "1"], (v.item() for v in x), strict=False))
    return of_numbers, of_texts, x * 2


@cut
def no_pairs(x: Tensor, n: int, state: State) -> Any:
    try:
        state["norms"].update(zip("ab", (v.item() for v in x), (v for v in x), strict=False))
    except ValueError as error:
        return str(error), x * 2
    return x


def fresh() -> State:
    return {
        "norms": {"a": 1.0},
        "lists": collections.defaultdict(list),
        "counter": collections.Counter(),
        "backwards": Backwards(a=2.0, b=1.0, c=2.0),
    }


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("program", [*PROGRAMS, *CUT], ids=lambda program: program.__name__)
def test_equal_plain_python(program: Program, floor: bool) -> None:
    compiled = api.compile(program, recompile_limit=64)
    ours, theirs = fresh(), fresh()
    with stator.config.patch(skip_unprofitable=floor):
        for call in range(18):
            x = torch.tensor([0.5 * call, 3.0 - call, float(call % 4)])
            assert same(compiled(x, call % 3, ours), program(x, call % 3, theirs)), call
            assert same(copied(list(map(dict, ours.values()))), list(map(dict, theirs.values())))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_break(program: Program) -> None:
    compiled = api.compile(program, recompile_limit=64)
    state = fresh()
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            compiled(torch.tensor([0.5 * call, 3.0 - call, 2.0]), 2, state)
    assert api.breaks(compiled) == 0, api.reason(compiled)
