"""What `torch.func` makes of functions, in tensor programs: by gradients, and by loops.

`vjp` and the Jacobians are gradients. `jvp` is one too: the gradient of a gradient with respect to
what that one began with. `vmap` calls its function for one row after the other, so a program is
longer the more rows there are, and their number has to be known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator._program_tracing.autograd import call_tracked, find_outer, mapped

__all__ = ["SILENT", "SUBSTITUTES", "begin", "end", "refused_draw"]


class _Applied:
    """A function's value, whose gradients may be asked for."""

    def __init__(
        self,
        function: Callable[..., Any],
        given: Sequence[Any],
        positions: Sequence[int],
        has_aux: bool,
        name: str,
    ) -> None:
        with torch.enable_grad():
            called = call_tracked(function, given, {}, positions, has_aux, name)
        self.value, self.aux, _, self.tracked = called
        self.outputs = _tensors(self.value, name)
        self.is_outer = find_outer(self.outputs, self.tracked)

    def told(self, tree: Any) -> Any:
        """What is given back: without a history, unless somebody asks for outer gradients."""
        return tree if self.is_outer else mapped(torch.Tensor.detach, tree)

    def back(
        self,
        outputs: Sequence[Any],
        starts: Sequence[Any],
        are_many: bool = False,
        is_outer: bool = False,
    ) -> list[Any]:
        """The gradients of outputs, each times a start; with a first dimension, if the starts have
        one."""
        pairs = [
            (output, start)
            for output, start in zip(outputs, starts, strict=True)
            if output.requires_grad
        ]
        found: Any = [None] * len(self.tracked)
        if pairs:
            outer = is_outer or self.is_outer or _ask_gradients(starts)
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                self.tracked,
                [start for _, start in pairs],
                retain_graph=True,
                create_graph=outer,
                allow_unused=True,
                is_grads_batched=are_many,
            )
        first = [starts[0].shape[0]] if are_many else []
        return [
            tensor.new_zeros([*first, *tensor.shape]) if gradient is None else gradient
            for gradient, tensor in zip(found, self.tracked, strict=True)
        ]

    def forth(self, tangents: Sequence[Any]) -> Any:
        """How the outputs change along the tangents, in containers as the value has them."""
        outputs = [output for output in self.outputs if output.requires_grad]
        found: Any = ()
        if outputs:
            starts = [torch.zeros_like(output).requires_grad_() for output in outputs]
            with torch.enable_grad():
                back = torch.autograd.grad(
                    outputs, self.tracked, starts, create_graph=True, allow_unused=True
                )
            pairs = [
                (gradient, tangent)
                for gradient, tangent in zip(back, tangents, strict=True)
                if gradient is not None and gradient.requires_grad
            ]
            found = [None] * len(outputs)
            if pairs:
                outer = self.is_outer or _ask_gradients(tangents)
                found = torch.autograd.grad(
                    [gradient for gradient, _ in pairs],
                    starts,
                    [tangent for _, tangent in pairs],
                    retain_graph=True,
                    create_graph=outer,
                    allow_unused=True,
                )
        waiting = iter(found)

        def along(output: Any) -> Any:
            moved = next(waiting) if output.requires_grad else None
            return torch.zeros_like(output) if moved is None else moved

        return mapped(along, self.value)


def _ask_gradients(tensors: Sequence[Any]) -> bool:
    return any(tensor.requires_grad for tensor in tensors)


