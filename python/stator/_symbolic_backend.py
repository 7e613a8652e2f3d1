"""Graphs with symbolic sizes for PyTorch's own backends.

Inductor and AOTAutograd learn of symbols from example inputs whose sizes are `torch.SymInt`s of a
shape environment, and leave there what they assume of them. What they assume holds for their code
only: the graph itself serves every size that Stator's guards admit. So their code is compiled
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
    SYMPY_INTERP,
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from stator._fx import Row, graph_module

__all__ = ["SymbolicBackend", "is_symbolic"]


def is_symbolic(description: Sequence[Row]) -> bool:
    """Whether an input of the graph is a number, or has a symbolic size."""
    return any(args for op, _, _, args, _, _ in description if op == "placeholder")


class _Version:
    """The code for one set of assumptions."""

    def __init__(
        self, run: Callable[..., Any], guards: str | None, fixed: dict[int, float]
    ) -> None:
        self.run = run
        self._fixed = fixed
        # What a shape environment prints reads `L['t0']`, `L['t1']`, ...
        code = compile(guards or "True", "<guards of the backend>", "eval")
        self._holds: Callable[[dict[str, Any]], bool] = lambda local: eval(
            code, SYMPY_INTERP, {"L": local}
        )

    def serves(self, inputs: Sequence[Any]) -> bool:
        if any(repr(inputs[index]) != repr(value) for index, value in self._fixed.items()):
            return False
        return bool(self._holds({f"t{index}": value for index, value in enumerate(inputs)}))


class SymbolicBackend:
    """One graph with symbols, and the code that a backend of PyTorch has made of it so far."""

    def __init__(
        self,
        compile_module: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
        description: Sequence[Row],
    ) -> None:
        self._compile_module = compile_module
        self._description = description
        self._versions: list[_Version] = []

    def __call__(self, *inputs: Any) -> Any:
        for version in self._versions:
            if version.serves(inputs):
                return version.run(*inputs)
        version = self.compile(inputs)
        return version.run(*inputs)

    def compile(self, inputs: Sequence[Any]) -> _Version:
        """Compiles the graph for sizes like those of `inputs`."""
        environment = ShapeEnv()
        mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
        sizes = [args for op, _, _, args, _, _ in self._description if op == "placeholder"]
        examples = _examples(environment, mode, sizes, inputs)
        module = graph_module(self._description, examples)
        with tracing(TracingContext(mode)):
            run = self._compile_module(module, examples)
        fixed = {
            index: example for index, example in enumerate(examples) if isinstance(example, float)
        }
        placeholders: Any = [0 if index in fixed else at for index, at in enumerate(examples)]
        guards = environment.produce_guards_expression(placeholders)
        version = _Version(run, guards, fixed)
        self._versions.append(version)
        return version


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
