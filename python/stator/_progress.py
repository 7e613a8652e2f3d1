"""What is seen of a compilation that takes long: log records, and a line on a terminal.

The line says what is compiled, for how long, and how many graphs wait. It is there only where
stderr is a terminal, from some seconds on, and goes when the compilation ends.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

__all__ = ["log", "shown"]

log = logging.getLogger("stator.background")

PATIENCE = 5.0
"""Seconds from which on a compilation counts as long."""

STEP = 1.0
"""Seconds between two looks of the line."""

_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def shown(what: str, left: Callable[[], int]) -> Iterator[None]:
    """Says that `what` is compiled while a `with` block runs; `left` counts the other graphs."""
    log.info(f"compiling {what}")
    began = time.monotonic()
    try:
        with _line(what, left, began):
            yield
    finally:
        took = time.monotonic() - began
        log.info(f"done with {what} after {took:.1f} s; {_waiting(left())}")


@contextlib.contextmanager
def _line(what: str, left: Callable[[], int], began: float) -> Iterator[None]:
    terminal = sys.stderr
    if terminal is None or not terminal.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_write,
        args=(terminal, what, left, began, ended),
        name="stator-progress",
        daemon=True,
    )
    # Where no thread can be started, there is no line.
    with contextlib.suppress(RuntimeError):
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            # One that a terminal holds up goes on alone.
            thread.join(STEP)


def _write(
    terminal: TextIO, what: str, left: Callable[[], int], began: float, ended: threading.Event
) -> None:
    """What the thread of a line does. A terminal that is gone is no error of the program's."""
    if ended.wait(PATIENCE):
        return
    with contextlib.suppress(OSError, ValueError):
        while True:
            seconds = time.monotonic() - began
            terminal.write(f"{_CLEAR}stator: compiling {what}, {seconds:.0f} s; {_waiting(left())}")
            terminal.flush()
            if ended.wait(STEP):
                break
        terminal.write(_CLEAR)
        terminal.flush()


def _waiting(graphs: int) -> str:
    return f"{graphs} {'graph waits' if graphs == 1 else 'graphs wait'}"
