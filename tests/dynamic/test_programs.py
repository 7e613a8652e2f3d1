"""Programs over sizes and numbers: equal to plain Python for every input, with few traces."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator

from .programs import PROGRAMS, Program

SIZES = [4, 4, 5, 8, 3, 16, 7, 9, 12, 6, 10, 11, 31, 2, 5, 13, 14, 15, 20, 17, 21, 4]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and torch.allclose(left, right, equal_nan=True)
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    return bool(left == right)


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_equals_plain_python(program: Program, dynamic: bool | None) -> None:
    compiled = stator.compile(program.function, dynamic=dynamic, recompile_limit=32)
    for size in SIZES:
        arguments = program.arguments(size)
        assert same(program.function(*arguments), compiled(*arguments)), f"for {size}"
    stats = stator.stats(compiled)
    assert stats.native == 0, stats.reason
    if dynamic is None:
        assert stats.traces <= program.traces, "traced again for sizes that vary freely"
    if dynamic is True:
        assert stats.traces <= program.traces


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_small_sizes(program: Program) -> None:
    """Sizes of 0 and 1, and negative numbers, in between."""
    compiled = stator.compile(program.function, recompile_limit=32)
    for size in [4, 5, 1, 6, 1, 2, 7]:
        arguments = program.arguments(size)
        assert same(program.function(*arguments), compiled(*arguments)), f"for {size}"
