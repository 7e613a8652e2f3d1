"""Gradients in tensor programs.

A gradient is one operation of a program, `torch.autograd.grad`, which says what it reads and makes.
What PyTorch does by writing to tensors (`loss.backward()`) or by transforming functions
(`torch.func.grad`) is traced as one of the functions here, which end in that operation. Functions
whose names begin with `find_` or `put_` run while a program is traced and are no part of it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator._program_tracing.custom_gradients import behind, engine

__all__ = ["NODES", "SILENT", "SUBSTITUTES", "find_outer", "mapped", "track"]

_NO_GRADIENT = "element 0 of tensors does not require grad and does not have a grad_fn"


def find_leaves(roots: Sequence[Any], given: Any) -> Any:
    """The leaves that `backward` writes gradients to; a text where it would write outside."""
    if given is not None:
        found = [given] if isinstance(given, torch.Tensor) else list(given)
    else:
        found = _reached(roots)
    if any(not isinstance(leaf, FakeTensor) for leaf in found):
        return "backward() writes the gradient of a tensor from outside"
    return found


def find_outer(roots: Sequence[Any], tracked: Sequence[Any]) -> bool:
    """Whether gradients may be asked of results beyond those for `tracked`."""
    own = {id(tensor) for tensor in tracked}
    return any(id(leaf) not in own for leaf in _reached(roots))


def put_gradient(leaf: Any, gradient: Any) -> None:
    leaf.grad = gradient


def _reached(roots: Sequence[Any]) -> list[Any]:
    """The leaves of the graphs that end in these tensors."""
    found: list[Any] = []
    left = [*roots]
    known: list[Any] = []
    while left:
        leaves = _leaves(left)
        left = []
        for leaf in leaves:
            if any(leaf is each for each in known):
                continue
            known.append(leaf)
            given = behind(leaf)
            if given is None:
                found.append(leaf)
            else:
                # Gradients go on there by a function of the program's own.
                left.extend(given)
    return found


def _leaves(roots: Sequence[Any]) -> list[Any]:
    """The leaves of PyTorch's graphs that end in these tensors."""
    seen: set[Any] = set()
    found: list[Any] = []
    waiting = [root.grad_fn for root in reversed(roots) if root.grad_fn is not None]
    found.extend(root for root in roots if root.grad_fn is None and root.requires_grad)
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        leaf = getattr(function, "variable", None)
        if leaf is not None and all(leaf is not known for known in found):
            found.append(leaf)
        waiting.extend(
            following for following, _ in reversed(function.next_functions) if following is not None
        )
    return found


def _backward(
    roots: list[Any],
    gradients: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> None:
    leaves = find_leaves(roots, inputs)
    if not leaves:
        raise RuntimeError(_NO_GRADIENT)
    found = torch.autograd.grad(
        roots, leaves, gradients, retain_graph, create_graph, allow_unused=True
    )
    for leaf, gradient in zip(leaves, found, strict=True):
        if gradient is None:
            continue
        before = leaf.grad
        if create_graph:
            put_gradient(leaf, gradient.clone() if before is None else before + gradient)
        elif before is None:
            put_gradient(leaf, gradient.detach().clone())
        else:
            with torch.no_grad():
                before.add_(gradient)


def _tensor_backward(
    self: Any,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    _backward([self], None if gradient is None else [gradient], retain_graph, create_graph, inputs)


def _autograd_backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    if grad_tensors is None:
        grad_tensors = grad_variables
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    if isinstance(grad_tensors, torch.Tensor):
        grad_tensors = [grad_tensors]
    _backward(roots, grad_tensors, retain_graph, create_graph, inputs)


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """The containers in `tree` anew, around changed tensors."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, tuple):
        items = [mapped(change, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if isinstance(tree, list):
        return [mapped(change, item) for item in tree]
    if isinstance(tree, collections.OrderedDict):
        return collections.OrderedDict((key, mapped(change, item)) for key, item in tree.items())
    if isinstance(tree, dict):
        return {key: mapped(change, item) for key, item in tree.items()}
    return tree


def track(tensor: Any) -> Any:
    """A tensor of which gradients are asked; one that has outer gradients keeps them."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def call_tracked(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Sequence[int],
    has_aux: bool,
    name: str,
) -> tuple[Any, Any, list[Any], list[Any]]:
    """What a function gives, and what comes with it; what it was given, and the tensors of which
    gradients may be asked: those at `positions`. Gradients are on."""
    given = list(args)
    tracked: list[Any] = []

    def tracking(tensor: Any) -> Any:
        alias = track(tensor)
        tracked.append(alias)
        return alias

    for position in positions:
        given[position] = mapped(tracking, given[position])
    value = function(*given, **kwargs)
    aux = None
    if has_aux:
        if not (isinstance(value, tuple) and len(value) == 2):
            raise RuntimeError(
                f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
            )
        value, aux = value
    return value, aux, given, tracked


def _differentiate(
    function: Callable[..., Any],
    argnums: int | tuple[int, ...],
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any, Any]:
    """The gradients, the value, and what comes with it."""
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    with torch.enable_grad():
        value, aux, given, tracked = call_tracked(
            function, args, kwargs, positions, has_aux, "grad_and_value(f)(*args)"
        )
        if not isinstance(value, torch.Tensor):
            raise RuntimeError(
                "Expected the given function passed to grad(f)(*args) to return a Tensor, got "
                f"{type(value)}"
            )
        if value.dim() != 0:
            raise RuntimeError(
                "Expected the given function passed to grad(f)(*args) to return a scalar tensor, "
                f"got tensor with {value.dim()} dims. Maybe you wanted to use the vjp or jacrev "
                "APIs instead?"
            )
        outer = find_outer([value], tracked)
        found: tuple[Any, ...] = (None,) * len(tracked)
        if value.requires_grad:
            found = torch.autograd.grad(value, tracked, create_graph=outer, allow_unused=True)
    gradients = [
        torch.zeros_like(tensor) if gradient is None else gradient
        for gradient, tensor in zip(found, tracked, strict=True)
    ]
    waiting = iter(gradients)
    trees = [mapped(lambda _: next(waiting), given[position]) for position in positions]
    if not outer:
        value = value.detach()
        aux = mapped(torch.Tensor.detach, aux)
    return (trees[0] if isinstance(argnums, int) else tuple(trees)), value, aux


def _grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradients, _, aux = _differentiate(func, argnums, has_aux, args, kwargs)
        return (gradients, aux) if has_aux else gradients

    return wrapper


def _grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradients, value, aux = _differentiate(func, argnums, has_aux, args, kwargs)
        return gradients, (value, aux) if has_aux else value

    return wrapper


# Taken as one operation each.
NODES = {"torch.autograd.grad": engine}

# Called while a program is traced, and no part of it.
SILENT = [find_leaves, find_outer, put_gradient]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.Tensor.backward, _tensor_backward),
    (torch.autograd.backward, _autograd_backward),
    (torch.func.grad, _grad),
    (torch.func.grad_and_value, _grad_and_value),
]
