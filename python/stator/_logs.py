"""Logs: what is on, and where a record goes.

`STATOR_LOGS=graph_code,+guards,-trace` at start, [set_logs][] later. A log that is off costs
nothing: Rust looks at one bit before it makes a record. A log's bit is its place in [LOGS][]; the
bit that asks for more detail stands [VERBOSE_SHIFT][] higher.

A record goes to `logging.getLogger("stator.<name>")`. Where the program hasn't set up `logging`
(no handler would see the record), it goes to the standard error stream instead.

A misspelt name in the environment variable is a warning, not an error: a variable that only asks
for prints mustn't stop a program that works. The same misspelling in `set_logs` is an error.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Literal, NoReturn, TextIO

from stator import _stator
from stator._blame import blames_caller
from stator._suggest import suggest
from stator._warnings import LogWarning
from stator.errors import LogError

__all__ = ["LOGS", "VERBOSE_SHIFT", "emit", "is_enabled", "read_environment", "set_logs"]

Level = bool | Literal["verbose"]

LOGS = (
    "graph_code",
    "graph",
    "graph_sizes",
    "guards",
    "recompiles",
    "graph_breaks",
    "bytecode",
    "trace",
    "side_effects",
    "dynamic",
)
VERBOSE_SHIFT = 16
VARIABLE = "STATOR_LOGS"

_levels: dict[str, Level] = dict.fromkeys(LOGS, False)


@blames_caller
def set_logs(**logs: Level) -> None:
    """Turns logs on (`True`), on with more detail (`"verbose"`) or off (`False`).

    Only the logs named change; in `torch._logging.set_logs` a call also turns the others off.

        stator.set_logs(graph_code=True, guards="verbose")

    The names: graph_code, graph, graph_sizes, guards, recompiles, graph_breaks, bytecode, trace,
    side_effects, dynamic; and all.
    """
    levels: dict[str, Level] = {}
    for name, level in logs.items():
        if level not in (True, False, "verbose"):
            raise LogError(f"The log {name!r} takes True, False or 'verbose', not {level!r}.")
        for known in _named(name):
            levels[known] = level
    _set_levels(levels)


def read_environment() -> None:
    """Turns on the logs that the environment variable asks for."""
    levels: dict[str, Level] = {}
    for item in os.environ.get(VARIABLE, "").split(","):
        name = item.strip()
        if not name:
            continue
        level: Level = {"+": "verbose", "-": False}.get(name[0], True)  # type: ignore[assignment]
        try:
            levels |= dict.fromkeys(_named(name.lstrip("+-")), level)
        except LogError as error:
            warnings.warn(f"{VARIABLE}: {error}", LogWarning, stacklevel=2)
    _set_levels(levels)


def is_enabled(name: str) -> bool:
    """Whether the log is on."""
    return _levels[name] is not False


def emit(name: str, text: str) -> None:
    """Hands one record of the log `name` to `logging`; Rust calls this for logs that are on."""
    logger = logging.getLogger(f"stator.{name}")
    level = logging.DEBUG if _levels[name] == "verbose" else logging.INFO
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(logger.name, level, "(stator)", 0, text, (), None)
    if logger.hasHandlers():
        logger.handle(record)
    else:
        _STDERR.handle(record)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever `sys.stderr` is at the time of the record."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


_STDERR = _StderrHandler()


def _named(name: str) -> tuple[str, ...]:
    if name == "all":
        return LOGS
    return (name,) if name in LOGS else _fail_unknown(name)


def _fail_unknown(name: str) -> NoReturn:
    raise LogError(f"There is no log {name!r}. {suggest(name, (*LOGS, 'all'))}")


def _set_levels(levels: dict[str, Level]) -> None:
    _levels.update(levels)
    mask = 0
    for bit, name in enumerate(LOGS):
        if _levels[name]:
            mask |= 1 << bit
        if _levels[name] == "verbose":
            mask |= 1 << (bit + VERBOSE_SHIFT)
    root = logging.getLogger("stator")
    if mask and root.level == logging.NOTSET:
        # Whoever turns a log on wants to see it: Python's default level would drop it.
        root.setLevel(logging.DEBUG)
    _stator._set_log_mask(mask)
