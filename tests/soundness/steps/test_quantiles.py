"""`quantile`, which looks at the numbers that it's asked for: its result's sizes are known without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import same


def by_number(x: Tensor, q: Tensor) -> Any:
    clipped = x.clamp(max=torch.quantile(x, 0.9))
    return clipped.sum(), x.quantile(0.25, dim=-1, keepdim=True) * 2


def by_tensor(x: Tensor, q: Tensor) -> Any:
    return torch.quantile(x, q, dim=0, interpolation="nearest") + 1, torch.nanquantile(x, q)


def by_read_number(x: Tensor, q: Tensor) -> Any:
    return torch.quantile(x * 2, q.min().item()) + 1


def behind_a_write(x: Tensor, q: Tensor) -> Any:
    x.mul_(2)
    found = x.quantile(q)
    x.add_(1)
    return found


def handled(x: Tensor, q: Tensor) -> Any:
    try:
        return x.quantile(q) + 1
    except RuntimeError as error:
        return str(error)


Program = Callable[[Tensor, Tensor], Any]


def outcomes(program: Program) -> list[Any]:
    found = []
    for call in range(9):
        x = torch.linspace(-1, call + 1, 6 + call // 6).repeat(3, 1).requires_grad_(call % 2 == 0)
        q = torch.tensor([0.1 * call, 0.5]) if call != 5 else torch.tensor([0.5, 1.5])
        given = x * 1
        try:
            result = program(given, q)
        except RuntimeError as error:
            result = str(error)
        found.append((result, given.detach().clone()))
    return found


@pytest.mark.parametrize("skip", [True, False], ids=["default", "always"])
@pytest.mark.parametrize("program", [by_number, by_tensor, by_read_number, behind_a_write, handled])
def test_results(program: Program, skip: bool) -> None:
    with stator.config.patch(skip_unprofitable=skip):
        compiled = stator.compile(program)
        assert same(outcomes(program), outcomes(compiled))
        if not skip and program in (by_number, by_tensor):
            assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_other_backends(backend: str) -> None:
    compiled = stator.compile(by_number, backend=backend)
    for call in range(4):
        x = torch.linspace(-1, call + 1, 12).view(3, 4)
        torch.testing.assert_close(compiled(x, x), by_number(x, x))
