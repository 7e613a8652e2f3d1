"""Two libraries for a graph through which gradients are computed, as one operation of PyTorch's.

A `torch.autograd.Function` ties them. It saves tensors as eager's operations do, so hooks and
checks of versions are PyTorch's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx

from stator._fx.graphs import Code
from stator._fx.libraries import Look, tensor_of
from stator._fx.modes import Modes

__all__ = ["Pair", "Place", "code_of_pair", "gradients_of"]

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
    depends: list[list[int]]
    """For each input: the outputs through which gradients come to it."""
    tangents: list[tuple[list[int], str]]
    """Sizes and dtype of each output that asks for gradients."""
    written: list[tuple[int, Place, bool]]
    """Inputs that the graph writes to, what it leaves there, and whether PyTorch counts that in
    their versions. None of them asks for gradients."""
    draws: bool
    """Whether the graph draws random numbers."""
    views: Sequence[int] = ()
    """Results of the graph that are none of the libraries' (`stator._fx.aliases`)."""


def code_of_pair(
    pair: Pair,
    libraries: Sequence[Any],
    module: torch.fx.GraphModule,
    modes: Modes,
    looks: Sequence[Look],
    sizes: Sequence[tuple[str | None, ...]],
) -> Callable[..., Any] | Code:
    """What calls the libraries, which are loaded. `module` is the graph, and `modes` those that it
    is for: gradients of gradients are computed through that. Where sizes vary (those with names),
    the code is for those of `looks`."""
    code = _Code(pair, libraries, module, modes)

    def run(*inputs: Any) -> Any:
        return _Tied.apply(code, *inputs)  # type: ignore[no-untyped-call]

    numbers = list(_numbers(looks, sizes))
    return Code(run, "inductor", [("fixed", *numbers)], looks) if numbers else run


def _numbers(
    looks: Sequence[Look], sizes: Sequence[tuple[str | None, ...]]
) -> Iterator[tuple[Any, ...]]:
    """What varies of the inputs, as assumptions name it (`stator._fx.assumptions`), but for floats,
    which the libraries take."""
    for index, (value, names) in enumerate(zip(looks, sizes, strict=True)):
        if isinstance(value, float):
            continue
        if not isinstance(value, torch.Tensor):
            yield ("input", index)
        elif names:
            for at in range(value.dim()):
                yield ("size", index, at)
                yield ("stride", index, at)


@dataclasses.dataclass(frozen=True, slots=True)
class _Code:
    pair: Pair
    libraries: Sequence[Any]
    module: torch.fx.GraphModule
    modes: Modes


class _Tied(torch.autograd.Function):
    """The two libraries as one operation of PyTorch's."""

    @staticmethod
    def forward(ctx: Any, code: _Code, *values: Any) -> tuple[torch.Tensor, ...]:
        pair = code.pair
        inputs = list(map(tensor_of, values))
        # A gradient that nobody has computed stays one: what depends on no other has none either.
        ctx.set_materialize_grads(False)
        # No library needs these: gradients of gradients do. Saved by PyTorch they would have to
        # stay as they are, which eager doesn't ask for.
        ctx.inputs = _apart(pair, values)
        ctx.versions = _versions(ctx.inputs)
        ctx.state = torch.get_rng_state() if pair.draws else None
        results = code.libraries[0].run(inputs)
        for at, place, counts in pair.written:
            with contextlib.nullcontext() if counts else _uncounted(inputs[at]):
                inputs[at].copy_(_at(place, inputs, results))
        outputs = tuple(results[at] for _, at in pair.outputs)
        saved = [_at(place, inputs, results) for place in pair.saved]
        ctx.code = code
        ctx.save_for_backward(*saved)
        constants = zip(outputs, pair.differentiable, strict=True)
        ctx.mark_non_differentiable(*(value for value, does in constants if not does))
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        code: _Code = ctx.code
        pair = code.pair
        saved, inputs = ctx.saved_tensors, ctx.inputs
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            # As what is saved, they are gone behind the only time.
            ctx.inputs = None
        # The outputs of which there are gradients.
        given = {at for at, gradient in enumerate(gradients) if gradient is not None}
        is_reached = [not given.isdisjoint(outputs) for outputs in pair.depends]
        if torch.is_grad_enabled():
            return (None, *_again(ctx, code, inputs, gradients, create_graph=True))
        asked = [
            gradient for gradient, does in zip(gradients, pair.differentiable, strict=True) if does
        ]
        tangents = [
            _zeros(*look) if gradient is None else gradient
            for gradient, look in zip(asked, pair.tangents, strict=True)
        ]
        found = [
            gradient if does else None
            for gradient, does in zip(_backward(code, (*saved, *tangents)), is_reached, strict=True)
        ]
        if len(given) < len(asked) and not all(map(_is_finite, found)):
            # Zero times infinity, from outputs of which eager computes no gradients.
            found = _again(ctx, code, inputs, gradients, create_graph=False)
        return (None, *found)


