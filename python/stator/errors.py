"""Every error that Stator raises. Exceptions of the user's own program are never wrapped.

Three families, because they ask three different things of the reader:

* [ApiError][]: Stator was used wrongly; change the call.
* [GraphBreakError][], [RecompileError][]: one graph (`fullgraph=True`), or no more of them
  (`stator.set_stance`), was asked for, and this call needs another.
* [InternalError][]: Stator has a bug; report it.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Sequence

from stator._stator import __version__

__all__ = [
    "AmbiguousArraysError",
    "ApiError",
    "BackendError",
    "ConfigError",
    "DynamicDimensionError",
    "ExportError",
    "GraphBreakError",
    "InternalError",
    "LogError",
    "MarkError",
    "NotCompilableError",
    "OptionError",
    "ProgramError",
    "ProgramInputError",
    "RecompileError",
    "SpecError",
    "StanceError",
    "StatorError",
    "SubstituteError",
]


class StatorError(Exception):
    """Base of all errors that Stator raises."""


class ApiError(StatorError):
    """Stator was used wrongly: the message says what was met and what is expected."""


class BackendError(ApiError, ValueError):
    """A backend is unknown, or returned what can't be called or isn't the graph's outputs."""


class ConfigError(ApiError, AttributeError):
    """`stator.config` has no such setting, or the setting doesn't take this value."""


class LogError(ApiError, ValueError):
    """There is no log of this name, or it doesn't take this value."""


class MarkError(ApiError, ValueError):
    """`stator.mark_dynamic` or a relative of it was given what has no such dimension."""


class NotCompilableError(ApiError, TypeError):
    """`stator.compile` or `stator.export` was given what isn't a function, a method or a module."""


class OptionError(ApiError, ValueError):
    """An argument of `stator.compile` or `stator.export` has a value it can't take."""


class ProgramInputError(ApiError, ValueError):
    """A tensor program was given what isn't of its types."""


class SpecError(ApiError, TypeError):
    """`TensorProgram.trace` was given what isn't a function and types for it."""


class StanceError(ApiError, ValueError):
    """There is no stance of this name."""


class SubstituteError(ApiError, TypeError):
    """`stator.substitute_in_graph` was given what can't stand for the other."""


class GraphBreakError(StatorError):
    """`fullgraph=True`, and something in the function can't be part of a graph.

    `id` names the row of the table of break reasons, `help` the command that prints it,
    `explanation` says what was met, `why` that can't be part of a graph, `hint` what to do about
    it, and `stack` holds (file, line, function) of the user's frames, outermost first.

    The call ends at its first break, before the breaking instruction is executed (behind it, where
    C code was in the middle of it). What the call did before that stays done. Its frames are left
    as by any exception: `finally` and `with` blocks run, but no `except` that names an `Exception`
    catches it, and where a bare `except` does, the call goes on natively and this is raised in
    place of its result. What the call itself raises goes before.

    A warning or log record that user code may learn of cuts the graph without being an error.
    """

    def __init__(
        self,
        id: str,
        explanation: str,
        hint: str,
        stack: Sequence[tuple[str, int, str]] = (),
        why: str = "",
    ) -> None:
        super().__init__(id, explanation, hint, tuple(stack), why)
        self.id = id
        self.help = f"python -m stator explain {id}"
        self.explanation = explanation
        self.why = why
        self.hint = hint
        self.stack = tuple(stack)

    _head = "This function can't be one graph"
    _tail = "; only with fullgraph=True is it an error"

    def __str__(self) -> str:
        lines = [f"{self._head}: {self.explanation}"]
        for file, line, function in self.stack:
            lines.append(f'  File "{file}", line {line}, in {function}')
            code = linecache.getline(file, line).strip()
            if code:
                lines.append(f"    {code}")
        if self.why:
            lines.append(f"Why: {self.why}")
        lines.append(f"Hint: {self.hint}")
        if self.id:
            lines.append(f"(graph break {self.id!r}, see {self.help}{self._tail})")
        return "\n".join(lines)


