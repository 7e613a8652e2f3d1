"""The table of graph breaks as a user reads it at the command line."""

from __future__ import annotations

from stator import _stator
from stator._suggest import suggest


class UnknownBreakError(LookupError):
    """No graph break has this id."""


def _rows() -> dict[str, tuple[str, str, str]]:
    return {id: (what, why, hint) for id, what, why, hint in _stator._breaks()}


def listed() -> str:
    """Every row: its id and what happened."""
    return "\n".join(f"{id}  {what}" for id, (what, _, _) in _rows().items())


def explained(id: str) -> str:
    """One row.

    Raises UnknownBreakError if there is none of this id.
    """
    rows = _rows()
    if id.upper() not in rows:
        raise UnknownBreakError(
            f"There is no graph break {id!r}. {suggest(id.upper(), rows)}\n"
            "`python -m stator explain` lists them with what they mean."
        )
    what, why, hint = rows[id.upper()]
    return (
        f"{id.upper()}: {what}\n"
        f"  Why:  {why}\n"
        f"  Hint: {hint}\n"
        "  STATOR_LOGS=graph_breaks shows where it happens. The function runs right all the same: "
        "only with fullgraph=True is it an error."
    )
