"""What a recorded call leaves behind holds the objects that plain Python has for numbers, as what a replay leaves does."""

from __future__ import annotations

import collections
import dataclasses
import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import stator

SMALL = {number: number for number in range(-5, 257)}


class Slotted:
    __slots__ = ("number",)


class Pair(NamedTuple):
    number: int
    other: int


@dataclasses.dataclass
class Kept:
    number: int
    inner: list[Any]


class Place:
    """Where the programs write; each is made anew for a call."""

    number: int = 0

    def __init__(self) -> None:
        self.items: list[Any] = [0]
        self.table: dict[str, Any] = {}
        self.slotted = Slotted()
        self.queue: collections.deque[Any] = collections.deque()
        self.lists: collections.defaultdict[int, list[Any]] = collections.defaultdict(list)


def kept_by_class(place: Any, number: int) -> Any:
    type(place).number = number


# What keeps the number, and where it is found then: in the place or in what the first returns.
KEEPS: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any, Any], Any]]] = {
    "attribute": (lambda p, n: setattr(p, "number", n), lambda p, r: p.number),
    "slot": (lambda p, n: setattr(p.slotted, "number", n), lambda p, r: p.slotted.number),
    "class": (kept_by_class, lambda p, r: type(p).number),
    "item": (lambda p, n: p.table.update(number=n), lambda p, r: p.table["number"]),
    "element": (lambda p, n: p.items.append(n), lambda p, r: p.items[-1]),
    "inserted": (lambda p, n: p.items.insert(0, n), lambda p, r: p.items[0]),
    "deque": (lambda p, n: p.queue.append(n), lambda p, r: p.queue[-1]),
    "defaultdict": (lambda p, n: p.lists[1].append(n), lambda p, r: p.lists[1][-1]),
    "tuple in an attribute": (lambda p, n: setattr(p, "pair", (n, 1)), lambda p, r: p.pair[0]),
    "dict in a dict": (
        lambda p, n: p.table.update(inner={"number": n}),
        lambda p, r: p.table["inner"]["number"],
    ),
    "returned dict": (lambda p, n: {"number": n}, lambda p, r: r["number"]),
    "returned instance": (lambda p, n: Kept(n, []), lambda p, r: r.number),
    "returned deeply": (
        lambda p, n: Kept(0, [{"a": (n, [n])}]),
        lambda p, r: r.inner[0]["a"][1][0],
    ),
    "named tuple": (lambda p, n: Pair(n, 1), lambda p, r: r.number),
    "namespace": (lambda p, n: SimpleNamespace(number=n), lambda p, r: r.number),
    "new deque": (lambda p, n: collections.deque([n]), lambda p, r: r[0]),
    "closure": (lambda p, n: lambda: n, lambda p, r: r()),
    "default": (lambda p, n: lambda number=n: number, lambda p, r: r()),
    "partial": (lambda p, n: functools.partial(int, n), lambda p, r: r.args[0]),
    "iterator": (lambda p, n: iter([n]), lambda p, r: next(r)),
    "generator": (lambda p, n: (each for each in [n]), lambda p, r: next(r)),
}

NUMBERS: dict[str, Callable[[int], int]] = {"given": lambda n: n, "computed": lambda n: n + 1}


def unbroken(keep: Any, make: Any) -> Any:
    def run(x: Any, place: Any, n: int) -> Any:
        number = make(n)
        return keep(place, number), x * number

    return run


def broken_before(keep: Any, make: Any) -> Any:
    def run(x: Any, place: Any, n: int) -> Any:
        number = make(n)
        stator.graph_break()
        return keep(place, number), x * number

    return run


def broken_behind(keep: Any, make: Any) -> Any:
    def run(x: Any, place: Any, n: int) -> Any:
        number = make(n)
        kept = keep(place, number)
        stator.graph_break()
        return kept, x * number

    return run


