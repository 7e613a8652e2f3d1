"""`torch.zeros(n, out=...)` and `storage_offset()`: what they write, and where a tensor begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..steps.results import agree, copied

HELD: dict[str, Tensor] = {}


def filled(x: Tensor) -> Any:
    torch.ones(3, out=HELD["row"])
    torch.arange(3, out=HELD["numbers"])
    return x + HELD["row"], HELD["numbers"] * 2


def own(x: Tensor) -> Any:
    row, one = torch.empty(3), torch.empty(1)
    torch.linspace(0, 1, 3, out=row)
    torch.ones(1, out=one)
    return x * row + one, torch.zeros(3, out=row) is row, row


def of_another_size(x: Tensor) -> Any:
    row = torch.empty(0)
    torch.ones(x.shape[0] + 1, out=row)
    return row, row.shape, x + 1


def parts(x: Tensor) -> Any:
    torch.zeros(2, out=HELD["row"][:2])
    return x + HELD["row"]


def drawn(x: Tensor) -> Any:
    torch.rand(3, out=HELD["row"])
    return x + HELD["row"], torch.rand(1)


def of_a_number(x: Tensor) -> Any:
    one = torch.ones(1, dtype=torch.int64)
    count = (x > 0).sum()
    torch.zeros(count, out=one)  # type: ignore[call-overload]
    return one, x


def raising(x: Tensor) -> Any:
    try:
        torch.ones(3, out=HELD["leaf"])
    except RuntimeError as error:
        return str(error)[:40], x
    return x


def offsets(x: Tensor) -> Any:
    row = x[1:]
    return row.storage_offset(), x.storage_offset(), row * x.storage_offset()


def decided(x: Tensor) -> Any:
    return x * 2 if x.storage_offset() == 0 else x + 1


FUNCTIONS: list[Callable[[Tensor], Any]] = [
    filled,
    own,
    of_another_size,
    parts,
    drawn,
    of_a_number,
    raising,
    offsets,
    decided,
]
WHOLE = {filled, own, parts, drawn, offsets, decided}


def run(fn: Callable[[Tensor], Any]) -> list[Any]:
    torch.manual_seed(2)
    HELD.update(row=torch.full((3,), 5.0), numbers=torch.zeros(3, dtype=torch.int64))
    HELD["leaf"] = torch.zeros(3, requires_grad=True)
    whole = torch.arange(12.0) - 3
    found = []
    for start in (0, 0, 3, 6, 0, 3):
        result = copied(fn(whole[start : start + 3]))
        found.append((result, copied(dict(HELD)), torch.rand(1)))
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor], Any]) -> None:
    api.reset()
    expected = run(fn)
    compiled = api.compile(fn)
    found = run(compiled)
    agree(expected, found)
    if fn in WHOLE and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
