"""Generators that the trace made and that stand still at a break, or are what it returns: made again."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .test_breaks import outcome, same
from .test_special_methods import X, check, show


def parts(x: Tensor) -> Iterator[Tensor]:
    y = x + 1
    yield y * 2
    y = y * 3
    yield y
    yield y + 1


def not_begun(x: Tensor) -> Tensor:
    steps = parts(x + 1)
    show("not begun")
    return sum(steps) + 1


def in_the_middle(x: Tensor) -> Tensor:
    steps = parts(x + 1)
    y = next(steps) + 1
    show("middle")
    return y + sum(steps)


def finished(x: Tensor) -> Tensor:
    steps = parts(x + 1)
    y = sum(steps)
    show("finished")
    return y * (next(steps, 3) + 1)


def in_a_loop(x: Tensor) -> Tensor:
    total = x + 1
    for part in parts(x):
        total = total + part
        show("loop")
        total = total * 2
    return total


def expression(x: Tensor) -> Tensor:
    items = [x + 1, x + 2, x + 3]
    steps = (item * number for number, item in enumerate(items))
    y = next(steps) + next(steps)
    show("expression")
    items.append(x)
    return y + sum(steps)


def shares_variables(x: Tensor) -> Any:
    count, y = 0, x + 1

    def counts() -> Iterator[Tensor]:
        nonlocal count
        while count < 5:
            count += 1
            yield y * count

    steps = counts()
    z = next(steps) + next(steps)
    show("shares")
    count += 1
    y = y + 1
    return z + next(steps), count


def delegates(x: Tensor) -> Any:
    def outer(y: Tensor) -> Iterator[Tensor]:
        result = yield from inner(y * 2)
        yield result

    def inner(y: Tensor) -> Generator[Tensor, None, Tensor]:
        yield y + 1
        yield y + 2
        return y * 3

    steps = outer(x + 1)
    y = next(steps) * 2
    show("delegates")
    return y, list(steps)


def takes_values(x: Tensor) -> Any:
    def sums(total: Tensor) -> Generator[Tensor, Tensor, None]:
        while True:
            more = yield total
            total = total + more

    steps = sums(x + 1)
    y = next(steps) + steps.send(x * 2)
    show("takes")
    return y, steps.send(x * 3)


def cleans_up(x: Tensor) -> Tensor:
    def guarded(y: Tensor) -> Iterator[Tensor]:
        try:
            with contextlib.suppress(KeyError):
                yield y * 2
                raise KeyError("k")
            yield y * 3
        finally:
            print("cleaned")

    steps = guarded(x + 1)
    y = next(steps) + 1
    show("cleans")
    y = y + next(steps)
    del steps
    return y * 2


def is_dropped(x: Tensor) -> Tensor:
    def guarded(y: Tensor) -> Iterator[Tensor]:
        try:
            yield y * 2
        finally:
            print("dropped", len(y))

    steps = guarded(x + 1)
    y = next(steps) + 1
    show("is dropped")
    del steps
    print("behind")
    return y * 2


def holds_itself(x: Tensor) -> Any:
    def steps_of(box: list[Any], y: Tensor) -> Iterator[Tensor]:
        yield y * len(box)
        yield y + len(box)

    box: list[Any] = [1]
    steps = steps_of(box, x + 1)
    box.append(steps)
    y = next(steps) * 2
    show("itself")
    return y, next(steps), box[1] is steps, len(box)


def twice_alive(x: Tensor) -> Any:
    first, second = parts(x), parts(x * 2)
    y, same_one = next(first) + next(second), first
    show("twice")
    return y + next(same_one), next(first), next(second)


def keyword_arguments(x: Tensor) -> Any:
    def many(y: Tensor, *args: int, z: Tensor, **kwargs: int) -> Iterator[Any]:
        yield y + z
        yield y * sum(args), kwargs

    steps = many(x + 1, 2, 3, z=x * 2, w=4)
    y = next(steps) * 2
    show("keywords")
    return y, next(steps)


@contextlib.contextmanager
def doubled(x: Tensor) -> Iterator[Tensor]:
    y = x * 2
    try:
        yield y + 1
    finally:
        print("left", len(y))


def manages(x: Tensor) -> Tensor:
    with doubled(x + 1) as y, doubled(y) as z:
        z = z * 3
        show("manages")
        z = z - 1
    return z * 2


AGAIN: list[Callable[[Tensor], Any]] = [
    not_begun,
    in_the_middle,
    in_a_loop,
    expression,
    shares_variables,
    delegates,
    takes_values,
    cleans_up,
    is_dropped,
    holds_itself,
    twice_alive,
    keyword_arguments,
    manages,
]


@pytest.mark.parametrize("function", AGAIN, ids=lambda function: function.__name__)
def test_is_made_again(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=6)
    assert stats.hits >= 4 and stats.native <= 1, (stats.hits, stats.native, stats.reason)


@pytest.mark.parametrize(
    "function", [not_begun, in_the_middle, manages], ids=lambda function: function.__name__
)
def test_what_is_before_the_break_is_replayed(function: Callable[..., Any]) -> None:
    """Nothing has to be marked: the second call replays what the first one recorded."""
    stats = check(function, X, calls=2)
    assert (stats.hits, stats.native) == (1, 0), stats.reason


def handles(x: Tensor) -> Any:
    """Suspended where it handles an exception: that is part of its state."""

    def catching(y: Tensor) -> Iterator[Any]:
        try:
            raise ValueError("v")
        except ValueError as error:
            yield y * 2
            yield str(error)

    steps = catching(x + 1)
    y = next(steps) * 2
    show("handles")
    return y, next(steps)


def renamed(x: Tensor) -> Any:
    steps = parts(x + 1)
    steps.__name__ = "other"  # type: ignore[attr-defined]
    y = next(steps) * 2
    show("renamed")
    return y, next(steps), steps.__name__  # type: ignore[attr-defined]


def asynchronous(x: Tensor) -> Any:
    async def later(y: Tensor) -> Tensor:
        return y * 2

    waiting = later(x + 1)
    y = x * 2
    show("asynchronous")
    try:
        waiting.send(None)
    except StopIteration as error:
        return y, error.value


@pytest.mark.parametrize(
    "function", [finished, handles, renamed, asynchronous], ids=lambda function: function.__name__
)
def test_is_as_in_plain_python_where_it_is_not(function: Callable[..., Any]) -> None:
    check(function, X, calls=6)


def gives_expression(x: Tensor) -> Iterator[Tensor]:
    y = x + 1
    return (y * number for number in range(3))


def gives_begun(x: Tensor) -> Iterator[Tensor]:
    steps = parts(x * 2)
    next(steps)
    return steps


def gives_several(x: Tensor) -> Any:
    steps = parts(x * 2)
    return {"steps": steps, "mapped": map(len, steps)}, steps


SCALE = [2]


def gives_reader(x: Tensor) -> Iterator[Tensor]:
    """What it yields depends on what is read when it is stepped."""
    y = x + 1
    return (y * number * SCALE[0] for number in range(3))


@pytest.mark.parametrize("function", [gives_expression, gives_begun, gives_reader])
def test_is_a_result(function: Callable[..., Any]) -> None:
    compiled = stator.compile(function)
    for step in range(5):
        SCALE[0] = step
        expected, found = function(X), compiled(X)
        assert type(found) is type(expected) and found.__qualname__ == expected.__qualname__
        assert found.gi_frame.f_lineno == expected.gi_frame.f_lineno
        SCALE[0] = step + 1
        assert same(list(expected), list(found))
    SCALE[0] = 2
    assert stator.stats(compiled).hits >= 3, stator.stats(compiled).reason


def test_results_share_it() -> None:
    compiled = stator.compile(gives_several)
    for _ in range(4):
        (held, steps), (other, _) = compiled(X), gives_several(X)
        assert held["steps"] is steps
        assert list(held["mapped"]) == list(other["mapped"]) and list(steps) == []


def test_nothing_leaks() -> None:
    """Tensors that a generator holds go with it."""
    alive: list[Any] = []

    def function(x: Tensor) -> Tensor:
        steps = parts(x + 1)
        y = next(steps) + 1
        show("leaks")
        return y * 2

    compiled = stator.compile(function)
    for _ in range(5):
        x = torch.ones(3)
        alive.append(weakref.ref(x))
        outcome(compiled, x)
        del x
    gc.collect()
    assert [one() for one in alive] == [None] * 5