def _backward(code: _Code, takes: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """What the backward library makes of these."""
    pair = code.pair
    given = [
        value if list(value.stride()) == strides else _restrided(value, strides)
        for value, strides in zip(takes, pair.strides, strict=True)
    ]
    results = code.libraries[1].run(given)
    return [None if place is None else _at(place, given, results) for place in pair.gradients]


def _zeros(sizes: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.zeros(sizes, dtype=getattr(torch, dtype), device="cpu")


def _restrided(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy that lies in memory as a library takes it for granted."""
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return made.copy_(value)


def _is_finite(gradient: torch.Tensor | None) -> bool:
    return gradient is None or bool(gradient.isfinite().all())


def _again(
    ctx: Any,
    code: _Code,
    inputs: Sequence[Any],
    gradients: Sequence[torch.Tensor | None],
    *,
    create_graph: bool,
) -> list[torch.Tensor | None]:
    """The gradients as eager computes them: the graph runs once more. `create_graph`: with a graph
    of their own."""
    if _versions(inputs) != ctx.versions:
        raise RuntimeError(
            "An input of compiled code was written to before its graph was run again, for "
            "gradients of gradients or as some gradients aren't finite. "
            "stator.compile(backend='eager') computes them as PyTorch does."
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(code.modes.applied())
        if ctx.state is not None:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.set_rng_state(ctx.state)
        outputs = code.module(*_apart(code.pair, inputs))
    reached = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if gradient is not None
    ]
    roots, tangents = zip(*reached, strict=True)
    wants = [isinstance(value, torch.Tensor) and value.requires_grad for value in inputs]
    wanted = [value for value, does in zip(inputs, wants, strict=True) if does]
    by_input = iter(gradients_of(roots, wanted, tangents, create_graph=create_graph))
    return [next(by_input) if does else None for does in wants]


def gradients_of(
    roots: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
    *,
    create_graph: bool = False,
) -> Sequence[torch.Tensor | None]:
    """`torch.autograd.grad` of tensors with as many tangents that are like them. That function
    imports what sizes are symbols with, to compare the two: half a second of the program's."""
    found: Sequence[torch.Tensor | None] = torch.autograd.Variable._execution_engine.run_backward(
        tuple(roots),
        tuple(tangents),
        create_graph,
        create_graph,
        tuple(inputs),
        True,
        accumulate_grad=False,
    )
    return found


def _at(
    place: Place, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> torch.Tensor:
    kind, at = place
    return (inputs if kind == "input" else results)[at]


def _apart(pair: Pair, inputs: Sequence[Any]) -> list[Any]:
    """The inputs, with copies of those that the graph writes to."""
    written = {at for at, _, _ in pair.written}
    return [value.clone() if at in written else value for at, value in enumerate(inputs)]


def _uncounted(value: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """What is written within it isn't counted in the tensor's version."""
    keeps: Any = torch.autograd.grad_mode._unsafe_preserve_version_counter
    found: contextlib.AbstractContextManager[None] = keeps(value)
    return found


def _versions(values: Sequence[Any]) -> list[int | None]:
    return [
        value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None
        for value in values
    ]
