"""What is a view in PyTorch, and a copy where clients' rows are padded (`padding.py`): which rows a
slice has is each client's own.

Once somebody writes to one, the other isn't what it would be: nobody may use it any more. Only
`x[1:] += 1` writes to the slice, and stores it next where it is from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from stator._program_tracing.padding_numbers import NotPaddedError, Share

__all__ = ["Views"]


class Views:
    """The copies of one run, by their memory."""

    def __init__(self, memory_of: Callable[[Any], int]) -> None:
        self._memory_of = memory_of
        # Kept, so that nothing else gets that memory.
        self._kept: dict[int, Any] = {}
        # Which memory is one in PyTorch.
        self._beside: dict[int, set[int]] = {}
        # What isn't as it would be; and by which memory, which was written to.
        self._stale: dict[int, int] = {}
        # Where slices are from: the memory, and the key.
        self._from: dict[int, tuple[int, Any]] = {}

    def copied(self, *tensors: Any) -> None:
        """One is a view of the other in PyTorch."""
        together: set[int] = set()
        for tensor in tensors:
            memory = self._memory_of(tensor)
            self._kept[memory] = tensor
            together |= self._beside.get(memory, {memory})
        for memory in together:
            self._beside[memory] = together

    def sliced(self, tensor: Any, key: Any, found: Any) -> None:
        """What a key has given of a tensor."""
        if (memory := self._memory_of(found)) in self._kept:
            self._from[memory] = self._memory_of(tensor), _plain(key)

    def written(self, tensor: Any) -> None:
        """A tensor is written to."""
        memory = self._memory_of(tensor)
        for other in self._beside.get(memory, set()) - {memory}:
            self._stale.setdefault(other, memory)

    def called(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_in_place: bool
    ) -> None:
        """An operation is called, which may write to a tensor."""
        if not self._kept:
            return
        if name == "setitem" and len(args) == 3 and isinstance(args[2], torch.Tensor):
            self._stored(*args)
        self.use((args, kwargs))
        out = kwargs.get("out")
        if (is_in_place and name != "requires_grad_") or kwargs.get("inplace"):
            out = (out, args[:1], kwargs.get("input"))
        for tensor in _tensors(out):
            self.written(tensor)

    def _stored(self, tensor: Any, key: Any, value: Any) -> None:
        """What is stored where it is from is there in PyTorch already."""
        memory, part = self._memory_of(tensor), self._memory_of(value)
        is_back = self._stale.get(memory) == part and self._from.get(part) == (memory, _plain(key))
        if is_back:
            del self._stale[memory]

    def use(self, value: Any) -> None:
        """Raises where something is used that isn't what it would be."""
        if self._stale and any(self._memory_of(each) in self._stale for each in _tensors(value)):
            raise NotPaddedError("clients of different sizes: it writes to some rows of a tensor")


def _plain(key: Any) -> Any:
    """A key as something that can be compared, with names for numbers of rows."""
    if isinstance(key, tuple):
        return tuple([_plain(each) for each in key])
    if isinstance(key, slice):
        return "slice", _plain(key.start), _plain(key.stop), _plain(key.step)
    if isinstance(key, Share):
        return "rows", key.key
    # What is compared with nothing else.
    return key if key is None or type(key) in (int, type(...)) else object()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
