"""Members of flags that nobody has asked for before: the library makes them, and keeps them in the class."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


@pytest.fixture(autouse=True)
def replays_whatever_it_costs() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


def make(kind: Any) -> Any:
    return kind("Access", ["READ", "WRITE", "RUN", "SHARE"])


@pytest.mark.parametrize("kind", [enum.Flag, enum.IntFlag], ids=lambda it: it.__name__)
def test_members_by_their_value(kind: Any) -> None:
    def program(access: Any, x: Tensor, mask: int) -> Any:
        flags = access(mask)
        if access.WRITE in flags:
            x = x * 2
        return str(flags), flags.value, [flag.name for flag in access if flag in flags], x

    compiled = stator.compile(program)
    plain, found = make(kind), make(kind)
    for mask in (3, 3, 3, 5, 5, 15, 3, 1):
        expected = program(plain, torch.ones(2), mask)
        result = compiled(found, torch.ones(2), mask)
        assert expected[:3] == result[:3] and torch.equal(expected[3], result[3])
        assert sorted(found._value2member_map_) == sorted(plain._value2member_map_)
        assert found(mask) is found(mask)
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
    assert stator.stats(compiled).hits


@pytest.mark.parametrize("kind", [enum.Flag, enum.IntFlag], ids=lambda it: it.__name__)
def test_members_by_operators(kind: Any) -> None:
    plain, found = make(kind), make(kind)

    def program(access: Any, x: Tensor) -> Any:
        both = access.READ | access.RUN
        rest = both ^ access.SHARE
        less = rest & ~access.READ
        return str(both), str(rest), str(less), both is access.RUN | access.READ, x * less.value

    compiled = stator.compile(program)
    for _ in range(4):
        expected, result = program(plain, torch.ones(2)), compiled(found, torch.ones(2))
        assert expected[:4] == result[:4] and torch.equal(expected[4], result[4])
    assert sorted(found._value2member_map_) == sorted(plain._value2member_map_)
    assert stator.stats(compiled).hits


def test_what_is_no_member() -> None:
    def program(access: Any, x: Tensor, mask: int) -> Any:
        try:
            return str(access(mask)), x + 1
        except ValueError as error:
            return str(error), x

    compiled = stator.compile(program)
    access = make(enum.Flag)
    for mask in (64, 64, 3, 64, 3, 3):
        expected, result = (
            program(access, torch.ones(2), mask),
            compiled(access, torch.ones(2), mask),
        )
        assert expected[0] == result[0] and torch.equal(expected[1], result[1])


def test_own_ways_to_make_members() -> None:
    """What a class does itself happens where it does it."""
    made: list[int] = []

    class Access(enum.IntFlag):
        READ = 1
        WRITE = 2

        @classmethod
        def _missing_(cls, value: Any) -> Any:
            made.append(value)
            return super()._missing_(value)

    def program(x: Tensor, mask: int) -> Any:
        before = len(made)
        flags = Access(mask)
        return before, len(made), str(flags), x + flags.value

    compiled = stator.compile(program)
    assert compiled(torch.ones(2), 3)[:3] == (0, 1, "3")
    for _ in range(3):
        assert compiled(torch.ones(2), 3)[:3] == (1, 1, "3")
    assert made == [3]
