"""Generators that are suspended at a break: they run natively, what is around them doesn't."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from .test_special_methods import X, check, show


@contextlib.contextmanager
def doubled(x: Tensor) -> Iterator[Tensor]:
    y = x * 2
    try:
        yield y + 1
    except KeyError as error:
        print("thrown", error)
    finally:
        print("left")


def in_the_body(x: Tensor) -> Tensor:
    y = x + 1
    with doubled(y) as z:
        z = z * 3
        show("body")
        z = z - 1
    return z * 2


def raises_in_the_body(x: Tensor) -> Tensor:
    y = x + 1
    with doubled(y) as z:
        y = z * 3
        show("body")
        raise KeyError("k")
    return y * 2


def in_the_generator(x: Tensor) -> Tensor:
    def parts() -> Iterator[Tensor]:
        for number in range(3):
            show("part")
            yield x * number

    total = x + 1
    for part in parts():
        total = total + part
    return total * 2


def between_steps(x: Tensor) -> Tensor:
    def parts() -> Iterator[Tensor]:
        yield x * 2
        yield x * 3

    steps = parts()
    y = next(steps) + 1
    show("between")
    return (y + next(steps)) * 2


def in_an_expression(x: Tensor) -> Tensor:
    y = x + 1
    return y * len([*((show("item"), n) for n in range(3))])


def two_at_once(x: Tensor) -> Tensor:
    y = x + 1
    with doubled(y) as z, doubled(z) as w:
        w = w * 3
        show("body")
    return w * 2


@pytest.mark.parametrize(
    "function",
    [
        in_the_body,
        raises_in_the_body,
        in_the_generator,
        between_steps,
        in_an_expression,
        two_at_once,
    ],
    ids=lambda function: function.__name__,
)
def test_goes_on_from_a_later_call(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=7)
    assert stats.hits >= 3 and stats.graphs >= 2, (stats.hits, stats.native, stats.reason)


def test_throws_into_it() -> None:
    """A break where the generator handles what the body has raised."""

    @contextlib.contextmanager
    def handles(x: Tensor) -> Iterator[Tensor]:
        try:
            yield x * 2
        except ValueError as error:
            show("handles")
            raise KeyError(str(error)) from error

    def function(x: Tensor) -> Tensor:
        y = x + 1
        try:
            with handles(y) as z:
                y = z + 1
                raise ValueError("v")
        except KeyError as error:
            return y * len(error.args)

    check(function, X, calls=6)
    assert torch.equal(function(X), (X + 1) * 2 + 1)
