"""Iterators that call C code and functions on tensors while something reads them: each of the ways to read one."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

Make = Callable[[Tensor], Iterable[Any]]


def generated(x: Tensor) -> Iterator[Tensor]:
    yield from x.unbind()


class Iterating:
    def __init__(self, x: Tensor) -> None:
        self.items = iter(x.unbind())

    def __iter__(self) -> Iterating:
        return self

    def __next__(self) -> Tensor:
        return next(self.items)


class Lazy:
    """An object whose `__iter__` gives an iterator of C code."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __iter__(self) -> Iterator[float]:
        return map(float, self.x.unbind())


def integers(x: Tensor) -> Iterator[int]:
    return map(int, x.long().unbind())


ITERATORS: dict[str, Make] = {
    "accumulate": lambda x: itertools.accumulate(x.unbind(), operator.add),
    "accumulate, max": lambda x: itertools.accumulate(x.unbind(), max),
    "accumulate, numbers": lambda x: itertools.accumulate(integers(x)),
    "chain": lambda x: itertools.chain(map(float, x.unbind()), [1.0]),
    "chain of iterators": lambda x: itertools.chain.from_iterable(
        [map(Tensor.item, x.unbind()), map(float, generated(x))]
    ),
    "combinations": lambda x: itertools.combinations(integers(x), 2),
    "compress": lambda x: itertools.compress("abc", x.unbind()),
    "compress, function": lambda x: itertools.compress("abc", map(lambda i: x[i] > 1, range(3))),
    "dropwhile": lambda x: itertools.dropwhile(Tensor.item, x.unbind()),
    "filter": lambda x: filter(Tensor.item, x.unbind()),
    "filter, none": lambda x: filter(None, x.unbind()),
    "filter, function": lambda x: filter(lambda t: t > 1, x.unbind()),
    "filter, places": lambda x: filter(lambda i: x[i] > 1, range(3)),
    "filterfalse": lambda x: enumerate(itertools.filterfalse(lambda i: x[i] > 1, range(3))),
    "groupby": lambda x: (key for key, _ in itertools.groupby(x.unbind())),
    "islice": lambda x: itertools.islice(map(Tensor.item, x.unbind()), 2),
    "iterating": lambda x: map(float, Iterating(x)),
    "lazy": Lazy,
    "map": lambda x: map(float, x.unbind()),
    "map, attributes": lambda x: map(operator.attrgetter("shape"), x.unbind()),
    "map, function": lambda x: map(lambda t: t.item(), x.unbind()),
    "map, generator": lambda x: map(float, generated(x)),
    "map, max": lambda x: map(max, [x.unbind(), x.unbind()]),
    "map, methods": lambda x: map(operator.methodcaller("item"), x.unbind()),
    "map, operations": lambda x: map(torch.relu, (x - 1).unbind()),
    "pairwise": lambda x: itertools.pairwise(integers(x)),
    "product": lambda x: itertools.product(integers(x), [1, 2]),
    "starmap": lambda x: itertools.starmap(torch.equal, [(x, x), (x, x + 1), (x, torch.ones(3))]),
    "takewhile": lambda x: itertools.takewhile(bool, x.unbind()),
    "takewhile, function": lambda x: itertools.takewhile(lambda i: x[i] > 1, range(3)),
    "tee": lambda x: itertools.tee(integers(x))[0],
    "zip": lambda x: zip("ab", filter(lambda i: x[i] > 1, range(3)), strict=False),
    "zip, longest": lambda x: itertools.zip_longest(integers(x), "abcd"),
}


def unpacked(items: Iterable[Any]) -> Any:
    first, *others = items
    return first, others


def pair(items: Iterable[Any]) -> Any:
    first, second = items
    return first, second


def looped(items: Iterable[Any]) -> list[Any]:
    found = []
    for item in items:
        found.append(item)  # noqa: PERF402
    return found


def stepped(items: Iterable[Any]) -> Any:
    iterator = iter(items)
    return next(iterator, None), next(iterator, None)


def extended(items: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    found.extend(items)
    return found


READERS: dict[str, Callable[[Iterable[Any]], Any]] = {
    "any": any,
    "arguments": lambda items: (lambda *given: given)(*items),
    "comprehension": lambda items: [item for item in items],  # noqa: C416
    "display": lambda items: [*items],
    "extend": extended,
    "in": lambda items: 2.0 in items,
    "keywords": lambda items: dict(**{str(k): v for k, v in zip("abcdef", items, strict=False)}),
    "list": list,
    "loop": looped,
    "next": stepped,
    "pair": pair,
    "set": lambda items: len({*items}),
    "star": unpacked,
}


@pytest.mark.parametrize("reader", READERS)
def test_iterators_give_what_they_give_in_python(reader: str) -> None:
    def outcome(step: Callable[[Tensor], Any], values: list[float]) -> str:
        try:
            return str(step(torch.tensor(values)))
        except ValueError as raised:
            return repr(raised)

    for name, make in ITERATORS.items():

        def step(x: Tensor, make: Make = make) -> Any:
            return READERS[reader](make(x))

        compiled = api.compile(step)
        for values in ([1.0, 2, 3], [3.0, 0, 1], [0.0, 0, 5], [2.0, 2, 2], [1.0, 2, 3]):
            assert outcome(compiled, values) == outcome(step, values), (name, values)
