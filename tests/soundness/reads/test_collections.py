"""A collection that is due where a recorded call begins isn't a part of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

X = torch.ones(3)


class Node:
    """A part of a cycle."""

    def __init__(self) -> None:
        self.me = self


class Noisy(Node):
    """A part of a cycle that takes note of its end."""

    ended = 0

    def __del__(self) -> None:
        Noisy.ended += 1


class Register:
    """What knows objects weakly, by functions that nobody else knows."""

    def __init__(self) -> None:
        self.references: dict[int, weakref.ref[Any]] = {}

    def add(self, node: Any) -> None:
        index = id(node)
        self.references[index] = weakref.ref(node, lambda _: self.remove(index))

    def remove(self, index: int) -> None:
        del self.references[index]


def parts(x: Tensor, factor: int) -> list[Any]:
    return [x * factor, (x, factor), {"x": x}]


def straight(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for factor in range(20):
        total = total + parts(x, factor)[0]
    return total


def decides(x: Tensor) -> Tensor:
    total = straight(x)
    if total.sum() > 0:
        total = total * 2
    return total + straight(x)


def breaks_off(x: Tensor) -> Tensor:
    total = straight(x)
    gc.is_tracked(total)
    return total + straight(x)


@pytest.mark.parametrize("is_noisy", [False, True], ids=["weakly referred to", "with a finalizer"])
@pytest.mark.parametrize("function", [straight, decides, breaks_off])
def test_garbage_is_collected_around_calls(
    function: Callable[[Tensor], Tensor], is_noisy: bool, request: pytest.FixtureRequest
) -> None:
    expected, thresholds = function(X), gc.get_threshold()
    known = api.compile(function)
    known(X)
    register = Register()
    # All that is there is passed over: each collection would take as long as the process is large.
    gc.collect()
    gc.freeze()
    request.addfinalizer(gc.unfreeze)
    for allocated in [*range(20, 36), 60]:
        compiled, ended = api.compile(function), Noisy.ended
        gc.disable()
        gc.collect()
        try:
            node: Node | None = Noisy() if is_noisy else Node()
            if not is_noisy:
                register.add(node)
            node = None
            # The collection is due somewhere between here and the recorded code.
            gc.set_threshold(32, 1, 1)
            filling = [[] for _ in range(allocated)]
            gc.enable()
            assert torch.equal(compiled(X), expected)
        finally:
            gc.enable()
            gc.set_threshold(*thresholds)
        assert api.breaks(compiled) == api.breaks(known), api.reason(compiled)
        gc.collect()
        assert len(filling) == allocated
        assert not register.references
        assert Noisy.ended == ended + is_noisy
