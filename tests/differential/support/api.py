"""The interface under test, or plain Python in its place.

`STATOR_TEST_PLAIN=1` makes `compile` the identity, so that the corpora themselves can be checked
without the extension module. Questions about statistics then answer None, and the checks that
depend on them are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

PLAIN = os.environ.get("STATOR_TEST_PLAIN") == "1"

if not PLAIN:
    import stator


def compile(fn: Callable[..., Any], **options: Any) -> Any:
    """`stator.compile`, or `fn` itself in plain mode."""
    if PLAIN:
        return fn
    return stator.compile(fn, **options)


def reset() -> None:
    """Drops every recorded entry."""
    if not PLAIN:
        stator.reset()


def _stats(compiled: Any) -> Any:
    """The counters, or None of what is returned unchanged (generator functions, C callables)."""
    try:
        return stator.stats(compiled)
    except stator.errors.NotCompilableError:
        return None


def traces(compiled: Any) -> int | None:
    """How often `compiled` was recorded; None in plain mode."""
    stats = None if PLAIN else _stats(compiled)
    return None if stats is None else stats.traces


def hits(compiled: Any) -> int | None:
    """How many calls of `compiled` were answered by a replay; None in plain mode."""
    stats = None if PLAIN else _stats(compiled)
    return None if stats is None else stats.hits


def native(compiled: Any) -> int | None:
    """How many calls of `compiled` ran natively; None in plain mode."""
    stats = None if PLAIN else _stats(compiled)
    return None if stats is None else stats.native


def reason(compiled: Any) -> str | None:
    """Why `compiled` runs natively, if it does; None in plain mode."""
    stats = None if PLAIN else _stats(compiled)
    return None if stats is None else stats.reason


def breaks(compiled: Any) -> int | None:
    """How many graph breaks recordings of `compiled` met; None in plain mode."""
    stats = None if PLAIN else _stats(compiled)
    return None if stats is None else stats.breaks
