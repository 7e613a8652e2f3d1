"""An instance of a class on top of `tuple` comes back with what its own dictionary holds."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

Pair = collections.namedtuple("Pair", "first second")


class Noted(tuple[Any, ...]):
    """A tuple that can be given attributes."""


class NotedPair(Pair):
    """A named tuple with a dictionary of its own."""

    note: Any

    def noted(self, note: Any) -> NotedPair:
        other = self._replace(first=self.second)
        other.note = note
        return other


def attributes(x: Tensor, n: int) -> Any:
    made = Noted((x, n))
    made.n, made.x = n, x * n  # type: ignore[attr-defined]
    return made


def copied(x: Tensor, n: int) -> Any:
    made = Noted((n,))
    made.n = n  # type: ignore[attr-defined]
    other = copy.copy(made)
    other.of = made  # type: ignore[attr-defined]
    return other, made


def named(x: Tensor, n: int) -> Any:
    return NotedPair(1, x).noted([n]), NotedPair(1, 2)


def of_itself(x: Tensor, n: int) -> Any:
    made = Noted((n,))
    made.own = [made]  # type: ignore[attr-defined]
    return made


def held(x: Tensor, n: int) -> Any:
    made = Noted((n,))
    made.n = n  # type: ignore[attr-defined]
    return lambda: (made, made.n), {"made": made}  # type: ignore[attr-defined]


def told(value: Any, known: dict[int, int]) -> Any:
    """A printed form with attributes."""
    if isinstance(value, Tensor):
        return value.tolist()
    if id(value) in known:
        return f"the {known[id(value)]}th"
    if isinstance(value, (tuple, list)):
        known[id(value)] = len(known)
        own = {name: told(item, known) for name, item in getattr(value, "__dict__", {}).items()}
        return type(value).__name__, [told(item, known) for item in value], own
    if isinstance(value, dict):
        return {key: told(item, known) for key, item in value.items()}
    return told(value(), known) if callable(value) else value


@pytest.mark.parametrize("program", [attributes, copied, named, of_itself, held])
def test_attributes(program: Callable[..., Any]) -> None:
    compiled = api.compile(program)
    for n in (1, 1, 2, 3, 2, 1):
        x = torch.arange(2.0) + n
        assert told(compiled(x, n), {}) == told(program(x, n), {})
