"""Tensors that are made of symbolic numbers, with PyTorch's compilers: they keep 32 bits of a `torch.SymInt` in a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


def of_a_list(x: Tensor, number: int) -> Tensor:
    return torch.tensor([number, 1]) + x * 2


def of_lists(x: Tensor, number: int) -> Tensor:
    return torch.tensor([[number, -number], [number // 2, 3]]).sum(0) + x * 2


def of_a_float_and_an_integer(x: Tensor, number: int) -> Tensor:
    return torch.tensor([number * 0.5, number], dtype=torch.float64) + x * 2


def by_as_tensor(x: Tensor, number: int) -> Tensor:
    return torch.as_tensor([number, 1]) + x * 2


def by_a_method(x: Tensor, number: int) -> Tensor:
    return x.new_tensor([number, x.shape[0]]) + x * 2


def that_was_read(x: Tensor, number: int) -> Tensor:
    total = (x.sum() * 0 + number).item()
    return torch.tensor([total, total]) * 2 + x - 1


NUMBERS = (3, 4, 5, 2**31, 2**33 + 1, 2**40, -(2**33), 6)


@pytest.mark.parametrize(
    "program",
    [of_a_list, of_lists, of_a_float_and_an_integer, by_as_tensor, by_a_method, that_was_read],
)
def test_all_bits_are_kept(program: Callable[[Tensor, int], Tensor]) -> None:
    compiled = stator.compile(program, backend="aot_eager", recompile_limit=16)
    with stator.config.patch(skip_unprofitable=False):
        for number in NUMBERS:
            x = torch.tensor([1, 2])
            expected, found = program(x, number), compiled(x, number)
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected), number


def test_what_does_not_fit_raises() -> None:
    def program(x: Tensor, number: int) -> Any:
        return torch.tensor([number, 1], dtype=torch.int32) + x * 2

    compiled = stator.compile(program, backend="aot_eager", recompile_limit=16)
    x = torch.tensor([1, 2])
    with stator.config.patch(skip_unprofitable=False):
        for number in (3, 4, 5, 6):
            assert torch.equal(compiled(x, number), program(x, number))
        with pytest.raises(RuntimeError) as raised:
            compiled(x, 2**33)
    assert "overflow" in str(raised.value)
