"""Exceptions that a trace makes and handles, with numbers in them that were read from tensors."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from .results import agree, copied, runs_whole, same

HELD = SimpleNamespace(log=[], last=None)


class Diverged(RuntimeError):
    """An exception with fields."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"diverged at {step}: {loss:.3f}")
        self.step, self.loss = step, loss


class Titled(ValueError):
    def __str__(self) -> str:
        return f"<{self.args[0]}>"


class Plain(ValueError):
    pass


def check(x: Tensor, step: int) -> Tensor:
    loss = x.pow(2).sum()
    if loss > 10:
        raise Diverged(step, loss.item())
    return x / 2


def fields(x: Tensor, step: int) -> Any:
    try:
        return check(x, step)
    except Diverged as error:
        HELD.log.append((error.step, error.loss))
        return x * error.loss, str(error)


def arguments(x: Tensor, step: int) -> Any:
    try:
        raise ValueError("loss", x.sum().item(), step)
    except ValueError as error:
        _, loss, _ = error.args
        return x + loss, error.args, len(error.args)


def texts(x: Tensor, step: int) -> Any:
    try:
        raise Plain(f"{x.sum().item():.2f}")
    except Plain as error:
        return f"{error}", str(error), f"{error!s:>12}", format(error), "failed: " + str(error)


def of_formats(x: Tensor, step: int) -> Any:
    try:
        raise Plain(f"{x.sum().item():.2f}")
    except Plain as error:
        try:
            return f"{error:*^9}", x
        except TypeError as refused:
            return str(refused), x


def of_numbers(x: Tensor, step: int) -> Any:
    try:
        raise Plain(x.sum().item())
    except ValueError as error:
        return f"{error}", f"{error!r}", error.args[0] * x


def of_two(x: Tensor, step: int) -> Any:
    try:
        raise Plain(x.sum().item(), step)
    except ValueError as error:
        return f"{error}", x


def with_own_text(x: Tensor, step: int) -> Any:
    try:
        raise Titled(x.sum().item())
    except ValueError as error:
        return f"{error}", x


def of_keys(x: Tensor, step: int) -> Any:
    try:
        raise KeyError(f"{x.sum().item():.1f}")
    except LookupError as error:
        return str(error), x


def chained(x: Tensor, step: int) -> Any:
    try:
        try:
            raise Plain(x.sum().item())
        except Plain as error:
            raise RuntimeError(f"outer {error}") from error
    except RuntimeError as error:
        assert error.__cause__ is not None
        return str(error), error.__cause__.args, x + 1


def kept(x: Tensor, step: int) -> Any:
    try:
        raise Plain("kept", x.sum().item())
    except Plain as error:
        HELD.last = error.with_traceback(None)
    return x


def read_later(x: Tensor, step: int) -> Any:
    last = HELD.last
    HELD.last = Plain(x.sum().item())
    return x if last is None else (x * last.args[0], str(last))


def printed(x: Tensor, step: int) -> Any:
    try:
        raise Plain(f"{x.sum().item():.2f}")
    except Plain as error:
        print("skipped:", error)
        print(f"skipped: {error}")
    return x * 2


def replaced(x: Tensor, step: int) -> Any:
    error = Plain(x.sum().item())
    error.args = (x.sum().item() + 1, step)
    return error.args, x


def of_data_behind(x: Tensor, step: int) -> Any:
    try:
        raise StopIteration(x.sum().item())
    except StopIteration as error:
        return error.value, x


def exits(x: Tensor, step: int) -> Any:
    try:
        raise SystemExit(int(x.sum().item()))
    except SystemExit as error:
        return error.code, x


def opened(x: Tensor, step: int) -> Any:
    try:
        raise OSError(2, f"{x.sum().item():.1f}")
    except OSError as error:
        return error.errno, error.strerror, str(error), x


def listed(x: Tensor, step: int) -> Any:
    errors = [Plain(number) for number in x.tolist()]
    HELD.log.append([str(error) for error in errors])
    return max(errors, key=lambda error: error.args[0]).args, x


FUNCTIONS: list[Callable[[Tensor, int], Any]] = [
    fields,
    arguments,
    texts,
    of_formats,
    of_numbers,
    of_two,
    with_own_text,
    of_keys,
    chained,
    kept,
    read_later,
    printed,
    replaced,
    of_data_behind,
    exits,
    opened,
    listed,
]
WHOLE = {fields, arguments, texts, with_own_text, kept, replaced}


def shown(value: Any) -> Any:
    if isinstance(value, BaseException):
        return (type(value).__name__, copied(value.args), str(value))
    return copied(value)


def run(fn: Callable[[Tensor, int], Any]) -> list[Any]:
    HELD.log, HELD.last = [], None
    found = []
    for step, value in enumerate([1.0, 3.0, 3.5, 0.25, 4.0, 5.0, 6.0, 1.0]):
        result = shown(fn(torch.tensor([value, value + 1.0]), step % 2))
        found.append((result, copied(HELD.log), shown(HELD.last)))
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor, int], Any], capsys: pytest.CaptureFixture[str]) -> None:
    api.reset()
    expected = run(fn)
    told = capsys.readouterr().out
    compiled = api.compile(fn)
    found = run(compiled)
    assert capsys.readouterr().out == told
    agree(expected, found)
    if fn in WHOLE:
        runs_whole(compiled, 4)


def test_a_text_that_the_class_gets_later() -> None:
    """The class's `__str__` is asked for."""
    api.reset()

    class Late(ValueError):
        pass

    def fn(x: Tensor) -> Any:
        try:
            raise Late(x.sum().item())
        except ValueError as error:
            return f"{error}", x

    compiled = api.compile(fn)
    for value in (1.0, 2.0, 3.0):
        assert same(fn(torch.tensor([value])), compiled(torch.tensor([value])))
    Late.__str__ = lambda self: "late"  # type: ignore[method-assign]
    for value in (1.0, 2.0, 3.0):
        assert same(fn(torch.tensor([value])), compiled(torch.tensor([value])))
    Late.__format__ = lambda self, spec: "formatted"  # type: ignore[method-assign]
    for value in (1.0, 2.0, 3.0):
        assert same(fn(torch.tensor([value])), compiled(torch.tensor([value])))
