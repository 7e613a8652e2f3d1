"""Iterators of C code that look at numbers: at those that what they go over was given later, and at no others."""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

CALLS = 6

PROGRAMS: dict[str, Callable[[Tensor], Any]] = {}
WHOLE: set[str] = set()


def program(fn: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


def whole(fn: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """One that doesn't break the graph."""
    WHOLE.add(fn.__name__)
    return program(fn)


@program
def mapped_before_it_is_added(x: Tensor) -> Any:
    values: list[float] = []
    roots = map(math.sqrt, values)
    values.append(x.sum().item())
    return list(roots), x + 1


@program
def looked_up_before_it_is_set(x: Tensor) -> Any:
    held = {"a": 1.0}
    found = map(math.sqrt, map(held.__getitem__, ["a", "a"]))
    held["a"] = x.sum().item()
    return list(found), x + 1


@program
def accumulated_before_it_is_added(x: Tensor) -> Any:
    values = [1.0]
    sums = itertools.accumulate(values)
    values.append(x.sum().item())
    return list(sums), x + 1


@program
def accumulated_by_the_program(x: Tensor) -> Any:
    values = [1.0]
    sums = itertools.accumulate(values, lambda total, value: total * 0.5 + value)
    values.append(x.sum().item())
    return list(sums), x + 1


@program
def starmapped_before_it_is_added(x: Tensor) -> Any:
    pairs = [(1.0, 2.0)]
    products = itertools.starmap(operator.mul, pairs)
    pairs.append((x.sum().item(), 3.0))
    return list(products), x + 1


@program
def filtered_by_truth(x: Tensor) -> Any:
    values = [1.0]
    kept = filter(None, values)
    values.append((x.sum() > 6).item())
    return len(list(kept)), x + 1


@program
def filtered_by_a_function(x: Tensor) -> Any:
    kept = filter(lambda part: (part - 3).clamp(min=0).item(), x.unbind())
    return len(list(kept)), x + 1


@program
def taken_while(x: Tensor) -> Any:
    values: list[float] = [2.0]
    kept = itertools.takewhile(lambda value: value < 12, values)
    values.append(x.sum().item())
    return len(list(kept)), x + 1


@program
def within_a_zip(x: Tensor) -> Any:
    values: list[float] = [1.0]
    pairs = zip("ab", map(math.floor, values))
    values.append(x.sum().item())
    return dict(pairs), x + 1


@program
def within_pairs(x: Tensor) -> Any:
    values: list[float] = [1.0]
    pairs = itertools.pairwise(map(math.floor, values))
    values.append(x.sum().item())
    return list(pairs), x + 1


@program
def within_the_longest(x: Tensor) -> Any:
    values: list[float] = []
    pairs = itertools.zip_longest(map(math.sqrt, values), [1, 2])
    values.append(x.sum().item())
    return list(pairs), x + 1


@program
def looped_within_a_zip(x: Tensor) -> Any:
    values: list[float] = []
    pairs = zip([1, 2], map(math.sqrt, values))
    values.append(x.sum().item())
    found = []
    for pair in pairs:
        found.append(pair)  # noqa: PERF402
    return found, x + 1


@program
def delegated_to(x: Tensor) -> Any:
    values: list[float] = []
    roots = map(math.sqrt, values)

    def given() -> Iterator[float]:
        yield from roots

    values.append(x.sum().item())
    return list(given()), x + 1


@program
def yielded_to_a_map(x: Tensor) -> Any:
    number = x.sum().item()

    def values() -> Iterator[float]:
        yield 1.0
        yield number

    return list(map(math.sqrt, values())), x + 1


@program
def yielded_and_unpacked(x: Tensor) -> Any:
    def values() -> Iterator[float]:
        yield 1.0
        yield x.sum().item()

    first, second = map(math.sqrt, values())
    return first, second, x + 1


@program
def looped(x: Tensor) -> Any:
    values = [1.0]
    found = []
    for root in map(math.sqrt, values):
        found.append(root)
        if len(values) < 3:
            values.append(x.sum().item() + len(values))
    return found, x + 1


@program
def next_of_it(x: Tensor) -> Any:
    values: list[float] = []
    roots = map(math.sqrt, values)
    values.append(x.sum().item())
    return next(roots), next(roots, "end"), x + 1


@program
def searched(x: Tensor) -> Any:
    values: list[float] = []
    whole_parts = map(math.floor, values)
    values.append(x.sum().item())
    return 11 in whole_parts, x + 1


@program
def put_into_a_slice(x: Tensor) -> Any:
    values: list[float] = []
    found: list[Any] = [0, 0]
    roots = map(math.sqrt, values)
    values.append(x.sum().item())
    found[1:] = roots
    return found, x + 1


@program
def added_in_place(x: Tensor) -> Any:
    values: list[float] = []
    found: list[Any] = [0]
    roots = map(math.sqrt, values)
    values.append(x.sum().item())
    found += roots
    return found, x + 1


@program
def display(x: Tensor) -> Any:
    values: list[float] = []
    roots = map(math.sqrt, values)
    values.append(x.sum().item())
    return [*roots], x + 1


@program
def arguments(x: Tensor) -> Any:
    values: list[float] = []
    roots = map(math.sqrt, values)
    values.append(x.sum().item())
    return max(0.0, *roots), x + 1


@whole
def beside_other_numbers(x: Tensor) -> Any:
    """What a `map` of C code can't reach stays a number that was read."""
    scale = x.sum().item()
    shapes = list(map(Tensor.dim, x.unbind()))
    detached: list[Tensor] = []
    detached.extend(map(Tensor.detach, x.unbind()))
    return x * scale, shapes, detached


@whole
def read_behind_it(x: Tensor) -> Any:
    longest = max(map(len, ["a", "bcd"]))
    scale = x.sum().item()
    return x * scale + longest


@whole
def powers_of_zero(x: Tensor) -> Any:
    """As `Adam` does with a beta of zero."""
    number = x.sum().item()
    return x * (1 - 0.0**number), x + (-0.0) ** number


@program
def largest_ones(x: Tensor) -> Any:
    pool = [(0.5, 1), (0.25, 2), (0.75, 3), (0.125, 4)]
    return x * heapq.nsmallest(2, pool)[1][0], heapq.nsmallest(3, [3, 1, 2, 5, 4]), pool


def compare(fn: Callable[[Tensor], Any]) -> stator.Stats:
    compiled = stator.compile(fn)
    for number in range(CALLS):
        x = torch.arange(3.0) + number * 1.375
        expected, found = fn(x.clone()), compiled(x.clone())
        assert repr(expected) == repr(found), (number, expected, found)
    return stator.stats(compiled)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_plain_python(name: str) -> None:
    compare(PROGRAMS[name])
    with stator.config.patch(skip_unprofitable=False):
        stats = compare(PROGRAMS[name])
    if name in WHOLE:
        assert (stats.breaks, stats.native) == (0, 0) and stats.hits > 0, stats.reason


@pytest.mark.parametrize("number", [0.0, -1.0])
def test_powers_of_zero_that_change(number: float) -> None:
    """A power that isn't positive leaves the trace: it is one, or raises."""

    def power(x: Tensor) -> Any:
        return x + 0.0 ** x.sum().item()

    compiled = stator.compile(power)
    with stator.config.patch(skip_unprofitable=False):
        for given in (2.0, 3.0, number, 2.0, number):
            x = torch.tensor([given])
            if given < 0:
                with pytest.raises(ZeroDivisionError) as plain:
                    power(x)
                with pytest.raises(ZeroDivisionError) as found:
                    compiled(x)
                assert str(plain.value) == str(found.value)
            else:
                assert torch.equal(power(x), compiled(x))
