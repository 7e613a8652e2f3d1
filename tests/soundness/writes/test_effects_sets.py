"""Outside sets written: what they hold, and in which order they are iterated over."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator


def change(x: Tensor, s: set[Any], steps: list[tuple[str, Any]]) -> Tensor:
    for method, given in steps:
        getattr(s, method)(given)
    return x + 1


def by_operators(x: Tensor, s: set[Any], steps: list[tuple[str, Any]]) -> Tensor:
    for method, given in steps:
        if method == "update" and isinstance(given, set):
            s |= given
        elif method == "difference_update" and isinstance(given, set):
            s -= given
        elif method == "intersection_update" and isinstance(given, set):
            s &= given
        elif method == "symmetric_difference_update" and isinstance(given, set):
            s ^= given
        else:
            getattr(s, method)(given)
    return x + 1


def drawn_steps(drawn: random.Random) -> list[tuple[str, Any]]:
    """Methods that change a set, with numbers, of which many meet in small tables."""

    def held() -> Any:
        numbers = [
            drawn.choice((0, 8, 16, 17, 33, 64, 1, 2, 5)) + drawn.randrange(4) for _ in range(6)
        ]
        grown = set(range(40))
        for number in set(grown).difference(numbers):
            grown.discard(number)
        kinds = (list, tuple, set, frozenset, dict.fromkeys, lambda _: grown)
        return drawn.choice(kinds)(numbers[: drawn.randrange(1, 7)])

    steps: list[tuple[str, Any]] = []
    for _ in range(drawn.randrange(1, 6)):
        if drawn.random() < 0.5:
            steps.append((drawn.choice(("add", "discard")), drawn.randrange(20)))
        else:
            methods = (
                *("update", "update", "difference_update"),
                *("intersection_update", "symmetric_difference_update"),
            )
            steps.append((drawn.choice(methods), held()))
    return steps


@pytest.mark.parametrize("fn", [change, by_operators])
def test_orders_are_plain_ones(fn: Any) -> None:
    hits = 0
    for seed in range(60):
        steps = drawn_steps(random.Random(seed))
        plain, ours = {1, 9}, {1, 9}
        with stator.config.patch(skip_unprofitable=False):
            compiled = api.compile(fn, backend="eager")
            for call in range(5):
                fn(torch.ones(2), plain, steps)
                compiled(torch.ones(2), ours, steps)
                assert list(plain) == list(ours), (seed, call, steps)
        if not api.PLAIN:
            assert compiled.stats.native == 0, compiled.stats.reason
            hits += compiled.stats.hits
    # What a set holds decides over some of its methods.
    assert api.PLAIN or hits > 120
