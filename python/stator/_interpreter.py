"""Which interpreters the native side was written for. Imported first: it says so in words."""

from __future__ import annotations

import sys

SUPPORTED = [(3, 11), (3, 12)]
"""Versions of CPython whose frames and bytecode the evaluator knows."""


def problem(implementation: str, version: tuple[int, int]) -> str | None:
    """Why Stator can't be imported by an interpreter; None if it can."""
    if implementation == "cpython" and version in SUPPORTED:
        return None
    versions = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
    found = f"{implementation} {version[0]}.{version[1]}"
    return (
        f"Stator evaluates the bytecode of CPython {versions} and was imported by {found}. "
        "Functions run as they are without it."
    )


if _problem := problem(sys.implementation.name, sys.version_info[:2]):
    raise ImportError(_problem, name="stator")
