"""Runs a program in a child process, so that a crash or a hang is a finding like any other."""

from __future__ import annotations

import functools
import importlib
import os
import select
import signal
from collections.abc import Callable

from .program import Make, Program, check, compiled_function

TIMEOUT = 30.0
"""Seconds for one program; most take a tenth of one."""
_EQUAL = b"equal"
_COSTLY = ("torch._dynamo.backends.debugging", "torch._functorch.aot_autograd")
"""What programs with a backend import: seconds, which each child would take anew."""


def check_in_child(program: Program, make: Make = compiled_function) -> str | None:
    """As `check`; a child that dies or hangs is the difference."""
    return in_child(lambda: check(program, make))


def in_child(task: Callable[[], str | None]) -> str | None:
    """What `task` returns, or how its process died."""
    _import_what_is_costly()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(task, writer)
    os.close(writer)
    answer = _read(reader, child)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if answer == _EQUAL:
        return None
    if answer:
        return answer.decode()
    if os.WIFSIGNALED(status):
        return f"the process died of {signal.Signals(os.WTERMSIG(status)).name}"
    raise ValueError("the program itself doesn't run")


@functools.cache
def _import_what_is_costly() -> None:
    for name in _COSTLY:
        importlib.import_module(name)


def _answer(task: Callable[[], str | None], writer: int) -> None:
    try:
        text = task()
        os.write(writer, _EQUAL if text is None else text.encode()[:60_000])
    finally:
        os._exit(0)


def _read(reader: int, child: int) -> bytes:
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], TIMEOUT)
        if not ready:
            os.kill(child, signal.SIGKILL)
            return b""
        part = os.read(reader, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