class ProgramError(GraphBreakError):
    """`TensorProgram.trace`, and something in the function can't be part of a program.

    The function was left at that line. Nothing outside it has changed.
    """

    _head = "This function can't be a tensor program"
    _tail = ""


class AmbiguousArraysError(ProgramError):
    """A function gives something else as NumPy code than as PyTorch code, and doesn't say which it
    is: `arrays=` of `stator.federated.local_computation` does. `id` is empty."""

    _head = "This function can't be traced as it is"

    def __init__(
        self,
        explanation: str,
        hint: str,
        stack: Sequence[tuple[str, int, str]] = (),
        why: str = "",
        id: str = "",
    ) -> None:
        super().__init__(id, explanation, hint, stack, why)
        self.args = (explanation, hint, tuple(stack), why, id)


class ExportError(GraphBreakError):
    """`stator.export`, and something in the function can't be part of an exported program.

    `id` is empty where no graph break is the reason. The call has been executed, natively from
    there on: what it wrote outside of the module's buffers stays written.
    """

    _head = "This function can't be exported"
    _tail = ""

    def __init__(
        self,
        explanation: str,
        hint: str,
        stack: Sequence[tuple[str, int, str]] = (),
        why: str = "",
        id: str = "",
    ) -> None:
        super().__init__(id, explanation, hint, stack, why)
        self.args = (explanation, hint, tuple(stack), why, id)


class DynamicDimensionError(StatorError):
    """A dimension that `stator.mark_dynamic` marked can't be a symbol: the trace is for one size.

    `dimension` names it as guards do, `reason` says what fixed it: the condition and the line of
    the program, or the size that no symbol stands for. The call has been executed, and what it
    wrote stays written; no trace of it is kept.
    """

    def __init__(self, dimension: str, reason: str) -> None:
        super().__init__(dimension, reason)
        self.dimension = dimension
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.dimension} is marked as dynamic, but the trace is for one size: {self.reason}\n"
            "Hint: let the program not depend on the size there, or use stator.maybe_mark_dynamic."
        )


class RecompileError(StatorError):
    """`stator.set_stance("fail_on_recompile")`, and a call that no trace fits.

    `function`, `file` and `line` say which function, `failures` names the guard of each trace that
    failed, with what was met. It is empty if the function has no trace yet. Nothing was executed.
    """

    def __init__(self, function: str, file: str, line: int, failures: Sequence[str] = ()) -> None:
        super().__init__(function, file, line, tuple(failures))
        self.function = function
        self.file = file
        self.line = line
        self.failures = tuple(failures)

    def __str__(self) -> str:
        why = "These guards fail:" if self.failures else "It has no trace yet."
        head = f"No trace of {self.function} ({self.file}:{self.line}) fits this call. {why}"
        hint = "(only under stator.set_stance('fail_on_recompile') is it an error)"
        return "\n".join([head, *(f"  {failure}" for failure in self.failures), hint])


class InternalError(StatorError):
    """Stator met a state that can't be. The user's program is not at fault."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return (
            f"Stator has a bug: {self.what}\n"
            "Your program is not at fault. With stator.compile(..., disable=True), or "
            "stator.disable on the function it happened in, it runs without Stator.\n"
            "Please report this text, the traceback and, if you can, a small program that shows "
            "it, in the project's issue tracker.\n"
            f"Versions: {_versions()}"
        )


def _versions() -> str:
    """Nothing here may fail or start a process, as `platform.platform()` does: it may be a process
    that is about to end."""
    torch = sys.modules.get("torch")
    python = ".".join(map(str, sys.version_info[:3]))
    machine = os.uname() if hasattr(os, "uname") else None
    return ", ".join(
        (
            f"stator {__version__}",
            f"CPython {python}",
            f"torch {getattr(torch, '__version__', 'unknown') if torch else 'not imported'}",
            f"{machine.sysname} {machine.release} {machine.machine}" if machine else sys.platform,
        )
    )
