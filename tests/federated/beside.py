"""Running one expression on `stator.federated` and on `federated_language`, and comparing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BUILTIN = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    NotImplementedError,
    SyntaxError,
    RuntimeError,
)


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call gives, as text, or the class of what it raises."""
    try:
        result = call()
    except Exception as error:
        own = type(error).__name__
        builtin = next(cls.__name__ for cls in type(error).__mro__ if cls in BUILTIN)
        return "error", (own, builtin)
    return "value", f"{result!r} {result}"
