"""Exceptions that are alive at a break: made again with what they hold, and with their tracebacks."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .test_breaks import outcome, same
from .test_special_methods import X, check


@stator.disable
def show(error: BaseException | None = None) -> None:
    """Breaks, and prints all that there is to see of exceptions."""
    handled = sys.exc_info()[1]
    print("handled", repr(handled), "same", handled is error)
    for one in (error, handled):
        if one is None:
            continue
        print(repr(one), one.args, vars(one), one.__suppress_context__)
        print("cause", repr(one.__cause__), "context", repr(one.__context__))
        # Down to the caller, above which pytest stands.
        entries = list(traceback.walk_tb(one.__traceback__))
        frame = sys._getframe(1)
        print([(f.f_code.co_name, line - f.f_code.co_firstlineno) for f, line in entries])
        print([f is frame for f, _ in entries])


class Custom(Exception):
    def __init__(self, number: int, extra: list[int]) -> None:
        super().__init__(number)
        self.number, self.extra = number, extra


class Slotted(ValueError):
    __slots__ = ("number",)


def named(x: Tensor) -> Tensor:
    y = x + 1
    try:
        raise ValueError("v", 3)
    except ValueError as error:
        show(error)
        y = y * 2
    return y - 1


def unnamed(x: Tensor) -> Tensor:
    y = x + 1
    try:
        raise ValueError
    except ValueError:
        show()
        y = y * 2
    return y - 1


def by_c_code(x: Tensor) -> Tensor:
    y = x + 1
    try:
        {"a": 1}["b"]
    except KeyError as error:
        show(error)
        y = y * 2
    return y - 1


def custom(x: Tensor) -> Tensor:
    y, extra = x + 1, [1, 2]
    try:
        raise Custom(4, extra)
    except Custom as error:
        error.add_note("noted")
        show(error)
        y = y * error.number
        error.extra.append(3)
    return y * sum(extra)


def slotted(x: Tensor) -> Tensor:
    y = x + 1
    error = Slotted("text")
    error.number = 5
    show(error)
    return y * error.number


def with_tensors(x: Tensor) -> tuple[Tensor, Any]:
    y = x + 1
    error = ValueError(y, "text")
    stator.graph_break()
    return y * 2, error.args


def with_cause(x: Tensor) -> Tensor:
    y = x + 1
    try:
        try:
            raise ValueError("first")
        except ValueError as error:
            show(error)
            y = y * 2
            raise KeyError("second") from error
    except KeyError as error:
        show(error)
        y = y + 3
    return y


def with_context(x: Tensor) -> Tensor:
    y = x + 1
    try:
        try:
            raise ValueError("first")
        except ValueError:
            raise KeyError("second") from None
    except KeyError as error:
        show(error)
        y = y + 3
    return y


def in_finally(x: Tensor) -> Tensor:
    y = x + 1
    try:
        raise ValueError("v")
    finally:
        show()
        y = y * 2


def raised_again(x: Tensor) -> Tensor:
    y = x + 1
    try:
        try:
            raise ValueError("v")
        except ValueError:
            show()
            raise
    except ValueError as error:
        show(error)
        y = y * 2
    return y


def kept(x: Tensor) -> Tensor:
    y, saved = x + 1, None
    try:
        raise ValueError("v")
    except ValueError as error:
        saved = error
    show(saved)
    return y * len(saved.args)


def in_a_loop(x: Tensor) -> Tensor:
    for number in range(3):
        try:
            if number == 1:
                raise ValueError(number)
            x = x * 2
        except ValueError as error:
            show(error)
            x = x + 1
    return x


def swallowed(x: Tensor) -> Tensor:
    manager = Swallower(x)
    with manager:
        raise KeyError("k")
    return x + manager.value


class Swallower:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException, tb: object) -> bool:
        self.value = self.value * 3
        stator.graph_break()
        self.value = self.value + len(error.args)
        return True


CONTINUED: list[Callable[[Tensor], Any]] = [
    named,
    unnamed,
    by_c_code,
    custom,
    slotted,
    with_tensors,
    with_cause,
    with_context,
    in_finally,
    raised_again,
    kept,
    in_a_loop,
]


@pytest.mark.parametrize("function", CONTINUED, ids=lambda function: function.__name__)
def test_continues(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=4)
    assert stats.breaks >= 1 and stats.native == 0 and stats.hits == 3, stats.reason


def thrower(x: Tensor) -> Tensor:
    y = x * 2
    raise ValueError("thrown", len(y))


def through_a_call(x: Tensor) -> Tensor:
    y = x + 1
    try:
        thrower(y)
    except ValueError as error:
        show(error)
        y = y * 2
    return y


def missing_attribute(x: Tensor) -> Tensor:
    y = x + 1
    try:
        x.missing  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        show(error)
        y = y * 2
    return y


def through_calls(x: Tensor) -> Tensor:
    y = x + 1
    try:
        middle(y)
    except ValueError as error:
        show(error)
        y = y * 2
    return y


def middle(x: Tensor) -> Tensor:
    y = x * 3
    stator.graph_break()
    return thrower(y)


def kept_from_a_call(x: Tensor) -> Tensor:
    y, saved = x + 1, None
    for number in range(3):
        try:
            y = y * number
            thrower(y)
        except ValueError as error:
            saved = error
    show(saved)
    return y * len(saved.args)


def wrapped_from_a_call(x: Tensor) -> Tensor:
    y = x + 1
    try:
        try:
            thrower(y)
        except ValueError as error:
            raise KeyError("second") from error
    except KeyError as error:
        show(error)
        y = y + 3
    return y


def in_a_helper(x: Tensor) -> Tensor:
    """The handler is in a function that the compiled one calls."""
    y = through_a_call(x + 1)
    return y + through_a_call(y)


def sometimes(x: Tensor) -> Tensor:
    y = x + 1
    for number in range(3):
        try:
            if number == THROWS[0]:
                thrower(y)
            y = y * 2
        except ValueError as error:
            show(error)
            y = y - 1
    return y


THROWS = [1]


@pytest.mark.parametrize(
    "function",
    [
        through_a_call,
        missing_attribute,
        swallowed,
        through_calls,
        kept_from_a_call,
        wrapped_from_a_call,
        in_a_helper,
        sometimes,
    ],
)
def test_ends_before_what_raises(function: Callable[..., Any]) -> None:
    """Frames that have left can't be made again, nor can what C code keeps of an `AttributeError`: from
    a later call on, what raises is a break.
    """
    stats = check(function, X, calls=6)
    assert stats.breaks >= 1 and stats.hits >= 2, (stats.hits, stats.native, stats.reason)


def test_throws_elsewhere() -> None:
    compiled = stator.compile(sometimes)
    try:
        for number in (1, 1, 1, 1, 2, 2, 0, 5, 1, 5, 2):
            THROWS[0] = number
            expected, found = outcome(sometimes, X), outcome(compiled, X)
            assert same(expected[0], found[0]) and expected[1] == found[1], number
    finally:
        THROWS[0] = 1


def test_handled_by_the_caller() -> None:
    """The exception that the compiled function's caller handles is its context."""
    compiled = stator.compile(named)
    for _ in range(3):
        results = []
        for function in (named, compiled):
            try:
                raise OSError("outer")
            except OSError:
                results.append(function(X))
        assert torch.equal(*results)
