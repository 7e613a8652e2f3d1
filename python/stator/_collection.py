"""Python's garbage collector, kept from running."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["without_collection"]


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """No garbage of the process's is collected for the length of a `with` block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
