"""The exact evaluator for every frame of the process: the evaluator's own tests use it.

``tools/test_cpython.py`` runs CPython's test suite under :func:`start_evaluating_everything`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import ParamSpec, TypeVar

from stator import _stator

_native = _stator.testing

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Counts:
    """How much was evaluated within a :func:`evaluate_everything` block, once it has ended."""

    frames: int = 0
    instructions: int = 0


def start_evaluating_everything(*, count: bool = True) -> None:
    """Evaluate all frames that start from now on, in all threads.

    With ``count`` false, nothing is counted or handed over: that is the evaluator at full speed.
    """
    _native.evaluate_everything(True, count)


def stop_evaluating_everything() -> None:
    """Leave all frames that start from now on to CPython."""
    _native.evaluate_everything(False)


@contextmanager
def evaluate_everything(*, count: bool = True) -> Iterator[Counts]:
    """Evaluate all frames that start inside the block, in all threads."""
    counts = Counts()
    frames, instructions = _native.counts()
    start_evaluating_everything(count=count)
    try:
        yield counts
    finally:
        stop_evaluating_everything()
        now = _native.counts()
        counts.frames = now[0] - frames
        counts.instructions = now[1] - instructions


@contextmanager
def spans(*, replay: int, native: int, recording: int = 0, step: int = 0) -> Iterator[None]:
    """Decide as if each replay, native call and recording took so many nanoseconds.

    A recording takes ``step`` more for each thing that it executes. Where a replay takes none,
    nothing is measured: the estimate decides alone.
    """
    _native.say_spans((replay, native, recording, step))
    try:
        yield
    finally:
        _native.say_spans(None)


@contextmanager
def graphs(*, replay: int, code: int) -> Iterator[None]:
    """Decide as if each graph took so many nanoseconds in the replay and in a backend's code."""
    _native.say_graphs((replay, code))
    try:
        yield
    finally:
        _native.say_graphs(None)


@contextmanager
def hand_over_at(code: CodeType, unit: int) -> Iterator[None]:
    """Give frames of ``code`` to CPython before the instruction at code unit ``unit``."""
    _native.hand_over_at(code, unit)
    try:
        yield
    finally:
        _native.hand_over_at(None)


@contextmanager
def hand_over_every(instructions: int) -> Iterator[None]:
    """Give the running frame to CPython at every so many instructions, counted over all frames."""
    _native.hand_over_every(instructions)
    try:
        yield
    finally:
        _native.hand_over_every(0)


def call_evaluated(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function with this thread's evaluator on."""
    result: R = _native.call_evaluated(function, *args, **kwargs)
    return result


def call_native(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function with this thread's evaluator off."""
    result: R = _native.call_native(function, *args, **kwargs)
    return result


def begins_elsewhere(function: Callable[[], object]) -> bool:
    """Call a function; whether Python code began meanwhile in a thread with none beneath it."""
    begun: bool = _native.begins_elsewhere(function)
    return begun


@contextmanager
def break_everywhere(parity: int = 0) -> Iterator[None]:
    """End traces before every second instruction, so that each is one to break at or behind."""
    _stator._break_everywhere(parity)
    try:
        yield
    finally:
        _stator._break_at(0)


@contextmanager
def break_at(number: int) -> Iterator[None]:
    """End traces that begin at a call before the instruction with this number, from 1 on."""
    _stator._break_at(number)
    try:
        yield
    finally:
        _stator._break_at(0)


@contextmanager
def accelerator(device_type: str, module: object) -> Iterator[None]:
    """Have it that tensors of ``device_type`` are an accelerator's, and ask ``module`` about it.

    It has ``is_initialized()``, ``device_count()``, ``current_device()``,
    ``current_stream(device)`` and ``default_generators``, as ``torch.cuda`` has.
    """
    _stator._set_accelerator(device_type, module)
    try:
        yield
    finally:
        _stator._set_accelerator()


@dataclass
class Passed:
    """How often a stage was passed within an :func:`inject` block, once it has ended."""

    times: int = 0


@contextmanager
def inject(
    stage: str,
    number: int = 1,
    *,
    panics: bool = False,
    always: bool = False,
    signal: int = 0,
) -> Iterator[Passed]:
    """Let a stage of Stator's own work fail when it is passed for the ``number``th time (0: never).

    It fails with an error, or with a panic of the native side; with ``always``, each time from then
    on. With ``signal``, nothing fails, but that signal comes there. :func:`stages` names the
    stages.
    """
    passed = Passed()
    _stator._inject(stage, number, panics, always, signal)
    try:
        yield passed
    finally:
        passed.times = _stator._inject_nothing()


def stages() -> list[str]:
    """The stages that :func:`inject` knows."""
    return _stator._stages()


def breaks_asked() -> int:
    """How many breaks :func:`break_everywhere` and :func:`break_at` have led to so far."""
    return _stator._breaks_asked()
