"""What PyTorch does by operations that programs don't have, in operations that they have.

Least squares are solved by the pseudoinverse: how large the residuals are that PyTorch gives beside
the solution depends on data. Weights that are normalised are so by an operation that is private to
PyTorch. Activations that are computed again for gradients are the same ones, so a program computes
them once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.backends.mha
import torch.utils.checkpoint

from stator._program_tracing.checked import is_all_true

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


def _cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Covariances. PyTorch reads the weights to check them."""
    if input.dim() > 2:
        raise RuntimeError(
            "cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.dim()} dimensions"
        )
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            is_all_true(given >= 0)
            weights = given if weights is None else weights * given
    if weights is None:
        count = rows.shape[1]
        off = rows - rows.mean(1, keepdim=True)
        weighted = off
        whole = torch.full((), count, dtype=off.real.dtype)
    else:
        whole = weights.sum().to(rows.real.dtype)
        is_all_true(whole != 0)
        off = rows - (rows * weights).sum(1, keepdim=True) / whole
        weighted = off * weights
    if aweights is None:
        less = whole - correction
    else:
        less = whole - correction * (weights * aweights).sum() / whole
    found = weighted @ off.mT.conj() / torch.clamp(less, min=0)
    return found.reshape([]) if rows.shape[0] == 1 else found


def _corrcoef(input: Any) -> Any:
    found = _cov(input)
    if not found.dim():
        return found / found
    scale = torch.sqrt(torch.diagonal(found).real)
    found = found / scale[:, None] / scale[None, :]
    return torch.clamp(found, -1, 1)


def _combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """Rows of `r` elements each. PyTorch picks them by a mask; which ones, sizes say."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    rows = [list(each) for each in choose(range(input.shape[0]), r)]
    return input[torch.tensor(rows, dtype=torch.int64).reshape(-1, r)]


def _new(tensor: Any, *sizes: Any, device: Any = None) -> Any:
    """A tensor with nothing in it yet. PyTorch takes data, too."""
    found = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], torch.Size) else sizes
    if not all(isinstance(size, int) for size in found):
        refuse_data()
    return tensor.new_empty(found if sizes else [0], device=device)


def refuse_data() -> str:
    return "`Tensor.new` of data: use `torch.tensor`"


_NEAREST = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}


def _of_shares(name: str, skips: bool) -> Callable[..., Any]:
    """Quantiles: PyTorch reads the shares to check them. `skips`: what is no number doesn't
    count."""

    def quantile(
        input: Any,
        q: Any,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Any:
        if input.dtype not in (torch.float32, torch.float64):
            raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
        if isinstance(q, (int, float)):
            if not 0 <= q <= 1:
                raise RuntimeError(f"{name}() q values must be in the range [0, 1] but got {q}")
            shares = torch.full((), q, dtype=input.dtype)
        else:
            shares = q
            if shares.dtype != input.dtype or shares.dim() > 1:
                raise RuntimeError(
                    f"{name}() q must be a scalar or 1D tensor of the input's element type"
                )
            is_all_true((shares >= 0) & (shares <= 1))
        axis = -1 if dim is None else dim
        is_one = dim is None or not input.dim()
        rows = input.reshape(-1) if is_one else input.movedim(axis, -1)
        rows = torch.sort(rows, -1).values
        unknown = torch.isnan(rows)
        last = rows.shape[-1] - 1
        if skips:
            count = torch.logical_not(unknown).sum(-1, keepdim=True)
            place = shares.reshape(-1) * torch.clamp(count - 1, min=0)
        else:
            place = (shares.reshape(-1) * last).expand([*rows.shape[:-1], shares.numel()])
            place = torch.where(unknown.any(-1, keepdim=True), last, place)
        if interpolation in _NEAREST:
            found = rows.gather(-1, _NEAREST[interpolation](place).to(torch.int64))
        elif interpolation in ("linear", "midpoint"):
            low = torch.floor(place)
            share = place - low if interpolation == "linear" else torch.full_like(place, 0.5)
            above = rows.gather(-1, torch.ceil(place).to(torch.int64))
            found = torch.lerp(rows.gather(-1, low.to(torch.int64)), above, share)
        else:
            raise RuntimeError(
                f"{name}() interpolation must be one of linear, lower, higher, midpoint or "
                f"nearest, but got {interpolation}"
            )
        found = found.movedim(-1, 0)
        if keepdim:
            if is_one:
                found = found.reshape([-1, *[1] * input.dim()])
            else:
                found = found.unsqueeze(axis + 1 if axis >= 0 else axis)
        return found if shares.dim() else found.squeeze(0)

    return quantile


_quantile = _of_shares("quantile", skips=False)
_nanquantile = _of_shares("nanquantile", skips=True)


SILENT.append(refuse_data)

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.backends.mha.get_fastpath_enabled, _without_fast_path),
    (torch.linalg.lstsq, _lstsq),
    (torch._weight_norm, _weight_norm),
    (torch.utils.checkpoint.checkpoint, _checkpoint),
    (torch.cov, _cov),
    (torch.Tensor.cov, _cov),
    (torch.corrcoef, _corrcoef),
    (torch.Tensor.corrcoef, _corrcoef),
    (torch.Tensor.new, _new),
    (torch.combinations, _combinations),
    (torch.quantile, _quantile),
    (torch.Tensor.quantile, _quantile),
    (torch.nanquantile, _nanquantile),
    (torch.Tensor.nanquantile, _nanquantile),
]
