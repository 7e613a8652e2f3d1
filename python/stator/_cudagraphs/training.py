"""Runs through which gradients are computed: one graph gives the results, another the gradients.

What the first keeps for the second lies in the graphs' memory, so there is one call of them at a
time: from the results to the gradients, or until nobody can ask for these any more. What the second
can't give is computed from the inputs, operation by operation: gradients of gradients, of some of
the results alone, or a second time when the memory holds another call's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from stator._cudagraphs.device import Device, Launched, Run
from stator._cudagraphs.places import Places, address, copy_all, distinct, like
from stator._cudagraphs.results import UnfitError, check_result, fills_its_memory
from stator._cudagraphs.watching import memory_of
from stator._stator import Declined

__all__ = ["Trained"]

_PENDING = "gradients of an earlier call of it may still be asked for"
_HOOKS = "the program packs what is saved for gradients, or looks for anomalies"
_MEMORY = "there was no memory for its results"

_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: a CUDA graph of Stator's computes these gradients from its inputs"
)

_SET = (
    "the data of a tensor was set (x.data = ...) between a call and its gradients: a CUDA graph of "
    "Stator's can't tell which of the two the gradients are to be computed of"
)

Modes = tuple[bool, torch.dtype, bool]


class _Call:
    """A call whose gradients may be asked for: lives as long as they can."""

    def __init__(self, state: Tensor | None, modes: Modes) -> None:
        self.is_done = False
        self.state, self.modes = state, modes


class Trained:
    """A captured run, and what computes gradients through it."""

    def __init__(
        self,
        run: Run,
        inputs: Sequence[Tensor],
        copied: list[int],
        device: Device,
        stream: int,
        draws: bool,
        failed: Callable[[Exception], str],
    ) -> None:
        if any(tensor.is_inference() for tensor in inputs):
            raise UnfitError("gradients are asked of it, and an input was made in inference mode")
        self.stream, self.copied = stream, copied
        self._run, self._device, self._draws, self._failed = run, device, draws, failed
        self._index = inputs[0].device.index or 0
        # Not the function's: other graphs would write to what is kept for the gradients.
        self._pool = device.new_pool()
        self._asking = [at for at, tensor in enumerate(inputs) if tensor.requires_grad]
        self.leaves: list[Tensor] = []
        """What stands for the inputs that gradients are asked of, and what came of them: as the
        graph was captured, until that of the gradients is."""
        self.results: list[Tensor] = []
        self.places = Places(inputs, copied)
        given = [tensor.detach() for tensor in self.places.given]
        saved: set[int] = set()

        def pack(tensor: Tensor) -> Tensor:
            saved.add(memory_of(tensor))
            # A result that is saved would keep itself alive.
            return tensor.detach()

        def forward(*given: Tensor) -> list[Tensor]:
            own = list(given)
            for at in self._asking:
                own[at] = own[at].detach().requires_grad_()
            with torch.enable_grad(), saved_tensors_hooks(pack, lambda tensor: tensor):
                self.results = list(self._run(*own))
            self.leaves = [own[at] for at in self._asking]
            return [result.detach() for result in self.results]

        self._forward, self._sources = device.capture(forward, given, self._pool, self._index)
        self.places.captured()
        memories = [memory_of(result) for result in self.results]
        own = set(memories)
        if len(own) < len(memories) or not own.isdisjoint(map(memory_of, given)):
            raise UnfitError("gradients are asked of it, and a result shares memory")
        for result in self._sources:
            check_result(result)
            if not fills_its_memory(result):
                raise UnfitError("gradients are asked of it, and a result is a part of a memory")
        self._differentiable = [it.requires_grad for it in self.results]
        self._saved_inputs = [at for at, it in enumerate(given) if memory_of(it) in saved]
        self._saved_results = [at for at, it in enumerate(memories) if it in saved]
        self.saves_any = bool(saved)
        self._backward: _Backward | None = None
        self._last: weakref.ref[_Call] | None = None

    def launch(self, inputs: Sequence[Tensor]) -> Sequence[Tensor] | Declined:
        """The results for these inputs."""
        last = None if self._last is None else self._last()
        if last is not None and not last.is_done:
            return Declined(_PENDING)
        packs = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        if packs or torch.is_anomaly_enabled():
            return Declined(_HOOKS)
        try:
            room = [like(source) for source in self._sources]
        except RuntimeError:
            return Declined(_MEMORY)
        state = self._device.random_state(self._index) if self._draws else None
        call = _Call(state, _modes(self._device.kind))
        self._last = weakref.ref(call)
        given = _Given(self, call, room)
        del room
        # What PyTorch puts around it asks each input whether `torch.func` has made it.
        results: Any = super(torch.autograd.Function, CudaGraph).apply(given, *inputs)  # type: ignore[no-untyped-call]
        return list(results)

    def forward(self, room: list[Tensor], inputs: Sequence[Tensor]) -> None:
        """Computes the results into some memory."""
        self.places.fill(inputs)
        self._forward.replay()
        copy_all(room, self._sources)

    def saves(self, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> list[Tensor]:
        """What eager saves of these: if the program writes to it, there are no gradients."""
        saved = [inputs[at] for at in self._saved_inputs]
        saved += [results[at] for at in self._saved_results]
        # Something: what is saved can be used once.
        return [*saved, torch.empty(0, device="cpu")] if self.saves_any else saved

    def fixed(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Results through which no gradients go."""
        pairs = zip(results, self._differentiable, strict=True)
        return [result for result, does in pairs if not does]

    def backward(
        self, call: _Call, inputs: Sequence[Tensor], versions: Sequence[int], grads: Sequence[Any]
    ) -> list[Tensor | None]:
        """The gradients of the inputs."""
        own = [grad for grad, does in zip(grads, self._differentiable, strict=True) if does]
        is_last = self._last is not None and self._last() is call and not call.is_done
        launched: Sequence[Tensor | None] | None = None
        if is_last and not torch.is_grad_enabled() and all(type(grad) is Tensor for grad in own):
            launched = self._launched(call, own)
        if launched is None:
            launched = self._computed(call, inputs, versions, own)
        found: list[Tensor | None] = [None] * len(inputs)
        for at, grad in zip(self._asking, launched, strict=True):
            found[at] = grad
        return found

    def _launched(self, call: _Call, grads: list[Tensor]) -> list[Tensor | None] | None:
        """By the graph; it's captured for the first gradients that come."""
        if self._device.is_capturing() or self._device.stream(self._index) != self.stream:
            return None
        if self._backward is None:
            try:
                self._backward = _Backward(self, grads, self._device, self._pool, self._index)
            except Exception as error:
                # They are computed each time.
                self._backward = _Backward.nothing()
                self._failed(error)
            self.results, self.leaves = [], []
        found = self._backward.launch(grads)
        if found is not None:
            # Its own memory is where that lay which was kept for it.
            call.is_done = True
        return found

    def _computed(
        self, call: _Call, inputs: Sequence[Tensor], versions: Sequence[int], grads: Sequence[Any]
    ) -> Sequence[Tensor | None]:
        """From the inputs, by the operations."""
        if _versions(inputs) != versions:
            raise RuntimeError(_CHANGED)
        own = [it.detach().requires_grad_(it.requires_grad) for it in inputs]
        if torch.is_grad_enabled():
            own = list(inputs)
        now = None
        if call.state is not None:
            now = self._device.random_state(self._index)
            self._device.set_random_state(self._index, call.state)
        enabled, dtype, caches = call.modes
        try:
            with (
                torch.enable_grad(),
                torch.autocast(
                    self._device.kind, enabled=enabled, dtype=dtype, cache_enabled=caches
                ),
            ):
                results = [it for it in self._run(*own) if it.requires_grad]
        finally:
            if now is not None:
                self._device.set_random_state(self._index, now)
        asked = [(it, grad) for it, grad in zip(results, grads, strict=True) if grad is not None]
        leaves = [own[at] for at in self._asking]
        if not asked:
            return [None] * len(leaves)
        return torch.autograd.grad(
            [it for it, _ in asked],
            leaves,
            [grad for _, grad in asked],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )


class _Backward:
    """The graph that computes gradients, for gradients of the results that look like the first."""

    def __init__(
        self,
        trained: Trained,
        grads: Sequence[Tensor],
        device: Device,
        pool: Any,
        index: int,
    ) -> None:
        self._looks = list(map(_look, grads))
        self._buffers = [like(grad) for grad in grads]
        copy_all(list(map(distinct, self._buffers)), list(map(distinct, grads)))
        self._is_given: list[bool] = []

        def backward(*grads: Tensor) -> list[Tensor]:
            results = [it for it in trained.results if it.requires_grad]
            found = torch.autograd.grad(results, trained.leaves, grads, allow_unused=True)
            self._is_given = [it is not None for it in found]
            return [it for it in found if it is not None]

        self._graph: Launched
        self._graph, self._sources = device.capture(backward, self._buffers, pool, index)

    @classmethod
    def nothing(cls) -> _Backward:
        """One that couldn't be captured."""
        made = cls.__new__(cls)
        made._looks = []
        return made

    def launch(self, grads: Sequence[Tensor]) -> list[Tensor | None] | None:
        """The gradients; none of the kind that it is for: `None`."""
        if list(map(_look, grads)) != self._looks:
            return None
        room = [like(source) for source in self._sources]
        copy_all(list(map(distinct, self._buffers)), list(map(distinct, grads)))
        self._graph.replay()
        copy_all(list(map(distinct, room)), list(map(distinct, self._sources)))
        found = iter(room)
        return [next(found) if given else None for given in self._is_given]


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor._version for tensor in tensors]


def _look(grad: Tensor) -> tuple[Any, ...]:
    return (
        tuple(grad.shape),
        grad.stride(),
        grad.dtype,
        grad.device,
        grad.data_ptr() % 16,
        type(grad),
    )


def _modes(kind: str) -> Modes:
    """How autocast is set."""
    return (
        torch.is_autocast_enabled(kind),
        torch.get_autocast_dtype(kind),
        torch.is_autocast_cache_enabled(),
    )


class _Given:
    """What a step is given beside its inputs."""

    def __init__(self, trained: Trained, call: _Call, room: list[Tensor]) -> None:
        self.trained, self.call, self.room = trained, call, room


class CudaGraph(torch.autograd.Function):
    """The two graphs as one operation."""

    @staticmethod
    def forward(ctx: Any, given: _Given, *inputs: Tensor) -> tuple[Tensor, ...]:
        trained = given.trained
        results, given.room = tuple(given.room), []
        trained.forward(list(results), inputs)
        ctx.trained, ctx.call = trained, given.call
        ctx.inputs = inputs
        ctx.versions, ctx.addresses = _versions(inputs), list(map(address, inputs))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*trained.fixed(results))
        ctx.save_for_backward(*trained.saves(inputs, results))
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # If they were written, this is an error, as in eager.
        if ctx.addresses != list(map(address, ctx.inputs)):
            # Eager may have saved what they had before, or not.
            raise RuntimeError(_SET)
        found = ctx.trained.backward(ctx.call, ctx.inputs, ctx.versions, grads)
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.call.is_done = True
            if ctx.trained.saves_any:
                ctx.inputs = None
        return (None, *found)