@pytest.mark.parametrize("program", [unbroken, broken_before, broken_behind])
@pytest.mark.parametrize("make", NUMBERS)
@pytest.mark.parametrize("where", KEEPS)
def test_small_ints_that_are_kept_are_the_shared_ones(where: str, make: str, program: Any) -> None:
    keep, read = KEEPS[where]
    compiled = stator.compile(program(keep, NUMBERS[make]))
    for n in (3, 4, 5, 6, 6, -5, 255):
        place = Place()
        kept, scaled = compiled(torch.ones(2), place, n)
        number = NUMBERS[make](n)
        found = read(place, kept)
        assert type(found) is int and found is SMALL[number]
        assert scaled.tolist() == [number, number]


@pytest.mark.parametrize("program", [unbroken, broken_before, broken_behind])
@pytest.mark.parametrize("where", KEEPS)
def test_an_argument_that_is_kept_is_found_as_itself(where: str, program: Any) -> None:
    keep, read = KEEPS[where]
    compiled = stator.compile(program(keep, NUMBERS["given"]))
    for n in (1003, 1004, 1005, 1006, 2.5, 3.5):
        place = Place()
        kept, _ = compiled(torch.ones(2), place, n)
        assert read(place, kept) is n


def behind_a_break(x: Any, n: int) -> Any:
    text = "a" + str(n)
    same = text is "a" + str(n)  # noqa: F632 -- two texts: the graph breaks here, and the number is fixed
    after = n + 1
    return n is after - 1, after is n + 1, same, x * n


def test_small_ints_behind_a_break_are_one_object() -> None:
    compiled = stator.compile(behind_a_break)
    for n in (3, 4, 99, 255, -5, -5, -4, 3):
        expected, found = behind_a_break(torch.ones(2), n), compiled(torch.ones(2), n)
        assert found[:3] == expected[:3] == (True, True, False)


def test_c_code_at_a_break_keeps_what_it_has_borrowed() -> None:
    def halved(*given: Any, **named: Any) -> Any:
        return torch.quantile(*given, **named)

    compiled = stator.compile(halved, dynamic=True)
    for part in (0.25, 0.5, 0.75):
        x = torch.arange(5.0)
        assert torch.equal(compiled(x, part), halved(x, part))
        assert torch.equal(compiled(x, q=part, dim=0), halved(x, q=part, dim=0))


def test_small_ints_are_one_object_where_a_frame_goes_on_natively() -> None:
    def limited(x: Any, n: int) -> Any:
        text = "a" + str(n)
        stator.graph_break()
        after = n + 1
        if text == "a-5":
            stator.graph_break()
        return n is after - 1, x * n

    compiled = stator.compile(limited, recompile_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stator.RecompileLimitWarning)
        for n in (3, 4, 99, 255, -5, -4, 7, -5):
            assert compiled(torch.ones(2), n)[0] is True


# What holds the number where C code has put it, and how it's taken out.
HOLDS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "set": (lambda n: {n}, lambda r: next(iter(r))),
    "set of several": (lambda n: {n, 1000, "a"}, lambda r: next(i for i in r if i in SMALL)),
    "set from a list": (lambda n: set([n]), lambda r: next(iter(r))),  # noqa: C405
    "set comprehension": (lambda n: {i for i in [n]}, lambda r: next(iter(r))),  # noqa: C416
    "frozenset": (lambda n: frozenset((n,)), lambda r: next(iter(r))),
    "key": (lambda n: {n: "a"}, lambda r: next(iter(r))),
    "key among texts": (lambda n: {"a": 1, n: "a", "b": 2}, lambda r: list(r)[1]),
    "key of a comprehension": (lambda n: {i: 1 for i in [n]}, lambda r: next(iter(r))),  # noqa: C420
    "key from fromkeys": (lambda n: dict.fromkeys([n]), lambda r: next(iter(r))),
    "key in a counter": (lambda n: collections.Counter([n]), lambda r: next(iter(r))),
    "slice": (lambda n: slice(n), lambda r: r.stop),
    "slice from": (lambda n: slice(n, None), lambda r: r.start),
    "range": (lambda n: range(n), lambda r: r.stop),
    "range from": (lambda n: range(n, 300), lambda r: r.start),
}


