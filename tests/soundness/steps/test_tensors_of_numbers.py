"""Tensors that are made of numbers that were read, of a type that is asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
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


def filled(x: Tensor, dtype: torch.dtype) -> Any:
    number = x.max().item()
    like = x.to(dtype)
    return (
        torch.full((2, 3), number, dtype=dtype),
        torch.full(size=(2,), fill_value=number, dtype=dtype, requires_grad=False),
        torch.full_like(like, number),
        like.new_full((3,), number),
        torch.full((2,), number) * 2,
    )


def filled_with_drawn(x: Tensor, dtype: torch.dtype) -> Any:
    number = float(np.random.uniform(0.8, 1.0)) * x.sum().item()
    return torch.full((x.size(0),), number, dtype=dtype), torch.full_like(x, number)


def filled_with_integers(x: Tensor, dtype: torch.dtype) -> Any:
    number, count = x.argmax().item(), (x > 1).sum().item()
    return (
        torch.full((3,), number),
        torch.full((count,), number, dtype=dtype),
        torch.full((count, 2), x.sum().item()),
        x.new_full((2,), count),
    )


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return copied(call())
    except (RuntimeError, ValueError) as error:
        return type(error).__name__, str(error)


PROGRAMS = [listed, single, filled, filled_with_drawn, filled_with_integers]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_hold_what_plain_python_puts_in(
    program: Callable[..., Any], dtype: torch.dtype
) -> None:
    compiled = stator.compile(program)
    rows = [[1.5, 2.0], [3.0, -1.0], [1e30, 5.0], [float("inf"), 1.0], [float("nan"), 0.0]]
    with stator.config.patch(skip_unprofitable=False):
        for row in (*rows, *rows):
            x = torch.tensor(row, dtype=torch.float64)
            np.random.seed(3)
            expected = outcome(lambda x=x: program(x, dtype))
            np.random.seed(3)
            assert same(outcome(lambda x=x: compiled(x, dtype)), expected)
    takes_all = dtype.is_floating_point or dtype.is_complex or dtype == torch.bool
    # A number that a type may not hold is a question, and what it raises a break.
    assert not takes_all or program in PROGRAMS[2:] or stator.stats(compiled).breaks == 0


@pytest.mark.parametrize("dtype", TYPES[:4], ids=str)
@pytest.mark.parametrize("program", PROGRAMS[2:], ids=lambda program: program.__name__)
def test_one_trace_fills_with_all_that_the_type_holds(
    program: Callable[..., Any], dtype: torch.dtype
) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for number in (1.5, -2.0, 300.0, 0.0, 60000.0):
            x = torch.tensor([number, 2.0], dtype=torch.float64)
            np.random.seed(3)
            expected = outcome(lambda x=x: program(x, dtype))
            np.random.seed(3)
            assert same(outcome(lambda x=x: compiled(x, dtype)), expected)
    stats = stator.stats(compiled)
    # Which integers half a float's bits hold isn't asked: each is a number of its own.
    is_asked = program is not filled_with_integers or dtype != torch.float16
    assert stats.breaks == 0 and (not is_asked or stats.traces == 1), stats.reason
