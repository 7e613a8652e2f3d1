"""Which interpreters the native side was written for. Imported first: it says so in words."""

from __future__ import annotations

import sys

SUPPORTED = [(3, 11), (3, 12), (3, 13)]
"""Versions of CPython whose frames and bytecode the evaluator knows."""


def problem(
    implementation: str, version: tuple[int, ...], platform: str = "linux", flags: str = ""
) -> str | None:
    """Why Stator can't be imported by an interpreter; None if it can.

    `version` is as in `sys.version_info`, with the patch level or without; `platform` is as in
    `sys.platform`, `flags` as in `sys.abiflags`.
    """
    if platform == "win32":
        return (
            "Stator takes over frames as CPython has them on Linux and macOS, and was imported on "
            "Windows. Functions run as they are without it."
        )
    if "t" in flags:
        return (
            "Stator relies on the global interpreter lock and was imported by a build without it. "
            "Functions run as they are without it."
        )
    if implementation == "cpython" and version == (3, 13, 0):
        return (
            "CPython 3.13.0 doesn't tell of all changes of dictionaries (cpython#125608), so "
            "Stator couldn't see when a compiled function has become invalid: use 3.13.1 or later."
        )
    if implementation == "cpython" and version[:2] in SUPPORTED:
        return None
    versions = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
    found = f"{implementation} {version[0]}.{version[1]}"
    return (
        f"Stator evaluates the bytecode of CPython {versions} and was imported by {found}. "
        "Functions run as they are without it."
    )


_abiflags = getattr(sys, "abiflags", "")  # Windows has none.
if _problem := problem(sys.implementation.name, sys.version_info[:3], sys.platform, _abiflags):
    raise ImportError(_problem, name="stator")
