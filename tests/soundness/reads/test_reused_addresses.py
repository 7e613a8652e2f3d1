"""Objects at addresses where tensors of the same trace have died."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor


class Plain:
    pass


class Items(list):  # type: ignore[type-arg]
    pass


class Table(dict):  # type: ignore[type-arg]
    pass


class Failing(Exception):
    pass


@pytest.mark.parametrize(
    "make", [Plain, Items, Table, Failing, list, dict, set], ids=lambda it: it.__name__
)
def test_what_takes_a_dead_tensors_place_is_no_tensor(make: type[Any]) -> None:
    """Many of each die and are made, so that addresses are used again whatever the allocator does."""

    def step(x: Tensor) -> tuple[Tensor, list[str]]:
        kept = []
        for _ in range(40):
            (x + 1), (x * 2), (x - 3)
            kept.append(make())
        x.tolist()
        return x * len(kept), [type(it).__name__ for it in kept]

    compiled = api.compile(step, backend="eager")
    for value in (1.0, 2.0, 3.0):
        x = torch.full((2,), value)
        plain, found = step(x), compiled(x)
        assert torch.equal(plain[0], found[0]) and plain[1] == found[1]
