"""Breaks in the bodies of loops, and in what these call: the traces don't grow with the iterations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .test_special_methods import X, check


@stator.disable
def show() -> None:
    print("at", sys._getframe(1).f_lineno)


class Layer(torch.nn.Module):
    def __init__(self, scale: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4) * scale)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        show()
        return y + 1


@pytest.mark.parametrize("count", [2, 12, 30])
def test_layers_of_a_sequential_module(count: int) -> None:
    model = torch.nn.Sequential(*map(Layer, range(1, count + 1)))
    stats = check(lambda x: model(x / 100) + 1, X)
    assert (stats.graphs, stats.native, stats.hits) == (3, 0, 2)


def called(x: Tensor, other: Any) -> Tensor:
    y = x / 4 + other
    show()
    return y + 1


def loop_over(make: Callable[[Tensor], Iterable[Any]]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        for item in make(x):
            x = called(x, item[1] if isinstance(item, tuple) else item)
        return x

    return function


COUNT = 20

LOOPS: dict[str, Callable[[Tensor], Tensor]] = {
    "list": loop_over(lambda x: [x + i for i in range(COUNT)]),
    "tuple": loop_over(lambda x: tuple(x + i for i in range(COUNT))),
    "zip": loop_over(lambda x: zip([x] * COUNT, [x * 2] * COUNT, strict=True)),
    "dict values": loop_over(lambda x: {str(i): x + i for i in range(COUNT)}.values()),
    "reversed": loop_over(lambda x: reversed([x + i for i in range(COUNT)])),
}


@pytest.mark.parametrize("name", LOOPS)
def test_tensors_share_a_trace(name: str) -> None:
    stats = check(LOOPS[name], X)
    assert stats.graphs <= 4 and stats.native == 0 and stats.hits == 2, stats.graphs


NUMBERED: dict[str, Callable[[Tensor], Tensor]] = {
    "range": loop_over(lambda x: range(COUNT)),
    "enumerate": loop_over(lambda x: enumerate([x] * COUNT)),
    "dict": loop_over(lambda x: {i: x for i in range(COUNT)}),
    "dict items": loop_over(lambda x: {str(i): x + i for i in range(COUNT)}.items()),
}


@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_end_at_the_recompile_limit(name: str) -> None:
    stats = check(NUMBERED[name], X, calls=4)
    limit = stator.config.recompile_limit
    assert stats.graphs <= 2 * limit + 4 and stats.native == 0 and stats.hits == 3, stats.graphs


def nested(x: Tensor) -> Tensor:
    for _ in range(3):
        for _ in [1, 2]:
            x = x / 2
            show()
        show()
    return x + 1


def left_early(x: Tensor) -> Tensor:
    for number in (1, 2, 3, 4):
        x = x * 2
        show()
        if number == 3:
            break
    else:
        x = x * 100
    return x + 1


def to_the_end(x: Tensor) -> Tensor:
    for number in (1, 2, 3):
        x = x * 2
        show()
        if number == 7:
            break
    else:
        x = x * 100
    return x + 1


def changes_frames(x: Tensor, flag: bool = True) -> Tensor:
    """The frame that is moved in place holds other objects each time, and none left over."""
    for number in range(3):
        made = [x, number]
        if number == 1:
            extra = x * 3
        show()
        x = made[0] + made[1]
        del made
        show()
        if number == 1:
            x = x + extra
            del extra
    return x


@pytest.mark.parametrize("function", [nested, left_early, to_the_end, changes_frames])
def test_frames_are_moved_in_place(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=4)
    assert stats.native == 0 and stats.hits == 3, stats.reason


def test_one_activation_is_one_frame() -> None:
    frames: list[Any] = []

    @stator.disable
    def keep() -> None:
        frames.append(sys._getframe(1))

    def function(x: Tensor) -> Tensor:
        for _ in range(4):
            x = x * 2
            keep()
        return x

    compiled = stator.compile(function)
    for _ in range(3):
        frames.clear()
        compiled(X)
        assert len(set(frames)) == 1
        assert all(frame.f_code is function.__code__ for frame in frames)


def test_a_loop_of_which_some_rounds_are_new_is_not_recorded_to_its_end() -> None:
    def rounds(x: Tensor, kinds: list[str]) -> Tensor:
        for kind in kinds:
            stator.graph_break("looked at")
            x = x + len(kind) if kind.startswith("a") else x * 2
            x = x / 2
        return x

    kinds = [kind for kind in ("a", "ab", "abc", "b", "bc", "bcd") for _ in range(60)]
    compiled = stator.compile(rounds)
    assert torch.equal(compiled(X, kinds), rounds(X, kinds))
    # Each round ends a trace as long as it is recorded.
    assert 100 < stator.stats(compiled).breaks < 150
