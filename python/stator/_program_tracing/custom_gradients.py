"""`torch.autograd.Function`s of the program's, in tensor programs.

What `forward` gives begins a graph of its own, so that PyTorch's gradients end there. `backward` is
traced where they have come so far, with the gradients of the results, and what it gives is gone on
with: from the latest function to the first one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SILENT", "SUBSTITUTES", "begin", "behind", "end", "engine"]

_STATE = threading.local()


def begin() -> list[Any]:
    """Begins a trace without any; gives those that the thread had before."""
    before: list[Any] = getattr(_STATE, "applied", [])
    _STATE.applied = []
    return before


def end(before: list[Any]) -> None:
    _STATE.applied = before


def put_applied(applied: tuple[Any, ...]) -> None:
    """A function was applied."""
    _STATE.applied.append(applied)


def find_applied() -> list[Any]:
    """All that were, the latest first."""
    return getattr(_STATE, "applied", [])[::-1]


def behind(leaf: Any) -> Any:
    """What a function was given that has made this leaf; None: it's a leaf of PyTorch's graph."""
    for _, _, args, made in getattr(_STATE, "applied", []):
        if any(each is leaf for each in made):
            return [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    return None


class _Context:
    """What `forward` leaves to `backward`."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.non_differentiable: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """For `jvp`, which is none of a program."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        raise NotImplementedError(
            "in tensor programs a torch.autograd.Function doesn't write to what it is given"
        )

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


def _apply(function: Any, *args: Any) -> Any:
    needs = tuple([isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args])
    context = _Context(needs)
    with torch.no_grad():
        if function.setup_context is torch.autograd.Function.setup_context:
            value = function.forward(context, *args)
        else:
            value = function.forward(*args)
            function.setup_context(context, args, value)
    if True not in needs or not torch.is_grad_enabled():
        return value
    outputs = [value] if isinstance(value, torch.Tensor) else list(value)
    made = []
    for output in outputs:
        differs = isinstance(output, torch.Tensor) and (
            output.is_floating_point() or output.is_complex()
        )
        for plain in context.non_differentiable:
            differs = differs and plain is not output
        made.append(output.detach().requires_grad_() if differs else output)
    put_applied((function, context, args, made))
    return made[0] if isinstance(value, torch.Tensor) else tuple(made)


def engine(*args: Any, **kwargs: Any) -> Any:
    """PyTorch's gradients, as one operation of a program."""
    return torch.autograd.grad(*args, **kwargs)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    applied = find_applied()
    outputs, inputs = _row(outputs), _row(inputs)
    if not applied:
        return engine(outputs, inputs, *args, **kwargs)
    return _through(applied, outputs, inputs, *args, **kwargs)


def _row(value: Any) -> Any:
    """Tensors as an operation is given them: a dictionary's values are a list."""
    if isinstance(value, (torch.Tensor, list, tuple)) or len(value) == 0:
        return value
    return list(value)


def _through(
    applied: list[Any],
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients, also those that go through functions of the program's own."""
    if create_graph or is_grads_batched:
        raise NotImplementedError(
            "gradients of gradients, and Jacobians, of a torch.autograd.Function aren't there in "
            "tensor programs"
        )
    wanted = _listed(inputs)
    targets = [*wanted]
    for _, _, _, made in applied:
        targets = [*targets, *[each for each in made if _asks(each)]]
    starts = None if grad_outputs is None else _listed(grad_outputs)
    totals = list(_engine_to(_listed(outputs), targets, starts))
    with torch.no_grad():
        for function, context, args, made in applied:
            gradients = [_total(totals, targets, each) for each in made]
            if all(gradient is None for gradient in gradients):
                continue
            if context.materialize_grads:
                gradients = [
                    torch.zeros_like(each)
                    if gradient is None and isinstance(each, torch.Tensor)
                    else gradient
                    for gradient, each in zip(gradients, made, strict=True)
                ]
            given = function.backward(context, *gradients)
            given = given if isinstance(given, tuple) else (given,)
            if len(given) < len(args):
                raise RuntimeError(
                    f"function {function.__name__}Backward returned an incorrect number of "
                    f"gradients (expected {len(args)}, got {len(given)})"
                )
            for arg, gradient in zip(args, given[: len(args)], strict=True):
                if gradient is None or not _asks(arg):
                    continue
                more = _engine_to([arg], targets, [gradient])
                totals = [_added(*pair) for pair in zip(totals, more, strict=True)]
    found = totals[: len(wanted)]
    if materialize_grads:
        return tuple(
            [
                torch.zeros_like(of) if total is None else total
                for total, of in zip(found, wanted, strict=True)
            ]
        )
    if not allow_unused and any(total is None for total in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return tuple(found)


def _engine_to(outputs: list[Any], targets: list[Any], starts: Any) -> Any:
    return engine(outputs, targets, starts, retain_graph=True, allow_unused=True)


def _asks(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _total(totals: list[Any], targets: list[Any], of: Any) -> Any:
    for total, target in zip(totals, targets, strict=True):
        if target is of:
            return total
    return None


def _added(total: Any, more: Any) -> Any:
    if total is None:
        return more
    return total if more is None else total + more


# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [put_applied, find_applied]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.autograd.grad, _grad),
    (getattr(torch.autograd.Function.apply, "__func__", torch.autograd.Function.apply), _apply),
]
