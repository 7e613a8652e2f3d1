"""Iterators that existed before a trace begins: it reads what they give next, wherever they stand, and advances them."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


@stator.disable
def note(*_: Any) -> None:
    pass


class Reversible:
    """What `reversed` asks by methods."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Any:
        return self.items[place]


def tensors(count: int, first: float = 1.0) -> list[Tensor]:
    return [torch.arange(3.0) + first + i for i in range(count)]


# What is gone over, made of tensors.
ITERATORS: dict[str, Callable[[list[Tensor]], Iterator[Any]]] = {
    "list": iter,
    "tuple": lambda w: iter(tuple(w)),
    "range": lambda w: iter(range(2, 2 + len(w))),
    "steps": lambda w: iter(range(20, 20 - 3 * len(w), -3)),
    "reversed_list": lambda w: reversed(w),
    "reversed_tuple": lambda w: reversed(tuple(w)),
    "reversed_other": lambda w: reversed(Reversible(w)),  # type: ignore[call-overload]
    "keys": lambda w: iter({f"k{i}": v for i, v in enumerate(w)}),
    "values": lambda w: iter({f"k{i}": v for i, v in enumerate(w)}.values()),
    "items": lambda w: iter({f"k{i}": v for i, v in enumerate(w)}.items()),
    "enumerate": lambda w: enumerate(w, 3),
    "enumerate_range": lambda w: enumerate(range(len(w))),
    "zip": lambda w: zip(w, range(len(w) + 2), tuple(w)),
    "shorter_first": lambda w: zip(range(len(w)), itertools.repeat(2.5)),
    "shorter_last": lambda w: zip(itertools.repeat(2.5), [*w, 1, 2], w),
    "strict": lambda w: zip(w, range(len(w)), strict=True),
    "too_short": lambda w: zip(w, range(max(0, len(w) - 1)), strict=True),
    "too_long": lambda w: zip(range(max(0, len(w) - 1)), w, strict=True),
    "nested": lambda w: enumerate(zip(enumerate(w), {i: v for i, v in enumerate(w)}.items())),
    "repeat": lambda w: itertools.repeat(w[0] if w else 1, len(w)),
    "zip_of_nothing": lambda w: zip(),
    "generator": lambda w: (v * 2 for v in w),
    "map": lambda w: map(torch.neg, w),
    "set": lambda w: iter({len(w)}),
    "text": lambda w: iter("abcdefgh"[: len(w)]),
}


def numbers_of(item: Any) -> Any:
    if isinstance(item, tuple):
        return sum(map(numbers_of, item))
    return len(item) if isinstance(item, str) else item


