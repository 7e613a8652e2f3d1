"""Code whose results lie in memory as those of the replay do.

A compiler may give a result other strides than PyTorch's operators do: it computes them by rules of
its own. Where that is all that differs, the result is copied to where it belongs. Programs read
strides, and view tensors by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

__all__ = ["Layout", "lay", "with_layout"]

Layout: TypeAlias = "Sequence[tuple[tuple[int, ...], tuple[int, ...]] | None]"
"""For each result its sizes and the strides that it is to have; None: it stays as it is."""


def with_layout(run: Callable[..., Any], layout: Layout) -> Callable[..., Any]:
    """The same code, with results that have these strides."""

    def run_and_lay(*inputs: Any) -> Any:
        outputs = run(*inputs)
        # Others than these are no results.
        return lay(outputs, layout) if isinstance(outputs, tuple | list) else outputs

    return run_and_lay


def lay(outputs: Sequence[Any], layout: Layout) -> list[Any]:
    """Copies of these results that have these strides, of those that are to have others."""
    return [
        value if place is None else _laid(value, *place)
        for value, place in zip(outputs, layout, strict=True)
    ]


def _laid(value: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    if tuple(value.shape) != sizes:
        raise RuntimeError(
            f"a result has sizes {tuple(value.shape)}, and had {sizes} when it was compared"
        )
    if not value.requires_grad:
        return _copy(value, strides)
    made: torch.Tensor = _Laid.apply(value, strides)  # type: ignore[no-untyped-call]
    return made


def _copy(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return made.copy_(value)


class _Laid(torch.autograd.Function):
    """A copy that isn't seen by its gradients."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        return _copy(value, strides)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (*gradients, None)
