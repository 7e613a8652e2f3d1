"""The positions of clients that a sampler chooses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def expect_positions(chosen: Any, clients: int, sampler: Any) -> list[int]:
    """The positions that a sampler gives for a round: each is that of a client, and of another one.

    Raises `TypeError` and `ValueError` that name the sampler.
    """
    told = f"`sample` of {type(sampler).__qualname__} gives"
    expected = f"\n  expected: different positions from 0 to {clients - 1}\n  found:    "
    if not isinstance(chosen, Iterable) or isinstance(chosen, (str, bytes)):
        raise TypeError(f"{told} no positions of clients{expected}{chosen!r}")
    found: list[int] = []
    for position in chosen:
        if isinstance(position, bool) or not isinstance(position, (int, np.integer)):
            raise TypeError(f"{told} what is no position of a client{expected}{position!r}")
        if not 0 <= position < clients:
            raise ValueError(f"{told} a client that isn't there{expected}{position}")
        found.append(int(position))
    if len(set(found)) < len(found):
        twice = next(position for position in found if found.count(position) > 1)
        raise ValueError(f"{told} a client more than once{expected}{twice} again")
    return found
