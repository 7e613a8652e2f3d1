"""Containers that hold themselves, given to what looks into containers: each test runs in a process of its own."""

from __future__ import annotations

import collections
import json
import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.utils import _pytree as pytree

import stator


def _list() -> Any:
    ring: list[Any] = [1, 2]
    ring.append(ring)
    return ring


def _tensors() -> Any:
    ring: list[Any] = [torch.ones(2)]
    ring.append(ring)
    return ring


def _dict() -> Any:
    ring: dict[str, Any] = {"a": 1}
    ring["b"] = [ring]
    return ring


def _tuple() -> Any:
    held: list[Any] = [1]
    ring = (held, 2)
    held.append(ring)
    return ring


def _deque() -> Any:
    ring: collections.deque[Any] = collections.deque([1])
    ring.append(ring)
    return ring


def _slice() -> Any:
    held: list[Any] = []
    ring = slice(held, 2)
    held.append(ring)
    return ring


LOGGER = logging.getLogger("held by themselves")
MADE = {made.__name__[1:]: made for made in (_list, _tensors, _dict, _tuple, _deque, _slice)}
CALLS: dict[str, Callable[[Any], Any]] = {
    "truth": lambda ring: bool(ring),
    "len": lambda ring: len(ring),
    "text": lambda ring: f"{ring} {ring!r}",
    "equal": lambda ring: ring == ring,
    "within": lambda ring: ring in ring,
    "any": lambda ring: any(ring),
    "int": lambda ring: int(ring),
    "print": lambda ring: print(ring),
    "log": lambda ring: LOGGER.warning("%s", ring),
    "warn": lambda ring: warnings.warn(str(ring), stacklevel=1),
    "json": lambda ring: json.dumps(ring),
    "tensor": lambda ring: torch.tensor(ring),
    "stack": lambda ring: torch.stack(ring),
    "index": lambda ring: torch.ones(3)[ring],
    "array": lambda ring: np.asarray(ring).shape,
    "where": lambda ring: np.where(ring, 1, 2),
    "array's truth": lambda ring: np.any([1, 2]) and bool(ring),
    "mapped": lambda ring: pytree.tree_map(lambda leaf: leaf, ring),
    "raised": lambda ring: ValueError(ring).args[0] is ring,
}


def _ended(fn: Callable[..., Any], ring: Any) -> Any:
    try:
        return repr(fn(torch.ones(2), ring))
    except Exception as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "call"),
    # PyTorch's own recursion has no end there.
    [(made, call) for made in MADE for call in CALLS if (made, call) != ("tuple", "tensor")],
)
def test_as_in_plain_python(made: str, call: str) -> None:
    def fn(x: Tensor, ring: Any) -> tuple[Tensor, str]:
        y = x * 2
        return y + 1, str(CALLS[call](ring))

    compiled = api.compile(fn)
    with stator.config.patch(strict=True, skip_unprofitable=False):
        for _ in range(2):
            ring = MADE[made]()
            for _ in range(2):
                assert _ended(compiled, ring) == _ended(fn, ring)
        if isinstance(ring, list):
            ring.insert(0, 0)
        elif isinstance(ring, dict):
            ring["a"] = 0
        assert _ended(compiled, ring) == _ended(fn, ring)


def test_a_list_held_often_is_gone_into_once() -> None:
    """A nest of 2^200 leaves."""

    def fn(x: Tensor, nest: list[Any]) -> Tensor:
        return x * 2 if nest else x

    nest: list[Any] = [1]
    for _ in range(200):
        nest = [nest, nest]
    compiled = api.compile(fn)
    for held in (nest, nest, []):
        assert torch.equal(compiled(torch.ones(2), held), fn(torch.ones(2), held))
