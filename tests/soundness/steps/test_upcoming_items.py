"""Iterators that existed before a trace begins: it reads what they give next, wherever they stand, and advances them."""

from __future__ import annotations

import copy
import gc
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .iterators import (
    ITERATORS,
    PROGRAMS,
    alternate,
    compare,
    every_round,
    no_round,
    note,
    outcome,
    tensors,
)
from .results import copied, same


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", list(ITERATORS))
def test_each_iterator(kind: str, program: Callable[..., Any]) -> None:
    """Recorded, replayed, then with other lengths and items."""
    make = ITERATORS[kind]
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=32):
        for count, first in [(4, 1.0)] * 3 + [(2, 1.0), (0, 1.0), (5, 2.0), (1, 9.0), (4, -3.0)]:
            for passed in (0, 0, 1):

                def args(count: int = count, first: float = first, passed: int = passed) -> Any:
                    items = make(tensors(count, first))
                    outcome(lambda: [next(items) for _ in range(passed)])
                    return torch.ones(3), items

                compare(compiled, program, args)


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_kind_at_each_call(program: Callable[..., Any]) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=64):
        for make in [*ITERATORS.values()] * 2:
            compare(compiled, program, lambda make=make: (torch.ones(3), make(tensors(3))))


KNOWN = [name for name in ITERATORS if name not in {"generator", "map", "set", "text"}]
RAISING = {"reversed_other", "too_short", "too_long", "repeat"}


@pytest.mark.parametrize("kind", [name for name in KNOWN if name not in RAISING])
def test_a_round_is_one_trace(kind: str) -> None:
    """Behind the break of a loop's body one trace leads to the break of the next round."""
    make = ITERATORS[kind]
    compiled = stator.compile(every_round)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=32):
        for _ in range(2):
            compiled(torch.ones(3), make(tensors(6)))
    stats = stator.stats(compiled)
    rounds = 0 if kind == "zip_of_nothing" else 6
    assert (stats.breaks, stats.native, stats.hits) == (rounds, 0, 1)


def test_a_long_loop_has_few_traces() -> None:
    compiled = stator.compile(every_round)
    with stator.config.patch(skip_unprofitable=False):
        for count in (100, 100, 30, 77, 1, 0, 200):
            compare(compiled, every_round, lambda: (torch.ones(3), iter(tensors(count))))
    stats = stator.stats(compiled)
    assert stats.native == 0 and stats.graphs <= 6
    compiled = stator.compile(no_round)
    with stator.config.patch(skip_unprofitable=False):
        for count in (100, 100, 30, 77, 1, 0, 200):
            compare(compiled, no_round, lambda: (torch.ones(3), iter(range(count))))
    assert stator.stats(compiled).native == 0


def test_it_lies_in_an_object() -> None:
    class Loader:
        def __init__(self, count: int) -> None:
            self.items = iter(tensors(count))
            self.seen = 0

    def fn(x: Tensor, loader: Loader) -> Any:
        for item in loader.items:
            loader.seen += 1
            note()
            x = x + item
            if x.sum() > 40:
                break
        return x, loader.seen

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        plain, found = Loader(12), Loader(12)
        for _ in range(8):
            assert same(copied(fn(torch.ones(3), plain)), copied(compiled(torch.ones(3), found)))
            assert plain.seen == found.seen
        for left, right in ((Loader(4), Loader(4)), (Loader(0), Loader(0))):
            assert same(copied(fn(torch.ones(3), left)), copied(compiled(torch.ones(3), right)))
            assert same(list(left.items), list(right.items))


def test_finalizers_run_when_they_do() -> None:
    """What only the iterator has kept alive dies where it ends."""
    events: list[str] = []

    class Noisy:
        def __init__(self, value: float) -> None:
            self.value = value

        def __del__(self) -> None:
            events.append(f"del {self.value}")

    @stator.disable
    def tell(text: str) -> None:
        events.append(text)

    def fn(x: Tensor, count: int) -> Tensor:
        for item in [Noisy(i) for i in range(count)]:
            tell("round")
            x = x + item.value
        tell("behind")
        x = x * 2
        for item in tuple(Noisy(10 + i) for i in range(count)):
            tell("round")
            x = x + item.value
        del item
        tell("end")
        return x

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for count in (3, 3, 3, 2, 4, 3):
            results = []
            for each in (fn, compiled):
                gc.collect()
                events.clear()
                results.append((each(torch.ones(3), count).sum().item(), list(events)))
            assert same(*results), results


