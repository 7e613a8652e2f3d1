"""Iterators that a call makes over iterators of the caller's: `enumerate(it)`, `zip(it, xs)`, `islice(it, n)`, `pairwise(it)`."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .iterators import tensors
from .outside_iterators import CHANGE, Program, fresh, kept
from .test_outside_iterators import check

PROGRAMS: dict[str, Callable[[], Program]] = {}
BROKEN: set[str] = set()


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def broken(make: Callable[[], Program]) -> Callable[[], Program]:
    """One that still breaks the graph."""
    BROKEN.add(make.__name__)
    return program(make)


@program
def numbered_and_left() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for place, item in enumerate(items, 3):
            x = x * place + item
            if place == 4:
                break
        return x, next(items, "end")

    return fresh(fn, lambda: iter(tensors(4)), lambda: iter(tensors(1)))


@program
def paired_with_a_list() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for weight, item in zip([0.5, 2.0], items):
            x = x * weight + item
        return x, next(items, "end")

    return fresh(fn, lambda: iter(tensors(4)), lambda: iter(tensors(2)))


@program
def paired_and_ended_by_the_outside() -> Program:
    """The list has given one item more then."""

    def fn(x: Tensor, items: Iterator[Any], weights: Iterator[float]) -> Any:
        for weight, item in zip(weights, items):
            x = x * weight + item
        return x, next(weights, "end"), next(items, "end")

    def given(number: int) -> tuple[Any, ...]:
        return iter(tensors(1 if number < CHANGE else 2)), iter([0.5, 2.0, 3.0, 4.0])

    return Program(fn, given)


@program
def nested() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        found = []
        for place, (item, weight) in enumerate(zip(itertools.islice(items, 1, 6, 2), (1.0, 2.0))):
            x = x * weight + item
            found.append(place)
        return x, found, next(items, "end")

    return fresh(fn, lambda: iter(tensors(8)), lambda: iter(tensors(3)))


@program
def sliced_in_turn() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in itertools.islice(items, 3):
            x = x + item
        rest = list(itertools.islice(items, 1, None))
        return x, rest

    return fresh(fn, lambda: iter(tensors(6)), lambda: iter(tensors(2)))


@program
def sliced_by_two_calls() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in itertools.islice(items, 2):
            x = x + item
        return x

    return kept(fn, iter(tensors(60)))


@program
def mapped() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in map(lambda item, weight: item * weight, items, [2.0, 3.0]):
            x = x + item
        return x, next(items, "end")

    return fresh(fn, lambda: iter(tensors(4)), lambda: iter(tensors(3)))


@program
def filtered() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in filter(None, items):
            x = x + item
        return x, next(items, "end")

    return fresh(fn, lambda: iter([1.0, 0.0, 2.0]), lambda: iter([0.0, 0.0, 3.0, 4.0]))


@program
def taken_whole() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        pairs = list(enumerate(items))
        return [x * place + item for place, item in pairs], next(items, "end")

    return fresh(fn, lambda: iter(tensors(3)), lambda: iter(tensors(2)))


@program
def accumulated() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        sums = []
        for total in itertools.accumulate(items):
            sums.append(total)
            x = x * 0.5 + total
            if len(sums) == 3:
                break
        return x, sums, next(items, "end")

    return fresh(fn, lambda: iter([1.0, 2.5, 4.0, 0.5]), lambda: iter([3.0, 0.1]))


@program
def accumulated_by_functions() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        scaled = itertools.accumulate(items, lambda total, item: total * 0.5 + item, initial=x)
        found = list(scaled)
        return found, list(itertools.accumulate([1, 2, 3], operator.mul)), next(items, "end")

    return fresh(fn, lambda: iter(tensors(3)), lambda: iter(tensors(2)))


@program
def accumulated_whole() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        bounds = [0, *itertools.accumulate(items)]
        return [x[lo:hi] for lo, hi in itertools.pairwise(bounds)], next(items, "end")

    return fresh(fn, lambda: iter((1, 2)), lambda: iter((2, 1, 1)))


@program
def accumulated_to_a_greatest() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        return x * max(itertools.accumulate(items)), next(items, "end")

    return fresh(fn, lambda: iter((1.0, -2.0, 4.0)), lambda: iter((2.0, -1.0)))


@program
def in_pairs() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for place, (left, right) in enumerate(itertools.pairwise(items)):
            if (left - right).sum() > 0:
                x = x * place + left
            x = x - right
        return x, next(items, "end")

    return fresh(fn, lambda: iter(tensors(4)), lambda: iter(tensors(1)))


@program
def in_pairs_for_a_while() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        pairs = itertools.pairwise(items)
        first, second = next(pairs), next(pairs)
        return x + first[1] - second[0], first[1] is second[0], next(items, "end"), next(pairs)[0]

    return fresh(fn, lambda: iter(tensors(6)), lambda: iter(tensors(5)))


@program
def padded() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        longest = itertools.zip_longest(items, (2.0, 3.0), [1.0], fillvalue=0.5)
        for place, (item, weight, other) in enumerate(longest):
            x = x * weight + item * other + place
        return x, next(items, "end"), list(longest)

    return fresh(fn, lambda: iter(tensors(4)), lambda: iter(tensors(1)))


@program
def padded_with_none() -> Program:
    def fn(x: Tensor, items: Iterator[Any], others: Iterator[Any]) -> Any:
        for item, other in itertools.zip_longest(items, others):
            x = x + (0 if item is None else item) - (1 if other is None else other)
        return x

    def given(number: int) -> tuple[Any, ...]:
        return iter(tensors(1 if number < CHANGE else 3)), iter(tensors(2))

    return Program(fn, given)


@program
def paired_strictly() -> Program:
    def fn(x: Tensor, items: Iterator[Any], weights: list[float]) -> Any:
        try:
            for item, weight, place in zip(items, weights, range(2), strict=True):
                x = x * weight + item * place
        except ValueError as error:
            return x, str(error), next(items, "end")
        return x, next(items, "end")

    def given(number: int) -> tuple[Any, ...]:
        lengths = [(2, 2), (3, 2), (1, 2), (2, 1), (2, 3)]
        items, weights = lengths[number % len(lengths)]
        return iter(tensors(items)), [0.5, 2.0, 3.0][:weights]

    return Program(fn, given)


@program
def accumulated_numbers_that_were_read() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        sums = list(itertools.accumulate(x.tolist()))
        products = list(itertools.accumulate(x.tolist(), lambda left, right: left * right))
        for total in itertools.accumulate([x.sum().item(), 2.0], initial=next(items)):
            x = x * total
        return x, sums, products

    return fresh(fn, lambda: iter([1.0, 3.0]), lambda: iter([1.0, 4.0]))


@broken
def accumulated_over_a_break() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for total in itertools.accumulate(items):
            stator.graph_break()
            x = x * total
        return x, next(items, "end")

    return fresh(fn, lambda: iter([1.0, 3.0, 5.0]), lambda: iter([1.0, 4.0]))


@broken
def function_that_breaks() -> Program:
    def summed(total: Any, item: Any) -> Any:
        stator.graph_break()
        return total + item

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for place, total in enumerate(itertools.accumulate(items, summed)):
            x = x * total + place
        return x, next(items, "end")

    return fresh(fn, lambda: iter([1.0, 3.0, 5.0]), lambda: iter([1.0, 4.0]))


@broken
def pairs_over_a_break() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        pairs = itertools.pairwise(items)
        longest = itertools.zip_longest(pairs, [1.0])
        for (left, right), other in longest:
            stator.graph_break()
            x = x * left - right + (other or 0)
        return x, next(items, "end"), next(longest, "end")

    return fresh(fn, lambda: iter([1.0, 3.0, 5.0]), lambda: iter([1.0, 4.0]))


@broken
def strict_pairs_that_raise() -> Program:
    def fn(x: Tensor, items: Iterator[Any], weights: list[float]) -> Any:
        for item, weight in zip(items, weights, strict=True):
            x = x * weight + item
        return x, next(items, "end")

    def given(number: int) -> tuple[Any, ...]:
        return iter(tensors(2 + number % 2)), [0.5, 2.0, 3.0]

    return Program(fn, given)


@broken
def kept_for_later() -> Program:
    held: list[Any] = [None]

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        pairs = enumerate(items)
        place, item = next(pairs)
        held[0] = pairs
        return x * place + item

    made = fresh(fn, lambda: iter(tensors(3)), lambda: iter(tensors(2)))
    return Program(made.fn, made.given, lambda: list(held[0]))


@program
def decided_within() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for place, item in enumerate(zip(items, itertools.count())):
            x = x + item[0]
            if x.sum() > 12:
                return x, place, item[1]
        return x, "end"

    return fresh(fn, lambda: iter(tensors(5)), lambda: iter(tensors(4, 2.0)))


@broken
def searched() -> Program:
    """C code takes items of it one by one: it isn't followed."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        return x + 1, (1, 5.0) in enumerate(items), next(items, "end")

    return fresh(fn, lambda: iter([4.0, 5.0, 6.0]), lambda: iter([5.0, 4.0, 6.0]))


