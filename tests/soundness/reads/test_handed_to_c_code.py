"""Containers from outside that Python code, or another iterator, hands to C code which looks into them: each is guarded."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from soundness.probe import Probe

Give = Callable[[list[Any]], Iterable[Any]]


def generated(rows: list[Any]) -> Iterator[Any]:
    yield from rows


class Rows:
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __getitem__(self, at: int) -> Any:
        return self.rows[at]


def values(rows: list[Any]) -> Iterable[Any]:
    by_place = {}
    for at, row in enumerate(rows):
        by_place[at] = row
    return by_place.values()


GIVEN: dict[str, Give] = {
    "generator": generated,
    "generator expression": lambda rows: (row for row in rows),
    "map": lambda rows: map(lambda at: rows[at], range(len(rows))),
    "object": Rows,
    "values": values,
    "iterator": iter,
    "reversed": reversed,
}

READ: dict[str, Callable[[Iterable[Any]], Any]] = {
    "map, len": lambda it: list(map(len, it)),
    "map, tuple": lambda it: list(map(tuple, it)),
    "map, set": lambda it: [len(found) for found in map(set, it)],
    "map, str": lambda it: ";".join(map(str, it)),
    "map, not": lambda it: list(map(operator.not_, it)),
    "map, loop": lambda it: [length + 1 for length in map(len, it)],
    "map, next": lambda it: next(map(len, iter(it))),
    "map, extend": lambda it: functools.reduce(operator.iadd, [map(len, it)], [0]),
    "sum": lambda it: sum(map(len, it)),
    "sorted": lambda it: list(map(len, sorted(it, key=len))),
    "filter": lambda it: len(list(filter(None, it))),
    "takewhile": lambda it: len(list(itertools.takewhile(len, it))),
    "groupby": lambda it: [key for key, _ in itertools.groupby(it, key=len)],
    "compress": lambda it: list(itertools.compress("abc", it)),
    "chain": lambda it: list(itertools.chain.from_iterable(it)),
    "starmap": lambda it: list(itertools.starmap(lambda *parts: len(parts), it)),
    "any": lambda it: any(it),
    "all": lambda it: all(it),
    "zip": lambda it: list(zip(map(len, it), "abc", strict=False)),
}

ROWS: dict[str, tuple[Callable[[], list[Any]], Callable[[Any], object]]] = {
    "dict": (lambda: [{"a": 1}, {"b": 2}], lambda row: row.update(c=3)),
    "ordered dict": (lambda: [OrderedDict(a=1), OrderedDict(b=2)], lambda row: row.update(c=3)),
    "deque": (lambda: [deque([1]), deque([2, 3])], lambda row: row.append(4)),
    "list": (lambda: [[1], [2, 3]], lambda row: row.append(4)),
    "set": (lambda: [{1}, {2, 3}], lambda row: row.add(4)),
    "bytes": (lambda: [bytearray(b"a"), bytearray(b"bc")], lambda row: row.append(100)),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("read", READ)
def test_handed_containers(given: str, read: str) -> None:
    give, reader = GIVEN[given], READ[read]
    for make, change in ROWS.values():
        api.reset()
        rows = make()

        def fn(x: Tensor) -> tuple[Any, Tensor]:
            return reader(give(rows)), x + 1  # noqa: B023

        probe = Probe(fn)
        x = torch.ones(2)
        for row in (None, *rows):
            if row is not None:
                change(row)
            for _ in range(2):
                probe.right(x)
        for row in rows:
            row.clear()
            for _ in range(2):
                probe.right(x)


NESTED: dict[str, Callable[[Iterable[Any]], Any]] = {
    "itemgetter": lambda it: list(map(operator.itemgetter("a"), it)),
    "methodcaller": lambda it: list(map(operator.methodcaller("get", "a"), it)),
    "dict": lambda it: list(map(dict, it)),
    "items": lambda it: list(map(dict.items, it)),
    "merged": lambda it: functools.reduce(operator.or_, it),
    "text": lambda it: list(map(str, it)),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("read", NESTED)
def test_values_of_handed_dictionaries(given: str, read: str) -> None:
    give, reader = GIVEN[given], NESTED[read]
    api.reset()
    rows: list[Any] = [{"a": 1}, {"a": {"deep": [2]}}]

    def fn(x: Tensor) -> tuple[Any, Tensor]:
        return reader(give(rows)), x + 1

    probe = Probe(fn)
    x = torch.ones(2)
    probe.right(x)
    probe.right(x)
    rows[0]["a"] = 5
    probe.right(x)
    probe.right(x)
    rows[1]["a"]["deep"].append(3)
    for _ in range(2):
        probe.right(x)


class Counted:
    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"<{self.count}>"

    def __str__(self) -> str:
        return f"({self.count})"


@pytest.mark.parametrize(
    "show", [lambda it: repr(it), lambda it: f"{it}", lambda it: str(it), lambda it: "%s" % it]
)
def test_texts_that_c_code_puts_together(show: Callable[[Any], str]) -> None:
    """A number that changes from call to call is spelt by `__repr__`, which a list's own `repr` calls."""
    api.reset()
    counted = [Counted(), Counted()]

    def step(x: Tensor, it: list[Counted]) -> tuple[str, Tensor]:
        for one in it:
            one.count += 1
        return show([*it]), x + 1

    compiled = api.compile(step)
    x = torch.ones(2)
    for at in range(6):
        assert compiled(x, counted)[0] == show([*counted]), at


def decorated(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any) -> Any:
        return method(*args)

    return call


class Shown:
    def __init__(self, count: int) -> None:
        self.count = count

    __repr__ = lambda self: f"<{self.count}>"  # noqa: E731
    __len__ = lambda self: self.count  # noqa: E731
    __float__ = lambda self: self.count / 2  # noqa: E731


class Decorated(Shown):
    @decorated
    def __repr__(self) -> str:
        return f"[{self.count}]"

    @decorated
    def __len__(self) -> int:
        return self.count + 1


class InCell(Shown):
    def __repr__(self) -> str:
        return "".join(f"{self.count + i}" for i in range(2))

    __str__ = functools.partialmethod(decorated(lambda self, more: f"{self.count}{more}"), "!")


def in_a_list(one: Any) -> Any:
    return repr([one]), f"{[one]}", "%s" % [one]


def by_map(one: Any) -> Any:
    return ",".join(map(str, [one, one])), list(map(len, [one]))


def by_functions(one: Any) -> Any:
    return len(one), float(one), str(one), "{}".format(one), bool(one), list(map(float, [one]))


@pytest.mark.parametrize("read", [in_a_list, by_map, by_functions])
@pytest.mark.parametrize("kind", [Shown, Decorated, InCell])
def test_special_methods_by_any_name(
    kind: Callable[[int], Any], read: Callable[[Any], Any]
) -> None:
    """C code that converts what a special method gives knows the method, whatever its code is called."""
    api.reset()

    def step(x: Tensor, count: int) -> Any:
        return read(kind(count)), x + count

    compiled = api.compile(step)
    for count in (2, 2, 3, 4, 5, 5, 7):
        found, y = compiled(torch.ones(2), count)
        assert found == read(kind(count)), count
        assert y[0] == 1 + count


class Plain:
    pass


@pytest.mark.parametrize("given", GIVEN)
def test_texts_of_objects_hold_addresses(given: str) -> None:
    api.reset()
    give = GIVEN[given]
    probe = Probe(lambda x, rows: (list(map(str, give(rows))), x + 1))
    for _ in range(4):
        probe.right(torch.ones(2), [Plain()])
    for _ in range(4):
        probe.right(torch.ones(2), [functools.partial(max, [1])])
