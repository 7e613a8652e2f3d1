"""Where results are written: a page for each version of CPython, 3.11's without a number."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def page(name: str) -> Path:
    """`bench/results.md`, `bench/results-3.12.md`."""
    version = sys.version_info[:2]
    suffix = "" if version == (3, 11) else f"-{version[0]}.{version[1]}"
    return _HERE / f"{name}{suffix}.md"
