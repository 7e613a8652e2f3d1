"""Classes whose behaviour is C code's: attributes of threads, metaclasses that call `type`, properties that fail."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stator import _testing

from ..objects import X
from ..probe import Probe, Steps, right_after
from ..worlds import World, agree


def test_attributes_of_a_thread() -> None:
    def make() -> World:
        local = threading.local()
        local.n = 1

        def fn(x: Tensor) -> Tensor:
            local.n += 1
            local.last = x.shape
            del local.last
            return x * local.n + len(vars(local))

        return World(fn, state=lambda: vars(local), args=())

    agree(make, replays=False)


def test_attributes_of_a_thread_in_a_subclass() -> None:
    class Local(threading.local):
        step = 3

        def __init__(self) -> None:
            self.n = 1

        def advance(self) -> int:
            self.n += self.step
            return self.n

    def make() -> World:
        local = Local()
        return World(lambda x: x * local.advance(), state=lambda: vars(local))

    agree(make, replays=False)


@right_after
def test_metaclass_that_calls_type() -> Steps:
    class Meta(type):
        made = 0

        def __call__(cls, *args: Any, **named: Any) -> Any:
            return super().__call__(*args, **named)

    class Empty(metaclass=Meta):
        n = 2

    class Made(metaclass=Meta):
        def __new__(cls, n: int) -> Made:
            made = super().__new__(cls)
            made.n = n
            return made

    yield (lambda x: x * Empty().n + Made(3).n), (X,)
    Empty.n = 5
    yield None
    Meta.__call__ = lambda cls, *args: Empty.__new__(cls)  # type: ignore[method-assign]
    Made.n = 7
    yield None


class Failing(nn.Module):
    """A property that fails with `AttributeError`, so that `__getattr__` is asked."""

    @property
    def bad(self) -> int:
        raise AttributeError("inner")

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        try:
            return x, str(self.bad)
        except AttributeError as error:
            return x, str(error)


@pytest.mark.parametrize("parity", [None, 0, 1])
def test_property_that_fails_behind_a_break(parity: int | None) -> None:
    """A lookup along a class that has changed must not drop the exception that is set."""
    if parity is None:
        check_failing()
    else:
        with _testing.break_everywhere(parity):
            check_failing()


def check_failing() -> None:
    probe = Probe(Failing().forward)
    for _ in range(3):
        probe.right(torch.ones(2))
    Failing.k = 3  # type: ignore[assignment]
    for _ in range(3):
        probe.right(torch.ones(2))
