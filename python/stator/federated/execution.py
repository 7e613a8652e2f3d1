"""Running computations in this process."""

from __future__ import annotations

from stator._stator.federated import LocalContext

__all__ = ["LocalContext"]
