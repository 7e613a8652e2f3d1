"""Two libraries for a graph through which gradients are computed, as one operation of PyTorch's.

A `torch.autograd.Function` ties them. It saves tensors as eager's operations do, so hooks and
checks of versions are PyTorch's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx

from stator._fx.modes import Modes

__all__ = ["Pair", "Place", "code_of_pair"]

Place: TypeAlias = "tuple[str, int]"
"""Where a tensor is: `"input"` or `"result"` of a library, and which of these."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two libraries, and what goes from where to where."""

    libraries: list[str]
    """One for the results and what is saved, one for the gradients."""
    outputs: list[Place]
    """Of the graph: results of the forward library."""
    differentiable: list[bool]
    """Which of these ask for gradients."""
    saved: list[Place]
    """Inputs of the graph and results of the forward library, in the order in which the backward
    library takes them."""
    strides: list[list[int]]
    """Those of what it takes: what is saved, then a gradient of each differentiable output."""
    gradients: list[Place | None]
    """For each input: what the backward library takes, or a result of it."""
    draws: bool
    """Whether the graph draws random numbers."""


def code_of_pair(
    pair: Pair, libraries: Sequence[Any], module: torch.fx.GraphModule, modes: Modes
) -> Callable[..., Any]:
    """What calls the libraries, which are loaded. `module` is the graph, and `modes` those that it
    is for: gradients of gradients are computed through that."""
    forward, backward = libraries
    code = _Code(pair, forward, backward, module, modes)

    def run(*inputs: torch.Tensor) -> Any:
        return _Tied.apply(code, *inputs)  # type: ignore[no-untyped-call]

    return run


@dataclasses.dataclass(frozen=True, slots=True)
class _Code:
    pair: Pair
    forward: Any
    backward: Any
    module: torch.fx.GraphModule
    modes: Modes


class _Tied(torch.autograd.Function):
    """The two libraries as one operation of PyTorch's."""

    @staticmethod
    def forward(ctx: Any, code: _Code, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pair = code.pair
        # No library needs these: gradients of gradients do. Saved by PyTorch they would have to
        # stay as they are, which eager doesn't ask for.
        ctx.inputs = inputs
        ctx.versions = [None if value.is_inference() else value._version for value in inputs]
        ctx.state = torch.get_rng_state() if pair.draws else None
        results = code.forward.run(list(inputs))
        outputs = tuple(results[at] for _, at in pair.outputs)
        saved = [inputs[at] if kind == "input" else results[at] for kind, at in pair.saved]
        ctx.code = code
        ctx.save_for_backward(*saved)
        constants = zip(outputs, pair.differentiable, strict=True)
        ctx.mark_non_differentiable(*(value for value, does in constants if not does))
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        code: _Code = ctx.code
        pair = code.pair
        saved = ctx.saved_tensors
        pairs = zip(gradients, pair.differentiable, strict=True)
        tangents = [gradient for gradient, does in pairs if does]
        if torch.is_grad_enabled():
            return (None, *_again(ctx, code, tangents))
        given = [
            value if list(value.stride()) == strides else _restrided(value, strides)
            for value, strides in zip((*saved, *tangents), pair.strides, strict=True)
        ]
        results = code.backward.run(given)
        places = pair.gradients
        return (
            None,
            *(
                None
                if place is None
                else given[place[1]]
                if place[0] == "input"
                else results[place[1]]
                for place in places
            ),
        )


def _restrided(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy that lies in memory as a library takes it for granted."""
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return made.copy_(value)


def _again(ctx: Any, code: _Code, tangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The gradients, with a graph of their own (`create_graph=True`): the graph runs once more."""
    inputs = ctx.inputs
    now = [None if value.is_inference() else value._version for value in inputs]
    if now != ctx.versions:
        raise RuntimeError(
            "An input of compiled code was written to before gradients of gradients were computed "
            "through it. stator.compile(backend='eager') computes them as PyTorch does."
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(code.modes.applied())
        if ctx.state is not None:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.set_rng_state(ctx.state)
        outputs = code.module(*inputs)
    pairs = zip(outputs, code.pair.differentiable, strict=True)
    roots = [output for output, does in pairs if does]
    wanted = [value for value in inputs if value.requires_grad]
    found = torch.autograd.grad(roots, wanted, tangents, create_graph=True, allow_unused=True)
    by_input = iter(found)
    return [next(by_input) if value.requires_grad else None for value in inputs]
