"""A run of operations that is captured once its inputs are known, and launched from then on."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stator._cudagraphs.device import Device, Launched, Run, current
from stator._cudagraphs.places import Places, address, set_versions, version
from stator._cudagraphs.results import Results, UnfitError
from stator._cudagraphs.training import Trained
from stator._cudagraphs.watching import Watch, memory_of
from stator._stator import Declined

__all__ = ["Graphed", "Pools"]

MOST = 8
"""How many graphs of one run there may be: for other streams, and for inputs elsewhere that can't
be copied, because the run writes to them."""

_CAPTURING = "the program captures a graph of its own"
_BUSY = "another thread is in the graph"
_STREAM = "the selected stream was made outside of PyTorch"
_MOVING = "an input that it writes to is elsewhere than at the call before"
_TOO_MANY = f"there are {MOST} graphs of it, for other streams and other places of its inputs"
_GRADIENTS = "gradients are recorded in it, and no result of it has any"
_WRITES = "gradients are asked of it, and it writes to an input"
_NO_INPUTS = "it has no inputs"
_MEMORY = "there was no memory for its results"


class Pools:
    """The memory of the captures of one compiled function: one pool for each stream, as graphs in
    one pool mustn't run at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held from a launch until the results are copied: other graphs of a pool use the memory
        that these are in. So buffers, too, are those of one call at a time."""
        self._pools: dict[tuple[int, int], Any] = {}
        self._graphs: dict[tuple[int, int], weakref.WeakSet[Launched]] = {}
        """Those in each pool."""

    def of(self, device: Device, index: int, stream: int) -> Any:
        """The pool for what runs on a stream: a new one where all graphs of the last are gone, as
        PyTorch doesn't take that again."""
        key = index, stream
        if not self._graphs.get(key):
            self._pools[key] = device.new_pool()
            self._graphs[key] = weakref.WeakSet()
        return self._pools[key]

    def keep(self, index: int, stream: int, graph: Launched) -> None:
        """A graph was captured in the pool for what runs on a stream."""
        self._graphs[index, stream].add(graph)


