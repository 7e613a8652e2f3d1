"""`min` and `max` of tensors, and places in lists that tensors say: each is a decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import copied, same

COUNTS = [0, 0, 0]
KEPT: list[Any] = [0.25, 0.0]
LEAF = torch.ones(3, requires_grad=True)


def clipped(x: Tensor) -> Any:
    return max(x.sum(), 0) * 2, min(1.0, 1.0 / x.abs().sum()) * x


def of_tensors(x: Tensor) -> Any:
    first, second, third = x
    return max(first, second, third), min(first, second, third) + 1


def beside_numbers(x: Tensor) -> Any:
    found = max(x[0], x.sum().item(), 0.5)
    return found, min(x.sum().item(), x[1])


def in_lists(x: Tensor) -> Any:
    bracket = [0, x[0], x.sum()]
    return max(bracket) - min(bracket), min((x[0], 1.0, x[1])), max([x[2]])


def of_outside(x: Tensor) -> Any:
    """As a line search has its bracket: numbers beside tensors."""
    KEPT[1] = x[0]
    best = max(KEPT) * 2
    KEPT[1] = 0.0
    return best


def which(x: Tensor) -> Any:
    """It gives the very object."""
    left, right = x[0], x[1]
    best = max(left, right)
    return best is left, best is right, best.add_(1), x


def of_many(x: Tensor) -> Any:
    try:
        return max(x, 0)
    except RuntimeError as error:
        return str(error)


def with_a_key(x: Tensor) -> Any:
    return max(x[0], x[1], key=lambda it: -it.item())


def counted(x: Tensor) -> Any:
    COUNTS[(x.argmax() % 3)] += 1
    mine = [0, 0, 0]
    mine[x.argmin()] = x.sum()
    return mine, x * 2


def deleted(x: Tensor) -> Any:
    mine = ["a", "b", "c"]
    del mine[x.argmax()]
    return mine, x + 1


def out_of_range(x: Tensor) -> Any:
    mine = [0, 0]
    try:
        mine[x.argmax()] = 1
    except IndexError as error:
        return str(error), mine
    return mine


PROGRAMS = (clipped, of_tensors, in_lists, of_outside, which, counted, deleted, out_of_range)
INPUTS = (
    [1.0, 2.0, 3.0],
    [3.0, 1.0, 2.0],
    [-1.0, -2.0, 0.5],
    [2.0, 2.0, 2.0],
    [float("nan"), 1.0, 0.0],
)


def play(fn: Callable[[Tensor], Any]) -> list[Any]:
    COUNTS[:] = [0, 0, 0]
    seen = []
    for _ in range(3):
        for numbers in INPUTS:
            seen.append((copied(fn(torch.tensor(numbers))), list(COUNTS)))
    return seen


@pytest.mark.parametrize("fn", [*PROGRAMS, beside_numbers, of_many, with_a_key])
def test_calls_are_plain_ones(fn: Callable[[Tensor], Any]) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(fn, backend="eager")
        for expected, found in zip(play(fn), play(compiled), strict=True):
            assert same(list(expected), list(found))
    if not api.PLAIN and fn in PROGRAMS:
        stats = stator.stats(compiled)
        assert stats.breaks == 0 and stats.hits > 0


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS])
def test_optimizers_of_tensors_that_are_no_parameters(optimizer: Any) -> None:
    def begin() -> tuple[Callable[[Tensor], Any], Tensor, Any]:
        leaf = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
        options = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
        own = optimizer([leaf], lr=0.1, **options)

        def step(x: Tensor) -> Any:
            def closure() -> Tensor:
                own.zero_grad()
                loss = ((leaf - x) ** 2).sum()
                loss.backward()
                return loss

            return own.step(closure)

        return step, leaf, own

    torch.manual_seed(0)
    plain, expected, _ = begin()
    other, found, _ = begin()
    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(other, backend="eager")
        for call in range(5):
            x = torch.full((3,), float(call))
            assert torch.equal(plain(x), compiled(x))
            assert torch.equal(expected, found)
    if not api.PLAIN and optimizer is not torch.optim.LBFGS:
        assert stator.stats(compiled).breaks == 0
