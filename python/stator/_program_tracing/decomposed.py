"""What PyTorch does by operations that programs don't have, in operations that they have.

Least squares are solved by the pseudoinverse: how large the residuals are that PyTorch gives beside
the solution depends on data. Weights that are normalised are so by an operation that is private to
PyTorch. Activations that are computed again for gradients are the same ones, so a program computes
them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.backends.mha
import torch.utils.checkpoint

__all__ = ["SILENT", "SUBSTITUTES"]


class _LeastSquares:
    """What `torch.linalg.lstsq` gives: what is asked for is computed."""

    def __init__(self, solution: Any, matrix: Any, rcond: Any, driver: str | None) -> None:
        self.solution = solution
        self._asked = matrix, rcond, driver

    @property
    def residuals(self) -> Any:
        return refuse_residuals()

    @property
    def rank(self) -> Any:
        matrix, rcond, driver = self._asked
        if driver == "gels":
            return torch.zeros(0, dtype=torch.int64)
        return torch.linalg.matrix_rank(matrix, rtol=rcond)

    @property
    def singular_values(self) -> Any:
        matrix, _, driver = self._asked
        if driver in ("gelsd", "gelss"):
            return torch.linalg.svdvals(matrix)
        return matrix.new_zeros(0)

    def __getitem__(self, place: int) -> Any:
        return getattr(self, _PARTS[place])

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, part) for part in _PARTS])


_PARTS = ("solution", "residuals", "rank", "singular_values")


def refuse_residuals() -> str:
    return "the residuals of `torch.linalg.lstsq`, whose size depends on data"


def _lstsq(input: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    is_vector = b.dim() == 1 or (input.dim() - 1 == b.dim() and b.shape == input.shape[:-1])
    right = b.unsqueeze(-1) if is_vector else b
    solution = torch.linalg.pinv(input, rtol=rcond) @ right
    return _LeastSquares(solution.squeeze(-1) if is_vector else solution, input, rcond, driver)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Any = torch.utils.checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    if use_reentrant is not False:
        # Its first time it computes without gradients, and has none of what isn't an argument.
        refuse_reentrant()
    if context_fn is not torch.utils.checkpoint.noop_context_fn:
        refuse_contexts()
    return function(*args, **kwargs)


def refuse_reentrant() -> str:
    return "`checkpoint` without `use_reentrant=False`"


def refuse_contexts() -> str:
    return "`checkpoint` with `context_fn`"


# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [refuse_contexts, refuse_reentrant, refuse_residuals]


def _without_fast_path() -> bool:
    """Transformers that are evaluated have an operation of their own, which isn't public: programs
    have the operations that it stands for."""
    return False


# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.backends.mha.get_fastpath_enabled, _without_fast_path),
    (torch.linalg.lstsq, _lstsq),
    (torch._weight_norm, _weight_norm),
    (torch.utils.checkpoint.checkpoint, _checkpoint),
]