def every_round(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x + numbers_of(item)
        note(item)
        x = x * 0.5
    return x, "end"


def some_rounds(x: Tensor, items: Iterator[Any]) -> Any:
    place = 0
    for item in items:
        x = x + numbers_of(item)
        place += 1
        if place % 3 == 0:
            note(item)
    else:
        x = x - 1
    return x


def no_round(x: Tensor, items: Iterator[Any]) -> Any:
    taken = []
    for item in items:
        x = x + numbers_of(item)
        taken.append(item)
    return x, taken


def leaves(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x + numbers_of(item)
        note()
        if x.sum() > 25:
            break
    else:
        return x, "all"
    return x, "some"


def one_by_one(x: Tensor, items: Iterator[Any]) -> Any:
    first = next(items, None)
    if first is None:
        return x, "none"
    second = next(items, 4.0)
    x = x * numbers_of(first) + numbers_of(second)
    note()
    try:
        x = x - numbers_of(next(items))
    except StopIteration:
        return x, "two", next(items, "still")
    return x, "more"


def twice(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x + numbers_of(item)
        note()
    for item in items:
        x = x * numbers_of(item)
    note()
    return x, list(items)


def within_itself(x: Tensor, items: Iterator[Any]) -> Any:
    pairs = []
    for item in items:
        other = next(items, None)
        note()
        x = x + numbers_of(item)
        pairs.append((item, other))
    return x, pairs


def handled(x: Tensor, items: Iterator[Any]) -> Any:
    try:
        for item in items:
            note()
            x = x + numbers_of(item)
            if x.shape[0] == 3:
                x = x[: 4 - len(str(item)[:1])]
            if x.sum() > 20:
                raise ValueError(item)
    except ValueError as error:
        note()
        return x, str(error)[:6]
    finally:
        note()
    return x, None


def in_a_call(x: Tensor, items: Iterator[Any]) -> Any:
    def take() -> Any:
        found = next(items, None)
        note()
        return found

    while (item := take()) is not None:
        x = x + numbers_of(item)
    return x


PROGRAMS = [
    every_round,
    some_rounds,
    no_round,
    leaves,
    one_by_one,
    twice,
    within_itself,
    handled,
    in_a_call,
]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return copied(function(*args))
    except Exception as error:
        return type(error).__name__, str(error)


def rest(items: Iterator[Any]) -> Any:
    return outcome(lambda: list(itertools.islice(items, 50)))


def compare(compiled: Any, fn: Callable[..., Any], args: Callable[[], Any]) -> None:
    """A call of each gives the same, and leaves the same behind in its arguments."""
    plain, found = args(), args()
    expected = outcome(fn, *plain)
    got = outcome(compiled, *found)
    assert same(expected, got), (expected, got)
    for left, right in zip(plain, found):
        is_iterator = hasattr(left, "__next__")
        left, right = (rest(left), rest(right)) if is_iterator else (copied(left), copied(right))
        assert same(left, right), (left, right)


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
            compare(compiled, program, lambda make=make: (torch.ones(3), make(tensors(3))))  # type: ignore[misc]


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


def alternate(fn: Callable[..., Any], *makes: Callable[[], Any]) -> Any:
    """Arguments of one kind are recorded and replayed, then those of the next."""
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=64):
        for make in [*makes, *makes, *reversed(makes)]:
            for _ in range(2):
                compare(compiled, fn, make)
    return compiled


def both_advanced(x: Tensor, left: Iterator[Any], right: Iterator[Any]) -> Any:
    note()
    x = x + next(left) * 2
    x = x * next(right)
    return x + next(left)


def test_two_iterators_may_be_one() -> None:
    def apart() -> Any:
        return torch.ones(3), iter(tensors(5)), iter(tensors(5, 7.0))

    def one() -> Any:
        items = iter(tensors(5))
        return torch.ones(3), items, items

    def within() -> Any:
        items = iter(range(5))
        return torch.ones(3), map(float, items), items

    alternate(both_advanced, apart, one, within)
    alternate(both_advanced, one, apart)


def test_an_iterator_may_be_within_another() -> None:
    def fn(x: Tensor, pairs: Iterator[Any], items: Iterator[Any]) -> Any:
        for place, item in pairs:
            note()
            x = x + place * item
            x = x - next(items, 0)
        return x

    def apart() -> Any:
        return torch.ones(3), enumerate(iter(tensors(5))), iter(tensors(4, 3.0))

    def within() -> Any:
        items = iter(tensors(5))
        return torch.ones(3), enumerate(items), items

    alternate(fn, apart, within)
    alternate(fn, within, apart)


def test_pairs_of_one_iterator() -> None:
    def fn(x: Tensor, pairs: Iterator[Any]) -> Any:
        for left, right in pairs:
            note()
            x = x * left - right
        return x

    def one() -> Any:
        items = iter(tensors(5))
        return torch.ones(3), zip(items, items)

    alternate(fn, lambda: (torch.ones(3), zip(tensors(3), tensors(4, 2.0))), one)
    alternate(fn, one, lambda: (torch.ones(3), zip(tensors(3), tensors(4, 2.0))))


def test_how_many_are_zipped() -> None:
    def fn(x: Tensor, groups: Iterator[Any]) -> Any:
        for group in groups:
            note()
            x = x * len(group) + group[0]
        return x

    def of(count: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), zip(*[tensors(3)] * count))

    alternate(fn, of(1), of(2), of(3), of(2))

    def nested(x: Tensor, groups: Iterator[Any]) -> Any:
        for place, group in groups:
            note()
            x = x * len(group) + place
        return x

    def inner(count: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), enumerate(zip(*[tensors(3)] * count)))

    alternate(nested, inner(1), inner(2), inner(3))