class Graphed:
    """A backend's code for one run of operations: gives its results, or says why it's to be
    replayed.

    failed: is told of an error in a capture, and gives it as text; told: of what becomes of the
    run. All calls have inputs that look the same: the native side sees to that.
    """

    def __init__(
        self,
        run: Run,
        pools: Pools,
        failed: Callable[[Exception], str],
        told: Callable[[str], None],
    ) -> None:
        self._run, self._pools = run, pools
        self._failed, self._told = failed, told
        self._device = current()
        self._captures: list[_Capture | Trained] = []
        self._addresses: list[int] = []
        """Of the inputs of the last call; none before the first."""
        self._index = 0
        """Of the device."""
        self._fixed: list[int] = []
        """Which inputs can't be copied."""
        self._moving: set[int] = set()
        """Which inputs have been elsewhere at some call, and can be copied."""
        self._is_trained = self._draws = False
        """Whether gradients are asked of it, and whether it draws random numbers."""
        self._declined: Declined | None = None

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor] | Declined:
        # Who waited for another thread's call could wait for its own: of a handler, or of a
        # finalizer.
        if not self._pools.lock.acquire(blocking=False):
            return Declined(_BUSY)
        try:
            if self._declined is not None:
                return self._declined
            if not self._addresses:
                return self._watched(inputs)
            if self._device.is_capturing():
                return Declined(_CAPTURING)
            addresses = list(map(address, inputs))
            stream = self._device.stream(self._index)
            for capture in self._captures:
                if capture.stream == stream and capture.places.fit(addresses):
                    return capture.launch(inputs)
            return self._captured(inputs, addresses, stream)
        finally:
            self._pools.lock.release()

    def _decline(self, why: str) -> Declined:
        """For good."""
        self._captures = []
        self._declined = Declined(why, is_final=True)
        self._told(f"is replayed: {why}")
        return self._declined

    def _watched(self, inputs: Sequence[Tensor]) -> Sequence[Tensor] | Declined:
        """The first call: operations are executed one by one, and looked at."""
        if (why := _unfit(self._device, inputs)) is not None:
            return self._decline(why)
        if self._device.is_capturing():
            return Declined(_CAPTURING)
        self._index = inputs[0].device.index or 0
        addresses = list(map(address, inputs))
        watch = Watch(inputs)
        with watch:
            outputs = self._run(*inputs)
        self._fixed = [at for at, it in enumerate(inputs) if memory_of(it) in watch.fixed]
        asks = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        self._is_trained = any(output.requires_grad for output in outputs)
        self._draws = watch.draws
        if asks and self._fixed:
            watch.say(_WRITES)
        if asks != self._is_trained:
            watch.say(_GRADIENTS)
        for output in outputs:
            if output.device != inputs[0].device:
                watch.say(f"it has tensors on {inputs[0].device} and on {output.device}")
        if watch.why is not None:
            self._decline(watch.why)
        self._addresses = addresses
        return outputs

    def _captured(
        self, inputs: Sequence[Tensor], addresses: list[int], stream: int
    ) -> Sequence[Tensor] | Declined:
        """No graph serves these inputs: there may be one from now on."""
        before, self._addresses = self._addresses, addresses
        moved = {at for at, known in enumerate(before) if addresses[at] != known}
        self._moving |= moved.difference(self._fixed)
        if moved.intersection(self._fixed):
            return Declined(_MOVING)
        if len(self._captures) >= MOST:
            return Declined(_TOO_MANY)
        if not self._device.is_lasting(self._index):
            return Declined(_STREAM)
        for capture in self._captures:
            if capture.stream == stream:
                self._moving.update(capture.places.moved(addresses))
        self._moving.difference_update(self._fixed)
        copied = sorted(self._moving)
        # Where more is copied, what copies less is of no use.
        is_of_use = [it.stream != stream or it.copied == copied for it in self._captures]
        kept = zip(self._captures, is_of_use, strict=True)
        self._captures = [capture for capture, keeps in kept if keeps]
        made: _Capture | Trained
        try:
            if self._is_trained:
                made = Trained(
                    self._run, inputs, copied, self._device, stream, self._draws, self._failed
                )
            else:
                pool = self._pools.of(self._device, self._index, stream)
                made = _Capture(self._run, inputs, copied, self._device, pool, stream)
                self._pools.keep(self._index, stream, made.graph)
        except UnfitError as unfit:
            return self._decline(str(unfit))
        except Exception as error:
            return self._decline(f"it couldn't be captured: {self._failed(error)}")
        self._captures.append(made)
        own = len(inputs) - len(copied)
        self._told(f"is captured: {own} inputs are used where they are, {len(copied)} are copied")
        return made.launch(inputs)


def _unfit(device: Device, inputs: Sequence[Tensor]) -> str | None:
    """Why a graph can't take these."""
    if not inputs:
        return _NO_INPUTS
    for tensor in inputs:
        if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
            return f"an input of it is a {type(tensor).__name__}"
        if tensor.is_conj() or tensor.is_neg():
            return "an input of it is a conjugated or negated view"
        if tensor.device.type != device.kind:
            return f"it has a tensor on {tensor.device}"
        if tensor.device != inputs[0].device:
            return f"it has tensors on {inputs[0].device} and on {tensor.device}"
    return None


class _Capture:
    """A captured graph, for inputs that lie where these do, but for those that are copied."""

    def __init__(
        self,
        run: Run,
        inputs: Sequence[Tensor],
        copied: list[int],
        device: Device,
        pool: Any,
        stream: int,
    ) -> None:
        self.stream, self.copied = stream, copied
        self.places = Places(inputs, copied)
        given = self.places.given
        before = list(map(version, given))
        try:
            self.graph, outputs = device.capture(run, given, pool, inputs[0].device.index or 0)
            counted = zip(given, before, strict=True)
            self._writes = [version(tensor) - then for tensor, then in counted]
        finally:
            # Nothing is written yet.
            set_versions(given, before)
        self._written = [at for at, count in enumerate(self._writes) if count]
        self._results = Results(outputs, given, inputs)
        self.places.captured()

    def launch(self, inputs: Sequence[Tensor]) -> Sequence[Tensor] | Declined:
        """What the run gives for these inputs."""
        try:
            room = self._results.room()
        except RuntimeError:
            return Declined(_MEMORY)
        self.places.fill(inputs)
        self.graph.replay()
        if self._written:
            written = [inputs[at] for at in self._written]
            counts = zip(written, self._written, strict=True)
            set_versions(written, [version(it) + self._writes[at] for it, at in counts])
        return self._results.fill(room, inputs)
