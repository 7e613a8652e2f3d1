"""Whether the installed PyTorch is the one that tables in the repository were written from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def is_pinned() -> bool:
    """Whether it has the version that the project is developed with."""
    development = tomllib.loads(PROJECT.read_text())["dependency-groups"]["dev"]
    return f"torch=={torch.__version__.partition('+')[0]}" in development
