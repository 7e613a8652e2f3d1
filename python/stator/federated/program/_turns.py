"""Releases in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import weakref


class Turns:
    """Lets one coroutine at a time do something, in the order in which they came."""

    def __init__(self) -> None:
        # A lock is one event loop's, and notebooks and tests have one after the other.
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )

    def next(self) -> asyncio.Lock:
        """To be held by `async with`."""
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
