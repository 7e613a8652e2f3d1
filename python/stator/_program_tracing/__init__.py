"""How a tensor program is traced, and what its text names.

`tracing` is what the native side needs of PyTorch, with `autograd` for gradients and `indexing` for
indices that are tensors; `table` says what names in a program's text mean. They need torch, and of
the package the words of errors alone: `programs` is above them.

`TensorSpec` stands here, because pickles name it so.
"""

from __future__ import annotations

import dataclasses

import torch

from stator._suggest import describe
from stator.errors import SpecError

__all__ = ["TensorSpec"]


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type of a tensor: an element type, and sizes, of which `None` is one that varies."""

    dtype: torch.dtype
    shape: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, torch.dtype):
            raise SpecError(f"An element type is a torch.dtype, not {describe(self.dtype)}.")
        try:
            shape = tuple(self.shape)
        except TypeError:
            raise SpecError(f"A shape is a sequence, not {describe(self.shape)}.") from None
        for size in shape:
            if size is not None and (type(size) is not int or size < 0):
                raise SpecError(f"A size is a number or None, not {describe(size)}.")
        object.__setattr__(self, "shape", shape)

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{str(self.dtype).removeprefix('torch.')}[{sizes}]"
