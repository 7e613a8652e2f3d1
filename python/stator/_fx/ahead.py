"""A graph compiled by Inductor ahead of time: what its process does.

What of a library the program has to know goes with it (`stator._fx.libraries`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.fx
from torch._dynamo.source import LocalSource
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx_aot
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator._fakes import fake_mode
from stator._fx.libraries import HopelessError, Look, Made, allocated, ask_for_sizes, tensor_of
from stator._fx.symbolic import fake_inputs, fix_elements
from stator.errors import BackendError

__all__ = ["compile_ahead"]

Sizes: TypeAlias = "Sequence[tuple[str | None, ...]]"
"""The names of each input's symbols, as a description has them."""


def compile_ahead(
    module: torch.fx.GraphModule,
    looks: Sequence[Look],
    sizes: Sizes,
    settings: dict[str, Any],
    *,
    are_sizes_guarded: bool = True,
) -> Made:
    """Has Inductor make a library of a graph. Raises what Inductor does, or BackendError.

    are_sizes_guarded: sizes and strides that don't vary are nothing that the code has to tell.
    """
    inputs = [allocated(value) for value in looks]
    written, numbers = _effects(module, inputs)
    environment = ShapeEnv()
    mode = fake_mode(shape_env=environment, allow_non_fake_inputs=True)
    tensors = [tensor_of(value) for value in inputs]
    # 0 and 1 are constants for PyTorch, and the code is for these then.
    constants = [
        index for index, value in enumerate(inputs) if isinstance(value, int) and value < 2
    ]
    names = [
        (*name, None) if isinstance(value, int) and value >= 2 else _fixed(name, value)
        for name, value in zip(sizes, inputs, strict=True)
    ]
    examples = fake_inputs(environment, mode, names, tensors)
    ask_for_sizes(module, inputs)
    _give_sizes(module, numbers)
    fix_elements(module)
    with tracing(TracingContext(mode)):
        library = compile_fx_aot(module, examples, **settings)
    assert isinstance(library, str)
    sources: Any = [LocalSource(f"t{index}") for index in range(len(examples))]
    guards = environment.produce_guards(examples, sources, ignore_static=are_sizes_guarded)
    # Of where inputs begin in their memory nothing was told.
    guards = [guard for guard in guards if "storage_offset" not in guard]
    guards += [f"L['t{index}'].size()[0] == {inputs[index]}" for index in constants]
    return Made([library], guards, written, numbers)


def _fixed(names: tuple[str | None, ...], value: Look) -> tuple[str | None, ...]:
    """The names of a tensor's sizes; those of one that stands for a number don't vary."""
    return names if isinstance(value, torch.Tensor) else ()


def _give_sizes(module: torch.fx.GraphModule, numbers: Sequence[int]) -> None:
    """Has a graph give integers among its results as sizes of tensors without elements."""
    (end,) = module.graph.find_nodes(op="output")
    results = list(end.args[0])
    kind: dict[str, Any] = {"dtype": torch.float32, "device": torch.device("cpu")}
    with module.graph.inserting_before(end):
        for index in numbers:
            results[index] = module.graph.call_function(
                torch.ops.aten.empty.memory_format, ([results[index], 0],), kind
            )
    end.args = (tuple(results),)
    module.graph.lint()  # type: ignore[no-untyped-call]
    module.recompile()


def _effects(module: torch.fx.GraphModule, inputs: Sequence[Look]) -> tuple[list[int], list[int]]:
    """The inputs that the graph writes to, and the results that are integers.

    Raises where a library would do something else.
    """
    with fake_mode(allow_non_fake_inputs=True) as mode:
        fakes = [
            mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
            for value in inputs
        ]
        tensors = {
            index: value for index, value in enumerate(fakes) if isinstance(value, torch.Tensor)
        }
        before = {index: (_shape(value), value._version) for index, value in tensors.items()}
        given = {value.untyped_storage()._cdata for value in tensors.values()}
        outputs = _run(module, fakes)
        numbers = []
        for index, output in enumerate(outputs):
            # A size can't be negative.
            if type(output) is int and output >= 0:
                numbers.append(index)
                continue
            if not isinstance(output, torch.Tensor):
                raise BackendError("a result is neither a tensor nor a size")
            if output.untyped_storage()._cdata in given:
                raise BackendError("a result shares memory with an input")
        if any(_shape(value) != before[index][0] for index, value in tensors.items()):
            raise BackendError("it changes what an input of it is like")
        written = [index for index, value in tensors.items() if value._version != before[index][1]]
        return written, numbers


def _run(module: torch.fx.GraphModule, fakes: Sequence[Any]) -> Sequence[Any]:
    """What the graph gives for tensors without data. Inductor asks so wherever it compiles."""
    try:
        return module(*fakes)  # type: ignore[no-any-return]
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise
    except Exception as error:
        says = str(error).partition("\n")[0]
        raise HopelessError(
            "PyTorch's compilers refuse an operation of the graph that runs in plain Python "
            f"({type(error).__name__}: {says})"
        ) from error


def _shape(value: torch.Tensor) -> tuple[Any, ...]:
    """What of a tensor isn't data."""
    storage = value.untyped_storage()
    return (
        tuple(value.shape),
        value.stride(),
        value.storage_offset(),
        value.requires_grad,
        storage._cdata,
    )
