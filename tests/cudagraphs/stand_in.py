"""A device whose graphs are operations on the CPU that are run again, on the same memory.

What a capture executes leaves no trace, as under CUDA, where nothing is executed. A launch reads its inputs where they
lay when it was captured, whatever tensor is there by now, and puts what it gives where that was put before.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Run = Callable[..., Sequence[Tensor]]


def flat(tensor: Tensor) -> Tensor:
    """All of a tensor's memory, as bytes."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def in_place(tensor: Tensor) -> Tensor:
    """A tensor in the same memory, which it doesn't keep alive."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    found = torch.frombuffer(memory, dtype=tensor.dtype)
    return found.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@contextmanager
def untold(tensors: Sequence[Tensor]) -> Iterator[None]:
    """What is written to the tensors isn't counted."""
    counted = [it for it in tensors if not it.is_inference()]
    versions = [it._version for it in counted]
    try:
        yield
    finally:
        if counted:
            torch._C._autograd._unsafe_set_version_counter(tuple(counted), tuple(versions))


class Graph:
    def __init__(
        self, device: StandIn, run: Run, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        self.device, self.run = device, run
        # Gradients can be computed once: those of the capture are those of the first launch.
        self.first = (
            [flat(it).clone() for it in outputs]
            if getattr(run, "__name__", "") == "backward"
            else None
        )
        with torch.inference_mode(False), torch.no_grad():
            self.inputs = [in_place(tensor) for tensor in inputs]
        own = {tensor.untyped_storage()._cdata for tensor in inputs}
        self.given = {
            at: flat(tensor)
            for at, tensor in enumerate(outputs)
            if tensor.untyped_storage()._cdata not in own
        }

    def replay(self) -> None:
        self.device.launches += 1
        first, self.first = self.first, None
        if first is not None:
            for at, memory in self.given.items():
                memory.copy_(first[at])
            return
        with torch.no_grad():
            for at, tensor in enumerate(self.run(*self.inputs)):
                if at in self.given:
                    self.given[at].copy_(flat(tensor))


class StandIn:
    kind = "cpu"

    def __init__(self) -> None:
        self.captures = self.launches = 0
        self.pools: list[object] = []
        self.capturing = False
        self.selected = 0
        self.lasting = True
        self.error: BaseException | None = None
        self.used: list[object] = []
        self.graphs: dict[int, weakref.WeakSet[Graph]] = {}

    def is_capturing(self) -> bool:
        return self.capturing

    def stream(self, index: int) -> int:
        return self.selected

    def is_lasting(self, index: int) -> bool:
        return self.lasting

    def new_pool(self) -> object:
        self.pools.append(object())
        return self.pools[-1]

    def random_state(self, index: int) -> Tensor:
        return torch.get_rng_state()

    def set_random_state(self, index: int, state: Tensor) -> None:
        torch.set_rng_state(state)

    def capture(
        self, run: Run, inputs: Sequence[Tensor], pool: Any, index: int
    ) -> tuple[Graph, Sequence[Tensor]]:
        self.used.append(pool)
        graphs = self.graphs.setdefault(id(pool), weakref.WeakSet())
        if pool in self.used[:-1] and not graphs:
            raise RuntimeError("PyTorch takes no pool again whose graphs are all gone")
        memories = [flat(tensor) for tensor in inputs]
        saved = [memory.clone() for memory in memories]
        state = torch.get_rng_state()
        try:
            outputs = run(*inputs)
            if self.error is not None:
                raise self.error
        finally:
            for memory, before in zip(memories, saved, strict=True):
                memory.copy_(before)
            torch.set_rng_state(state)
        graph = Graph(self, run, inputs, outputs)
        graphs.add(graph)
        for tensor in outputs:
            if all(tensor.untyped_storage()._cdata != it.untyped_storage()._cdata for it in inputs):
                flat(tensor).fill_(0xFF)
        self.captures += 1
        return graph, outputs
