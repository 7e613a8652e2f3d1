"""Iterators of the caller's: recorded, replayed, and behind a change, calls do what plain Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

from .outside_iterators import BREAK, CALLS, PROGRAMS, Program
from .results import copied, same


def outcomes(call: Callable[..., Any], world: Program) -> list[Any]:
    found = []
    for number in range(CALLS):
        given = world.given(number)
        try:
            result = copied(call(torch.arange(3.0) + number, *given))
        except Exception as error:
            result = type(error).__name__, str(error)
        found.append([result, copied(world.left())])
    return found


def check(make: Callable[[], Program]) -> Any:
    """Two equal worlds, one plain and one compiled, give the same at each call."""
    plain, ours = make(), make()
    compiled = stator.compile(ours.fn)
    with stator.config.patch(skip_unprofitable=False):
        found = outcomes(compiled, ours)
    for number, (one, other) in enumerate(zip(outcomes(plain.fn, plain), found, strict=True)):
        assert same(one, other), (number, one, other)
    return stator.stats(compiled)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_plain_python(name: str) -> None:
    stats = check(PROGRAMS[name])
    assert stats.native == 0 and stats.hits > 0
    assert (stats.breaks > 0) == (name in BREAK), stats.reason
