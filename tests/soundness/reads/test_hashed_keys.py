"""Keys that say in Python what they hash to and equal, named tuples, frozen sets and tuples of objects: an outside dictionary
is asked for their hash, and what their methods read is guarded."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import stator

X = torch.arange(1.0, 4.0)
CALLS: list[Any] = []


@dataclass(frozen=True)
class Spec:
    size: int
    sigma: float = 1.0
    kind: object = torch.float32


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    inner: Spec


class Pair(NamedTuple):
    left: int
    right: Any = 0


class Told:
    """Says what it is asked."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        CALLS.append(("hash", self.value))
        return self.value % 8

    def __eq__(self, other: object) -> bool:
        CALLS.append(("eq", self.value, getattr(other, "value", None)))
        return isinstance(other, Told) and self.value == other.value


class Refusing:
    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        if self.value == 3:
            raise ValueError("no hash")
        return 7

    def __eq__(self, other: object) -> bool:
        raise TypeError("not comparable")


class Missing(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        CALLS.append("missing")
        return 9


def by_get(x: Tensor, d: dict[Any, Any], key: Any) -> Any:
    return x * 2, d.get(key), d.get(key, -1)


def by_item(x: Tensor, d: dict[Any, Any], key: Any) -> Any:
    try:
        found = d[key]
    except KeyError as error:
        return x + 1, error.args[0] is key
    return x * 2, found


def by_membership(x: Tensor, d: dict[Any, Any], key: Any) -> Any:
    return (x * 2, 1) if key in d else (x * 3, key not in d)


def made_within(x: Tensor, d: dict[Any, Any], key: Any) -> Any:
    own = Spec(x.shape[0], 2.0)
    return x * d.get(own, 5), (own, 1) in d, d.get(Pair(3, own))


WAYS = [by_get, by_item, by_membership, made_within]
Change = Callable[[dict[Any, Any]], Any]


def shown(call: Callable[[], Any]) -> Any:
    CALLS.clear()
    try:
        first, *rest = call()
        return first.tolist(), [repr(it) for it in rest], list(CALLS)
    except Exception as error:
        return type(error), str(error), list(CALLS)


def agree(
    function: Any,
    table: Callable[[], dict[Any, Any]],
    keys: list[Callable[[], Any]],
    *changes: Change,
    breaks: int | None = 0,
) -> Any:
    """Each key, recorded and replayed, and again after each change."""
    compiled = stator.compile(function, recompile_limit=99)
    plain, traced = table(), table()
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for change in (lambda d: None, *changes):
            change(plain)
            change(traced)
            for key in keys:
                for _ in range(3):
                    expected = shown(lambda key=key: function(X, plain, key()))  # type: ignore[misc]
                    found = shown(lambda key=key: compiled(X, traced, key()))  # type: ignore[misc]
                    assert found == expected, (function.__name__, key())
    stats = stator.stats(compiled)
    if breaks is not None:
        assert stats.breaks == breaks, stats.reason
        assert stats.hits > 0
    return stats


def refill(d: dict[Any, Any]) -> None:
    items = list(d.items())
    d.clear()
    for key, value in reversed(items):
        d[key] = value


def drop_first(d: dict[Any, Any]) -> None:
    del d[next(iter(d))]


@pytest.mark.parametrize("function", WAYS)
def test_frozen_dataclasses(function: Any) -> None:
    def table() -> dict[Any, Any]:
        return {Spec(3): 1, Spec(3, 2.0): 2, (Spec(3, 2.0), 1): 3, Pair(3, Spec(3, 2.0)): 4}

    def change_value(d: dict[Any, Any]) -> None:
        d[Spec(3)] = 10

    keys: list[Any] = [
        *[lambda: Spec(3), lambda: Spec(4), lambda: Spec(3, 2.0), lambda: (Spec(3, 2.0), 1)],
        *[lambda: Spec(3, kind=torch.float64), lambda: Pair(3, Spec(3, 2.0)), lambda: 3],
    ]
    agree(function, table, keys, change_value, refill, drop_first, dict.clear)


@pytest.mark.parametrize("function", WAYS[:3])
def test_slots_and_what_they_hold(function: Any) -> None:
    def table() -> dict[Any, Any]:
        return {Slotted("a", Spec(1)): 1, Slotted("b", Spec(1)): 2}

    keys: list[Any] = [lambda: Slotted("a", Spec(1)), lambda: Slotted("a", Spec(2))]
    agree(function, table, keys, refill, drop_first)


@pytest.mark.parametrize("function", WAYS[:3])
def test_named_tuples_and_frozen_sets(function: Any) -> None:
    def table() -> dict[Any, Any]:
        return {Pair(1, 2): 1, (3, 4): 2, frozenset({1, "a"}): 3, Pair(5, X.dtype): 4}

    keys: list[Any] = [
        *[lambda: Pair(1, 2), lambda: (1, 2), lambda: Pair(3, 4), lambda: Pair(1, 3)],
        *[lambda: frozenset({"a", 1}), lambda: frozenset({2}), lambda: Pair(5, torch.float32)],
    ]
    agree(function, table, keys, refill, drop_first, breaks=None)


@pytest.mark.parametrize("function", WAYS[:3])
def test_methods_are_called_as_often(function: Any) -> None:
    def table() -> dict[Any, Any]:
        return {Told(1): 1, Told(2): 2}

    def join(d: dict[Any, Any]) -> None:
        d[Told(9)] = 3

    held = Told(1)

    def hold(d: dict[Any, Any]) -> None:
        d.clear()
        d[held] = 4

    keys: list[Any] = [lambda: Told(1), lambda: Told(3), lambda: Told(10), lambda: held]
    agree(function, table, keys, refill, hold, breaks=None)
    # Two keys of one hash: what C code compares is its business.
    agree(function, table, keys, join, breaks=None)


@pytest.mark.parametrize("function", WAYS[:3])
def test_methods_that_raise(function: Any) -> None:
    agree(
        function,
        lambda: {7: 1, "a": 2},
        [lambda: Refusing(1), lambda: Refusing(3)],
        lambda d: d.pop(7),
        breaks=None,
    )


@pytest.mark.parametrize("function", WAYS[:3])
def test_classes_that_change(function: Any) -> None:
    class Own:
        def __init__(self, value: int) -> None:
            self.value = value

        def __hash__(self) -> int:
            return hash(self.value)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.value == other.value

    def never(d: dict[Any, Any]) -> None:
        Own.__eq__ = lambda self, other: False  # type: ignore[method-assign]

    def other_hash(d: dict[Any, Any]) -> None:
        Own.__hash__ = lambda self: self.value + 1  # type: ignore[method-assign]

    before = Own.__eq__, Own.__hash__

    def back(d: dict[Any, Any]) -> None:
        Own.__eq__, Own.__hash__ = before  # type: ignore[method-assign]

    def change_stored(d: dict[Any, Any]) -> None:
        next(iter(d)).value = 2

    keys: list[Any] = [lambda: Own(1), lambda: Own(2)]
    agree(function, lambda: {Own(1): 1}, keys, never, back, other_hash, back, change_stored)


@pytest.mark.parametrize("function", WAYS[:3])
@pytest.mark.parametrize(
    "kind", [Missing, collections.OrderedDict, lambda items: collections.defaultdict(int, items)]
)
def test_other_dictionaries(function: Any, kind: Any) -> None:
    keys: list[Any] = [lambda: Spec(1), lambda: Spec(2)]
    agree(function, lambda: kind({Spec(1): 5}), keys, drop_first, breaks=None)


def test_numbers_that_vary_are_fixed() -> None:
    table = {Spec(size): size * 10 for size in range(3, 6)}

    def sized(x: Tensor) -> Any:
        return x * table[Spec(x.shape[0])], {Spec(x.shape[0]): 1}.get(Spec(x.shape[0] + 1), 2)

    compiled = stator.compile(sized, recompile_limit=99)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for size in (3, 4, 5, 4, 3, 5):
            x = torch.ones(size)
            assert [str(it) for it in compiled(x)] == [str(it) for it in sized(x)]


def test_a_dictionary_that_the_trace_writes() -> None:
    def write(x: Tensor, a: dict[Any, Any], b: dict[Any, Any]) -> Any:
        b["n"] = b.get("n", 0) + 1
        found = a.get(Spec(1), 0)
        a["m"] = found
        return x * found, a.get(Spec(1)), Spec(1) in b

    compiled = stator.compile(write, recompile_limit=99)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for same in (False, False, True, True, False):
            plain: list[dict[Any, Any]] = [{Spec(1): 3, "m": 0}, {"n": 1}]
            traced: list[dict[Any, Any]] = [dict(it) for it in plain]
            for tables in (plain, traced):
                tables[1] = tables[0] if same else tables[1]
            assert str(compiled(X, *traced)) == str(write(X, *plain))
            assert traced == plain


@functools.lru_cache(maxsize=4)
def masks(pair: Pair, kind: frozenset[Any] = frozenset()) -> Tensor:
    CALLS.append(pair)
    return torch.full((3,), float(pair.left + len(kind)))


def test_named_tuples_in_caches() -> None:
    def cached(x: Tensor, pair: Any) -> Any:
        return x * masks(pair), masks.cache_info().hits, masks.cache_info().misses

    compiled = stator.compile(cached, recompile_limit=99)

    def play(call: Any) -> list[Any]:
        masks.cache_clear()
        played = []
        for pair in (Pair(1), Pair(1), (1, 0), Pair(2), Pair(1), Pair(1, "a"), Pair(2)):
            for _ in range(2):
                played.append(shown(lambda pair=pair: call(X, pair)))  # type: ignore[misc]
        masks.cache_clear()
        played.append(shown(lambda: call(X, Pair(1))))
        return played

    with stator.config.patch(skip_unprofitable=False, strict=True):
        expected = play(cached)
        assert play(compiled) == expected
        assert play(compiled) == expected
