"""Rule 4: `id()`, identity hashes, weak references, cached functions."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

from ..probe import Probe, Steps, right_after

X = torch.ones(3)


class Node:
    """Hashed by identity."""

    def __init__(self, n: int) -> None:
        self.n = n


@right_after
def test_id_decides() -> Steps:
    a, b = Node(1), Node(1)
    known = {id(a): 2, id(b): 3}
    yield (lambda x, o: x * known[id(o)]), (X, a)
    yield X, b
    yield X, a


@right_after
def test_id_of_fresh_objects() -> Steps:
    seen: dict[int, int] = {}

    def fn(x: Tensor, o: Node) -> Tensor:
        return x * (5 if id(o) in seen else 6)

    first = Node(1)
    seen[id(first)] = 1
    yield fn, (X, first)
    for _ in range(5):
        yield X, Node(1)


@right_after
def test_dict_keyed_by_object() -> Steps:
    a, b = Node(1), Node(2)
    table = {a: 2, b: 3}
    yield (lambda x, o: x * table[o]), (X, a)
    yield X, b
    table[a] = 10
    yield X, a


@right_after
def test_set_of_modules() -> Steps:
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    frozen = {a}
    yield (lambda x, m: x if m in frozen else -x), (X, a)
    yield X, b
    frozen.add(b)
    yield X, b


@right_after
def test_hash_decides() -> Steps:
    a = Node(1)
    wanted = hash(a)
    yield (lambda x, o: x if hash(o) == wanted else -x), (X, a)
    yield X, Node(1)


@right_after
def test_is_between_arguments_and_globals() -> Steps:
    a, b = Node(1), Node(1)
    yield (lambda x, o: x if o is a else -x), (X, a)
    yield X, b
    yield X, a


@right_after
def test_weak_reference_is_called() -> Steps:
    owner = [Node(3)]
    ref = weakref.ref(owner[0])

    def fn(x: Tensor) -> Tensor:
        target = ref()
        return x if target is None else x * target.n

    yield fn, (X,)
    owner[0].n = 4
    yield None
    owner.clear()
    yield None


@right_after
def test_weak_dictionaries() -> Steps:
    owner = [Node(1)]
    weak: Any = weakref.WeakKeyDictionary()
    weak[owner[0]] = 3
    yield (lambda x: x * sum(weak.values()) + len(weak)), (X,)
    owner.clear()
    yield None


@right_after
def test_cached_function_is_cleared_and_refilled() -> Steps:
    source = [2]

    @functools.lru_cache
    def table(n: int) -> int:
        return source[0] * n

    yield (lambda x: x * table(3)), (X,)
    source[0] = 5
    yield None
    table.cache_clear()
    yield None


@right_after
def test_cached_tensor() -> Steps:
    @functools.cache
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    yield (lambda x: x + table(3)), (X,)
    table(3).mul_(10)
    yield None
    table.cache_clear()
    yield None
    yield (torch.ones(4)[:3],)


@pytest.mark.parametrize("settings", [{"maxsize": None}, {"maxsize": 64}, {"typed": True}])
def test_cached_function_with_keywords(settings: dict[str, Any]) -> None:
    source, scale = [2], {"by": 4}

    @functools.lru_cache(**settings)
    def table(n: int, *, by: int = 1, also: str = "") -> int:
        return source[0] * n * by + len(also)

    def fn(x: Tensor) -> Tensor:
        return x * table(3, by=4) + table(3, also="yes", by=2) - table(n=5) + table(3, **scale)

    probe = Probe(fn)
    probe.right(X)
    probe.right(X)
    for change in (
        lambda: source.__setitem__(0, 5),
        table.cache_clear,
        lambda: [table(3, by=by) for by in (4, 9, 8)],
        lambda: scale.update(by=6),
        lambda: scale.update(also="no"),
        lambda: (source.__setitem__(0, 7), table.cache_clear()),
    ):
        change()
        probe.right(X)
        probe.right(X)


@right_after
def test_cached_function_given_what_looks_like_keywords() -> Steps:
    """In the cache's keys an object without attributes stands before keywords. Other orders are other keys."""
    source, bare = [2], object()

    @functools.cache
    def table(*args: object, **kwargs: int) -> int:
        return source[0] * len(args) - len(kwargs)

    def fn(x: Tensor) -> Tensor:
        x = x * table(1, bare, "by", 2) + table(1, by=2) * 10
        return x * table(by=2, to=3) + table(to=3, by=2)

    yield fn, (X,)
    source[0] = 5
    yield None
    table(1, by=2)
    table.cache_clear()
    yield None


