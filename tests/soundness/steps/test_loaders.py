"""Loops over data loaders, and numbers that are read below C code which only hands on what it is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

import stator

from .results import copied, same

ROWS, LABELS = torch.arange(40.0).view(20, 2), torch.arange(20)


class Windows(Dataset[Any]):
    def __len__(self) -> int:
        return 15

    def __getitem__(self, index: int) -> Any:
        return ROWS[index : index + 4].sum(), LABELS[index + 4]


class Named(Dataset[Any]):
    def __len__(self) -> int:
        return 15

    def __getitem__(self, index: int) -> Any:
        return {"rows": ROWS[index], "label": LABELS[index]}


class Checked(Dataset[Any]):
    """Looks at the index."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index % 5 == 3:
            return ROWS[index] * 2, index
        return ROWS[index], int(index) + 1


def total(loader: Any, scale: Tensor) -> Any:
    found, labels = 0.0, []
    for batch in loader:
        rows, label = batch.values() if isinstance(batch, dict) else batch
        found += (rows * scale).sum().item()
        labels.append(label)
    return found, torch.cat(labels)


def numbered(loader: Any, scale: Tensor) -> Any:
    found = []
    for step, (rows, _) in enumerate(loader):
        found.append((rows * scale).mean() * (step + 1))
        if (step + 1) % 2 == 0:
            found.append(rows.sum())
    return torch.stack(found)


def weighted() -> WeightedRandomSampler:
    return WeightedRandomSampler([1.0, 5.0] * 10, 12)


LOADERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: DataLoader(TensorDataset(ROWS, LABELS), 4),
    "in order, whole batches": lambda: DataLoader(TensorDataset(ROWS, LABELS), 8, drop_last=True),
    "shuffled": lambda: DataLoader(TensorDataset(ROWS, LABELS), 4, shuffle=True),
    "windows": lambda: DataLoader(Windows(), 4, shuffle=True, drop_last=True),
    "named": lambda: DataLoader(Named(), 5, shuffle=True, drop_last=True),
    "checked": lambda: DataLoader(Checked(), 5, shuffle=True),
    "weighted": lambda: DataLoader(TensorDataset(ROWS, LABELS), 4, sampler=weighted()),
}

# What a dataset asks of an index is decided, or ends the trace.
PARTLY = {"checked"}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("fn", [total, numbered])
def test_loops_over_loaders(fn: Callable[[Any, Tensor], Any], name: str) -> None:
    if fn is numbered and name == "named":
        pytest.skip("its batches are dictionaries")
    loader, compiled = LOADERS[name](), api.compile(fn)
    fn(loader, torch.ones(()))
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for call in range(8):
            seen = []
            for wrapped in (fn, compiled):
                torch.manual_seed(call)
                found = copied(wrapped(loader, torch.tensor(call + 0.5)))
                seen.append((found, torch.get_rng_state()))
            assert same(*seen), call
    if name not in PARTLY and not api.PLAIN:
        stats = stator.stats(compiled)
        assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0)


def endless(held: dict[str, Any], loader: Any, scale: Tensor) -> Any:
    """One batch a call, as long as anybody asks."""
    try:
        rows, labels = next(held["batches"])
    except StopIteration:
        held["batches"] = iter(loader)
        rows, labels = next(held["batches"])
    return (rows * scale).sum(1), labels


@pytest.mark.parametrize("name", ["in order", "shuffled", "weighted"])
def test_a_loader_that_goes_on_from_call_to_call(name: str) -> None:
    compiled = api.compile(endless)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        seen = []
        for wrapped in (endless, compiled):
            torch.manual_seed(0)
            loader = LOADERS[name]()
            held = {"batches": iter(loader)}
            found = [copied(wrapped(held, loader, torch.tensor(n + 0.5))) for n in range(14)]
            seen.append((found, torch.get_rng_state()))
        assert same(*seen)


class Table:
    """Python code looks at what stands in brackets."""

    def __init__(self) -> None:
        self.kept: dict[int, float] = {}

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return key.start, key.stop
        return self.kept.get(key, key * 2)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.kept[key % 3] = value

    def __delitem__(self, key: Any) -> None:
        self.kept.pop(key, None)


def by_read_keys(x: Tensor) -> Any:
    table, number = Table(), int(x[0])
    table[number] = x[1].item()
    table[x.sum().item()] = 1.5
    del table[number]
    return table[number], table[number + 7], table[number:5], sorted(table.kept.items()), x + 1


def in_a_generator(x: Tensor) -> Any:
    def numbers() -> Iterator[float]:
        for part in x:
            yield part.item() + 1

    found = 0.0
    for number in numbers():
        found += number
    return found, [*numbers()], next(numbers()), list(zip(numbers(), x, strict=False)), x * found


def sliced(x: Tensor) -> Any:
    def numbers() -> Iterator[int]:
        yield from x.long().tolist()

    source = numbers()
    first = [*itertools.islice(source, 2)]
    return first, [*itertools.islice(source, 5)], [*enumerate(numbers())]


def read_by_others(x: Tensor) -> Any:
    """`map`, `filter` and such look at what they are given."""

    def numbers() -> Iterator[float]:
        for part in x:
            yield part.item()

    rounded = [*map(round, numbers())]
    pairs = [pair for pair in zip(map(str, numbers()), filter(None, numbers()), strict=False)]
    return rounded, pairs, [*itertools.accumulate(numbers())], {*map(int, numbers())}


def decides_in_a_generator(x: Tensor) -> Any:
    def numbers() -> Iterator[float]:
        for part in x:
            number = part.item()
            yield number if number < 3 else -number

    return [*zip(numbers(), range(5), strict=False)], [number for number in numbers()]


