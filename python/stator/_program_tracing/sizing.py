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
    before = _state()
    _OF_THREAD.state = (sizes, kept)
    try:
        yield
    finally:
        _OF_THREAD.state = before


def sizes() -> Sequence[Sequence[int]] | None:
    """The sizes of a program's inputs."""
    return _state()[0]


def kept() -> dict[int, Any]:
    """What is taken in the place of tensors from outside."""
    return _state()[1]


def _state() -> tuple[Sequence[Sequence[int]] | None, dict[int, Any]]:
    found: tuple[Sequence[Sequence[int]] | None, dict[int, Any]]
    found = getattr(_OF_THREAD, "state", (None, {}))
    return found