def test_cached_functions_with_keywords_are_whole() -> None:
    @functools.lru_cache
    def is_at_least(version: str, accept_more: bool = False) -> bool:
        return accept_more or version < "3"

    compiled = api.compile(lambda x: x + is_at_least("2", accept_more=True), fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), X + 1)
    assert stator.stats(compiled).hits == 1


def test_cache_miss_is_stored() -> None:
    """The store of an inlined miss is replayed: the cache object is shared with other callers."""
    calls: list[int] = []

    @functools.lru_cache
    def table(n: int) -> Tensor:
        calls.append(n)
        return torch.full((3,), float(n))

    compiled = api.compile(lambda x: x + table(4))
    for _ in range(3):
        assert torch.equal(compiled(X), X + 4)
    assert calls == [4]
    table.cache_clear()
    assert torch.equal(compiled(X), X + 4)
    assert calls == [4, 4]
    assert table.cache_info().currsize == 1


def test_cached_property_is_stored() -> None:
    class Lazy:
        made = 0

        @functools.cached_property
        def table(self) -> Tensor:
            Lazy.made += 1
            return torch.full((3,), 2.0)

    lazy = Lazy()
    compiled = api.compile(lambda o, x: o.table * x)
    for _ in range(3):
        assert torch.equal(compiled(lazy, X), X * 2)
    assert Lazy.made == 1
    assert compiled(lazy, X) is not lazy.table
    other = Lazy()
    assert torch.equal(compiled(other, X), X * 2)
    assert Lazy.made == 2
    assert "table" in vars(other)


def test_entry_guarded_by_identity_does_not_serve_a_new_object() -> None:
    """Addresses are reused: a dead object's entry must not match its successor."""
    probe = Probe(lambda x, o: x * o.n)
    for n in range(20):
        probe.right(X, Node(n % 7))


@pytest.mark.parametrize(
    "text", ["-0.0", "float('nan')", "12345", "'ab'.join('cd')", "(1.5, 2.5)", "b'ab' * 2", "2j"]
)
def test_constants_of_two_places_that_were_one_object(text: str) -> None:
    def new() -> Any:
        return eval(text)  # each time another one

    world = {"a": new()}
    world["b"] = world["a"]
    probe = Probe(lambda x: x * 2 if world["a"] is world["b"] else x)
    for _ in range(2):
        for _ in range(2):
            probe.right(X)
        world["a"] = new()
        for _ in range(2):
            probe.right(X)
        world["b"] = world["a"]
    probe.right(X)


@pytest.mark.parametrize("text", ["-0.0", "12345", "'ab'.join('cd')", "(1.5, 2.5)"])
def test_constants_of_two_places_that_were_two_objects(text: str) -> None:
    world = {"a": eval(text), "b": eval(text)}
    probe = Probe(lambda x: x * 2 if world["a"] is world["b"] else x)
    for _ in range(2):
        probe.right(X)
    world["a"] = world["b"]
    for _ in range(2):
        probe.right(X)
    world["a"] = eval(text)
    probe.right(X)


@right_after
def test_equal_floats_that_were_one_object() -> Steps:
    value = float("1.5")
    yield (lambda x, a, b: x * 3 if a is b else x), (X, value, value)
    yield X, value, float("1.5")
    yield X, value, value


@right_after
def test_where_a_number_that_was_read_lies() -> Steps:
    def run(x: Tensor) -> Any:
        n = x.sum().item()
        place, held = id(n), [n]
        x = x + 1
        return place == id(n), id(n) == id(held[0]), id(n * 1000) == place, x + n

    yield run, (X,)
    yield (X * 2,)
    yield (X * 3,)


@right_after
def test_where_a_number_that_varies_lies() -> Steps:
    def run(x: Tensor, n: int) -> Any:
        m = n + 1000
        seen = {id(n): "n", id(m): "m"}
        x = x + n
        return seen.get(id(m)), seen.get(id(n)), x * m

    yield run, (X, 5000)
    yield (X, 6000)
    yield (X, 7000)
