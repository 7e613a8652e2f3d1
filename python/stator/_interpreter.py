"""Which interpreters the native side was written for. Imported first: it says so in words."""

from __future__ import annotations

import sys

SUPPORTED = [(3, 11), (3, 12)]
"""Versions of CPython whose frames and bytecode the evaluator knows."""


def problem(
    implementation: str, version: tuple[int, int], platform: str = "linux", flags: str = ""
) -> str | None:
    """Why Stator can't be imported by an interpreter; None if it can.

    `platform` is as in `sys.platform`, `flags` as in `sys.abiflags`.
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
    if implementation == "cpython" and version in SUPPORTED:
        return None
    versions = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
    found = f"{implementation} {version[0]}.{version[1]}"
    return (
        f"Stator evaluates the bytecode of CPython {versions} and was imported by {found}. "
        "Functions run as they are without it."
    )


_abiflags = getattr(sys, "abiflags", "")  # Windows has none.
if _problem := problem(sys.implementation.name, sys.version_info[:2], sys.platform, _abiflags):
    raise ImportError(_problem, name="stator")
