"""Whether functions have run since somebody began to watch them, without slowing them down.

The way depends on the version: CPython's specialized instructions tell, which a function gets at
its eighth call in 3.11 and at its second from 3.12 on. Versions that nobody has looked at ask
`sys.monitoring` for a function's first calls, whose instrumented instructions can't be recorded.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any, Protocol

_CALLS = 8
"""A function that has run less often counts as one that hasn't: it may have been tried once."""


class Watch(Protocol):
    """What is known of some functions."""

    def has_run(self, code: CodeType) -> bool:
        """Whether a watched function has run some eight times since it is watched."""


class Specialized:
    """Looks at instructions that CPython has specialized: at the eighth call in 3.11."""

    def __init__(self, codes: Iterable[CodeType]) -> None:
        self._fresh = [code for code in codes if not self._is_specialized(code)]

    def has_run(self, code: CodeType) -> bool:
        return any(code is fresh for fresh in self._fresh) and self._is_specialized(code)

    @staticmethod
    def _is_specialized(code: CodeType) -> bool:
        # Opcodes alone: `dis.get_instructions` takes a hundred times as long, for all of a model's.
        general = code.co_code[::2]
        adaptive = code._co_code_adaptive[::2]  # type: ignore[attr-defined]
        return any(
            now != first and first != _CACHE and not _is_so_from_the_start(now)
            for now, first in zip(adaptive, general, strict=True)
        )


_CACHE = dis.opmap["CACHE"]


def _is_so_from_the_start(opcode: int) -> bool:
    """Since 3.12, two instructions in one (`LOAD_FAST__LOAD_FAST`) are; since 3.13, the first
    call says how the next is to begin."""
    name: str = dis._all_opname[opcode]  # type: ignore[attr-defined]
    return (sys.version_info >= (3, 12) and "__" in name) or name == "RESUME_CHECK"


class Monitor:
    """A tool of `sys.monitoring` that counts the first calls of functions, and no others.

    Raises RuntimeError if other tools have taken all numbers for tools.
    """

    def __init__(self, monitoring: Any) -> None:
        self._monitoring = monitoring
        free = [tool for tool in (3, 4) if monitoring.get_tool(tool) is None]
        if not free:
            raise RuntimeError("no tool of sys.monitoring is free")
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "stator")
        monitoring.register_callback(self._tool, monitoring.events.PY_START, self._begins)
        # By address: equal code isn't the same function. Kept, so that no other gets its address.
        self._counts: dict[int, tuple[CodeType, int]] = {}

    def count(self, code: CodeType) -> int:
        """How often a function has run since it was watched first, at most eight times."""
        return self._counts.get(id(code), (code, 0))[1]

    def watch(self, code: CodeType) -> None:
        """Count its calls from now on."""
        self._counts[id(code)] = (code, 0)
        self._monitoring.set_local_events(self._tool, code, self._monitoring.events.PY_START)

    def _begins(self, code: CodeType, offset: int) -> None:
        count = self.count(code) + 1
        self._counts[id(code)] = (code, count)
        if count >= _CALLS:
            self._monitoring.set_local_events(self._tool, code, 0)


class Monitored:
    """Asks a monitor."""

    def __init__(self, monitor: Monitor, codes: Iterable[CodeType]) -> None:
        self._monitor = monitor
        self._fresh = [code for code in codes if monitor.count(code) < _CALLS]
        for code in self._fresh:
            monitor.watch(code)

    def has_run(self, code: CodeType) -> bool:
        return any(code is fresh for fresh in self._fresh) and self._monitor.count(code) >= _CALLS


class Unwatched:
    """Where nothing tells of calls, none is known."""

    def has_run(self, code: CodeType) -> bool:
        return False


_monitor: Monitor | None = None


def watch(codes: Iterable[CodeType]) -> Watch:
    """Watch functions from now on. Those that have run eight times before count as not run."""
    global _monitor
    if sys.version_info < (3, 14):
        return Specialized(codes)
    try:
        _monitor = _monitor or Monitor(sys.monitoring)
    except RuntimeError:
        return Unwatched()
    return Monitored(_monitor, codes)