@broken
def strict() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item, weight in zip(items, (1.0, 2.0), strict=True):
            x = x * weight + item
        return x

    return fresh(fn, lambda: iter(tensors(2)), lambda: iter(tensors(3)))


@broken
def unpacked() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        (first, left), (second, right) = enumerate(items)
        return x * first + left, x * second + right, next(items, "end")

    return fresh(fn, lambda: iter(tensors(2)), lambda: iter(tensors(3)))


@program
def every_pair() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for scale, item in itertools.product([0.5, 2.0], items):
            x = x * scale + item
        return x, next(items, "end")

    return fresh(fn, lambda: iter(tensors(2)), lambda: iter(tensors(3)))


@program
def every_pair_of_two() -> Program:
    def fn(x: Tensor, items: Iterator[Any], others: Iterator[Any]) -> Any:
        for item, other in itertools.product(items, others, repeat=1):
            x = x * other + item
        return x, next(items, "end"), next(others, "end")

    def given(number: int) -> tuple[Any, ...]:
        return iter(tensors(2 if number < CHANGE else 3)), iter([0.5, 2.0])

    return Program(fn, given)


@program
def combined() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        pairs = list(itertools.combinations(items, 2))
        for left, right in pairs:
            x = x + left * right
        return x, len(pairs), next(items, "end")

    return fresh(fn, lambda: iter(tensors(3)), lambda: iter(tensors(2)))


