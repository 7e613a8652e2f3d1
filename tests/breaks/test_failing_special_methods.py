"""Breaks in special methods that fail behind the break, or give what they must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from .test_special_methods import X, check, show


class Wrong:
    """Special methods that fail behind a break, or give what they must not."""

    def __init__(self, x: Tensor, *, fails: bool = False) -> None:
        self.x = x
        if fails:
            show("init")
            return self.x  # type: ignore[return-value]

    @property
    def raising(self) -> Tensor:
        show("raising")
        raise ValueError("property")

    def __enter__(self) -> Tensor:
        show("enter")
        raise ValueError("enter")

    def __exit__(self, *exc: object) -> bool:
        return True

    def __add__(self, other: object) -> Any:
        show("add")
        return NotImplemented

    def __pow__(self, other: object) -> Any:
        show("pow")
        return NotImplemented

    def __lt__(self, other: object) -> Any:
        show("lt")
        return NotImplemented

    def __bool__(self) -> bool:
        show("bool")
        return 1  # type: ignore[return-value]

    def __iter__(self) -> Any:
        show("iter")
        return 3

    def __contains__(self, item: object) -> Any:
        show("contains")
        return [item]


class WrongLength:
    def __len__(self) -> int:
        show("len")
        return -1


def init_returns(x: Tensor) -> Tensor:
    return (x + 1) * Wrong(x, fails=True).x


def property_raises(x: Tensor) -> Tensor:
    return (x + 1) * Wrong(x).raising


def property_raises_in_try(x: Tensor) -> Tensor:
    wrong, y = Wrong(x), x + 1
    try:
        y = y * wrong.raising
    except ValueError:
        y = y * 3
    return y + 1


def enter_raises(x: Tensor) -> Tensor:
    y = x + 1
    with Wrong(x):
        y = y + 2
    return y


def add_refuses(x: Tensor) -> Any:
    y = x + 1
    return y, Wrong(x) + 3


def power_refuses(x: Tensor) -> Any:
    y = x + 1
    return y, Wrong(x) ** 3


def power_in_place_refuses(x: Tensor) -> Any:
    wrong, y = Wrong(x), x + 1
    wrong **= 3
    return y, wrong


def less_refuses(x: Tensor) -> Any:
    y = x + 1
    return y, Wrong(x) < Wrong(x)


def bool_is_int(x: Tensor) -> Any:
    y = x + 1
    return y if Wrong(x) else x


def length_is_negative(x: Tensor) -> Any:
    y = x + 1
    return y if WrongLength() else x


def iter_is_none(x: Tensor) -> Any:
    y = x + 1
    for _ in Wrong(x):
        y = y + 1
    return y


def contains_a_list(x: Tensor) -> Any:
    y = x + 1
    return y, 3 in Wrong(x)


WRONG: list[Callable[[Tensor], Any]] = [
    init_returns,
    property_raises,
    property_raises_in_try,
    enter_raises,
    add_refuses,
    power_refuses,
    power_in_place_refuses,
    less_refuses,
    bool_is_int,
    length_is_negative,
    iter_is_none,
    contains_a_list,
]


@pytest.mark.parametrize("function", WRONG, ids=lambda function: function.__name__)
def test_fails_as_in_plain_python(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=5)
    assert stats.breaks >= 1 and stats.native == 0, stats.reason
