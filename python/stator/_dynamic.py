"""What a user says of a tensor's sizes: which vary from call to call, and which don't.

The marks are attributes of the tensor, of the names that PyTorch's own functions use: what
`torch._dynamo.mark_dynamic` has marked counts here, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from stator._blame import blames_caller
from stator._suggest import describe
from stator.errors import MarkError

if TYPE_CHECKING:
    import torch

__all__ = ["mark_dynamic", "mark_static", "maybe_mark_dynamic"]

# The recorder reads these: `crates/tracer/src/recorder/numbers/dynamic.rs`.
DYNAMIC = "_dynamo_dynamic_indices"
MAYBE = "_dynamo_weak_dynamic_indices"
STATIC = "_dynamo_static_indices"
RANGES = "_dynamo_dynamic_range"


class Range(NamedTuple):
    """The bounds of one dimension."""

    dim: int
    min: int | None
    max: int | None


@blames_caller
def mark_dynamic(
    tensor: torch.Tensor,
    index: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Says that a dimension's size varies: the first trace takes it as a symbol already.

    index: the dimension, or several; negative ones count from the last.
    min, max: bounds of the size, both included; traces may rely on them, and serve no others. The
        least is 2: traces for sizes of 0 and 1 serve no other sizes.

    A call whose trace can't keep the dimension symbolic, because the program asks for its value,
    raises `stator.DynamicDimensionError` with the line that did.
    """
    for dim in _dimensions("mark_dynamic", tensor, index):
        for name, bound in (("min", min), ("max", max)):
            if bound is not None and (type(bound) is not int or bound < 0):
                raise MarkError(f"{name} is a size, not {describe(bound)}.")
        if min is not None and max is not None and min > max:
            raise MarkError(f"No size is at least {min} and at most {max}.")
        _add(tensor, DYNAMIC, dim)
        if min is not None or max is not None:
            _add(tensor, RANGES, Range(dim, min, max))


@blames_caller
def maybe_mark_dynamic(tensor: torch.Tensor, index: int | Sequence[int]) -> None:
    """As `mark_dynamic`, but where the program asks for the size, the trace is for that size."""
    for dim in _dimensions("maybe_mark_dynamic", tensor, index):
        _add(tensor, MAYBE, dim)


@blames_caller
def mark_static(tensor: torch.Tensor, index: int | Sequence[int] | None = None) -> None:
    """Says that a dimension's size is never to be a symbol, whatever changes.

    index: the dimension, or several; None: all.
    """
    every = range(tensor.dim()) if index is None and hasattr(tensor, "dim") else index
    for dim in _dimensions("mark_static", tensor, [] if every is None else list(_all(every))):
        _add(tensor, STATIC, dim)


def _all(index: int | Sequence[int] | range) -> Sequence[int]:
    return [index] if isinstance(index, int) else index


def _dimensions(caller: str, tensor: object, index: int | Sequence[int]) -> list[int]:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise MarkError(f"stator.{caller} takes a tensor, not {describe(tensor)}.")
    rank = tensor.dim()
    found = []
    for dim in _all(index):
        if type(dim) is not int:
            raise MarkError(f"A dimension is a number, not {describe(dim)}.")
        if not -rank <= dim < rank:
            raise MarkError(f"There is no dimension {dim}: the tensor has {rank}.")
        found.append(dim % rank)
    return found


def _add(tensor: torch.Tensor, name: str, mark: object) -> None:
    marks: set[object] = getattr(tensor, name, None) or set()
    marks.add(mark)
    setattr(tensor, name, marks)
