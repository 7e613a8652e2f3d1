"""Errors of bad input end where the user wrote it: frames of Stator's own aren't shown."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from stator.errors import StatorError

F = TypeVar("F", bound=Callable[..., Any])

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CALLED = "<string>", *(module.__file__ for module in (contextlib, functools, inspect))
"""What ours calls: `dataclasses` makes the `__init__` of a class of ours of a text."""


def blames_caller(function: F) -> F:
    """A decorator for what users call: Stator's errors in it, and of values that it's given, have
    the user's frames alone."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (StatorError, ValueError) as error:
            error.__traceback__ = _of_users(error.__traceback__)
            # It's raised as it is now: a frame that raises again isn't added.
            raise
        except TypeError as error:
            # Arguments that it doesn't take: no frame of its own was there yet.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                error.__traceback__ = None
            raise

    return call  # type: ignore[return-value]


def _of_users(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    is_ours = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        is_ours = file.startswith(_OURS) or (is_ours and file in _CALLED)
        if not is_ours:
            kept.append(trace)
        trace = trace.tb_next
    for outer, inner in zip(kept, [*kept[1:], None], strict=False):
        outer.tb_next = inner
    return kept[0] if kept else None
