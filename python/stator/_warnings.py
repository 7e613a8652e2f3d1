"""The warnings that Stator gives. Rust calls these; each names the user's line, not Stator's."""

from __future__ import annotations

import warnings

from stator.errors import InternalError

__all__ = [
    "InternalErrorWarning",
    "LogWarning",
    "RecompileLimitWarning",
    "StatorWarning",
    "internal_error",
    "recompile_limit",
]


class StatorWarning(UserWarning):
    """Base of all warnings that Stator gives."""


class InternalErrorWarning(StatorWarning):
    """Stator has a bug: a function runs as plain Python from now on."""


class LogWarning(StatorWarning):
    """The environment variable `STATOR_LOGS` names a log that doesn't exist."""


class RecompileLimitWarning(StatorWarning):
    """A function was traced as often as allowed, and runs natively from now on."""


def internal_error(function_name: str, file: str, line: int, what: str) -> None:
    """Warns, once per function, of an error of Stator's own."""
    error = InternalError(what)
    warnings.warn_explicit(
        f"{function_name} runs as plain Python from now on, as this call of it did. {error}\n"
        "stator.config.strict = True raises the error instead.",
        InternalErrorWarning,
        filename=file,
        lineno=line,
    )


def recompile_limit(function_name: str, file: str, line: int, limit: int, reason: str) -> None:
    """Warns, once per function, that no further trace of it will be made.

    `reason` is the guard that failed last, as the `recompiles` log prints it.
    """
    warnings.warn_explicit(
        f"{function_name} was traced {limit} times, which is its recompile_limit; other inputs "
        f"run natively from now on. The last failing guard: {reason}. See every one with "
        f"STATOR_LOGS=recompiles. If so many traces are meant, raise the limit: "
        f"stator.compile(..., recompile_limit={2 * limit}) or "
        f"stator.config.recompile_limit = {2 * limit}.",
        RecompileLimitWarning,
        filename=file,
        lineno=line,
    )
