"""What calls gave, compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from differential.support import api
from torch import Tensor


def copied(result: Any) -> Any:
    """What later writes don't change."""
    if isinstance(result, Tensor):
        return result.detach().clone().requires_grad_(result.requires_grad)
    if isinstance(result, dict):
        return {key: copied(value) for key, value in result.items()}
    return type(result)(map(copied, result)) if isinstance(result, (list, tuple)) else result


def same(left: Any, right: Any) -> bool:
    """Whether two results are equal in types, kinds, and numbers; a NaN equals another."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        return same_tensors(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right or (left != left and right != right))


def agree(expected: Iterable[Any], found: Iterable[Any]) -> None:
    """Each call gave the same."""
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"call {call}: {right}, not {left}"


def runs_whole(compiled: Any, replayed: int) -> None:
    """Its calls have no break, and so many at least are replays."""
    if api.PLAIN:
        return
    assert api.breaks(compiled) == 0, api.reason(compiled)
    hits = api.hits(compiled)
    assert hits is not None
    assert hits >= replayed, api.reason(compiled)


def same_tensors(left: Tensor, right: Tensor) -> bool:
    if (left.dtype, left.shape, left.requires_grad) != (
        right.dtype,
        right.shape,
        right.requires_grad,
    ):
        return False
    if left.is_sparse:
        left, right = left.coalesce().to_dense(), right.coalesce().to_dense()
    return bool(((left == right) | ((left != left) & (right != right))).all())
