"""Functions that get the keys of a dictionary look at no value: what those are may differ from call to call."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import same

State = dict[str, Any]
Program = Callable[[Tensor, int, State], Any]
PROGRAMS: list[Program] = []


def kept(program: Program) -> Program:
    PROGRAMS.append(program)
    return program


class Sorted(dict[str, list[float]]):
    """It is gone over in another order."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.keys()))


def grow(x: Tensor, lists: dict[str, list[float]]) -> None:
    for name, value in zip("ba", x.tolist(), strict=False):
        lists[name].append(value)


@kept
def listed(x: Tensor, n: int, state: State) -> Any:
    grow(x, state["plain"])
    return list(state["plain"]), tuple(state["plain"]), x * 2


@kept
def ordered(x: Tensor, n: int, state: State) -> Any:
    grow(x, state["plain"])
    return sorted(state["plain"]), min(state["plain"]), max(state["plain"]), x * n


@kept
def greatest(x: Tensor, n: int, state: State) -> Any:
    grow(x, state["plain"])
    best = max(state["plain"], key=lambda name: state["plain"][name][-1])
    return best, sorted(state["plain"], key=lambda name: -state["plain"][name][-1]), x * 2


@kept
def of_a_defaultdict(x: Tensor, n: int, state: State) -> Any:
    grow(x, state["default"])
    best = min(state["default"], key=lambda name: state["default"][name][-1])
    return best, list(state["default"]), x + 1


@kept
def of_an_ordered_dict(x: Tensor, n: int, state: State) -> Any:
    grow(x, state["ordered"])
    state["ordered"].move_to_end("ab"[n % 2])
    return list(state["ordered"]), sorted(state["ordered"]), x + 1


@kept
def of_its_own_order(x: Tensor, n: int, state: State) -> Any:
    grow(x, state["own"])
    return list(state["own"]), max(state["own"]), tuple(state["own"]), x + 1


@kept
def of_a_new_one(x: Tensor, n: int, state: State) -> Any:
    found = {"b": x.sum().item(), "a": float(n)}
    found["c"] = found["a"] + found["b"]
    return list(found), sorted(found), max(found, key=lambda name: found[name])


@kept
def of_numbers(x: Tensor, n: int, state: State) -> Any:
    state["numbers"][n % 3] = x.sum().item()
    found = {n: x.mean().item(), 7: 1.0}
    return list(state["numbers"]), max(state["numbers"]), sorted(found), list(found)


@kept
def with_none(x: Tensor, n: int, state: State) -> Any:
    empty: dict[str, int] = {}
    try:
        return max(empty), x
    except ValueError as error:
        return str(error), list(empty), x + 1


@kept
def without_order(x: Tensor, n: int, state: State) -> Any:
    try:
        return sorted({"a": x, 1: x}), x  # type: ignore[type-var]
    except TypeError as error:
        return str(error), x + 1


def fresh() -> State:
    return {
        "plain": {"b": [], "a": []},
        "default": collections.defaultdict(list),
        "ordered": collections.OrderedDict(b=[], a=[]),
        "own": Sorted(b=[], a=[]),
        "numbers": {},
    }


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_equal_plain_python(program: Program, floor: bool) -> None:
    compiled = api.compile(program, recompile_limit=64)
    ours, theirs = fresh(), fresh()
    with stator.config.patch(skip_unprofitable=floor):
        for call in range(18):
            for state in (ours, theirs):
                if call == 8:
                    state["plain"]["c"] = [100.0]
                    state["default"]["c"] = [-1.0]
                if call == 12:
                    state["plain"]["b"] = state["plain"].pop("b")
                    del state["default"]["c"]
            x = torch.tensor([0.5 * call, 3.0 - call])
            n = (call * 5 + call // 4) % 4
            assert same(compiled(x, n, ours), program(x, n, theirs)), call
            for name, held in ours.items():
                assert list(held.items()) == list(theirs[name].items())


@pytest.mark.parametrize("program", [listed, ordered, greatest, of_a_defaultdict])
def test_one_trace(program: Program) -> None:
    compiled = api.compile(program)
    state = fresh()
    state["default"].update(b=[], a=[])
    with stator.config.patch(skip_unprofitable=False):
        for call in range(12):
            compiled(torch.tensor([2.0 + call, 1.0]), 2, state)
    assert api.traces(compiled) <= 2 and api.breaks(compiled) == 0, api.reason(compiled)