def test_it_counts_beyond_machine_numbers() -> None:
    most = 2**63 - 3

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        taken = []
        for place, item in items:
            note()
            x = x + item
            taken.append(place)
        return x, taken

    def of(start: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), enumerate(tensors(5), start))

    alternate(fn, of(0), of(most), of(2**70), of(-4), of(most))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_numbers_that_are_counted(dynamic: bool | None) -> None:
    """A place in a loop is a symbol, and where its value is asked for, that is guarded."""

    def fn(x: Tensor, layers: list[Tensor]) -> Any:
        seen = []
        for i in range(len(layers)):
            note()
            x = x * (i + 1) + layers[i]
            if i % 2:
                seen.append(f"{i}")
        for i, layer in enumerate(layers):
            note()
            x = x[: max(1, 3 - i)].sum() * layer
            seen.append(i)
        return x, seen, i

    compiled = stator.compile(fn, dynamic=dynamic)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=32):
        for count in (4, 4, 4, 2, 6, 3, 4):
            compare(compiled, fn, lambda: (torch.ones(3), tensors(count)))


def test_other_backends() -> None:
    compiled = stator.compile(every_round, backend="fx")
    for count in (4, 4, 4, 2, 0, 6):
        for kind in ("list", "enumerate", "zip", "items"):
            make = ITERATORS[kind]
            compare(compiled, every_round, lambda: (torch.ones(3), make(tensors(count))))


def delegated(items: Iterator[Any]) -> Iterator[Any]:
    yield 1
    yield from items


# What else is done with an iterator behind its advance: it's read, copied, wrapped, consumed.
OTHER_USES: dict[str, Callable[[Tensor, Iterator[Any]], Any]] = {
    "copied": lambda x, it: list(copy.copy(it)),
    "reduced": lambda x, it: [part for part in it.__reduce__() if isinstance(part, int)],
    "hint": lambda x, it: x * operator.length_hint(it),
    "its_method": lambda x, it: it.__next__() + next(it) + it.__next__(),
    "searched": lambda x, it: (3 in it, list(it)),
    "unpacked": lambda x, it: (lambda first, *rest: (x + first, rest))(*it),
    "spread": lambda x, it: [x, *it],
    "delegated": lambda x, it: list(delegated(it)),
    "comprehension": lambda x, it: [x + item for item in it],
    "lazily": lambda x, it: next(x + item for item in it),
    "pairs": lambda x, it: [x * a + b for a, b in zip(it, it)],
    "numbered": lambda x, it: [(i, x + item) for i, item in enumerate(it)],
    "put_back": lambda x, it: (it.__setstate__(0), next(it)),
    "summed": lambda x, it: x + sum(it),
    "kept": lambda x, it: ([type(it)], next(it)),
    "chained": lambda x, it: sum(itertools.chain(it, [1, 2])),
    "sliced": lambda x, it: [x + item for item in itertools.islice(it, 2)],
    "itself": lambda x, it: (iter(it) is it, bool(it), x + next(it)),
}


@pytest.mark.parametrize("kind", ["list", "tuple", "reversed", "range", "keys"])
@pytest.mark.parametrize("use", list(OTHER_USES))
def test_other_uses(use: str, kind: str) -> None:
    use_it = OTHER_USES[use]
    makes: dict[str, Callable[[list[int]], Iterator[Any]]] = {
        "list": iter,
        "tuple": lambda items: iter(tuple(items)),
        "reversed": lambda items: reversed(items),
        "range": lambda items: iter(range(1, len(items) + 1)),
        "keys": lambda items: iter(dict.fromkeys(items)),
    }

    def before(x: Tensor, items: Iterator[Any]) -> Any:
        note()
        return use_it(x, items), x + next(items, 0)

    def behind(x: Tensor, items: Iterator[Any]) -> Any:
        note()
        x = x + next(items)
        return x, use_it(x, items)

    def args(count: int, passed: int) -> Any:
        items = makes[kind](list(range(1, count + 1)))
        for _ in range(passed):
            next(items)
        return torch.ones(2), items

    for fn in (before, behind):
        compiled = stator.compile(fn)
        with stator.config.patch(skip_unprofitable=False, recompile_limit=16):
            for count, passed in [(7, 0)] * 3 + [(7, 1), (7, 3), (8, 1), (3, 0), (7, 0), (2, 1)]:
                compare(compiled, fn, lambda: args(count, passed))
