"""Sizes that a program is traced with in the place of those that vary, where these are known."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["kept", "sized", "sizes"]

_OF_THREAD = threading.local()


@contextlib.contextmanager
def sized(sizes: Sequence[Sequence[int]] | None, kept: dict[int, Any]) -> Iterator[None]:
    """Programs that are traced within are traced with these sizes of their inputs (`None`: those
    that they have otherwise), and with what `kept` has for tensors from outside, by address."""
    before = getattr(_OF_THREAD, "state", (None, {}))
    _OF_THREAD.state = (sizes, kept)
    try:
        yield
    finally:
        _OF_THREAD.state = before


def sizes() -> Sequence[Sequence[int]] | None:
    """The sizes of a program's inputs."""
    found: Sequence[Sequence[int]] | None = getattr(_OF_THREAD, "state", (None, {}))[0]
    return found


def kept() -> dict[int, Any]:
    """What is taken in the place of tensors from outside."""
    found: dict[int, Any] = getattr(_OF_THREAD, "state", (None, {}))[1]
    return found
