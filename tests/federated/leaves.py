"""Results of computations beside what plain code gives, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def in_pairs(found: Any, expected: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a result that are no tuples, each with what is expected of it."""
    if not isinstance(expected, tuple):
        yield found, expected
        return
    assert len(found) == len(expected)
    for each, wanted in zip(found, expected, strict=True):
        yield from in_pairs(each, wanted)
