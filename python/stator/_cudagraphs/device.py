"""What is asked of a device that can capture graphs. Tests put a stand-in in CUDA's place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from stator._collection import without_collection

__all__ = ["Cuda", "Device", "Launched", "Run", "current", "using"]

Run = Callable[..., Sequence[torch.Tensor]]


class Launched(Protocol):
    """A captured graph."""

    def replay(self) -> None:
        """Launches it on the selected stream."""


class Device(Protocol):
    """A kind of device whose work can be captured."""

    kind: str
    """The type of its tensors' devices."""

    def is_capturing(self) -> bool:
        """Whether the selected stream is captured by somebody."""

    def stream(self, index: int) -> int:
        """The selected stream of a device, as a number."""

    def is_lasting(self, index: int) -> bool:
        """Whether the selected stream lives as long as the process."""

    def new_pool(self) -> Any:
        """Memory for captures."""

    def random_state(self, index: int) -> torch.Tensor:
        """The state of a device's random generator."""

    def set_random_state(self, index: int, state: torch.Tensor) -> None:
        """Puts it back."""

    def capture(
        self, run: Run, inputs: Sequence[torch.Tensor], pool: Any, index: int
    ) -> tuple[Launched, Sequence[torch.Tensor]]:
        """Captures what `run` does with these inputs, none of which is written by that; with what
        it gives. If it raises, nothing is captured any more."""


class Cuda:
    """CUDA, by way of PyTorch."""

    kind = "cuda"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sides: dict[tuple[int, int], torch.cuda.Stream] = {}
        self._workspaces: dict[int, Any] = {}

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def stream(self, index: int) -> int:
        return torch._C._cuda_getCurrentRawStream(index)

    def is_lasting(self, index: int) -> bool:
        # PyTorch's own streams have odd numbers, the default stream has 0.
        number = torch.cuda.current_stream(index).stream_id
        return number == 0 or number % 2 == 1

    def new_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def random_state(self, index: int) -> torch.Tensor:
        return torch.cuda.get_rng_state(index)

    def set_random_state(self, index: int, state: torch.Tensor) -> None:
        torch.cuda.set_rng_state(state, index)

    def capture(
        self, run: Run, inputs: Sequence[torch.Tensor], pool: Any, index: int
    ) -> tuple[Launched, Sequence[torch.Tensor]]:
        # What a collection frees may need calls of CUDA that end a capture.
        with self._lock, torch.cuda.device(index), without_collection():
            side = self._side(index)
            side.wait_stream(torch.cuda.current_stream())
            self._keep_workspaces(index, side)
            return _captured(run, inputs, pool, side)

    def _side(self, index: int) -> torch.cuda.Stream:
        """Where work is captured for the selected stream: what cuBLAS keeps for a stream is used by
        graphs that run on one stream, and so never by two at once. Nor by the program: PyTorch has
        32 streams of each priority, which it hands out in turn, and few programs ask for others
        than the usual one."""
        key = index, self.stream(index)
        if key not in self._sides:
            taken = {side.cuda_stream for side in self._sides.values()} | {key[1]}
            made = (torch.cuda.Stream(index, -1) for _ in range(32))  # type: ignore[no-untyped-call]
            side = next((it for it in made if it.cuda_stream not in taken), None)
            if side is None:
                raise RuntimeError("there are graphs for too many streams")
            self._sides[key] = side
        return self._sides[key]

    def _keep_workspaces(self, index: int, side: torch.cuda.Stream) -> None:
        """Has cuBLAS get its workspace for captures in a pool that nobody else uses: in that of a
        program's graph it would die with the graph, and others have been captured with it."""

        def product() -> list[torch.Tensor]:
            return [torch.addmm(bias, a, a), torch.mm(a, a)]

        with torch.no_grad(), torch.autocast("cuda", enabled=False):
            a, bias = torch.ones(16, 16, device="cuda"), torch.ones(16, device="cuda")
            try:
                product()
            except RuntimeError:
                return  # Deterministic algorithms are asked for, and cuBLAS has none here.
            known = self._workspaces.get(index)
            pool = self.new_pool() if known is None else known.pool()
            graph, _ = _captured(product, [], pool, side)
        self._workspaces.setdefault(index, graph)


def _captured(
    run: Run, inputs: Sequence[torch.Tensor], pool: Any, side: torch.cuda.Stream
) -> tuple[torch.cuda.CUDAGraph, Sequence[torch.Tensor]]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side), _without_cast_cache():
        with torch.inference_mode(False):
            # The random generator makes tensors that other graphs use, too.
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            except BaseException:
                _clean(graph, pool, side)
                raise
        try:
            outputs = run(*inputs)
        except BaseException:
            _end(graph, pool, side)
            raise
        try:
            graph.capture_end()
        except BaseException:
            _clean(graph, pool, side)
            raise
    return graph, outputs


def _end(graph: torch.cuda.CUDAGraph, pool: Any, side: torch.cuda.Stream) -> None:
    """Ends a capture in which something was raised."""
    try:
        graph.capture_end()
    except RuntimeError:
        _clean(graph, pool, side)


def _clean(graph: torch.cuda.CUDAGraph, pool: Any, side: torch.cuda.Stream) -> None:
    """CUDA has ended a capture as invalid, or none has begun, and PyTorch has left its own state as
    if it went on: the allocator's, and the random generator's, which the end of another capture
    puts right."""
    try:
        torch._C._cuda_endAllocateToPool(side.device_index, pool)
        torch._C._cuda_releasePool(side.device_index, pool)
    except RuntimeError:
        pass  # It had got as far as that.
    del graph
    other = torch.cuda.CUDAGraph()
    with torch.inference_mode(False):
        other.capture_begin(capture_error_mode="thread_local")
    try:
        torch.zeros(1, device=torch.device("cuda", side.device_index))
    finally:
        other.capture_end()


@contextmanager
def _without_cast_cache() -> Iterator[None]:
    """Autocast's cache would give tensors of outside to the graph, and the graph's to outside."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


_current: Device = Cuda()


def current() -> Device:
    """The device that graphs are captured on."""
    return _current


@contextmanager
def using(device: Device) -> Iterator[None]:
    """Has another one in CUDA's place."""
    global _current
    before, _current = _current, device
    try:
        yield
    finally:
        _current = before
