"""`stator.save_traces` and `stator.load_traces`: traces that the next start of a program finds."""

from __future__ import annotations

from stator._blame import blames_caller
from stator._settings import settings_of
from stator._stator import Compiled
from stator._stored import KeptTraces
from stator._targets import expect_native

__all__ = ["load_traces", "save_traces"]


@blames_caller
def save_traces(compiled: object, name: str = "") -> KeptTraces:
    """Keeps the traces of what `stator.compile` returned, for the next start of the program.

    A trace is kept with its guards, in the folder that `STATOR_CACHE` names (by default in the
    user's cache folder). What can't be found again by another process isn't kept: traces that end
    at a graph break, and those that rely on an object without a name, such as a function that was
    made at run time. The result says how many are kept, and why others aren't.

    compiled: what `stator.compile` returned.
    name: tells functions apart that have the same code, as two models of one class may.
    """
    from stator._stored.files import keep

    native = expect_native(compiled, "save_traces")
    return keep(native, _known_by(compiled, name), _settings(native))


@blames_caller
def load_traces(compiled: object, name: str = "") -> KeptTraces:
    """Adds the traces that `save_traces` has kept for the same function, class and settings.

    Each is one of the function's traces from then on: it's replayed if all its guards hold, at the
    first call already. A trace isn't used if anything has changed that its guards know by identity:
    the code, constants or defaults of a function it goes through, a class, a library. The result
    says how many are used, and why others aren't.

    Call it when the modules are imported that the function uses, and before its first call.

    compiled: what `stator.compile` returned.
    name: as it was given to `save_traces`.
    """
    from stator._stored.files import take

    native = expect_native(compiled, "load_traces")
    return take(native, _known_by(compiled, name), _settings(native))


def _known_by(compiled: object, name: str) -> str:
    kind = type(getattr(compiled, "__wrapped__", compiled))
    return f"{kind.__module__}.{kind.__qualname__} {name}"


def _settings(native: Compiled) -> str:
    """The settings that decide how a trace is made."""
    settings = settings_of(native)
    return repr((settings.fullgraph, settings.dynamic, settings.is_compiling))
