"""C code that reads what a `map` of a Python function gives fixes what that function returns, and no other number."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator


def twice(it: Any) -> Any:
    return it * 2


def gradient(x: Tensor, i: int) -> Any:
    """PyTorch compares sizes by such a `map`."""
    y = x * 1
    y.requires_grad_()
    (grad,) = torch.autograd.grad((y * y).sum(1), y, torch.ones(2), create_graph=True)
    return grad + (1 if i % 3 == 0 else 0) + i


def compared(x: Tensor, i: int) -> Any:
    return x * i if any(map(lambda it: it == 1, (0, i))) else x + i


def summed(x: Tensor, i: int) -> Any:
    return x + sum(map(twice, (i, 1)))


def reduced(x: Tensor, i: int) -> Any:
    return x + functools.reduce(operator.add, map(twice, [1, i]), i)


def passed_on(x: Tensor, i: int) -> Any:
    """What the inner one moves is returned by the outer one's function."""
    return x + max(map(lambda it: it, map(abs, (i, 1)))) + len(set(map(twice, zip((i,), (i,)))))


def kept(x: Tensor, i: int) -> Any:
    return [x + it for it in map(twice, (i, 1))], list(map(twice, (i, 3)))


FEW = (gradient, compared, kept)


@pytest.mark.parametrize("fn", [*FEW, summed, reduced, passed_on])
def test_maps(fn: Callable[..., Any]) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(fn, backend="eager")
        for i in (0, 1, 2, 3, 4, 5, 6, 7, -3, 2):
            x = torch.full((2, 3), 0.5)
            assert repr(fn(x, i)) == repr(compiled(x, i))
    if not api.PLAIN and fn in FEW:
        assert stator.stats(compiled).traces <= 5