def _tensors(tree: Any, name: str) -> list[Any]:
    """The tensors of a tree; there is nothing else in it, and one at least."""
    found: list[Any] = []

    def add(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    _each(add, tree, name)
    if not found:
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output")
    return found


def _each(function: Callable[[Any], Any], tree: Any, name: str) -> None:
    if isinstance(tree, torch.Tensor):
        function(tree)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            _each(function, item, name)
    elif isinstance(tree, dict):
        for item in tree.values():
            _each(function, item, name)
    else:
        raise RuntimeError(f"{name}: Expected only Tensors, got {type(tree)}")


def _vjp(func: Any, *primals: Any, has_aux: bool = False) -> Any:
    name = "vjp(f, *primals)"
    applied = _Applied(func, primals, range(len(primals)), has_aux, name)

    def back(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        starts = _tensors(cotangents, name)
        if len(starts) != len(applied.outputs):
            raise RuntimeError(
                f"{name}: {len(applied.outputs)} tensors as cotangents expected, not {len(starts)}"
            )
        gradients = applied.back(applied.outputs, starts, is_outer=bool(create_graph))
        waiting = iter(gradients)
        return tuple([mapped(lambda _: next(waiting), primal) for primal in primals])

    value = applied.told(applied.value)
    return (value, back, applied.told(applied.aux)) if has_aux else (value, back)


def _jvp(
    func: Any,
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{name}: Expected primals to be a tuple.")
    applied = _Applied(func, primals, range(len(primals)), has_aux, name)
    along = _tensors(tangents, name)
    if len(along) != len(applied.tracked):
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure: "
            f"{len(applied.tracked)} tensors, not {len(along)}"
        )
    found = applied.told(applied.value), applied.forth(along)
    return (*found, applied.told(applied.aux)) if has_aux else found


def _linearize(func: Any, *primals: Any) -> Any:
    name = "linearize(f, *primals)"
    applied = _Applied(func, primals, range(len(primals)), False, name)

    def forth(*tangents: Any) -> Any:
        return applied.forth(_tensors(tangents, name))

    return applied.told(applied.value), forth


def _jacobian(func: Any, argnums: Any = 0, has_aux: bool = False, **how: Any) -> Callable[..., Any]:
    """`how` says what takes how much memory, and nothing else."""
    name = "jacrev(f, *args)"

    def jacobian(*args: Any) -> Any:
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        applied = _Applied(func, args, positions, has_aux, name)

        def of_output(output: Any) -> Any:
            count = output.numel()
            ones = torch.eye(count, dtype=output.dtype).reshape(count, *output.shape)
            found = iter(applied.back([output], [ones], are_many=True))
            trees = [
                mapped(lambda of: next(found).reshape(*output.shape, *of.shape), args[position])
                for position in positions
            ]
            return trees[0] if isinstance(argnums, int) else tuple(trees)

        found = mapped(of_output, applied.value)
        return (found, applied.told(applied.aux)) if has_aux else found

    return jacobian


def _hessian(func: Any, argnums: Any = 0) -> Callable[..., Any]:
    return _jacobian(_jacobian(func, argnums), argnums)


def _vmap(
    func: Any,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        enter_rows(randomness == "different")
        try:
            return _of_rows(func, in_dims, out_dims, args, kwargs)
        finally:
            leave_rows()

    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if randomness == "same":
        refuse_randomness()
    return wrapped


def refuse_randomness() -> str:
    return "`vmap` with `randomness='same'`"


_ROWS = threading.local()


def begin() -> list[bool]:
    """Begins a trace that is in no `vmap`; gives what the thread was in before."""
    before: list[bool] = getattr(_ROWS, "may_draw", [])
    _ROWS.may_draw = []
    return before


def end(before: list[bool]) -> None:
    _ROWS.may_draw = before


def enter_rows(may_draw: bool) -> None:
    """What follows is done for rows, until `leave_rows`."""
    _ROWS.may_draw.append(may_draw)


def leave_rows() -> None:
    _ROWS.may_draw.pop()


def refused_draw(func: Any) -> RuntimeError | None:
    """What PyTorch raises where an operation draws numbers within a `vmap` that allows none."""
    if not _ROWS.may_draw or _ROWS.may_draw[-1] or _DRAWS not in func.tags:
        return None
    return RuntimeError(
        "vmap: called random operation while in randomness error mode. Please either use the "
        "'same' or 'different' randomness flags on vmap or perform the randomness operation out of "
        "vmap"
    )


_DRAWS = torch.Tag.nondeterministic_seeded


def _of_rows(
    func: Any, in_dims: Any, out_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a function gives for each row, one after the other."""
    dims = in_dims if isinstance(in_dims, (tuple, list)) else [in_dims] * len(args)
    if len(dims) != len(args):
        raise ValueError(
            f"vmap(f, in_dims={in_dims}, ...)(<inputs>): in_dims is for {len(dims)} inputs, and "
            f"there are {len(args)}"
        )
    counts: list[int] = []
    for arg, dim in zip(args, dims, strict=True):
        _count(arg, dim, counts)
    if not counts:
        raise ValueError(
            f"vmap(f, in_dims={in_dims}, ...)(<inputs>): there is no dimension to map over"
        )
    if counts != [counts[0]] * len(counts):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{counts} for the mapped dimension"
        )
    rows = []
    for at in range(counts[0]):
        row = [_row(arg, dim, at) for arg, dim in zip(args, dims, strict=True)]
        rows.append(func(*row, **kwargs))
    return _stacked(rows, out_dims)


def _parts(tree: Any, dims: Any) -> list[tuple[Any, Any]]:
    """What is in a container, with what is said of its dimensions."""
    items = list(tree.values()) if isinstance(tree, dict) else list(tree)
    if isinstance(dims, dict):
        return list(zip(items, [dims[key] for key in tree], strict=True))
    if isinstance(dims, (tuple, list)):
        return list(zip(items, dims, strict=True))
    return [(item, dims) for item in items]


def _count(tree: Any, dims: Any, counts: list[int]) -> None:
    """Adds how many rows there are in a tree."""
    if dims is None:
        return
    if isinstance(tree, torch.Tensor):
        counts.append(tree.shape[dims])
    elif isinstance(tree, (tuple, list, dict)):
        for item, dim in _parts(tree, dims):
            _count(item, dim, counts)
    else:
        raise ValueError(
            f"vmap: Got in_dim={dims} for an input but the input is of type {type(tree)}"
        )


def _row(tree: Any, dims: Any, at: int) -> Any:
    """What the function is given for one row."""
    if dims is None:
        return tree
    if isinstance(tree, torch.Tensor):
        return tree.select(dims, at)
    return _like(tree, [_row(item, dim, at) for item, dim in _parts(tree, dims)])


def _like(tree: Any, items: list[Any]) -> Any:
    """A container as `tree` is."""
    if isinstance(tree, dict):
        return type(tree)(zip(tree, items, strict=True))
    if isinstance(tree, list):
        return items
    return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)


def _stacked(rows: list[Any], dims: Any) -> Any:
    first = rows[0]
    if isinstance(first, torch.Tensor):
        return first if dims is None else torch.stack(rows, dims)
    if not isinstance(first, (tuple, list, dict)):
        raise ValueError(
            f"vmap(f, ...): `f` must only return Tensors, got type {type(first)} as a return."
        )
    columns = [list(row.values()) if isinstance(row, dict) else list(row) for row in rows]
    items = [
        _stacked([column[at] for column in columns], dim)
        for at, (_, dim) in enumerate(_parts(first, dims))
    ]
    return _like(first, items)


# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [refuse_randomness, enter_rows, leave_rows]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.func.vjp, _vjp),
    (torch.func.jvp, _jvp),
    (torch.func.linearize, _linearize),
    (torch.func.jacrev, _jacobian),
    (torch.func.jacfwd, _jacobian),
    (torch.func.hessian, _hessian),
    (torch.vmap, _vmap),
]