@program
def permuted() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for left, right in itertools.permutations(items):
            x = x * 0.5 + left - right
        return x, next(items, "end")

    return fresh(fn, lambda: iter([1.0, 3.0]), lambda: iter([1.0, 4.0]))


@broken
def every_pair_with_a_generator_first() -> Program:
    """The generator is asked first, and advances the other one."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for scale, item in itertools.product((next(items) for _ in range(2)), items):
            x = x * scale + item
        return x, next(items, "end")

    return fresh(fn, lambda: iter(tensors(4)), lambda: iter(tensors(3)))


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_plain_python(name: str) -> None:
    stats = check(PROGRAMS[name])
    if name not in BROKEN:
        assert stats.native == 0 and stats.hits > 0, stats.reason
        assert stats.breaks == 0, stats.reason


def test_an_iterator_that_is_shared_is_advanced_once_for_each() -> None:
    def pairs() -> Program:
        def fn(x: Tensor, items: Iterator[Any]) -> Any:
            for left, right in zip(items, items):
                x = x * 0.5 + left - right
            return x, next(items, "end")

        return fresh(fn, lambda: iter(tensors(5)), lambda: iter(tensors(4)))

    check(pairs)


def test_what_it_goes_over_grows_within_the_loop() -> None:
    def grown() -> Program:
        def fn(x: Tensor, items: Iterator[Any], held: list[Any]) -> Any:
            for place, item in enumerate(items):
                x = x + item
                if place == 1:
                    held.append(torch.ones(3))
            return x

        def given(number: int) -> tuple[Any, ...]:
            held = tensors(3 if number < CHANGE else 2)
            return iter(held), held

        return Program(fn, given)

    check(grown)
