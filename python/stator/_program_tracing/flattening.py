"""One program for many rows: what a program gives for each of them, as operations on all of them.

Its operations are executed on tensors without data by the rules of `torch.vmap`, and those that
PyTorch then executes, gradients' included, are taken note of. So there are as many as for one row,
more or less, however many rows there are; and they can be part of another program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from stator._program_tracing import TensorSpec
from stator._program_tracing.batching import NotBatchableError, run_together
from stator._program_tracing.casting import without_autocast
from stator._program_tracing.table import name_of

__all__ = ["flattened"]


def flattened(
    run: Callable[[tuple[torch.Tensor, ...]], Sequence[Any]],
    inputs: Sequence[TensorSpec],
    shared: int,
    count: int,
    is_pure: bool,
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """What `run` gives for each of `count` rows, with a first dimension of rows: a function to be
    traced, of the inputs.

    inputs: the types of `run`'s inputs, whose sizes are known.
    shared: how many of them, the first ones, are the same for all rows. The others have a first
        dimension of rows.
    is_pure: whether it draws no random numbers, so that it can be looked whether rows together give
        what they give alone.

    Raises `NotBatchableError` or whatever PyTorch raises where that can't be done.
    """

    def together(*tensors: torch.Tensor) -> list[Any]:
        same = [tensor.expand(count, *tensor.shape) for tensor in tensors[:shared]]
        return run_together(run, [*same, *tensors[shared:]], count, draws=True)

    examples = []
    for index, spec in enumerate(inputs):
        sizes = [size for size in spec.shape if size is not None]
        if len(sizes) != len(spec.shape):
            raise NotBatchableError(f"the sizes of its input {index}, {spec}, aren't known")
        rows = [] if index < shared else [count]
        examples.append(torch.zeros([*rows, *sizes], dtype=spec.dtype))
    # Attention of other kinds is one operation, whose gradient programs don't have.
    with sdpa_kernel(SDPBackend.MATH):
        module = make_fx(
            together, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True
        )(*examples)
    module.graph.eliminate_dead_code()
    steps = _Steps(module)
    if is_pure:
        _check(run, steps, examples, shared, count)
    return steps


def _check(
    run: Callable[[tuple[torch.Tensor, ...]], Sequence[Any]],
    steps: _Steps,
    examples: Sequence[torch.Tensor],
    shared: int,
    count: int,
) -> None:
    """Raises `NotBatchableError` if rows together give something else than a row alone, for some
    that are made up: not all of PyTorch's rules for `vmap` are right."""
    drawn = torch.Generator().manual_seed(0)
    given = [
        torch.randn(each.shape, generator=drawn, dtype=torch.float64).to(each.dtype)
        if each.dtype.is_floating_point
        else torch.arange(each.numel()).reshape(each.shape).remainder(2).to(each.dtype)
        for each in examples
    ]
    with torch.inference_mode(False), torch.enable_grad(), without_autocast():
        together = steps([tensor.clone() for tensor in given])
        for at in {0, count - 1}:
            row = [*given[:shared], *(tensor[at] for tensor in given[shared:])]
            alone = run(tuple(tensor.clone() for tensor in row))
            for found, expected in zip(together, alone, strict=True):
                magnitudes = expected.detach().abs().nan_to_num(0, 0, 0)
                largest = magnitudes.max().item() if magnitudes.numel() else 0.0
                precise = expected.dtype.is_floating_point or expected.dtype.is_complex
                tolerance = torch.finfo(expected.dtype).eps ** 0.5 * largest if precise else 0
                if not torch.allclose(
                    found[at].detach(), expected.detach(), 0, tolerance, equal_nan=True
                ):
                    raise NotBatchableError("rows together give something else than rows alone")


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """What PyTorch's private operations, which programs don't have, are made of."""
    return {
        operation: made
        for operation, made in decomposition_table.items()
        if isinstance(operation, torch._ops.OpOverload)
        and operation._schema.name.startswith("aten::_")
        and operation is not _CONVERSION
    }


_CONVERSION = torch.ops.aten._to_copy.default
_SLICE = torch.ops.aten.slice.Tensor


_mapped: Any = torch.fx.node.map_arg


class _Place:
    """Where a value is among those that there are."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Steps:
    """The operations of a graph, one after the other."""

    def __init__(self, module: Any) -> None:
        self._constants: list[Any] = []
        self._steps: list[tuple[Any, Any, Any]] = []
        self._outputs: Any = ()
        places: dict[Any, _Place] = {}

        def placed(of: Any) -> Any:
            return _mapped(of, lambda node: places[node])

        nodes = list(module.graph.nodes)
        given = [node for node in nodes if node.op == "placeholder"]
        constants = [node for node in nodes if node.op == "get_attr"]
        for node in (*given, *constants):
            places[node] = _Place(len(places))
        self._constants = [getattr(module, node.target) for node in constants]
        for node in nodes:
            if node.op == "output":
                self._outputs = placed(list(node.args[0]))
            elif node.op == "call_function" and node.target is torch.ops.aten.detach.default:
                # Nobody takes gradients of what is here.
                places[node] = places[node.args[0]]
            elif node.op == "call_function":
                target, kwargs = node.target, dict(node.kwargs)
                if target is _CONVERSION:
                    target, kwargs = _converted, {"dtype": kwargs.get("dtype")}
                elif target is _SLICE:
                    target = _sliced
                elif isinstance(target, torch._ops.OpOverload) and name_of(target) is None:
                    raise NotBatchableError(f"programs may not use {target}")
                at = len(given) + len(constants) + len(self._steps)
                self._steps.append((target, placed(list(node.args)), placed(kwargs)))
                places[node] = _Place(at)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = [*tensors, *self._constants]
        for target, args, kwargs in self._steps:
            named = {name: _filled(value, values) for name, value in kwargs.items()}
            values.append(target(*[_filled(value, values) for value in args], **named))
        return [_filled(output, values) for output in self._outputs]


def _converted(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor if dtype is None else tensor.to(dtype)


def _sliced(
    tensor: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> torch.Tensor:
    place = dim % tensor.dim()
    return tensor[(*[slice(None)] * place, slice(start, end, step))]


def _filled(value: Any, values: list[Any]) -> Any:
    """An argument with the values of the places in it."""
    if isinstance(value, _Place):
        return values[value.index]
    if isinstance(value, (list, tuple)):
        return [_filled(item, values) for item in value]
    return value
