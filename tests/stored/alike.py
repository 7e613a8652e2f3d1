"""Whether two results are equal, to the bit."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import torch


def same(left: Any, right: Any) -> bool:
    """As plain Python's `==`, but of equal types; tensors by dtype, gradient and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        alike = (left.dtype, left.requires_grad) == (right.dtype, right.requires_grad)
        return alike and torch.equal(torch.nan_to_num(left), torch.nan_to_num(right))
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, dict):
        return [*left] == [*right] and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return same(vars(left), vars(right))
    return bool(left == right)
