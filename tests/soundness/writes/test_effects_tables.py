"""Outside dictionaries written: entries, order, and keys that are equal."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..worlds import World, agree

# Dictionaries: order, and entries under equal keys


def test_entry_deleted_and_made_again_moves() -> None:
    def fn(x: Tensor, d: dict[str, Any]) -> Tensor:
        d["a"] = 1
        d["b"] = 2
        del d["a"]
        d["a"] = 3
        return x * d["a"]

    agree(lambda: World(fn, ({"a": 0, "z": 0},), None), replays=False, again=4)
    agree(lambda: World(fn, ({},), None), replays=False, again=4)


class Tables:
    """Dictionaries to write to."""

    def __init__(self) -> None:
        self.d: dict[Any, Any] = {"a": 1, "b": 2, "c": 3}
        self.e: dict[Any, Any] = {"a": 1, "b": 2, "c": 3}
        self.o: collections.OrderedDict[Any, Any] = collections.OrderedDict(self.d)
        self.f: collections.defaultdict[Any, Any] = collections.defaultdict(list, a=[1])
        self.sub = Loud(a=1)


class Loud(dict[Any, Any]):
    """Its values are doubled."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value * 2)


def clear_table(x: Tensor, s: Tables) -> Any:
    n = len(s.d)
    s.d.clear()
    s.d["z"] = x
    return x * n, list(s.d)


def update_table(x: Tensor, s: Tables) -> Any:
    s.d.update({"b": 5, "n": x}, q=1)
    s.d.update([("c", 2), (("t", 1), 3)])
    s.d |= {"a": 0}
    return x * s.d["b"], list(s.d.items())


def pop_of_table(x: Tensor, s: Tables) -> Any:
    a = s.d.pop("a", 7)
    missing = s.d.pop("nope", 8)
    last = s.d.popitem() if s.d else None
    return x * a + missing, last, list(s.d)


def pop_raises(x: Tensor, s: Tables) -> Any:
    try:
        return x * s.d.pop("a")
    except KeyError:
        return x - 1


def set_defaults(x: Tensor, s: Tables) -> Any:
    made = s.d.setdefault("m", [x])
    old = s.d.setdefault("a", 9)
    return x * old, len(made), list(s.d)


def move_in_order(x: Tensor, s: Tables) -> Any:
    s.o.move_to_end("a")
    s.o["n"] = x
    s.o.move_to_end("c", last=False)
    s.o["b"] = 9
    return list(s.o.items())


def pop_in_order(x: Tensor, s: Tables) -> Any:
    first = s.o.popitem(last=False)
    del s.o["c"]
    s.o["c"] = 4
    s.o.update(first=first)
    return x + 1, first, list(s.o)


def least_recently_used(x: Tensor, s: Tables) -> Any:
    if "k" in s.o:
        s.o.move_to_end("k")
        return s.o["k"] + x
    s.o["k"] = x * 2
    if len(s.o) > 3:
        s.o.popitem(last=False)
    return x


def default_table(x: Tensor, s: Tables) -> Any:
    s.f["a"].append(x)
    s.f["b"] = [2]
    return x + len(s.f)


def table_of_a_class(x: Tensor, s: Tables) -> Any:
    s.sub["k"] = 4
    s.sub.update(z=3)
    return x * s.sub["k"] + s.sub["z"]


def delete_and_make(x: Tensor, s: Tables) -> Any:
    del s.d["a"]
    s.d["y"] = 1
    s.d["a"] = 2
    s.d["b"] = 3
    return x + 1


def tables_that_may_be_one(x: Tensor, s: Tables) -> Any:
    s.d.pop("c")
    s.e["c"] = 5
    return x * len(s.e), list(s.e)


TABLES = [
    clear_table,
    update_table,
    pop_of_table,
    pop_raises,
    set_defaults,
    move_in_order,
    pop_in_order,
    least_recently_used,
    default_table,
    table_of_a_class,
    delete_and_make,
    tables_that_may_be_one,
]


def _reset_tables(world: World) -> None:
    s = world.args[0]
    for table in (s.d, s.e, s.o):
        table.clear()
        table.update(a=1, b=2, c=3)


def _other_tables(world: World) -> None:
    s = world.args[0]
    for table in (s.d, s.e, s.o):
        table.clear()
        table.update(c=1, x=torch.zeros(1), b=2, a=4)


def _one_table(world: World) -> None:
    _reset_tables(world)
    world.args[0].e = world.args[0].d


@pytest.mark.parametrize("fn", TABLES, ids=lambda fn: fn.__name__)
def test_table_written(fn: Callable[..., Any]) -> None:
    steps = (_reset_tables, _other_tables, _reset_tables, _one_table, _reset_tables)
    compiled = agree(lambda: World(fn, (Tables(),)), *steps, replays=False, again=1)
    if not api.PLAIN:
        assert compiled.stats.native == 0, compiled.stats.reason
        assert compiled.stats.hits >= 1


def test_keys_that_are_equal() -> None:
    def fn(x: Tensor, d: dict[Any, Any]) -> Tensor:
        d[1000] = [1]
        d[500 + int(len(d) > 0) * 500].append(2)
        d[True] = 5
        return x * d[1.0] + len(d[1000])

    agree(lambda: World(fn, ({},), None), replays=False, again=4)


def test_the_key_an_entry_was_made_with() -> None:
    def fn(x: Tensor, d: dict[Any, Any]) -> Tensor:
        missing = d.get(1.0, 4)
        d[True] = 5
        return x * missing + d[1]

    def empty(world: World) -> None:
        world.args[0].clear()

    agree(lambda: World(fn, ({},)), empty, empty, again=1)


def test_dictionaries_written_in_turn() -> None:
    def fn(x: Tensor, a: dict[str, Any], b: dict[str, Any]) -> Tensor:
        a["k"] = 1
        b["k"] = 2
        a["k"] = 3
        return x + 1

    def alias(world: World) -> None:
        world.args = (world.args[0], world.args[0])

    agree(lambda: World(fn, ({"k": 0}, {"k": 0})), alias)


def test_length_behind_the_write_of_a_key() -> None:
    def fn(x: Tensor, d: dict[str, Any]) -> Tensor:
        d["new"] = 1
        return x * len(d)

    def other(world: World) -> None:
        del world.args[0]["new"]
        world.args[0]["other"] = 1

    agree(lambda: World(fn, ({"k": 0, "new": 0},)), other, replays=False)


def test_keys_counted_behind_a_write() -> None:
    def fn(x: Tensor, a: dict[str, Any], b: dict[str, Any]) -> Tensor:
        a["new"] = 1
        return x * len(b)

    def empty(world: World) -> None:
        for arg in world.args:
            arg.pop("new", None)

    def alias(world: World) -> None:
        world.args = (world.args[0], world.args[0])
        empty(world)

    agree(lambda: World(fn, ({"k": 0}, {"k": 0})), empty, alias, empty, replays=False)
