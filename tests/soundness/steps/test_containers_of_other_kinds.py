"""Containers of read numbers that are compared with what is never equal to one: no number decides that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import same

HELD: list[Any] = []
OPTION: dict[str, Any] = {"which": "all"}


def with_texts(x: Tensor) -> Any:
    n = x[0].item()
    return [n] == "all", (n, 1) != "all", {"a": n} == None, [n] == 1.5, x + 1  # noqa: E711


def with_other_containers(x: Tensor) -> Any:
    n = x[0].item()
    return [n] == (n,), (n,) != [n], {1: n} == [n], x + 1


def with_lists_of_other_lengths(x: Tensor) -> Any:
    row = x.tolist()
    return row == [], row != row[:1], [*row, 1.0] == row, x + 1


def in_patterns(x: Tensor) -> Any:
    found = []
    for subject in ("x", ("scale", x[0].item()), x[1].item() > 0):
        match subject:
            case "x":
                found.append(x)
            case ("scale", factor):
                found.append(x * factor)
            case True | False:
                found.append(x - 1)
    return found


def from_outside(x: Tensor) -> Any:
    HELD.append(x[0].item())
    del HELD[:-3]
    return HELD == OPTION["which"], HELD == [], OPTION["which"] != HELD, x + len(HELD)


@pytest.mark.parametrize(
    "function", [with_texts, with_other_containers, with_lists_of_other_lengths, in_patterns]
)
def test_no_number_is_asked(function: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(function)
    with stator.config.patch(skip_unprofitable=False):
        for seed in range(6):
            torch.manual_seed(seed)
            x = torch.randn(3).abs()
            assert same(compiled(x), function(x))
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.native) == (0, 0)
    assert stats.hits >= 4


def test_what_is_compared_changes() -> None:
    compiled = stator.compile(from_outside)
    with stator.config.patch(skip_unprofitable=False):
        for number, which in enumerate(["all", "all", (), None, [1.0], [1.0, 1.0], 3, "all", []]):
            results = []
            for call in (compiled, from_outside):
                HELD[:] = [1.0] if number % 2 else []
                OPTION["which"] = which
                results.append(call(torch.ones(3)))
            assert same(*results)
