"""Numbers that were read, put into a list at a place: carried. The place is looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same

shared: list[Any] = []


def returns(x: Tensor) -> Any:
    total, found = 0.0, []
    for reward in reversed(x.tolist()):
        total = reward + 0.9 * total
        found.insert(0, total)
    return found, x * torch.tensor(found)


def to_the_left(x: Tensor) -> Any:
    found: deque[float] = deque(maxlen=2)
    for number in x.tolist():
        found.appendleft(number + 1)
    return list(found), found[0] * x


def set_by_method(x: Tensor) -> Any:
    found = [0.0, 1.0]
    found.__setitem__(1, x[0].item())
    return found, x + found[1]


def into_an_outside_list(x: Tensor) -> Any:
    shared.insert(0, x[0].item())
    del shared[2:]
    return list(shared), x + 1


best: dict[str, Any] = {}


def by_keywords(x: Tensor) -> Any:
    loss = x.sum().item()
    best.update(loss=loss, size=len(x))
    found = dict(loss=loss, half=loss / 2)
    found.update({"mean": x.mean().item()}, last=loss + 1)
    return found, dict(best), x + 1


STORED = [returns, to_the_left, set_by_method, into_an_outside_list, by_keywords]


@pytest.mark.parametrize("function", STORED)
def test_a_number_is_stored_without_being_looked_at(function: Callable[[Tensor], Any]) -> None:
    values = [torch.tensor([1.0, 2.0, 4.0]) * turn for turn in range(8)]
    shared[:] = [0.0, 0.0]
    expected = [copied(function(x)) for x in values]
    shared[:] = [0.0, 0.0]
    compiled = stator.compile(function)
    assert all(same(compiled(x), wanted) for x, wanted in zip(values, expected, strict=True))
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.native) == (0, 0), stats
    assert stats.traces <= 3, stats


def test_the_place_decides() -> None:
    def inserted(x: Tensor) -> list[Any]:
        found: list[Any] = ["a", "b", "c"]
        found.insert(int(x[0]), x[1].item())
        return found

    compiled = stator.compile(inserted)
    for place in (0, 0, 2, -1, 9, 0, 2):
        x = torch.tensor([float(place), place + 0.5])
        assert compiled(x) == inserted(x)
    assert stator.stats(compiled).breaks == 0


def test_a_place_that_is_a_tensor_is_read() -> None:
    def inserted(x: Tensor) -> list[Any]:
        found: list[Any] = ["a", "b", "c"]
        found.insert(x.long()[0], x[1].item())
        return found

    compiled = stator.compile(inserted)
    for place in (0, 0, 2, 1, 0):
        x = torch.tensor([float(place), place + 0.5])
        assert compiled(x) == inserted(x)