def raises_in_a_generator(x: Tensor) -> Any:
    def numbers() -> Iterator[float]:
        for part in x:
            yield 6 / (part.item() - 2)

    found = []
    try:
        for index, number in enumerate(numbers()):
            found.append((index, number))
    except ZeroDivisionError as error:
        return found, str(error), x
    return found, None, x


def repeated(x: Tensor) -> Any:
    number = int(x[0])

    def numbers() -> Iterator[float]:
        yield x[1].item()

    source = numbers()
    return [*([source] * 2)[0]], [number] * 3, [0] * number, (1,) * number, x + 1


class Rounded:
    """Gives what other C code has looked at."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __iter__(self) -> Iterator[int]:
        return map(round, (part.item() for part in self.x))


def of_an_object(x: Tensor) -> Any:
    them = Rounded(x)
    return [*them], list(them), tuple(them), [*zip(them, x, strict=False)], [*enumerate(them)]


READ = [
    of_an_object,
    by_read_keys,
    in_a_generator,
    sliced,
    read_by_others,
    decides_in_a_generator,
    raises_in_a_generator,
    repeated,
]


@pytest.mark.parametrize("fn", READ, ids=lambda fn: fn.__name__)
def test_numbers_read_below_c_code(fn: Callable[[Tensor], Any]) -> None:
    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for turn in range(2):
            for call in range(6):
                x = torch.tensor([call + 0.0, 3.0 - call, 2.5 * turn])
                assert same(copied(compiled(x)), copied(fn(x))), (turn, call)
    if fn in (in_a_generator, sliced) and not api.PLAIN:
        assert stator.stats(compiled).breaks == 0


class Steps:
    """An iterator in Python, whose `__iter__` counts how often it is asked."""

    def __init__(self, x: Tensor, asked: list[int]) -> None:
        self.x, self.asked, self.at = x, asked, 0

    def __iter__(self) -> Steps:
        self.asked.append(int(self.x[0]))
        return self

    def __next__(self) -> Tensor:
        if self.at == len(self.x):
            raise StopIteration
        self.at += 1
        return self.x[self.at - 1] * self.x.sum().item()


def test_iterators_in_python_are_asked_once() -> None:
    def fn(x: Tensor, asked: list[int]) -> Any:
        return [(index, part) for index, part in enumerate(Steps(x, asked))], len(asked)

    compiled, plain, found = api.compile(fn), [], []
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for call in range(6):
            x = torch.tensor([call + 0.0, 1.5])
            assert same(copied(compiled(x, found)), copied(fn(x, plain)))
            assert found == plain
        before = Steps.__next__
        try:
            Steps.__next__ = lambda self: before(self) + 1  # type: ignore[method-assign]
            assert same(copied(compiled(x, found)), copied(fn(x, plain)))
        finally:
            Steps.__next__ = before  # type: ignore[method-assign]


def drawn_as_indices(x: Tensor) -> Any:
    order = torch.randperm(len(x)).tolist()
    place = torch.randint(len(x), (1,)).item()
    part = torch.randint(1, 3, (4,)).tolist()
    return x[order[0]], x[order[-1]] - x[place], [x[index] for index in part], order, place


def drawn_around_zero(x: Tensor) -> Any:
    part = torch.randint(-2, 3, (4,)).tolist()
    return [x[index] for index in part]


def drawn_below_a_size(x: Tensor) -> Any:
    first, count = torch.randint(2, len(x), (1,)).item(), torch.randint(len(x), (2,)).tolist()
    return first < 2, [number < 2 for number in count], x[first]


def written_between(x: Tensor) -> Any:
    order = torch.randperm(3)
    order.add_(1)
    order[0] = 1
    return x[order.tolist()[0]], [number < 3 for number in order.tolist()]


def written_through_a_view(x: Tensor) -> Any:
    order = torch.randperm(3)
    order.view(3, 1)[1:].mul_(2)
    return [number < 3 for number in order.tolist()], x + 1


def written_later(x: Tensor) -> Any:
    order = torch.randint(0, 4, (2,))
    before = [number < 4 for number in order.tolist()]
    order -= 10
    return before, [number >= 0 for number in order.tolist()], x[order[0].item() + 10]


def out_of_range(x: Tensor) -> Any:
    return x[torch.randint(3, 9, (1,)).item()]


def compared_to_bounds(x: Tensor) -> Any:
    numbers = torch.randint(2, 7, (3,)).tolist()
    return [(n >= 2, n < 7, n == 4, n > 3) for n in numbers], x * numbers[0]


def outcome(fn: Callable[[Tensor], Any], x: Tensor, seed: int) -> Any:
    torch.manual_seed(seed)
    try:
        found = copied(fn(x))
    except IndexError as error:
        found = str(error)
    return found, torch.get_rng_state()


DRAWN = [
    drawn_as_indices,
    drawn_around_zero,
    drawn_below_a_size,
    written_between,
    written_through_a_view,
    written_later,
    out_of_range,
    compared_to_bounds,
]


@pytest.mark.parametrize("fn", DRAWN, ids=lambda fn: fn.__name__)
def test_bounds_of_what_is_drawn(fn: Callable[[Tensor], Any]) -> None:
    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for seed in range(12):
            x = torch.arange(5.0 + seed % 3) + seed
            assert same(outcome(compiled, x, seed), outcome(fn, x, seed)), seed
    if fn is drawn_as_indices and not api.PLAIN:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.native) == (0, 0) and stats.traces <= 4
