"""Words for error messages: about an object that doesn't fit, and about a name that isn't known."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence for `name` that isn't among `known`, to put behind the complaint."""
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    if len(names) > _MANY:
        return meant.strip() or "No known name is like it."
    return f"{meant}Known names: {', '.join(names)}."


# More names than these aren't listed.
_MANY = 60


def describe(target: object) -> str:
    """What was met, for the sentence "not ..."."""
    if isinstance(target, type):
        return f"the class {target.__qualname__}"
    kind = type(target).__qualname__
    shown = repr(target)
    return f"an object of type {kind}" if " object at 0x" in shown else f"{shown} (type {kind})"
