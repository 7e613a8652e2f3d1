"""Loops over a `weakref.WeakSet` from outside."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import Tensor

import stator


class Listener:
    """Hears of what a bus publishes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[Any] = []


class Bus:
    """Knows its listeners weakly."""

    def __init__(self, *names: str) -> None:
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self.kept = [Listener(name) for name in names]
        for listener in self.kept:
            self.listeners.add(listener)

    def publish(self, what: Any) -> list[str]:
        names = []
        for listener in sorted(self.listeners, key=lambda listener: listener.name):
            listener.heard.append(what)
            names.append(listener.name)
        return names


def program(x: Tensor, bus: Bus) -> Any:
    names = bus.publish(tuple(x.shape))
    total = sum(len(listener.name) for listener in bus.listeners)
    return names, x * total


def test_loops() -> None:
    compiled = stator.compile(program)
    plain, found = Bus("b", "a", "cc"), Bus("b", "a", "cc")
    with stator.config.patch(skip_unprofitable=False):
        for call in range(9):
            if call == 3:
                for bus in (plain, found):
                    bus.kept.append(Listener("late"))
                    bus.listeners.add(bus.kept[-1])
            if call == 5:
                for bus in (plain, found):
                    bus.kept.pop(0)
                gc.collect()
            if call == 7:
                for bus in (plain, found):
                    bus.kept[0].name = "z"
            x = torch.ones(2 + call % 2)
            expected, result = program(x, plain), compiled(x, found)
            assert expected[0] == result[0], call
            assert torch.equal(expected[1], result[1]), call
            assert [it.heard for it in plain.kept] == [it.heard for it in found.kept]
    stats = stator.stats(compiled)
    assert stats.hits
    assert stats.breaks == 0, stats.reason


def test_nobody_is_kept_alive() -> None:
    compiled = stator.compile(program)
    bus = Bus("a", "b")
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(torch.ones(2), bus)
        known = [weakref.ref(listener) for listener in bus.kept]
        bus.kept.clear()
        gc.collect()
        assert [it() for it in known] == [None, None]
        assert compiled(torch.ones(2), bus)[0] == []
