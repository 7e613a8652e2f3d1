"""Attributes of classes that count calls are carried as numbers of instances are: a few traces serve all calls."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import stator


def classes() -> dict[str, Any]:
    """New ones for each run, with what they counted."""

    class Base(nn.Module):
        calls = 0
        seconds = 0.0
        seen: ClassVar[dict[str, int]] = {}
        recent: ClassVar[list[int]] = []

        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    class Middle(Base):
        pass

    class Sub(Middle):
        own = 1

    return {"Base": Base, "Middle": Middle, "Sub": Sub, "sub": Sub(), "base": Base()}


def named(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x + 1, of["Base"].calls


def of_the_type(x: Tensor, of: dict[str, Any]) -> Any:
    type(of["sub"]).calls += 1
    return x * 2, type(of["sub"]).calls, of["Base"].calls


def computed_with(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 2
    of["Base"].seconds += 0.25
    return x * of["base"].calls + of["base"].seconds


def read_through_a_subclass(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x * of["sub"].calls, of["Sub"].calls, of["Middle"].calls


def read_before_and_after(x: Tensor, of: dict[str, Any]) -> Any:
    before = of["sub"].calls
    of["Base"].calls = before + 3
    return x + before, of["sub"].calls, of["Base"].calls


def two_written(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    of["Middle"].calls = of["Base"].calls * 2
    return x + of["sub"].calls, of["Base"].calls


def by_name(x: Tensor, of: dict[str, Any]) -> Any:
    name = "".join(["ca", "lls"])
    setattr(of["Base"], name, getattr(of["Base"], name) + 1)
    return x + of["Base"].calls, of["sub"].calls


def by_a_getter(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x, operator.attrgetter("calls")(of["Base"])


def in_a_registry(x: Tensor, of: dict[str, Any]) -> Any:
    cls = type(of["sub"])
    cls.seen["forward"] = cls.seen.get("forward", 0) + 1
    return x, cls.seen["forward"], of["Base"].seen["forward"] * 2


def spelt(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x, f"call {of['Base'].calls}"


def every_third(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x * 3 if of["Base"].calls % 3 == 0 else x


def sized(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x.new_ones(of["Base"].calls % 4 + 2).sum() + x


def kept(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    of["Base"].last = of["Base"].calls
    of["Base"].recent.append(of["Base"].last)
    return x, of["Base"].last is of["Base"].calls, len(of["Base"].recent)


def looked_up(x: Tensor, of: dict[str, Any]) -> Any:
    of["Base"].calls += 1
    return x + (1, 2, 3, 4)[of["sub"].calls % 4], range(of["Base"].calls)[-1]


CARRIED = (
    named,
    of_the_type,
    computed_with,
    read_through_a_subclass,
    read_before_and_after,
    two_written,
    by_name,
    in_a_registry,
    spelt,
    every_third,
)
OTHERS = (by_a_getter, sized, kept, looked_up)


def state(of: dict[str, Any]) -> list[Any]:
    names = ("calls", "seconds", "last", "seen", "recent")
    own = [(kind, name, vars(of[kind]).get(name)) for kind in ("Base", "Sub") for name in names]
    return [*own, [(type(value), value) for _, _, value in own]]


def untouched(of: dict[str, Any]) -> None:
    pass


def raised(of: dict[str, Any]) -> None:
    of["Base"].calls += 100


def made_a_float(of: dict[str, Any]) -> None:
    of["Base"].calls = 7.5


def hidden(of: dict[str, Any]) -> None:
    of["Middle"].calls = 50


def rebased(of: dict[str, Any]) -> None:
    other = type("Other", (of["Base"],), {"calls": 9})
    of["Sub"].__bases__ = (other,)


def uncovered(of: dict[str, Any]) -> None:
    if "calls" in vars(of["Middle"]):
        del of["Middle"].calls


CHANGES = (untouched, raised, made_a_float, hidden, rebased, uncovered)


def play(fn: Callable[..., Any], change: Callable[..., None]) -> list[Any]:
    of, shown = classes(), []
    for index in range(14):
        if index == 9:
            change(of)
        try:
            result = fn(torch.arange(3.0) + index, of)
        except (TypeError, IndexError) as error:
            result = (type(error), str(error))
        parts = result if isinstance(result, tuple) else (result,)
        shown.append([part.tolist() if isinstance(part, Tensor) else part for part in parts])
        shown.append(repr(state(of)))
    return shown


@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("fn", CARRIED + OTHERS, ids=lambda fn: fn.__name__)
def test_class_counters(fn: Callable[..., Any], change: Callable[..., None]) -> None:
    plain = play(fn, change)
    assert play(stator.compile(fn), change) == plain
    with stator.config.patch(skip_unprofitable=False, strict=True):
        compiled = stator.compile(fn)
        assert play(compiled, change) == plain
    if change is untouched and fn in CARRIED:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.traces) <= (0, 3), stats
        assert stats.hits >= 10
