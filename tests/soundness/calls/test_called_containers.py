"""Calls of containers whose class has a `__call__`: lists of steps, as text generators have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe, Steps, flip, two_worlds

X = torch.arange(3.0)


class Doubled:
    def __call__(self, x: Tensor) -> Tensor:
        return x * 2


class Listed(list[Any]):
    def __call__(self, x: Tensor, *, more: int = 1) -> Tensor:
        for step in self:
            x = step(x)
        return x * more


class Chosen(set[int]):
    def __call__(self, x: Tensor) -> Tensor:
        return x + len(self)


class Fixed(frozenset[int]):
    def __call__(self, x: Tensor) -> Tensor:
        return x + len(self)


class Paired(tuple[Any, ...]):
    def __call__(self, x: Tensor) -> Tensor:
        return x + self[0]


class Mapped(dict[str, int]):
    def __call__(self, x: Tensor) -> Tensor:
        return x + self["a"]


MADE: list[Callable[[], Any]] = [
    lambda: Listed([Doubled()]),
    lambda: Paired([3]),
    lambda: Mapped(a=4),
]
SETS: list[Callable[[], Any]] = [lambda: Chosen([1, 2]), lambda: Fixed([1, 2])]


@pytest.mark.parametrize("make", MADE + SETS)
@pytest.mark.parametrize("is_outside", [False, True])
def test_containers_are_called(make: Callable[[], Any], is_outside: bool) -> None:
    api.reset()
    outside = make()
    probe = Probe((lambda x: outside(x)) if is_outside else (lambda x: make()(x)))
    for number in range(3):
        probe.right(X + number)
    assert make in SETS or api.breaks(probe.compiled) in (None, 0)


@flip
def test_an_outside_list_is_called_with_what_it_holds() -> Steps:
    steps = Listed([Doubled()])
    yield lambda x: steps(x, more=3), (X,)
    steps.append(Doubled())
    yield ()
    steps.pop()


@flip
def test_the_method_of_the_class_is_guarded() -> Steps:
    class Own(list[Any]):
        def __call__(self, x: Tensor) -> Tensor:
            return x + len(self)

    own, before = Own([1]), Own.__call__
    yield lambda x: own(x), (X,)
    Own.__call__ = lambda self, x: x - len(self)  # type: ignore[method-assign]
    yield ()
    Own.__call__ = before  # type: ignore[method-assign]


@flip
def test_a_list_of_another_class_is_called_by_that() -> Steps:
    class Other(Listed):
        def __call__(self, x: Tensor, *, more: int = 1) -> Tensor:
            return super().__call__(x, more=more) + 1

    held = {"steps": Listed([Doubled()])}
    yield lambda x: held["steps"](x), (X,)
    before, held["steps"] = held["steps"], Other([Doubled()])
    yield ()
    held["steps"] = before


@two_worlds
def test_a_call_that_changes_its_list() -> Steps:
    class Counted(list[int]):
        def __call__(self, x: Tensor) -> tuple[Tensor, int]:
            self.append(len(self))
            return x + len(self), len(self)

    counted = Counted()
    yield lambda x: (counted(x), list(counted)), (X,)
    counted.clear()
    yield ()


def test_a_container_without_the_method_raises() -> None:
    plain: Any = [1]
    probe = Probe(lambda x: plain(x))
    probe.right(X)
    probe.right(X)
