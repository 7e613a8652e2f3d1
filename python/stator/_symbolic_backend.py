"""Graphs with symbolic sizes for PyTorch's own backends.

Inductor and AOTAutograd learn of symbols from example inputs whose sizes are `torch.SymInt`s of a
shape environment, and leave there what they assume of them. That goes with the code, as guards of
it: the graph itself serves every size that the trace's guards admit. So their code is compiled
again, from the same graph, where a call meets sizes that it doesn't serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.source import LocalSource
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from stator._assumptions import Tree, assumption
from stator._fx import Code, Row, graph_module

__all__ = ["compile_symbolic", "is_symbolic"]


def is_symbolic(description: Sequence[Row]) -> bool:
    """Whether an input of the graph is a number, or has a symbolic size."""
    return any(args for op, _, _, args, _, _ in description if op == "placeholder")


def compile_symbolic(
    name: str,
    compile_module: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    description: Sequence[Row],
    inputs: Sequence[Any],
) -> Code:
    """The code that a backend of PyTorch makes of a graph for sizes like those of `inputs`."""
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    sizes = [args for op, _, _, args, _, _ in description if op == "placeholder"]
    examples = _examples(environment, mode, sizes, inputs)
    module = graph_module(description, examples)
    with tracing(TracingContext(mode)):
        run = compile_module(module, examples)
    # Floats are constants of the code, and nothing to the environment.
    same: list[Tree] = [
        ("same", ("input", index), example)
        for index, example in enumerate(examples)
        if isinstance(example, float)
    ]
    others = [index for index, example in enumerate(examples) if not isinstance(example, float)]
    printed = environment.produce_guards(
        [examples[index] for index in others],
        [LocalSource(f"t{index}") for index in others],
        ignore_static=True,
    )
    return Code(run, name, [*same, *map(assumption, printed)])


def _examples(
    environment: Any, mode: Any, sizes: Sequence[tuple[Any, ...]], inputs: Sequence[Any]
) -> list[Any]:
    """Inputs with symbols: fake tensors and `torch.SymInt`s. Equal names are equal symbols."""
    found: dict[str, Any] = {}
    examples: list[Any] = [None] * len(inputs)
    for index, (names, value) in enumerate(zip(sizes, inputs, strict=True)):
        source = LocalSource(f"t{index}")
        if not isinstance(value, torch.Tensor):
            continue
        if not names:
            examples[index] = mode.from_tensor(value, static_shapes=True, source=source)
            continue
        kinds = [DimDynamic.STATIC if name is None else DimDynamic.DYNAMIC for name in names]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        fake = mode.from_tensor(value, symbolic_context=context, source=source)
        examples[index] = fake
        for name, size in zip(names, fake.shape, strict=True):
            if name is not None:
                torch._check(found.setdefault(name, size) == size)  # type: ignore[no-untyped-call]
    for index, (names, value) in enumerate(zip(sizes, inputs, strict=True)):
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, int) and names[0] in found:
            examples[index] = found[names[0]]
        elif isinstance(value, int):
            examples[index] = environment.create_unspecified_symint_and_symbol(
                value, LocalSource(f"t{index}"), DimDynamic.DYNAMIC
            )
        else:
            examples[index] = value
    return examples
