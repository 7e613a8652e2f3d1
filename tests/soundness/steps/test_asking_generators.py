"""Generators in whose bodies data decides, that a `for` goes over: an exit leads before the `for`'s instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from .results import agree, copied

HELD = SimpleNamespace(seen=[], count=0, limit=1.0, buffer=torch.zeros(2), kept=None)


def finite(rows: Iterable[Tensor]) -> Iterator[Tensor]:
    for row in rows:
        yield row if torch.isfinite(row).all() else torch.zeros_like(row)


def large(rows: Iterable[Tensor]) -> Iterator[Tensor]:
    for row in rows:
        if row.sum() > HELD.limit:
            yield row


def summed(x: Tensor) -> Any:
    total = torch.zeros(2)
    for row in finite(x):
        total = total + row
    return total


def chosen(x: Tensor) -> Any:
    return [row * 2 for row in large(x)], sum(row.sum() for row in large(x))


def chained(x: Tensor) -> Any:
    found = []
    for row in large(finite(x)):
        found.append(row + 1)
    return found


def numbered(x: Tensor) -> Any:
    found = []
    for index, row in enumerate(large(x)):
        found.append((index, row))
    return found


def paired(x: Tensor) -> Any:
    found = []
    for left, right in zip(large(x), finite(x.flip(0)), strict=False):
        found.append(left - right)
    return found


def left_early(x: Tensor) -> Any:
    for row in large(x):
        if row[0] > 2:
            return row, HELD.count
    return x, HELD.count


def counting(rows: Tensor) -> Iterator[Tensor]:
    count = 0
    for row in rows:
        HELD.count += 1
        HELD.seen.append(count)
        if row.sum() > HELD.limit:
            count += 1
            yield row * count
    HELD.seen.append("end")


def counted(x: Tensor) -> Any:
    total = torch.zeros(2)
    for row in counting(x):
        total = total + row
        HELD.seen.append("got")
    return total, HELD.count


def writing(rows: Tensor) -> Iterator[Tensor]:
    for row in rows:
        HELD.buffer.add_(row)
        if HELD.buffer.sum() > 3:
            yield HELD.buffer * 1
            HELD.buffer.zero_()


def written(x: Tensor) -> Any:
    return [row + 1 for row in writing(x)], HELD.buffer * 1


def drawing(rows: Tensor) -> Iterator[Tensor]:
    for row in rows:
        noise = torch.rand(2)
        if noise.sum() > HELD.limit:
            yield row + noise


def drawn(x: Tensor) -> Any:
    found = []
    for row in drawing(x):
        found.append(row)
    return found, torch.rand(1)


def raising(rows: Tensor) -> Iterator[Tensor]:
    try:
        for row in rows:
            if row.sum() > 5:
                raise ValueError("too large")
            yield row
    finally:
        HELD.seen.append("closed")


def raised(x: Tensor) -> Any:
    total = torch.zeros(2)
    try:
        for row in raising(x):
            total = total + row
    except ValueError as error:
        return total, str(error)
    return total, None


def without_gradients(rows: Tensor, weight: Tensor) -> Iterator[Tensor]:
    for row in rows:
        with torch.no_grad():
            if (row * weight).sum() > 1:
                yield row * weight
        yield row * weight + 1


def switched(x: Tensor) -> Any:
    weight = torch.ones(2, requires_grad=True)
    found = []
    for row in without_gradients(x, weight):
        found.append((row.detach(), row.requires_grad, torch.is_grad_enabled()))
    return found


def nested(rows: Tensor) -> Iterator[Tensor]:
    for row in rows:
        yield from large([row, row + 1])
        if row[0] > row[1]:
            yield row - 1


def delegated(x: Tensor) -> Any:
    found = []
    for row in nested(x):
        found.append(row)
    return found


def is_small(row: Tensor) -> bool:
    return bool(row.norm() < 2)


def by_function(x: Tensor) -> Any:
    def rows() -> Iterator[Tensor]:
        for row in x:
            if is_small(row):
                yield row

    found = torch.zeros(2)
    for row in rows():
        found = found + row
    return found


def by_numbers(x: Tensor) -> Any:
    def rows() -> Iterator[float]:
        for row in x:
            number = row.sum().item()
            if number > 1:
                yield number

    found = []
    for number in rows():
        found.append(number * 2)
    return found, x.sum() + len(found)


def kept_on(x: Tensor) -> Any:
    if HELD.kept is None:
        HELD.kept = large(x)
    for row in HELD.kept:
        return row + x.sum()
    HELD.kept = None
    return x.sum()


def two_loops(x: Tensor) -> Any:
    rows = large(x)
    for first in rows:
        break
    else:
        return None
    rest = []
    for row in rows:
        rest.append(row - first)
    return first, rest


def epoch(x: Tensor) -> Any:
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.fill_(0.5)
        net.bias.zero_()
    for row in finite(x):
        loss = (net(row) - 1).pow(2).sum()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
    return net.weight.detach(), net.bias.detach()


def telling(rows: Tensor, every: int) -> Iterator[Tensor]:
    for index, row in enumerate(rows):
        if index % every == 0:
            print(f"row {index}: {row.sum().item():.2f}")
        yield row
    print("end")


def told(x: Tensor) -> Any:
    total = torch.zeros(2)
    for row in telling(x, 2):
        total = total + row
    return total


def telling_and_asking(rows: Tensor) -> Iterator[Tensor]:
    for row in rows:
        if row.sum() > 1:
            print("large")
        print(f"{row.norm().item():.1f}")
        if row.sum() > 3:
            yield row


def told_and_asked(x: Tensor) -> Any:
    total = torch.zeros(2)
    for row in telling_and_asking(x):
        print("got")
        total = total + row
    return total


def loud_key(row: Tensor) -> float:
    print(f"key {row.sum().item():.1f}")
    return row.norm().item()


def sorted_loudly(x: Tensor) -> Any:
    return sorted(x, key=loud_key)[0], max(x[:1], key=loud_key)


def asked_loudly(x: Tensor) -> Any:
    def rows() -> Iterator[bool]:
        for row in x:
            print("asked")
            yield bool(row.sum() > 1)

    return any(rows()), sum(rows()), x * 2


FUNCTIONS: list[Callable[[Tensor], Any]] = [
    summed,
    chosen,
    chained,
    numbered,
    paired,
    left_early,
    counted,
    written,
    drawn,
    raised,
    switched,
    delegated,
    by_function,
    by_numbers,
    kept_on,
    two_loops,
    epoch,
    told,
    told_and_asked,
    sorted_loudly,
    asked_loudly,
]
# Those whose later calls are all replayed, by two more ways than one at most.
REPLAYED = {summed, by_function, epoch}

ROWS = [
    [[1.0, 1.0], [2.0, 2.0], [0.5, 0.1]],
    [[1.0, 1.0], [2.0, 2.0], [0.5, 0.1]],
    [[0.1, 0.1], [2.0, 1.0], [3.0, 0.1]],
    [[float("inf"), 1.0], [2.0, 2.0], [0.5, 0.1]],
    [[1.0, 1.0], [2.0, 2.0], [0.5, 0.1]],
    [[4.0, 1.0], [-2.0, 2.0], [9.0, 0.1]],
    [[1.0, 1.0], [2.0, 2.0], [0.5, 0.1]],
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
    [[1.0, 1.0], [2.0, 2.0], [0.5, 0.1]],
]


def run(fn: Callable[[Tensor], Any]) -> list[Any]:
    torch.manual_seed(3)
    HELD.seen, HELD.count, HELD.limit = [], 0, 1.0
    HELD.buffer, HELD.kept = torch.zeros(2), None
    found = []
    for call, rows in enumerate(ROWS):
        HELD.limit = 1.5 if call == 6 else 1.0
        result = copied(fn(torch.tensor(rows)))
        found.append((result, list(HELD.seen), HELD.count, HELD.buffer.clone(), torch.rand(1)))
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor], Any], capsys: pytest.CaptureFixture[str]) -> None:
    api.reset()
    expected = run(fn)
    printed = capsys.readouterr().out
    compiled = api.compile(fn)
    found = run(compiled)
    assert capsys.readouterr().out == printed
    agree(expected, found)
    if fn in REPLAYED and not api.PLAIN:
        hits, breaks = api.hits(compiled), api.breaks(compiled)
        assert hits is not None
        assert breaks is not None
        assert hits >= 5, api.reason(compiled)
