"""Data decides while an exception is handled: the way out has it, as plain Python does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same

TRACES: dict[str, int] = {}


def whole(traces: int) -> Callable[[Callable[[Tensor], Any]], Callable[[Tensor], Any]]:
    def add(fn: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        TRACES[fn.__name__] = traces
        return fn

    return add


def fail(text: str) -> None:
    raise KeyError(text)


@whole(2)
def in_a_handler(x: Tensor) -> Any:
    try:
        raise ValueError("bad")
    except ValueError as error:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x * 3
        y = y + int(error is not None)
    return y


@whole(2)
def unnamed(x: Tensor) -> Any:
    try:
        raise ValueError
    except ValueError:
        y = x - 1 if x.sum() > 0 else x + 1
    return y


def of_a_function(x: Tensor) -> Any:
    try:
        fail("a")
    except KeyError as error:
        if x.sum() > 0:
            return str(error), x * 2
        return repr(error), x * 3


def raised_again(x: Tensor) -> Any:
    try:
        raise ValueError("first")
    except ValueError:
        if x.sum() > 0:
            raise
        y = x * 2
        if y.max() > 0:
            raise RuntimeError("second")
    return y


def raised_from(x: Tensor) -> Any:
    try:
        raise ValueError("first")
    except ValueError as error:
        if x.sum() > 0:
            raise TypeError("up") from error
        if x.max() > 0:
            raise TypeError("some") from None
        return x


def nested(x: Tensor) -> Any:
    seen = []
    try:
        raise ValueError("outer")
    except ValueError:
        if x.sum() > 0:
            seen.append("outer up")
        try:
            raise KeyError("inner")
        except KeyError:
            if x.max() > 0.5:
                seen.append("inner up")
        if x.min() > -0.5:
            raise
    return seen, x + 1


def at_the_end(x: Tensor) -> Any:
    seen = []
    try:
        try:
            raise ValueError("thrown")
        finally:
            if x.sum() > 0:
                seen.append("up")
            if x.max() > 0.5:
                return seen, "swallowed"
    except ValueError as error:
        return seen, str(error), x + 1


def suppressed(x: Tensor) -> Any:
    with contextlib.suppress(ValueError):
        if x.sum() > 0:
            raise ValueError("thrown")
        x = x + 1
    return x


def asks_what_is_handled(x: Tensor) -> Any:
    try:
        raise ValueError("bad")
    except ValueError:
        if x.sum() > 0:
            found = sys.exc_info()[1]
            assert found is not None
            return str(found), x + 1
        return type(sys.exc_info()[1]).__name__, x - 1


def numbers(x: Tensor) -> Any:
    lines = []
    for number in x.tolist():
        try:
            if number > 0.5:
                raise ValueError(number)
            lines.append(1 / (number + 2))
        except ValueError:
            lines.append(number if number > 1 else 0.5 * number)
    return lines, x + 1


def operations_that_raise(x: Tensor) -> Any:
    try:
        raise ValueError("bad")
    except ValueError:
        y = x.clone()
        y.add_(1)
        try:
            index = torch.tensor([int(abs(x.sum().item()) * 2)])
            return x[index], y
        except IndexError:
            return y * 2


PROGRAMS = [
    in_a_handler,
    unnamed,
    of_a_function,
    raised_again,
    raised_from,
    nested,
    at_the_end,
    suppressed,
    asks_what_is_handled,
    numbers,
    operations_that_raise,
]


def chain(error: BaseException | None) -> Any:
    """An exception, where it came from, and those behind it."""
    if error is None:
        return None
    lines, entry = [], error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == __file__:
            lines.append((entry.tb_frame.f_code.co_name, entry.tb_lineno))
        entry = entry.tb_next
    behind = chain(error.__cause__), chain(error.__context__), error.__suppress_context__
    return type(error).__name__, str(error), lines[1:], behind


def outcome(fn: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        return copied(fn(x)), sys.exc_info()[0] is None
    except Exception as error:
        return chain(error)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_handlers(program: Callable[[Tensor], Any], around: bool) -> None:
    """`around`: the caller handles an exception itself."""
    compiled = stator.compile(program)

    def play(fn: Callable[[Tensor], Any], x: Tensor) -> Any:
        if not around:
            return outcome(fn, x)
        try:
            raise OSError("around")
        except OSError as error:
            found = outcome(fn, x)
            return found, sys.exc_info()[1] is error

    with stator.config.patch(skip_unprofitable=False):
        for call in range(16):
            x = torch.randn(3, generator=torch.Generator().manual_seed(call % 9))
            assert same(play(program, x), play(compiled, x)), call
    stats = stator.stats(compiled)
    # What the caller handles stands behind the exception, and can't be made again.
    if program.__name__ in TRACES and not around:
        found = (stats.graphs, stats.breaks, stats.native)
        assert found == (TRACES[program.__name__], 0, 0), stats.reason
