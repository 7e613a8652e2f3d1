"""Autocast in tensor programs.

Programs are traced, and run, as if nobody had switched autocast on. What they switch themselves
they switch back; where one of their operations raises, it is switched back here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["SILENT", "SUBSTITUTES", "SWITCHES", "begin", "end", "without_autocast"]

# What switches autocast, in a program's text.
SWITCHES = (
    *("set_autocast_enabled", "set_autocast_dtype", "set_autocast_cache_enabled"),
    *("autocast_increment_nesting", "autocast_decrement_nesting", "clear_autocast_cache"),
)

_DTYPES = {"cpu": torch.bfloat16, "cuda": torch.float16}


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Autocast is off, and as it is where nobody has used it: what leaves its outermost block
    forgets the copies that it has made."""
    before = [(device, torch.is_autocast_enabled(device)) for device in _DTYPES]
    dtypes = [(device, torch.get_autocast_dtype(device)) for device in _DTYPES]
    caches = torch.is_autocast_cache_enabled()
    depth = _set_depth(0)
    for device, dtype in _DTYPES.items():
        torch.set_autocast_enabled(device, False)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(True)
    if depth:
        torch.clear_autocast_cache()
    try:
        yield
    finally:
        if _set_depth(depth):
            torch.clear_autocast_cache()
        for device, dtype in dtypes:
            torch.set_autocast_dtype(device, dtype)
        for device, is_on in before:
            torch.set_autocast_enabled(device, is_on)
        torch.set_autocast_cache_enabled(caches)


def _set_depth(depth: int) -> int:
    """Makes it stand in so many blocks of autocast; gives how many there were."""
    before: int = torch.autocast_increment_nesting() - 1
    now = before + 1
    while now > depth:
        now = torch.autocast_decrement_nesting()
    while now < depth:
        now = torch.autocast_increment_nesting()
    return before


# What blocks remember while they are open. One that decorates a function is an object from outside,
# so it's put back as it was.
_BLOCKS = threading.local()
_REMEMBERED = ("prev", "prev_fastdtype", "prev_cache_enabled")


def begin() -> list[tuple[Any, dict[str, Any]]]:
    """Begins a trace that is in no block; gives the blocks that the thread was in before."""
    before: list[tuple[Any, dict[str, Any]]] = getattr(_BLOCKS, "open", [])
    _BLOCKS.open = []
    return before


def end(before: list[tuple[Any, dict[str, Any]]]) -> None:
    while _BLOCKS.open:
        leave_block()
    _BLOCKS.open = before


def enter_block(block: Any) -> None:
    own = vars(block)
    _BLOCKS.open.append((block, {name: own[name] for name in _REMEMBERED if name in own}))
    own["prev"] = torch.is_autocast_enabled(block.device)
    own["prev_fastdtype"] = torch.get_autocast_dtype(block.device)
    own["prev_cache_enabled"] = torch.is_autocast_cache_enabled()


def leave_block() -> None:
    block, before = _BLOCKS.open.pop()
    for name in _REMEMBERED:
        vars(block).pop(name, None)
    vars(block).update(before)


def was_on(block: Any) -> bool:
    return bool(vars(block)["prev"])


def had_caches(block: Any) -> bool:
    return bool(vars(block)["prev_cache_enabled"])


def had_dtype(block: Any, dtype: Any) -> bool:
    return vars(block)["prev_fastdtype"] is dtype


def _enter(self: Any) -> Any:
    enter_block(self)
    torch.set_autocast_enabled(self.device, self._enabled)
    torch.set_autocast_dtype(self.device, self.fast_dtype)
    torch.autocast_increment_nesting()
    torch.set_autocast_cache_enabled(self._cache_enabled)
    return self


def _exit(self: Any, *raised: Any) -> bool:
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()
    torch.set_autocast_enabled(self.device, was_on(self))
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        if had_dtype(self, dtype):
            torch.set_autocast_dtype(self.device, dtype)
    torch.set_autocast_cache_enabled(had_caches(self))
    leave_block()
    return False


# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [enter_block, leave_block, had_caches, had_dtype, was_on]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.autocast.__enter__, _enter),
    (torch.autocast.__exit__, _exit),
]
