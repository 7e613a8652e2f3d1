"""Functions on values."""

from __future__ import annotations

from stator._stator.federated import ensure_federated_value, get_curried

__all__ = ["ensure_federated_value", "get_curried"]
