"""`types.MappingProxyType` from outside: tables of constants, signatures' parameters, members of enumerations."""

from __future__ import annotations

import collections
import enum
import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

X = torch.arange(3.0)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class World:
    """What programs read, and the dictionary behind it."""

    def __init__(self) -> None:
        self.plain: dict[str, Any] = {"a": 1, "b": 2.5}
        self.ordered: collections.OrderedDict[str, Any] = collections.OrderedDict(a=1, b=2)
        self.table = types.MappingProxyType(self.plain)
        self.order = types.MappingProxyType(self.ordered)
        self.chained = types.MappingProxyType(collections.ChainMap({"a": 3}, {"b": 4}))
        self.signature = inspect.signature(lambda a, b, *, c=1: 0)


PROGRAMS: dict[str, Callable[[Tensor, World], Any]] = {
    "chain": lambda x, w: x * w.chained["a"] + len(w.chained),
    "class": lambda x, w: (x * Color.__dict__["RED"].value, "BLUE" in vars(Color)),
    "contains": lambda x, w: x if "c" in w.table else -x,
    "copy": lambda x, w: (x, w.table.copy()),
    "get": lambda x, w: x * w.table.get("a", 5) + w.table.get("c", 7),
    "item": lambda x, w: x * w.table["a"],
    "items": lambda x, w: [(key, x * value) for key, value in w.table.items()],
    "items, ordered": lambda x, w: [(key, x * value) for key, value in w.order.items()],
    "iterated": lambda x, w: ([key for key in w.table], x),
    "length": lambda x, w: x * len(w.table),
    "members": lambda x, w: [x * member.value for member in Color.__members__.values()],
    "method": lambda x, w: (get := w.table.get) and x * get("b"),
    "missing": lambda x, w: x * w.table["c"],
    "same": lambda x, w: (x, w.table is w.table, w.table == w.plain),
    "signature": lambda x, w: (x, [p.name for p in w.signature.parameters.values()]),
    "signature, any": lambda x, w: (
        x,
        any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in w.signature.parameters.values()),
    ),
    "spread": lambda x, w: ([*w.table, *w.order], x),
    "values": lambda x, w: [x * value for value in w.table.values()],
    "taken": lambda x, w: (
        (sorted(w.table), list(w.table), tuple(w.order), set(w.table), max(w.table), dict(w.order)),
        (list(zip(w.table, "abc", strict=False)), list(enumerate(w.order)), ",".join(w.table)),
        ({"z": 1} | dict(w.table), bool(w.table), all(w.table), x * len(w.table)),
    ),
    "written": lambda x, w: (w.plain.update(d=4), x * w.table["d"], w.plain.pop("d")),
}


def play(call: Callable[[Tensor, World], Any]) -> list[str]:
    world, played = World(), []

    def step() -> None:
        for _ in range(3):
            try:
                played.append(repr(call(X, world)))
            except KeyError as error:
                played.append(repr(error))

    step()
    world.plain["a"] = 3
    step()
    world.plain["c"] = 4
    world.ordered.move_to_end("a")
    step()
    del world.plain["a"], world.plain["c"]
    world.plain["a"] = 5
    step()
    world.table = types.MappingProxyType({"b": 9, "a": 8})
    world.order = types.MappingProxyType(collections.OrderedDict(b=1))
    world.signature = inspect.signature(lambda a, *args: 0)
    step()
    return played


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_proxy_shows_what_is_behind_it(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = stator.compile(program, dynamic=dynamic, recompile_limit=99)
    assert play(compiled) == play(program)


@pytest.mark.parametrize(
    "name", sorted({*PROGRAMS} - {"chain", "class", "missing", "same", "spread"})
)
def test_a_proxy_breaks_no_graph(name: str) -> None:
    compiled, world = stator.compile(PROGRAMS[name]), World()
    for _ in range(3):
        compiled(X, world)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks) == (1, 0), stats.reason


class Sizes:
    """Has attributes."""

    rows: int

    def __init__(self, **sizes: int) -> None:
        vars(self).update(sizes)


class Held:
    """An object, and what shows its attributes."""

    def __init__(self, show: Callable[[dict[str, int]], Any]) -> None:
        self.sizes = Sizes(rows=1)
        self.shown = show(vars(self.sizes))


@pytest.mark.parametrize("show", [types.MappingProxyType, dict.keys, dict.values, dict.items])
def test_another_object_is_shown(show: Callable[[dict[str, int]], Any]) -> None:
    def calls(wrap: Callable[[Any], Any]) -> list[str]:
        held = Held(show)

        def program(x: Tensor) -> Any:
            return x * held.sizes.rows, len(vars(held.sizes)), len(held.shown)

        run = wrap(program)
        found = [run(X) for _ in range(3)]
        other = Sizes(rows=1, columns=5)
        held.shown = show(vars(other))
        found += [run(X) for _ in range(3)]
        vars(other)["depth"] = 7
        return [repr(result) for result in found + [run(X) for _ in range(3)]]

    with stator.config.patch(skip_unprofitable=False):
        assert calls(stator.compile) == calls(lambda fn: fn)
