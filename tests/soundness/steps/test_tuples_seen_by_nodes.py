"""Tuples that are written before code of the program's own runs within a node: each call makes its own ones, and all who
hold one hold the same."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .within_nodes import Doubled

Program = Callable[[Tensor, Any], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@program
def of_constants(x: Tensor, s: Any) -> Any:
    kept = (s.name, "seen")
    s.log.append(kept)
    return Doubled.apply(x), kept


@program
def out_of_the_code(x: Tensor, s: Any) -> Any:
    kept = (1, 2)
    s.log.append(kept)
    s.last = kept
    return Doubled.apply(x), kept


@program
def of_tensors(x: Tensor, s: Any) -> Any:
    kept = (x, s.name)
    s.last = kept
    s.log.append(kept)
    return Doubled.apply(x), kept


@program
def within_another(x: Tensor, s: Any) -> Any:
    inner = ("in", s.name)
    s.log.append((inner, x))
    s.table["inner"] = inner
    return Doubled.apply(x), inner


@program
def from_outside(x: Tensor, s: Any) -> Any:
    s.last = s.pair
    s.log.append((s.pair, 1))
    return Doubled.apply(x), s.pair


@program
def written_later_too(x: Tensor, s: Any) -> Any:
    kept = ("first", s.name)
    s.log.append(kept)
    y = Doubled.apply(x)
    s.table["later"] = kept
    return y, kept


@program
def of_nothing(x: Tensor, s: Any) -> Any:
    s.log.append(())
    s.last = ()
    return Doubled.apply(x), ()


@program
def taken_apart_later(x: Tensor, s: Any) -> Any:
    kept = (x + 1, x + 2)
    s.log.append(kept)
    y = Doubled.apply(x)
    first, second = kept
    return torch.stack(kept) + y, (first, second, kept)


def who_is_who(function: Program) -> tuple[list[int], list[Any]]:
    """Which of the objects that were left are one; and values."""
    state = types.SimpleNamespace(log=[], table={}, last=None, name="a", pair=("a", "pair"))
    left: list[Any] = []
    values: list[Any] = []
    for call in range(6):
        if call == 3:
            state.name = "b"
        if call == 4:
            state.pair = ("another", "pair")
        x = torch.full((2,), float(call), requires_grad=True)
        y, kept = function(x, state)
        y.sum().backward()
        values += [y.detach(), x.grad]
        held = [kept, state.last, *state.table.values(), *state.log]
        for it in held:
            left += [it, *(it if isinstance(it, tuple) else ())]
    places: dict[int, int] = {}
    tuples = [it for it in left if isinstance(it, tuple)]
    return [places.setdefault(id(it), len(places)) for it in tuples], values


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("skips", [False, True])
def test_each_call_makes_its_own(name: str, skips: bool) -> None:
    function = PROGRAMS[name]
    expected, values = who_is_who(function)
    with stator.config.patch(skip_unprofitable=skips):
        compiled = stator.compile(function, backend="eager")
        found, results = who_is_who(compiled)
    assert found == expected
    assert all(torch.equal(one, other) for one, other in zip(results, values, strict=True))
    assert stator.stats(compiled).breaks == 0
    if not skips:
        assert stator.stats(compiled).hits >= 3
