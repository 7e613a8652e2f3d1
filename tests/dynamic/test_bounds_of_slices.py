"""Bounds of slices that are numbers which vary, and lengths of tuples that hold such slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


class Rows:
    """What is given slices reads their bounds."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return self[key[0]] + key.__len__()
        if key.start is None:
            return self.x[: key.stop].sum() * key.stop
        if key.stop is None:
            return self.x[key.start :].sum() + key.start
        return self.x[key.start : key.stop].sum() * (key.stop - key.start)


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: Rows(x)[x.shape[0] // 2 :],
    lambda x: Rows(x)[: x.shape[0] // 2],
    lambda x: Rows(x)[1 : x.shape[0] - 1, 3],
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_trace_does_for_all_sizes(function: Callable[[Any], Any]) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(function, dynamic=True)
        for size in (8, 6, 10, 5, 9, 8, 33):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), function(x))
        assert stator.stats(compiled).traces == 1