def grows(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    for item in items:
        note()
        if len(queue) < 7:
            queue.append(item * 2)
        x = x + item
    return x


def appends_first(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    note()
    queue.append(x * 3)
    for item in items:
        x = x + item
    return x


def drops(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    for item in items:
        note()
        if len(queue) > 2:
            del queue[-1]
        x = x + item
    return x, len(queue)


def clears(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    note()
    x = x + next(items)
    queue.clear()
    note()
    x = x * 2
    return x, next(items, None)


def replaces(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
    for place, item in enumerate(items):
        note()
        x = x + item
        if place + 1 < len(queue):
            queue[place + 1] = x
    return x


@pytest.mark.parametrize("program", [grows, appends_first, drops, clears, replaces])
def test_the_list_may_be_written(program: Callable[..., Any]) -> None:
    def apart() -> Any:
        return torch.ones(3), iter(tensors(4)), tensors(3, 5.0)

    def one() -> Any:
        queue = tensors(4)
        return torch.ones(3), iter(queue), queue

    def backwards() -> Any:
        queue = tensors(4)
        return torch.ones(3), reversed(queue), queue

    def within() -> Any:
        queue = tensors(4)
        return torch.ones(3), map(torch.neg, queue), queue

    alternate(program, apart, one, backwards, within)
    alternate(program, one, apart, backwards)
    alternate(program, backwards, one)


def adds_a_key(x: Tensor, items: Iterator[Any], held: dict[str, Any]) -> Any:
    for item in items:
        note()
        x = x + numbers_of(item)
        if len(held) < 6:
            held[f"new{len(held)}"] = x
    return x


def sets_values(x: Tensor, items: Iterator[Any], held: dict[str, Any]) -> Any:
    for item in items:
        note()
        x = x + numbers_of(item)
        for key in list(held):
            held[key] = x * 2
    return x


def swaps_a_key(x: Tensor, items: Iterator[Any], held: dict[str, Any]) -> Any:
    for item in items:
        note()
        x = x + numbers_of(item)
        held["other"] = held.pop(next(iter(held)))
    return x


@pytest.mark.parametrize("view", ["keys", "values", "items"])
@pytest.mark.parametrize("program", [adds_a_key, sets_values, swaps_a_key])
def test_the_dictionary_may_be_written(program: Callable[..., Any], view: str) -> None:
    def new() -> dict[str, Any]:
        return {f"k{i}": v for i, v in enumerate(tensors(3))}

    def apart() -> Any:
        return torch.ones(3), iter(getattr(new(), view)()), new()

    def one() -> Any:
        held = new()
        return torch.ones(3), iter(getattr(held, view)()), held

    alternate(program, apart, one)
    alternate(program, one, apart)


def test_changed_before_the_call() -> None:
    """Iterators whose container has changed under them since they were made."""

    def shrunk() -> Any:
        items = tensors(4)
        pieces = iter(items)
        next(pieces), next(pieces), next(pieces)
        del items[1:]
        return torch.ones(3), pieces

    def shrunk_behind() -> Any:
        items = tensors(4)
        pieces = reversed(items)
        del items[1:]
        return torch.ones(3), pieces

    def grown() -> Any:
        items = tensors(2)
        pieces = iter(items)
        next(pieces)
        items.extend(tensors(2, 8.0))
        return torch.ones(3), pieces

    def ended() -> Any:
        items = tensors(1)
        pieces = iter(items)
        list(pieces)
        items.extend(tensors(2, 8.0))
        return torch.ones(3), pieces

    def resized() -> Any:
        held = {i: v for i, v in enumerate(tensors(3))}
        pieces = iter(held.values())
        next(pieces)
        held[9] = torch.ones(3)
        return torch.ones(3), pieces

    def other_keys() -> Any:
        held = {i: v for i, v in enumerate(tensors(3))}
        pieces = iter(held.values())
        next(pieces)
        del held[0]
        held[9] = torch.ones(3) * 4
        return torch.ones(3), pieces

    def as_it_was() -> Any:
        return torch.ones(3), iter({i: v for i, v in enumerate(tensors(3))}.values())

    makes = [shrunk, shrunk_behind, grown, ended, resized, other_keys, as_it_was]
    for program in PROGRAMS:
        alternate(program, *makes)
        alternate(program, *reversed(makes))


def test_other_items() -> None:
    """Their types, sizes and values are guarded as those of other reads."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in items:
            note()
            if isinstance(item, str):
                x = x * len(item)
            elif item is None:
                x = x - 1
            elif isinstance(item, (int, float)) and item > 2:
                x = x + item
            elif isinstance(item, Tensor):
                x = x + item.sum() * item.dim()
        return x

    rows: list[list[Any]] = [
        [torch.ones(3), torch.ones(2, 2), torch.ones(()), torch.ones(3, dtype=torch.int64)],
        [1, 2, 3, 4, True],
        [1.0, 5.0, float("nan"), None],
        ["a", "bb", None, 4],
        [None] * 4,
        [[1], (2,), {}, torch.ones(2)],
    ]
    alternate(fn, *[lambda row=row: (torch.ones(3), iter(row)) for row in rows])  # type: ignore[misc]
    alternate(fn, *[lambda row=row: (torch.ones(3), iter(tuple(row))) for row in rows])  # type: ignore[misc]


def test_one_item_twice() -> None:
    """Two items may be one tensor, which the trace writes to."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        last = x
        for item in items:
            note()
            item.add_(last)
            x = x + last.sum()
            last = item
        return x, last

    def apart() -> Any:
        return torch.ones(3), iter(tensors(4))

    def one() -> Any:
        return torch.ones(3), iter([torch.ones(3)] * 4)

    def pairs() -> Any:
        a, b = tensors(2)
        return a, iter([b, a, b, a])

    alternate(fn, apart, one, pairs)
    alternate(fn, one, apart)


def test_items_are_those_of_the_list() -> None:
    """What the program reads of the list itself is what the iterator gives."""

    def fn(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
        found = []
        for item in items:
            note()
            found.append(item is queue[0])
            found.append(item is queue[-1])
            x = x + item * len(queue)
        return x, found

    def of(queue: list[Any], other: list[Any]) -> Callable[[], Any]:
        return lambda: (torch.ones(3), iter(queue), other)

    items = tensors(3)
    alternate(fn, of(items, items), of(items, items[::-1]), of(items, tensors(3)))


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


def test_an_operation_raises() -> None:
    """What it raises leaves the iterator where plain Python leaves it."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in items:
            note()
            x = x + next(items, item)
            x = x + item
        return x

    def of(*sizes: int) -> Callable[[], Any]:
        return lambda: (torch.ones(3), iter([torch.ones(size) for size in sizes]))

    alternate(fn, of(3, 3, 3, 3), of(3, 3, 3, 2, 3), of(3, 3, 2, 3, 3), of(2, 3), of(3, 2))


def test_data_decides() -> None:
    """An exit in the middle of a trace leaves the iterator where plain Python leaves it."""

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        note()
        x = x + next(items)
        if x.sum() > 12:
            return x, "first"
        x = x + next(items)
        if x.sum() > 24:
            return x, "second"
        x = x + next(items, 0)
        return x, "third"

    def of(first: float) -> Callable[[], Any]:
        return lambda: (torch.ones(3), iter(tensors(4, first)))

    alternate(fn, of(1.0), of(6.0), of(3.0), of(-9.0))


def test_code_within_a_node_changes_it() -> None:
    """A hook runs while the graph does: before a replay advances the iterator."""

    def run(fn: Callable[..., Any], compiled: Any, change: Callable[..., Any]) -> None:
        for call in range(4):
            results = []
            for each in (fn, compiled):
                queue = [torch.ones(3, requires_grad=True) * (i + 1 + call) for i in range(4)]
                items = iter(queue)
                leaf = torch.ones(3, requires_grad=True)
                leaf.register_hook(lambda grad, q=queue, it=items: change(q, it))
                found = outcome(each, leaf, items)
                results.append((found, outcome(lambda it=items: len(list(it))), len(queue)))
            assert same(*results), results

    def before(leaf: Tensor, items: Iterator[Any]) -> Any:
        note()
        first = next(items)
        (leaf * first.detach()).sum().backward()
        return first.sum().item()

    def behind(leaf: Tensor, items: Iterator[Any]) -> Any:
        note()
        (leaf * 2).sum().backward()
        return next(items).sum().item(), next(items, torch.zeros(1)).sum().item()

    changes = [
        lambda q, it: q.clear(),
        lambda q, it: q.append(torch.ones(3)),
        lambda q, it: next(it) * 0,
        lambda q, it: q.pop(0) * 0,
        lambda q, it: None,
    ]
    with stator.config.patch(skip_unprofitable=False):
        for fn in (before, behind):
            for change in changes:
                run(fn, stator.compile(fn), lambda q, it, change=change: change(q, it) and None)  # type: ignore[misc]


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
