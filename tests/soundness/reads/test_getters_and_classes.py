"""`operator.methodcaller` with names, getters in results and behind breaks, and the length of classes."""

from __future__ import annotations

import collections
import enum
import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

ITEM = operator.itemgetter(1, 0)
PATH = operator.attrgetter("shape", "real.dtype")
SUMMED = operator.methodcaller("sum", dim=0, keepdim=True)


class Named(type):
    """A metaclass whose classes have a length, which may change."""

    names: list[str]

    def __len__(cls) -> int:
        return len(cls.names)


class Things(metaclass=Named):
    names = ["a", "b"]  # noqa: RUF012 -- changed by the tests


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    ALSO_RED = 1


class Counted:
    shown = 0

    def __init__(self, scale: int) -> None:
        self.scale = scale

    def scaled(self, x: Any, *, by: float = 1.0, add: int = 0) -> Any:
        return x * by * self.scale + add


KEPT = Counted(2)


def made_inside(x: Any) -> Any:
    call = operator.methodcaller("scaled", x, by=2.0, add=x.shape[0])
    return call(KEPT), SUMMED(x), operator.methodcaller("sum", dim=-1)(x)


def from_outside(x: Any) -> Any:
    return ITEM([x, x + 1]), PATH(x), SUMMED(x)


def behind_a_break(x: Any) -> Any:
    call = operator.methodcaller("scaled", by=3.0)
    item, path = operator.itemgetter(0), operator.attrgetter("scale")
    stator.graph_break()
    return operator.methodcaller("sum", dim=0)(item([x])), path(KEPT), call


def returned(x: Any) -> Any:
    return operator.methodcaller("scaled", x, add=3), operator.itemgetter(x), ITEM


def lengths(x: Any) -> Any:
    return len(Things), len(Color), x * len(Things)


def called_within_closures(x: Any) -> Any:
    def composed(first: Any, second: Any) -> Any:
        return lambda given: second(first(given))

    return functools.reduce(composed, [SUMMED, operator.itemgetter(0)])(x), [ITEM, SUMMED][
        0
    ] is ITEM


SET = object.__setattr__.__get__
LENGTH = list.__len__.__get__


def bound_by_slots(x: Any) -> Any:
    made = Counted(1)
    put = SET(made)
    put("scale", x.shape[0])
    SET(KEPT)("shown", made.scale)
    return made.scaled(x), LENGTH([x, x])(), KEPT.shown, list.append.__get__([1]).__name__


PROGRAMS: list[Callable[[Any], Any]] = [
    made_inside,
    from_outside,
    behind_a_break,
    lengths,
    called_within_closures,
    bound_by_slots,
]


def equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return torch.equal(found, expected)
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, operator.methodcaller):
        return type(found) is type(expected) and repr(found) == repr(expected)
    return type(found) is type(expected) and bool(found == expected)


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_getters_and_lengths(
    program: Callable[[Any], Any], forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"skip_unprofitable": False, "strict": True} if forced else {}
    compiled = stator.compile(program)
    with stator.config.patch(**settings):
        for step in range(6):
            x = torch.randn(3 + step // 3, 2)
            if step == 2:
                monkeypatch.setattr(KEPT, "scale", 5)
            if step == 4:
                monkeypatch.setattr(Things, "names", ["a", "b", "c"])
            if step == 5:
                monkeypatch.setitem(globals(), "ITEM", operator.itemgetter(0))
                monkeypatch.setitem(globals(), "SUMMED", operator.methodcaller("amax", dim=1))
            assert equal(compiled(x), program(x))
    stats = stator.stats(compiled)
    if forced and program is not behind_a_break:
        assert stats.breaks == 0, stats.reason


def test_getters_that_are_returned_are_made_anew() -> None:
    compiled = stator.compile(returned)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for step in range(4):
            x = torch.randn(2)
            call, item, outside = compiled(x)
            assert torch.equal(call(KEPT), KEPT.scaled(x, add=3))
            assert item({x: step}) == step and outside is ITEM
    assert stator.stats(compiled).breaks == 0
    assert stator.stats(compiled).hits >= 2


def test_a_metaclass_whose_length_is_defined_later() -> None:
    compiled = stator.compile(lengths)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert compiled(torch.ones(1))[0] == 2
        original = Named.__len__
        try:
            Named.__len__ = lambda cls: 7  # type: ignore[method-assign]
            assert compiled(torch.ones(1))[0] == 7
        finally:
            Named.__len__ = original  # type: ignore[method-assign]
        assert compiled(torch.ones(1))[0] == 2


FIRST = {"c": 1, "a": 2}


@pytest.mark.parametrize("forced", [False, True])
def test_ordered_keys(forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def ordered(x: Any) -> Any:
        made = collections.OrderedDict.fromkeys(FIRST, x)
        made.move_to_end("c")
        return made, list(made), x + len(made)

    compiled = stator.compile(ordered)
    settings = {"skip_unprofitable": False, "strict": True} if forced else {}
    with stator.config.patch(**settings):
        for step in range(5):
            if step == 3:
                monkeypatch.setitem(FIRST, "d", 4)
            x = torch.randn(2)
            found, expected = compiled(x), ordered(x)
            assert type(found[0]) is collections.OrderedDict and found[1] == expected[1]
            assert all(value is x for value in found[0].values())
            assert torch.equal(found[2], expected[2])
    if forced:
        assert stator.stats(compiled).breaks == 0
