"""How the results of a captured graph become the program's.

The graph gives the same tensors each time, in memory of its own. What the program gets is made
anew: copies, with the strides, offsets and the sharing among them that the graph's have, and views
of the call's inputs where the graph's are views of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stator._cudagraphs.places import copy_all
from stator._cudagraphs.watching import memory_of

__all__ = ["Results", "UnfitError", "check_result", "fills_its_memory"]

Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides, offset."""

Make = Callable[[Sequence[Tensor], list[Tensor]], Tensor]
"""Makes a result of the inputs and of the new memory."""


class UnfitError(Exception):
    """Results aren't such that they can be made anew; says why."""


def _place(tensor: Tensor) -> Place:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _is_view(tensor: Tensor) -> bool:
    return tensor._is_view()


class Results:
    """The results of a captured graph.

    outputs: what it gives; `given`: what it was captured with, in the place of the inputs.
    """

    def __init__(
        self, outputs: Sequence[Tensor], given: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> None:
        self._sources: list[Tensor] = []
        """In the graph's memory, and for each of them what its copy is like."""
        self._copies: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self._makes: list[Make] = []
        owners: dict[int, int] = {}
        for at, tensor in enumerate(given):
            owners.setdefault(memory_of(tensor), at)
        known = {id(tensor): at for at, tensor in enumerate(given)}
        groups: dict[int, list[int]] = {}
        for at, output in enumerate(outputs):
            check_result(output)
            if memory_of(output) not in owners:
                groups.setdefault(memory_of(output), []).append(at)
        makes: dict[int, Make] = {}
        for members in groups.values():
            makes |= self._group({at: outputs[at] for at in members})
        for at, output in enumerate(outputs):
            if id(output) in known:
                makes[at] = _input(known[id(output)])
            elif at not in makes:
                owner = owners[memory_of(output)]
                makes[at] = _view_of_input(output, owner, given[owner], inputs[owner])
        first: dict[int, int] = {}
        self._same = [first.setdefault(id(output), at) for at, output in enumerate(outputs)]
        self._makes = [makes[at] for at in range(len(outputs))]
        self._is_plain = all(
            same == at and isinstance(make, _Copy)
            for at, (same, make) in enumerate(zip(self._same, self._makes, strict=True))
        )

    def room(self) -> list[Tensor]:
        """Memory for the copies of a call."""
        return [
            torch.empty_strided(sizes, strides, dtype=source.dtype, device=source.device)
            for source, (sizes, strides) in zip(self._sources, self._copies, strict=True)
        ]

    def fill(self, room: list[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
        """The results of a call: the graph has been launched."""
        copy_all(room, self._sources)
        if self._is_plain:
            return room
        made: list[Tensor] = []
        for at, (same, make) in enumerate(zip(self._same, self._makes, strict=True)):
            made.append(made[same] if same != at else make(inputs, room))
        return made

    def _copy(self, source: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
        self._sources.append(source)
        self._copies.append((sizes, strides))
        return len(self._sources) - 1

    def _group(self, members: dict[int, Tensor]) -> dict[int, Make]:
        """Results that share memory, or one that shares none."""
        distinct = {id(tensor): tensor for tensor in members.values()}
        bases = [tensor for tensor in distinct.values() if not _is_view(tensor)]
        if len(distinct) == 1 and bases and fills_its_memory(bases[0]):
            (base,) = bases
            copy = _Copy(self._copy(base, tuple(base.shape), base.stride()))
            return dict.fromkeys(members, copy)
        if len({tensor.dtype for tensor in distinct.values()}) > 1:
            raise UnfitError("two of its results are one memory, as numbers of different types")
        # All of the memory, and the results in it.
        first = next(iter(distinct.values()))
        storage = first.untyped_storage()
        length = storage.nbytes() // first.element_size()
        flat = torch.empty(0, dtype=first.dtype, device=first.device)
        flat.set_(storage, 0, (length,), (1,))
        number = self._copy(flat, (length,), (1,))
        is_based = len(bases) == 1
        makes: dict[int, Make] = {}
        for at, tensor in members.items():
            whole = _place(bases[0]) if is_based else ((length,), (1,), 0)
            makes[at] = _Part(number, whole, _place(tensor), is_based and tensor is bases[0])
        return makes


def fills_its_memory(tensor: Tensor) -> bool:
    """Whether a copy with the same sizes and strides has memory of the same size."""
    size = 0
    if tensor.numel():
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        size = 1 + sum((size - 1) * stride for size, stride in pairs)
    is_whole = tensor.untyped_storage().nbytes() == size * tensor.element_size()
    return tensor.storage_offset() == 0 and is_whole


def check_result(output: Tensor) -> None:
    """Raises where a result can't be made anew."""
    if type(output) is not Tensor and type(output) is not torch.nn.Parameter:
        raise UnfitError("a result of it is no plain tensor")
    if output.layout is not torch.strided or output.is_quantized or output.is_nested:
        raise UnfitError("a result of it is no plain tensor")
    if output.is_conj() or output.is_neg():
        raise UnfitError("a result of it is a conjugated or negated view")
    if output.requires_grad:
        raise UnfitError("a result of it asks for gradients")


class _Copy:
    """Is a copy itself."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, inputs: Sequence[Tensor], room: list[Tensor]) -> Tensor:
        return room[self.number]


class _Part:
    """Lies in a copy of a whole memory: it is the base of what lies there, or a view of that."""

    def __init__(self, number: int, base: Place, place: Place, is_base: bool) -> None:
        self.number, self.base, self.place, self.is_base = number, base, place, is_base

    def __call__(self, inputs: Sequence[Tensor], room: list[Tensor]) -> Tensor:
        base = room[self.number]
        sizes, strides, offset = self.base
        if base.shape != sizes or base.stride() != strides or base.storage_offset() != offset:
            # The next ones find the base there.
            storage = base.untyped_storage()
            base = torch.empty(0, dtype=base.dtype, device=base.device)
            base.set_(storage, offset, sizes, strides)
            room[self.number] = base
        return base if self.is_base else base.as_strided(*self.place)


def _input(at: int) -> Make:
    return lambda inputs, room: inputs[at]


def _view_of_input(output: Tensor, owner: int, given: Tensor, own: Tensor) -> Make:
    """`own` is the input that `given` stands for."""
    if output.dtype != own.dtype:
        raise UnfitError("a result of it is an input's memory, as numbers of another type")
    if own.is_conj() or own.is_neg():
        raise UnfitError("a result of it is a view of a conjugated or negated input")
    sizes, strides, offset = _place(output)
    offset += int(own.storage_offset()) - int(given.storage_offset())
    return lambda inputs, room: inputs[owner].as_strided(sizes, strides, offset)
