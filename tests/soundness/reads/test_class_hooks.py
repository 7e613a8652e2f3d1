"""`__subclasshook__`, which a metaclass in Python asks: abstract classes remember its answers."""

from __future__ import annotations

import abc
import types
from typing import Any

import torch
from torch import Tensor

import stator

X = torch.ones(2)


class Asking(abc.ABCMeta):
    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, other: type) -> bool:
        return super().__subclasscheck__(other)


elsewhere = types.ModuleType("elsewhere")
exec(
    "LEAST = 1\n"
    "@classmethod\n"
    "def hook(cls, other):\n"
    "    ASKED.append(other.__name__)\n"
    "    return sum('shape' in base.__dict__ for base in other.__mro__) >= LEAST\n",
    vars(elsewhere),
)
vars(elsewhere)["ASKED"] = []


def make_shaped() -> type:
    return Asking("Shaped", (), {"__subclasshook__": vars(elsewhere)["hook"]})


class Round:
    shape = 3


class Flat: ...


def scaled(x: Tensor, shaped: type, one: Any) -> Tensor:
    return x * 2 if isinstance(one, shaped) else x * 3


def play(call: Any) -> list[Any]:
    asked, shaped = vars(elsewhere)["ASKED"], make_shaped()
    asked.clear()
    played = []
    for turn in range(12):
        if turn == 6:
            # What the class remembers stands.
            vars(elsewhere)["LEAST"] = 5
        if turn == 9:
            shaped = make_shaped()
        if turn == 10:
            shaped.__subclasshook__ = lambda other: other is Flat  # type: ignore[method-assign]
        one = Round() if turn % 3 < 2 else Flat()
        played.append(call(X, shaped, one).tolist())
    vars(elsewhere)["LEAST"] = 1
    return [*played, *asked]


def test_a_hook_is_asked_as_often_as_in_plain_python() -> None:
    compiled = stator.compile(scaled)
    plain = play(scaled)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert play(compiled) == plain


def test_a_hook_breaks_no_graph() -> None:
    compiled, shaped = stator.compile(scaled), make_shaped()
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            assert torch.equal(compiled(X, shaped, Round()), X * 2)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits, stats.breaks) == (1, 3, 0), stats.reason
