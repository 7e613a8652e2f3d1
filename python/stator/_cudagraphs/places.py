"""Where the inputs of a captured graph lie: in place, or in buffers that they are copied to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Places", "address", "copy_all", "distinct", "like", "set_versions", "version"]

ALIGNMENT = 256
"""Kernels are chosen by how far addresses are aligned, up to this."""

address = Tensor.data_ptr


class Places:
    """Where a graph reads its inputs. Those of `copied` are copied before each launch."""

    def __init__(self, inputs: Sequence[Tensor], copied: list[int]) -> None:
        addresses = list(map(address, inputs))
        self.copied = copied
        self._own = [at for at in range(len(inputs)) if at not in set(copied)]
        self._addresses = [addresses[at] for at in self._own]
        self._alignments = [_alignment(addresses[at]) for at in copied]
        self._buffers = [_buffer(inputs[at], _alignment(addresses[at])) for at in copied]
        self._targets = list(map(distinct, self._buffers))
        self._are_distinct = all(
            target is buffer for target, buffer in zip(self._targets, self._buffers, strict=True)
        )
        self.given = list(inputs)
        """What the graph is to be captured with."""
        for at, buffer in zip(copied, self._buffers, strict=True):
            self.given[at] = buffer
        self.fill(inputs)

    def moved(self, addresses: list[int]) -> list[int]:
        """Which of the inputs that aren't copied lie elsewhere."""
        pairs = zip(self._own, self._addresses, strict=True)
        return [at for at, known in pairs if addresses[at] != known]

    def fit(self, addresses: list[int]) -> bool:
        """Whether the graph serves inputs at these addresses."""
        if not self.copied:
            return addresses == self._addresses
        return [addresses[at] for at in self._own] == self._addresses and self._alignments == [
            _alignment(addresses[at]) for at in self.copied
        ]

    def fill(self, inputs: Sequence[Tensor]) -> None:
        """Copies what moves to where the graph finds it."""
        if self.copied:
            sources = [inputs[at] for at in self.copied]
            if not self._are_distinct:
                sources = list(map(distinct, sources))
            copy_all(self._targets, sources)

    def captured(self) -> None:
        """No tensor of the program's is kept."""
        self.given = []


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies tensors, with as few launches as possible."""
    if torch.is_grad_enabled():
        with torch.no_grad():
            copy_all(targets, sources)
    elif len(targets) == 1:
        targets[0].copy_(sources[0])
    elif targets:
        torch._foreach_copy_(list(targets), list(sources))


def like(tensor: Tensor) -> Tensor:
    """Memory for a tensor of the same sizes and strides."""
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def distinct(tensor: Tensor) -> Tensor:
    """A tensor without the repetitions of `expand`."""
    pairs = list(zip(tensor.shape, tensor.stride(), strict=True))
    if all(stride or count < 2 for count, stride in pairs):
        return tensor
    sizes = [count if stride else min(count, 1) for count, stride in pairs]
    return tensor.as_strided(sizes, tensor.stride(), tensor.storage_offset())


def _alignment(address: int) -> int:
    """The power of 2 that an address is a multiple of."""
    return min(address & -address, ALIGNMENT) if address else ALIGNMENT


def _buffer(tensor: Tensor, alignment: int) -> Tensor:
    """Memory for a copy of an input, aligned as that is."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((count - 1) * stride for count, stride in pairs) if tensor.numel() else 0
    offset = alignment // tensor.element_size() if alignment < ALIGNMENT else 0
    with torch.inference_mode(False):
        flat = torch.empty(length + offset, dtype=tensor.dtype, device=tensor.device)
    return flat.as_strided(tensor.shape, tensor.stride(), offset)


def version(tensor: Tensor) -> int:
    """How often a tensor was written; of those without gradients nobody counts it."""
    return 0 if tensor.is_inference() else tensor._version


def set_versions(tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Says how often tensors were written."""
    pairs = zip(tensors, versions, strict=True)
    known = [(tensor, number) for tensor, number in pairs if not tensor.is_inference()]
    if known:
        counted, numbers = zip(*known, strict=True)
        torch._C._autograd._unsafe_set_version_counter(counted, numbers)
