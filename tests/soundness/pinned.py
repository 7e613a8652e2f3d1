"""Whether the installed PyTorch is the one that tables in the repository were written from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def is_pinned() -> bool:
    """Whether it has the version that the project is developed with."""
    groups = tomllib.loads(PROJECT.read_text())["dependency-groups"]
    (pinned,) = [
        requirement.removeprefix("torch==")
        for group in groups.values()
        for requirement in group
        if isinstance(requirement, str) and requirement.startswith("torch==")
    ]
    return torch.__version__.partition("+")[0] == pinned
