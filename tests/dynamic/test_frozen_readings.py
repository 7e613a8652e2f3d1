"""Numbers that are read where it is easily overlooked: keys of caches, identities, parts of texts, whole
dictionaries. What was read on the recorded call must not be what later calls with other numbers get.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

ONES = torch.ones(2)
NUMBERS = (1, 2, 3, 1, 2, 4, 5, 3, 300, 2, 300, 6)
K = 4
M = [4]


class Holder:
    n = 4


HOLDER = Holder()


@functools.lru_cache(maxsize=None)
def doubled(k: Any) -> Any:
    return k * 2


@functools.lru_cache
def doubled_text(_: str, k: Any) -> Any:
    return k * 2


@functools.cache
def filled(k: float) -> torch.Tensor:
    return torch.ones(2) * k


@functools.lru_cache(typed=True)
def typed(k: Any) -> Any:
    return k * 3


class Cached:
    @functools.lru_cache  # noqa: B019
    def tripled(self, k: Any) -> Any:
        return k * 3


CACHED = Cached()


def broken(x: torch.Tensor, k: int) -> torch.Tensor:
    j = k + 0
    print(end="")
    return x + (1 if j is K else 0) + doubled(j)


def unpacked(x: torch.Tensor, k: int) -> torch.Tensor:
    first, *rest = str(k)
    return x + int(first) + len(rest)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "cached": lambda x, k: x * doubled(k),
    "cached float": lambda x, k: x * doubled(k / 2),
    "cached by a computed number": lambda x, k: x * doubled(k + 1),
    "cached by a size": lambda x, k: x * doubled(torch.ones(k).shape[0]),
    "cached by several": lambda x, k: x * doubled_text("a", k),
    "cached by a text": lambda x, k: x * len(doubled(f"a{k}")),
    "cached tensor": lambda x, k: x * filled(k),
    "cached by type": lambda x, k: x * typed(k),
    "cached by name": lambda x, k: x * doubled(k=k),
    "cached method": lambda x, k: x * CACHED.tripled(k),
    "is a global": lambda x, k: x + 1 if k is K else x - 1,
    "is an element": lambda x, k: x + 1 if k is M[0] else x - 1,
    "is an attribute": lambda x, k: x + 1 if k is HOLDER.n else x - 1,
    "is not": lambda x, k: x + 1 if k is not K else x - 1,
    "is computed": lambda x, k: x + 1 if k + 1 is K else x - 1,
    "operator.is_": lambda x, k: x + 1 if operator.is_(k, K) else x - 1,
    "is None": lambda x, k: x + 1 if k is None else x * k,
    "is behind a break": broken,
    "length of a text": lambda x, k: x + len(str(k)) + len(f"a{k}") + len(f"{7:{k}d}"),
    "part of a text": lambda x, k: x + int(str(k)[0]),
    "iterated text": lambda x, k: x + sum(int(digit) for digit in f"{k}"),
    "unpacked text": unpacked,
    "list of a text": lambda x, k: x + len(list(str(k))) + len([*str(k)]),
    "zipped text": lambda x, k: x + len(list(zip(str(k), "abc", strict=False))),
    "numbered text": lambda x, k: x + [*enumerate(str(k))][-1][0] + int(next(iter(str(k)))),
    "chained text": lambda x, k: x + len(list(itertools.chain.from_iterable([str(k), "ab"]))),
    "text of sizes": lambda x, k: x + len(str(torch.ones(k).shape)),
    "rest of a text": lambda x, k: x + (2 if f"{k}"[1:] else 1),
}


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    return bool(left == right)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_changes(name: str, dynamic: bool | None) -> None:
    function = PROGRAMS[name]
    compiled = stator.compile(function, dynamic=dynamic, recompile_limit=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in NUMBERS:
            expected, found = outcome(function, ONES, k), outcome(compiled, ONES, k)
            assert same(expected, found), f"{k}: {expected} != {found}"


@pytest.mark.parametrize("dynamic", [None, True])
def test_identity_of_two_numbers(dynamic: bool | None) -> None:
    def function(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return x + 1 if a is b else x - 1

    compiled = stator.compile(function, dynamic=dynamic, recompile_limit=40)
    large, other = int("1000"), int("1000")
    half, second_half = float("0.5"), float("0.5")
    pairs: list[tuple[Any, Any]] = [(4, 4), (5, 5), (6, 7), (6, 6), (5, 4), (4, 4)]
    pairs += [(large, large), (large, other), (other, other), (4, 4.0), (4, large)]
    pairs += [(half, half), (half, second_half), (1.5, 2.5), (second_half, second_half)]
    for a, b in pairs:
        assert torch.equal(compiled(ONES, a, b), function(ONES, a, b)), (a, b)


@pytest.mark.parametrize("dynamic", [None, True])
def test_identity_of_a_size(dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] is K else x - 1

    compiled = stator.compile(function, dynamic=dynamic)
    for size in (4, 5, 4, 6, 300, 4):
        x = torch.ones(size)
        assert torch.equal(compiled(x), function(x))


class Plain(dict):  # type: ignore[type-arg]
    pass


class Doubling(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) * 2


DICTIONARIES: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"a": 1, "b": 2},
    "numbers as keys": lambda: {1: 1, 2: 2},
    "OrderedDict": lambda: collections.OrderedDict(a=1, b=2),
    "Counter": lambda: collections.Counter(a=1, b=2),
    "defaultdict": lambda: collections.defaultdict(int, a=1, b=2),
    "a subclass": lambda: Plain(a=1, b=2),
    "its own __getitem__": lambda: Doubling(a=1, b=2),
}


def multiplied(x: torch.Tensor, numbers: Any) -> torch.Tensor:
    for _, number in numbers.items():
        x = x * number
    return x


def taken(x: torch.Tensor, numbers: Any) -> torch.Tensor:
    key = next(iter(numbers))
    number = numbers.pop(key)
    numbers[key] = number + 1
    return x * number


READS: dict[str, Callable[[Any, Any], Any]] = {
    "values": lambda x, d: x * sum(d.values()),
    "items": lambda x, d: x * sum(value for _, value in d.items()),
    "items in a loop": multiplied,
    "unpacked": lambda x, d: x * [*d.values()][0],
    "copy": lambda x, d: x * next(iter(d.copy().values())),
    "dict": lambda x, d: x * next(iter(dict(d).values())),
    "each": lambda x, d: x * sum(d[key] for key in d),
    "get": lambda x, d: x * d.get(next(iter(d))) + d.get(next(iter(d)), 7),
    "in": lambda x, d: x * ("a" in d) + len(d),
    "read, then whole": lambda x, d: x * d[next(iter(d))] + sum(d.values()),
    "asked for, then whole": lambda x, d: x * (next(iter(d)) in d) + max(d.values()),
    "setdefault": lambda x, d: x * d.setdefault(next(iter(d)), 9),
    "pop": taken,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", DICTIONARIES)
def test_numbers_in_a_dictionary(kind: str, read: str, dynamic: bool | None) -> None:
    ours, plain = DICTIONARIES[kind](), DICTIONARIES[kind]()
    key = next(iter(ours))
    function = READS[read]
    compiled = stator.compile(lambda x: function(x, ours), dynamic=dynamic, recompile_limit=40)
    for number in NUMBERS:
        ours[key] = plain[key] = number
        assert torch.equal(compiled(ONES), function(ONES, plain))
        assert list(ours.items()) == list(plain.items())


def counted(d: Any) -> Any:
    d["i"] += 1
    return d["i"]


def counted_by_get(d: Any) -> Any:
    d["i"] = d.get("i", 0) + 1
    return d.get("i")


def counted_and_asked(d: Any) -> Any:
    d["i"] += 1
    return 2 if "i" in d else 1


def counted_by_setdefault(d: Any) -> Any:
    d.setdefault("i", 0)
    d["i"] += 1
    return d["i"]


def counted_by_pop(d: Any) -> Any:
    d["i"] = d.pop("i") + 1
    return d["i"]


def counted_locally(d: Any) -> Any:
    n = d["i"] + 1
    d["i"] = n
    return n


COUNTERS = [
    counted,
    counted_by_get,
    counted_and_asked,
    counted_by_setdefault,
    counted_by_pop,
    counted_locally,
]


@pytest.mark.parametrize("count", COUNTERS)
@pytest.mark.parametrize("kind", ["dict", "Counter", "defaultdict", "OrderedDict", "a subclass"])
def test_a_counter_takes_two_traces(kind: str, count: Callable[[Any], Any]) -> None:
    ours, plain = DICTIONARIES[kind](), DICTIONARIES[kind]()
    ours["i"] = plain["i"] = 0
    compiled = stator.compile(lambda x: x + count(ours))
    for _ in range(14):
        assert torch.equal(compiled(ONES), ONES + count(plain))
        assert dict(ours) == dict(plain)
        assert type(ours["i"]) is int
    assert stator.stats(compiled).traces == 2
    ours["i"] = plain["i"] = 100
    assert torch.equal(compiled(ONES), ONES + count(plain))
    assert dict(ours) == dict(plain)


class Stepping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = torch.nn.Linear(3, 3)
        self.register_buffer("n", torch.zeros(1))
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        self.n = self.n + 1
        self.n += 1
        return self.l(x) + self.step


def test_a_module_that_counts_and_assigns_a_buffer() -> None:
    torch.manual_seed(0)
    ours = Stepping()
    torch.manual_seed(0)
    plain = Stepping()
    compiled = stator.compile(ours)
    x = torch.randn(4, 3)
    for _ in range(8):
        torch.testing.assert_close(compiled(x), plain(x))
        assert (ours.step, ours.n) == (plain.step, plain.n)
    assert stator.stats(compiled).traces == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_recursion_limit_is_read_anew(dynamic: bool | None) -> None:
    before = sys.getrecursionlimit()
    compiled = stator.compile(lambda x: (x * 2, sys.getrecursionlimit()), dynamic=dynamic)
    try:
        for limit in (before, before, before + 7, before):
            sys.setrecursionlimit(limit)
            assert compiled(ONES)[1] == limit
    finally:
        sys.setrecursionlimit(before)