@pytest.mark.parametrize("program", [unbroken, broken_before, broken_behind])
@pytest.mark.parametrize("make", NUMBERS)
@pytest.mark.parametrize("holds", HOLDS)
def test_small_ints_that_c_code_holds_are_the_shared_ones(
    holds: str, make: str, program: Any
) -> None:
    hold, read = HOLDS[holds]
    compiled = stator.compile(program(lambda p, n: hold(n), NUMBERS[make]))
    for n in (3, 4, 5, 6, 6, -5, 255):
        kept, scaled = compiled(torch.ones(2), Place(), n)
        number = NUMBERS[make](n)
        assert kept == hold(number) and read(kept) is SMALL[number]
        assert scaled.tolist() == [number, number]


@pytest.mark.parametrize("make", NUMBERS)
def test_small_ints_in_outside_sets_and_keys_are_the_shared_ones(make: str) -> None:
    names: set[Any] = set()
    table: dict[Any, Any] = {}

    def run(x: Any, n: int) -> Any:
        number = NUMBERS[make](n)
        names.add(number)
        table[number] = x
        table.setdefault((number, 1), number)
        return x * number

    compiled = stator.compile(run)
    for n in (3, 4, 5, 6, 6, -5, 255):
        names.clear()
        table.clear()
        compiled(torch.ones(2), n)
        number = SMALL[NUMBERS[make](n)]
        assert next(iter(names)) is number and next(iter(table)) is number
        assert table[number, 1] is number and list(table)[1][0] is number


class Sized:
    def __init__(self, size: Any) -> None:
        self.size = size


# A tuple of numbers that is an argument is found again: how, and how it is read there.
AGAIN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "argument": (lambda t: t, lambda it: it[1]),
    "list": (lambda t: [t, 1], lambda it: it[0][1]),
    "lists": (lambda t: [[t], 1], lambda it: it[0][0][1]),
    "loop": (lambda t: [t, t], lambda it: sum(b for _, b in it)),
    "tuple": (lambda t: (3, t), lambda it: it[1][1]),
    "attribute": (Sized, lambda it: it.size[1]),
    "dictionary": (lambda t: {"k": t}, lambda it: it["k"][1]),
    "dictionary of all": (lambda t: {"k": t}, lambda it: sum(b for _, b in it.values())),
    "unpacked": (lambda t: [t, 4], lambda it: (lambda pair, rest: pair[1] * rest)(*it)),
    "closure": (lambda t: lambda: t, lambda it: it()[1]),
    "default": (lambda t: lambda of=t: of[1], lambda it: it()),
    "sorted": (lambda t: [t], lambda it: sorted(it)[0][1]),
    "partial": (lambda t: functools.partial(max, t, (0, 0)), lambda it: it()[1]),
    "set": (lambda t: {t}, lambda it: next(iter(it))[1]),
    "deque": (lambda t: collections.deque([t]), lambda it: it[0][1]),
    "key": (lambda t: {t: 1}, lambda it: next(iter(it))[1]),
}


@pytest.mark.parametrize("order", ["before", "behind", "broken"])
@pytest.mark.parametrize("setting", [{}, {"dynamic": True}], ids=["varied", "dynamic"])
@pytest.mark.parametrize("name", AGAIN)
def test_a_tuple_that_is_found_twice_has_its_numbers_in_both_places(
    name: str, setting: Any, order: str
) -> None:
    again, read = AGAIN[name]

    def run(x: Any, size: Any, place: Any) -> Any:
        if order == "before":
            first = size[0] + size[1]
            return x * first, first, read(place)
        first = read(place)
        if order == "broken":
            torch._dynamo.graph_break()
        return x * first, first, size[0] + size[1] + read(place)

    compiled = stator.compile(run, recompile_limit=99, **setting)
    with stator.config.patch(skip_unprofitable=False):
        for size in [(40, 3), (2, 600), (2, 601), (40, 600), (40, 3), (9, 10), (11, 12), (7, 7)]:
            size = (size[0], size[1])
            found = compiled(torch.ones(2), size, again(size))
            expected = run(torch.ones(2), size, again(size))
            assert found[1:] == expected[1:] and torch.equal(found[0], expected[0])
            # The same numbers in another tuple.
            found = compiled(torch.ones(2), size, again((size[0], size[1] + 1)))
            assert found[1:] == run(torch.ones(2), size, again((size[0], size[1] + 1)))[1:]
