"""Containers that stand as default arguments: what they hold is guarded, once somebody looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..objects import X
from ..probe import Steps, flip, two_worlds


@flip
def test_functions_in_a_default_list() -> Steps:
    def fn(x: Tensor, acts: list[Any] = [torch.relu, torch.neg]) -> Tensor:  # noqa: B006
        for act in acts:
            x = act(x)
        return x

    held: list[Any] = fn.__defaults__[0]  # type: ignore[index]
    yield fn, (X,)
    held[1] = torch.exp
    yield None
    held[1] = torch.neg
    yield None


@flip
def test_numbers_in_a_keyword_only_default() -> Steps:
    def fn(x: Tensor, *, sizes: list[int] = [1, 2]) -> Tensor:  # noqa: B006
        return x * sum(sizes)

    held: list[int] = fn.__kwdefaults__["sizes"]
    yield fn, (X,)
    held.append(3)
    yield None
    held.pop()
    yield None


@flip
def test_lists_in_a_default_list() -> Steps:
    def fn(x: Tensor, nested: list[list[int]] = [[1], [2, 3]]) -> Tensor:  # noqa: B006
        return x * len(nested[1])

    held: list[list[int]] = fn.__defaults__[0]  # type: ignore[index]
    yield fn, (X,)
    held[1].append(4)
    yield None
    held[1].pop()
    yield None


@flip
def test_a_default_set() -> Steps:
    def fn(x: Tensor, names: set[str] = {"a"}) -> Tensor:  # noqa: B006
        return x * len(names)

    held: set[str] = fn.__defaults__[0]  # type: ignore[index]
    yield fn, (X,)
    held.add("b")
    yield None
    held.discard("b")
    yield None


@flip
def test_a_default_of_a_function_that_is_called() -> Steps:
    def inner(x: Tensor, factors: list[int] = [2, 5]) -> Tensor:  # noqa: B006
        return x * factors[0]

    held: list[int] = inner.__defaults__[0]  # type: ignore[index]
    yield (lambda x: inner(x)), (X,)
    held[0] = 3
    yield None
    held[0] = 2
    yield None


@flip
def test_a_default_that_is_handed_out() -> Steps:
    def fn(x: Tensor, held: list[int] = [1]) -> Any:  # noqa: B006
        return x + 1, list(held)

    held: list[int] = fn.__defaults__[0]  # type: ignore[index]
    yield fn, (X,)
    held[0] = 7
    yield None
    held[0] = 1
    yield None


@two_worlds
def test_a_default_that_is_added_to_and_read() -> Steps:
    def fn(x: Tensor, log: list[int] = [], seen: set[int] = set(), last: Any = deque()) -> Any:  # noqa: B006, B008
        log.append(x.shape[0])
        seen.add(x.shape[0])
        last.append(x.shape[0])
        return x * len(log), list(log), sorted(seen), list(last)

    yield fn, (X,)
    yield (torch.ones(4),)


def _added_to(x: Tensor, log: list[Any] = []) -> Tensor:  # noqa: B006
    log.append(x.sum())
    return x + 1


def _added_to_by_keyword(x: Tensor, *, log: list[Any] = []) -> Tensor:  # noqa: B006
    log.extend([x.shape[0], 1])
    return x + 1


@pytest.mark.parametrize("fn", [_added_to, _added_to_by_keyword])
def test_a_default_that_is_only_added_to_needs_one_trace(fn: Callable[[Tensor], Tensor]) -> None:
    (held,) = (fn.__defaults__ or ()) or fn.__kwdefaults__.values()  # type: ignore[attr-defined]
    held.clear()
    api.reset()
    compiled = api.compile(fn)
    for _ in range(12):
        compiled(X)
    assert len(held) in (12, 24)
    if not api.PLAIN:
        assert stator.stats(compiled).traces == 1
