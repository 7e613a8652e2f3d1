"""Tensors whose strides differ from call to call: whether `contiguous()` gives its argument is part of what a trace is for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor


def identity(c: Tensor, flat: bool) -> Any:
    if flat:
        c = c.flatten()
    d = c.contiguous()
    d.add_(1)
    return d, d is c


def turned(c: Tensor, flat: bool) -> Any:
    if flat:
        c = c.flatten()
    d = c.unsqueeze(0).t().contiguous()
    d.add_(1)
    return d


def copied(c: Tensor, flat: bool) -> Any:
    c = c.unsqueeze(0).transpose(0, 1)
    d = c.reshape(-1).clone() if flat else c.contiguous()
    d.mul_(2)
    return d


def arranged(c: Tensor, flat: bool) -> Any:
    d = c.to(memory_format=torch.contiguous_format) if flat else c.contiguous().t()
    return d, d is c


def drawn(choose: random.Random) -> Tensor:
    """Tensors of one or two dimensions that lie in memory in different ways."""
    count = choose.randint(1, 5)
    makers: list[Callable[[], Tensor]] = [
        lambda: torch.arange(float(count)),
        lambda: torch.arange(2.0 * count).view(2, count),
        lambda: torch.arange(float(count)).expand(2, count),
        lambda: torch.ones(1).expand(count),
        lambda: torch.arange(2.0 * count).view(2, count).t(),
    ]
    return choose.choice(makers)()


def again(x: Tensor) -> Tensor:
    """The same, with memory of its own."""
    own = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0).clone()
    return own.as_strided(x.shape, x.stride())


def ended(fn: Callable[..., Any], x: Tensor, flat: bool) -> Any:
    try:
        return fn(x, flat), x
    except RuntimeError as error:
        return str(error)[:30], x


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and torch.equal(left, right)
    if isinstance(left, tuple):
        return isinstance(right, tuple) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [identity, turned, copied, arranged], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("seed", range(25))
def test_contiguous(fn: Callable[..., Any], dynamic: bool | None, seed: int) -> None:
    choose = random.Random(seed)
    compiled = api.compile(fn, dynamic=dynamic, recompile_limit=64)
    for _ in range(12):
        x, flat = drawn(choose), choose.random() < 0.5
        expected, found = ended(fn, again(x), flat), ended(compiled, again(x), flat)
        assert same(expected, found), (x.shape, x.stride(), flat, expected, found)
