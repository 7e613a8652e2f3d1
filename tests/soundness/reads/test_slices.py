"""Slices whose bounds are tensors or objects: C code asks them for numbers that nothing guards."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

LETTERS = "abcdefghij"
BOUNDS = [[1, 3, 2, 5], [0, 4, 1, 2], [2, 2, 0, 7], [1, 3, 2, 5], [3, 8, 4, 6]]
X = torch.arange(64.0).view(8, 8)


class Number:
    """Something with an `__index__`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def bare(b: Tensor) -> Any:
    return X[b[0] : b[1]] + 1


def computed(b: Tensor) -> Any:
    return X[(b[1] - b[0]) : b[3]] + 1


def two_axes(b: Tensor) -> Any:
    return X[b[0] : b[1], b[2] : b[3]] + 1


def stepped(b: Tensor) -> Any:
    return X[:: b[1], b[0] :] * 2


def stored(b: Tensor) -> Any:
    y = torch.zeros(8, 8)
    y[b[0] : b[1], b[2] : b[3]] = X[b[0] : b[1], b[2] : b[3]]
    return y


def clamped(b: Tensor) -> Any:
    low, high = max(b[0], 1), min(b[3] + 1, 6)
    return X[low:high].sum()


def in_a_list(b: Tensor) -> Any:
    return list(range(10))[b[0] : b[3]], b + 1


def in_a_string(b: Tensor) -> Any:
    return LETTERS[b[0] : b[3]], b + 1


def in_a_range(b: Tensor) -> Any:
    return range(10)[b[0] : b[3]], b + 1


def index_of_a_list(b: Tensor) -> Any:
    items = [0] * 10
    items[b[3]] = 5
    items[b[0]] += 1
    return items, b + 1


def set_in_a_list(b: Tensor) -> Any:
    items = list(range(10))
    items[b[0] : b[1]] = [7, 7]
    del items[b[2] : b[3]]
    return items, b + 1


def index_of_a_deque(b: Tensor) -> Any:
    items = deque(range(10))
    items[b[3]] = -1
    return items[b[3]] + items[b[0]], b + 1


def by_operator(b: Tensor) -> Any:
    key = slice(b[0], b[3])
    return operator.getitem(X, key) + 1, operator.getitem(LETTERS, key)


def by_method(b: Tensor) -> Any:
    key = slice(b[0], b[3])
    return X.__getitem__(key) + 1, LETTERS.__getitem__(key), [*range(10)].__getitem__(key)


def indices(b: Tensor) -> Any:
    return slice(b[0], b[3]).indices(8), b + 1


def compared(b: Tensor) -> Any:
    return slice(b[0], 3) == slice(b[2] - 1, 3), b + 1


def spelt(b: Tensor) -> Any:
    return str(slice(b[0], 3)), f"{slice(b[1], 3)}", b + 1


def parts(b: Tensor) -> Any:
    key = slice(b[0] + 1, b[1] * 2)
    return key.start + key.stop, key.step


def across_a_break(b: Tensor) -> Any:
    key = slice(b[0], b[3] + 0)
    stator.graph_break()
    return X[key, 1] + key.start


def returned(b: Tensor) -> Any:
    key = slice(b[0] + 1, b[1] * 2)
    return key.start, key.stop, (key, key)[0].step


def of_objects(b: Tensor) -> Any:
    low, high = Number(int(b[0])), Number(int(b[3]))
    return X[low:high] + 1, LETTERS[low:high], [*range(10)][low:high]


PROGRAMS: list[Callable[[Tensor], Any]] = [
    bare,
    computed,
    two_axes,
    stepped,
    stored,
    clamped,
    in_a_list,
    in_a_string,
    in_a_range,
    index_of_a_list,
    set_in_a_list,
    index_of_a_deque,
    by_operator,
    by_method,
    indices,
    compared,
    spelt,
    parts,
    across_a_break,
    returned,
    of_objects,
]


def same(expected: Any, found: Any) -> bool:
    if isinstance(expected, Tensor):
        return torch.equal(expected, found)
    if isinstance(expected, tuple):
        return len(expected) == len(found) and all(map(same, expected, found))
    return bool(expected == found)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_other_bounds(program: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(program)
    for bounds in BOUNDS * 2:
        b = torch.tensor(bounds)
        assert same(program(b), compiled(b)), bounds


def test_a_slice_from_outside() -> None:
    compiled = stator.compile(lambda key: X[key] + 1)
    for low in (1, 1, 3, 2):
        key = slice(torch.tensor(low), 6)
        assert torch.equal(compiled(key), X[low:6] + 1)


def test_a_slice_is_made_anew() -> None:
    compiled = stator.compile(lambda b: slice(b[0] + 1, None))
    for low in (1, 1, 3, 2):
        found = compiled(torch.tensor([low]))
        assert type(found) is slice and found.stop is None
        assert torch.equal(found.start, torch.tensor(low + 1))
