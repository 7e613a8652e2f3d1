"""Tensors that are made of numbers that were read, of a type that is asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.bool,
    torch.int64,
    torch.uint8,
]


def listed(x: Tensor, dtype: torch.dtype) -> Any:
    window = deque(x.tolist()[:2], maxlen=3)
    window.append(x.sum().item())
    made = torch.tensor(list(window), dtype=dtype)
    return made, made.sum(), x + 1


def single(x: Tensor, dtype: torch.dtype) -> Any:
    return torch.tensor(x.sum().item(), dtype=dtype, requires_grad=False), torch.tensor(
        [[x.argmax().item(), 2]], dtype=dtype
    )


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return copied(call())
    except (RuntimeError, ValueError) as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("program", [listed, single], ids=lambda program: program.__name__)
def test_they_hold_what_plain_python_puts_in(
    program: Callable[..., Any], dtype: torch.dtype
) -> None:
    compiled = stator.compile(program)
    rows = [[1.5, 2.0], [3.0, -1.0], [1e30, 5.0], [float("inf"), 1.0], [float("nan"), 0.0]]
    with stator.config.patch(skip_unprofitable=False):
        for row in (*rows, *rows):
            x = torch.tensor(row, dtype=torch.float64)
            expected = outcome(lambda x=x: program(x, dtype))
            assert same(outcome(lambda x=x: compiled(x, dtype)), expected)
    takes_all = dtype.is_floating_point or dtype.is_complex or dtype == torch.bool
    assert not takes_all or stator.stats(compiled).breaks == 0
