"""Traces that the next start of a program finds again (`stator.save_traces`, `stator.load_traces`).

`digests` says what an object stands for that a guard knows by identity, `objects` finds such
objects again, `files` reads and writes what is kept.
"""

from __future__ import annotations

import dataclasses

__all__ = ["KeptTraces"]


@dataclasses.dataclass(frozen=True, slots=True)
class KeptTraces:
    """What `stator.save_traces` has kept, or `stator.load_traces` has found."""

    count: int
    """How many traces."""

    left_out: tuple[str, ...]
    """Why others weren't: one sentence for each."""
