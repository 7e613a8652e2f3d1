"""Whose error one is that arose while Stator was at work. `crates/faults/src/lib.rs` asks."""

from __future__ import annotations

import dis
import inspect
import os
import signal
import sys
import traceback
from types import FunctionType, TracebackType

from stator.errors import InternalError, StatorError

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def own_error(error: BaseException) -> str | None:
    """What a report says of an error of Stator's own; None if it isn't one.

    Not Stator's: interrupts, exits and memory that is used up; what a user is to see (`ApiError`
    and the like); and what code of the user's has raised that ran in between (a finalizer, say),
    which the innermost frame tells, or a signal handler, whatever it calls.
    """
    if isinstance(error, InternalError):
        return _described(error, error.what)
    if not isinstance(error, Exception):
        return None
    if isinstance(error, (MemoryError, RecursionError, StatorError)):
        return None
    if is_from_handler(error):
        return None
    if error.__traceback__ is not None and not _is_ours(error.__traceback__):
        return None
    return _described(error, "".join(traceback.format_exception_only(error)).strip())


def handlers_raise() -> bool:
    """Whether each handler of a signal raises whenever it is called.

    The default one for Ctrl-C does, and so does a function without an instruction that returns.
    """
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    return all(_raises(handler) for handler in handlers if callable(handler))


def _raises(handler: object) -> bool:
    if handler is signal.default_int_handler:
        return True
    if not isinstance(handler, FunctionType):
        return False
    code = handler.__code__
    gives_generator = code.co_flags & (
        inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    )
    names = {instruction.opname for instruction in dis.get_instructions(code)}
    return not gives_generator and not names & {"RETURN_VALUE", "RETURN_CONST"}


def is_from_handler(error: BaseException) -> bool:
    """Whether a signal handler has raised it, or what one called."""
    handlers = {
        getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()
    }
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def from_handler(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """What a signal handler has raised: this error, or one that it was raised for, as code does
    that takes every exception for one of its own.

    handled: what was being handled before, which everything raised since has for its context.
    """
    raised: BaseException | None = error
    while raised is not None and raised is not handled:
        if is_from_handler(raised):
            return raised
        raised = raised.__cause__ or raised.__context__
    return None


def _is_ours(tb: TracebackType) -> bool:
    while tb.tb_next is not None:
        tb = tb.tb_next
    file = os.path.abspath(tb.tb_frame.f_code.co_filename)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    roots = [_HERE, *([os.path.dirname(torch) + os.sep] if torch else [])]
    return any(file.startswith(root) for root in roots)


def _described(error: BaseException, what: str) -> str:
    places = traceback.extract_tb(error.__traceback__)[-3:]
    where = "".join(f"\n  at {place.filename}:{place.lineno} in {place.name}" for place in places)
    return what + where
