"""SciPy's matcher of rows with columns, given arrays and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same

scipy_optimize = pytest.importorskip("scipy.optimize")
linear_sum_assignment = scipy_optimize.linear_sum_assignment


def told(result: Any) -> Any:
    """With lists in place of arrays."""
    if isinstance(result, np.ndarray):
        return str(result.dtype), result.tolist()
    if isinstance(result, (list, tuple)):
        return type(result)(map(told, result))
    return copied(result)


def of_arrays(x: Tensor) -> Any:
    cost = (x * 2).numpy()
    rows, columns = linear_sum_assignment(cost)
    return rows, columns, cost[rows, columns].sum(), x + 1


def of_tensors(x: Tensor) -> Any:
    found = [linear_sum_assignment(part) for part in (x, x.t(), x[:2])]
    return [(torch.as_tensor(i), torch.as_tensor(j, dtype=torch.int32)) for i, j in found], x + 1


def greatest(x: Tensor) -> Any:
    _, columns = linear_sum_assignment(x.numpy(), maximize=True)
    named = linear_sum_assignment(cost_matrix=x.numpy(), maximize=True)[1]
    return x[torch.arange(len(columns)), torch.from_numpy(columns)], named


def by_pairs(x: Tensor) -> Any:
    total = 0.0
    for i, j in zip(*linear_sum_assignment(x.numpy())):
        total = total + x[i, j]
    return total


@pytest.mark.parametrize("program", [of_arrays, of_tensors, greatest, by_pairs])
def test_matched(program: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(6):
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(call))
            assert same(told(program(x)), told(compiled(x))), call
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0), stats.reason


@pytest.mark.parametrize("profitable", [True, False])
def test_other_sizes_and_data_that_it_refuses(profitable: bool) -> None:
    def program(x: Tensor) -> Any:
        try:
            return linear_sum_assignment(x), x + 1
        except ValueError as error:
            return str(error), x

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=profitable):
        for call, rows in enumerate((3, 3, 3, 5, 5, 2, 3)):
            x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(call))
            if call in (2, 6):
                x[0, 0] = float("nan")
            assert same(told(program(x)), told(compiled(x))), call


def test_tensors_with_gradients_are_refused() -> None:
    def program(x: Tensor) -> Any:
        try:
            return linear_sum_assignment(x)
        except RuntimeError as error:
            return str(error)

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            x = torch.randn(2, 2, requires_grad=True)
            assert program(x) == compiled(x)


def test_a_table_from_outside() -> None:
    table = np.arange(9.0).reshape(3, 3)[::-1].copy()

    def program(x: Tensor) -> Any:
        rows, columns = linear_sum_assignment(table)
        return rows, columns, x[torch.from_numpy(columns)]

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(4):
            x = torch.randn(3)
            assert same(told(program(x)), told(compiled(x))), call
            table[:] = table[[1, 2, 0]]
