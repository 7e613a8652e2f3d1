"""The warnings that Stator gives. Rust calls these; each names the user's line, not Stator's."""

from __future__ import annotations

import re
import sys
import traceback
import warnings

from stator.errors import InternalError

__all__ = [
    "BackendDiffersWarning",
    "BackendFailedWarning",
    "InternalErrorWarning",
    "LogWarning",
    "NeverCalledWarning",
    "RecompileLimitWarning",
    "StatorWarning",
    "UnknownTorchWarning",
    "backend_differs",
    "backend_failed",
    "capture_failed",
    "code_failed",
    "error_text",
    "internal_error",
    "never_called",
    "place_of",
    "recompile_limit",
    "unknown_torch",
]


class StatorWarning(UserWarning):
    """Base of all warnings that Stator gives."""


class BackendDiffersWarning(StatorWarning):
    """A backend's code computes something else than its graph, which is replayed by Stator."""


class BackendFailedWarning(StatorWarning):
    """A backend has failed to compile a graph, or its code has failed, so Stator replays it."""


class InternalErrorWarning(StatorWarning):
    """Stator has a bug: a function runs as plain Python from now on."""


class LogWarning(StatorWarning):
    """The environment variable `STATOR_LOGS` names a log that doesn't exist."""


class NeverCalledWarning(StatorWarning):
    """A compiled module was never called, though methods of its class have run."""


class RecompileLimitWarning(StatorWarning):
    """A function was traced as often as allowed, and runs natively from now on."""


class UnknownTorchWarning(StatorWarning):
    """Stator doesn't find what guards compare in this PyTorch: calls are right, but slower."""


def place_of(trace: str | None) -> tuple[str, int, str]:
    """File and line where a trace ends, which is that of a graph's first operation; and both with
    the function, as text."""
    places = re.findall(r'File "(.*)", line (\d+), in (.*)', trace or "")
    file, line, function = places[-1] if places else ("<unknown>", "0", "?")
    return file, int(line), f"{function} ({file}:{line})"


def error_text(error: BaseException) -> str:
    """What an error says, its class first."""
    return "".join(traceback.format_exception_only(error)).strip()


def backend_failed(backend: str, error: Exception, operations: int, trace: str | None) -> None:
    """Warns of a backend's error. `trace` ends with the place of the graph's first operation."""
    file, line, where = place_of(trace)
    what = error_text(error)
    warnings.warn_explicit(
        f"The backend {backend} failed on a graph of {operations} operations that begins in "
        f"{where}, which is replayed instead, as by backend='eager'. The error: "
        f"{what}\nstator.config.strict = True raises it.",
        BackendFailedWarning,
        filename=file,
        lineno=line,
    )


def capture_failed(error: Exception, operations: int, trace: str | None) -> None:
    """Warns of an error while a CUDA graph was captured."""
    file, line, where = place_of(trace)
    warnings.warn_explicit(
        f"A run of {operations} operations that begins in {where} couldn't be captured as a CUDA "
        f"graph, and is replayed, as by backend='eager'. The error: {error_text(error)}\n"
        "stator.config.strict = True raises it.",
        BackendFailedWarning,
        filename=file,
        lineno=line,
    )


def code_failed(backend: str, error: Exception, operations: int, trace: str | None) -> None:
    """Warns of an error that a backend's code has raised, where the function itself raises none."""
    file, line, where = place_of(trace)
    what = error_text(error)
    warnings.warn_explicit(
        f"The code that the backend {backend} has made of a graph of {operations} operations that "
        f"begins in {where} failed when it ran. The call ended as plain Python ends it, and from "
        f"now on the graph is replayed, as by backend='eager'. The error: {what}\n"
        "stator.config.strict = True raises it.",
        BackendFailedWarning,
        filename=file,
        lineno=line,
    )


def backend_differs(backend: str, how: str, operations: int, trace: str | None) -> None:
    """Warns of code that isn't used because its results aren't those of the graph."""
    file, line, where = place_of(trace)
    warnings.warn_explicit(
        f"The code that the backend {backend} has made of a graph of {operations} operations that "
        f"begins in {where} isn't used, because its results are others than the replay's: {how}. "
        "The graph is replayed, as by backend='eager'. If the difference is to be expected, "
        "stator.compile(verify='off') uses the code without a comparison.",
        BackendDiffersWarning,
        filename=file,
        lineno=line,
    )


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


def never_called(class_name: str, methods: list[str], file: str, line: int) -> None:
    """Warns that a compiled module was never called, though these methods of its class have run.

    `file` and `line` are where its class begins.
    """
    ran = ", ".join(f"{class_name}.{name}" for name in methods[:3])
    first = methods[0]
    warnings.warn_explicit(
        f"a compiled {class_name} was never called, but {ran} ran as plain Python. What "
        "stator.compile(module) returns compiles its own calls alone: not those of other methods, "
        "nor those of the module itself. Call what was returned, or compile what is called: "
        f"module.{first} = stator.compile(module.{first}).",
        NeverCalledWarning,
        filename=file,
        lineno=line,
    )


def unknown_torch(file: str, line: int, unfound: list[str], is_native: bool) -> None:
    """Warns, once per process, of a PyTorch whose insides weren't found.

    `file` and `line` are those of the function that was handed to Stator first; `is_native` says
    that functions run as plain Python, because tensors can't be read at all.
    """
    version = sys.modules["torch"].__version__
    so = (
        "functions over tensors run as plain Python"
        if is_native
        else "results are right, but guards take longer, because PyTorch's functions are asked"
    )
    warnings.warn_explicit(
        f"Stator didn't find {' and '.join(unfound)} in PyTorch {version}: {so}. "
        "Stator is developed with PyTorch 2.11.",
        UnknownTorchWarning,
        filename=file,
        lineno=line,
    )
