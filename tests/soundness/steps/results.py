"""What calls gave, compared bit by bit."""

from __future__ import annotations

from typing import Any

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
