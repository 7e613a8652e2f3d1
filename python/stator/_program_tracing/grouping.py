"""Tensors that PyTorch sorts by device and element type, to work on each group at once.

It does so in C code, which asks stand-ins for tensors by calling Python; and what works on a group
is private to PyTorch, so a program can't name it. In programs it is asked here, and tensors are
worked on one by one, which gives the same numbers: gradients are clipped so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import _foreach_utils

__all__ = ["SUBSTITUTES"]


def _grouped(tensorlistlist: Any, with_indices: bool = False) -> Any:
    found: dict[Any, Any] = {}
    for place, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in found:
            found[key] = ([[] for _ in tensorlistlist], [])
        group, places = found[key]
        for kept, tensors in zip(group, tensorlistlist, strict=True):
            if tensors:
                kept.append(tensors[place])
        if with_indices:
            places.append(place)
    return found


def _never(tensors: Any, device: Any) -> bool:
    return False


# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (_foreach_utils._group_tensors_by_device_and_dtype, _grouped),
    (_foreach_utils._has_foreach_support, _never),
]
