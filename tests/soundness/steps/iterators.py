"""Programs that go over iterators which existed before, compared with plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import stator

from .results import copied, same


@stator.disable
def note(*_: Any) -> None:
    pass


class Reversible:
    """What `reversed` asks by methods."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Any:
        return self.items[place]


def tensors(count: int, first: float = 1.0) -> list[Tensor]:
    return [torch.arange(3.0) + first + i for i in range(count)]


# What is gone over, made of tensors.
ITERATORS: dict[str, Callable[[list[Tensor]], Iterator[Any]]] = {
    "list": iter,
    "tuple": lambda w: iter(tuple(w)),
    "range": lambda w: iter(range(2, 2 + len(w))),
    "steps": lambda w: iter(range(20, 20 - 3 * len(w), -3)),
    "reversed_list": lambda w: reversed(w),
    "reversed_tuple": lambda w: reversed(tuple(w)),
    "reversed_other": lambda w: reversed(Reversible(w)),
    "keys": lambda w: iter({f"k{i}": v for i, v in enumerate(w)}),
    "values": lambda w: iter({f"k{i}": v for i, v in enumerate(w)}.values()),
    "items": lambda w: iter({f"k{i}": v for i, v in enumerate(w)}.items()),
    "enumerate": lambda w: enumerate(w, 3),
    "enumerate_range": lambda w: enumerate(range(len(w))),
    "zip": lambda w: zip(w, range(len(w) + 2), tuple(w)),
    "shorter_first": lambda w: zip(range(len(w)), itertools.repeat(2.5)),
    "shorter_last": lambda w: zip(itertools.repeat(2.5), [*w, 1, 2], w),
    "strict": lambda w: zip(w, range(len(w)), strict=True),
    "too_short": lambda w: zip(w, range(max(0, len(w) - 1)), strict=True),
    "too_long": lambda w: zip(range(max(0, len(w) - 1)), w, strict=True),
    "nested": lambda w: enumerate(zip(enumerate(w), {i: v for i, v in enumerate(w)}.items())),
    "repeat": lambda w: itertools.repeat(w[0] if w else 1, len(w)),
    "zip_of_nothing": lambda w: zip(),
    "generator": lambda w: (v * 2 for v in w),
    "map": lambda w: map(torch.neg, w),
    "set": lambda w: iter({len(w)}),
    "text": lambda w: iter("abcdefgh"[: len(w)]),
}


def numbers_of(item: Any) -> Any:
    if isinstance(item, tuple):
        return sum(map(numbers_of, item))
    return len(item) if isinstance(item, str) else item


def every_round(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x + numbers_of(item)
        note(item)
        x = x * 0.5
    return x, "end"


def some_rounds(x: Tensor, items: Iterator[Any]) -> Any:
    place = 0
    for item in items:
        x = x + numbers_of(item)
        place += 1
        if place % 3 == 0:
            note(item)
    else:
        x = x - 1
    return x


def no_round(x: Tensor, items: Iterator[Any]) -> Any:
    taken = []
    for item in items:
        x = x + numbers_of(item)
        taken.append(item)
    return x, taken


def leaves(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x + numbers_of(item)
        note()
        if x.sum() > 25:
            break
    else:
        return x, "all"
    return x, "some"


def one_by_one(x: Tensor, items: Iterator[Any]) -> Any:
    first = next(items, None)
    if first is None:
        return x, "none"
    second = next(items, 4.0)
    x = x * numbers_of(first) + numbers_of(second)
    note()
    try:
        x = x - numbers_of(next(items))
    except StopIteration:
        return x, "two", next(items, "still")
    return x, "more"


def twice(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x + numbers_of(item)
        note()
    for item in items:
        x = x * numbers_of(item)
    note()
    return x, list(items)


def within_itself(x: Tensor, items: Iterator[Any]) -> Any:
    pairs = []
    for item in items:
        other = next(items, None)
        note()
        x = x + numbers_of(item)
        pairs.append((item, other))
    return x, pairs


def handled(x: Tensor, items: Iterator[Any]) -> Any:
    try:
        for item in items:
            note()
            x = x + numbers_of(item)
            if x.shape[0] == 3:
                x = x[: 4 - len(str(item)[:1])]
            if x.sum() > 20:
                raise ValueError(item)
    except ValueError as error:
        note()
        return x, str(error)[:6]
    finally:
        note()
    return x, None


def in_a_call(x: Tensor, items: Iterator[Any]) -> Any:
    def take() -> Any:
        found = next(items, None)
        note()
        return found

    while (item := take()) is not None:
        x = x + numbers_of(item)
    return x


PROGRAMS = [
    every_round,
    some_rounds,
    no_round,
    leaves,
    one_by_one,
    twice,
    within_itself,
    handled,
    in_a_call,
]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return copied(function(*args))
    except Exception as error:
        return type(error).__name__, str(error)


def rest(items: Iterator[Any]) -> Any:
    return outcome(lambda: list(itertools.islice(items, 50)))


def compare(compiled: Any, fn: Callable[..., Any], args: Callable[[], Any]) -> None:
    """A call of each gives the same, and leaves the same behind in its arguments."""
    plain, found = args(), args()
    expected = outcome(fn, *plain)
    got = outcome(compiled, *found)
    assert same(expected, got), (expected, got)
    for left, right in zip(plain, found):
        is_iterator = hasattr(left, "__next__")
        left, right = (rest(left), rest(right)) if is_iterator else (copied(left), copied(right))
        assert same(left, right), (left, right)


def alternate(fn: Callable[..., Any], *makes: Callable[[], Any]) -> Any:
    """Arguments of one kind are recorded and replayed, then those of the next."""
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=64):
        for make in [*makes, *makes, *reversed(makes)]:
            for _ in range(2):
                compare(compiled, fn, make)
    return compiled
