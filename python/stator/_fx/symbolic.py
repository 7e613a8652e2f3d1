"""Graphs with symbolic sizes for PyTorch's own backends.

Inductor and AOTAutograd learn of symbols from example inputs whose sizes are `torch.SymInt`s of a
shape environment, and leave there what they assume of them. That goes with the code, as guards of
it: the graph itself serves every size that the trace's guards admit. So their code is compiled
again, from the same graph, where a call meets sizes that it doesn't serve.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.source import FloatTensorSource, LocalSource
from torch._guards import TracingContext, tracing
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from stator._fakes import fake_mode
from stator._fx.assumptions import Tree, assumption
from stator._fx.computed import Computed
from stator._fx.graphs import Code, Row, graph_module
from stator._internal import from_handler

__all__ = ["compile_symbolic", "fake_inputs", "fix_elements"]


def compile_symbolic(
    name: str,
    compile_module: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    description: Sequence[Row],
    inputs: Sequence[Any],
) -> Code:
    """The code that a backend of PyTorch makes of a graph for sizes like those of `inputs`."""
    if any(isinstance(value, float) for value in inputs):
        handled = sys.exception()
        try:
            return _compile(name, compile_module, description, inputs, _Floats.SYMBOLS)
        except Exception as error:
            # Not all that is done with floats can be said of tensors.
            if from_handler(error, handled) is not None:
                raise
    return _compile(name, compile_module, description, inputs, _Floats.CONSTANTS)


class _Floats(enum.Enum):
    """What the floats in a graph's inputs are for the backend."""

    CONSTANTS = enum.auto()
    SYMBOLS = enum.auto()
    """Elements of tensors without dimensions, as `torch.compile` has it: PyTorch's compilers take
    no `torch.SymFloat`s, and make operations on tensors of what is done with such an element."""


def _compile(
    name: str,
    compile_module: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    description: Sequence[Row],
    inputs: Sequence[Any],
    floats: _Floats,
) -> Code:
    environment = ShapeEnv()
    mode = fake_mode(shape_env=environment, allow_non_fake_inputs=True)
    sizes = [args for op, _, _, args, *_ in description if op == "placeholder"]
    examples = fake_inputs(environment, mode, sizes, inputs)
    numbers = [index for index, value in enumerate(inputs) if isinstance(value, float)]
    if floats is _Floats.CONSTANTS:
        # They are nothing to the environment.
        same = [("same", ("input", index), examples[index]) for index in numbers]
        module = graph_module(description, examples)
        fix_elements(module)
        with tracing(TracingContext(mode)):
            run = compile_module(module, examples)
        return Code(run, name, [*same, *_assumptions(environment, examples, ())])
    module = graph_module(description, examples)
    computed = Computed(module.graph, inputs, are_assumed=True)
    values = [*inputs, *computed.values]
    numbers += range(len(inputs), len(values))
    if any(values[index] == 0 and math.copysign(1, values[index]) < 0 for index in numbers):
        # The symbol of a zero is a constant, which has no sign.
        return _compile(name, compile_module, description, inputs, _Floats.CONSTANTS)
    examples += computed.values
    for index in numbers:
        source = FloatTensorSource(LocalSource(f"t{index}"))
        examples[index] = mode.from_tensor(_element(values[index]), source=source)
    _take_elements(module, numbers)
    fix_elements(module)
    with tracing(TracingContext(mode)):
        run = compile_module(module, examples)
    # What is assumed to equal zero is a constant of the code's, with the sign that it had.
    zeros = [("same", ("input", index), values[index]) for index in numbers if values[index] == 0]
    assumptions = [*zeros, *_assumptions(environment, examples, numbers)]
    run = _with_elements(run, numbers, computed)
    return Code(run, name, list(map(computed.of_inputs, assumptions)))


def _assumptions(
    environment: ShapeEnv, examples: Sequence[Any], elements: Sequence[int]
) -> Iterator[Tree]:
    """What a backend has assumed of the numbers in inputs; `elements` are those that are floats."""
    known = {
        index: example.item_memo if index in elements else example
        for index, example in enumerate(examples)
        if not isinstance(example, float)
    }
    sources = [LocalSource(f"t{index}") for index in known]
    printed = environment.produce_guards(list(known.values()), sources, ignore_static=True)
    return map(assumption, printed)


def _element(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, device="cpu")


def _take_elements(module: torch.fx.GraphModule, indices: Sequence[int]) -> None:
    """Has a graph read floats from the tensors that come for them."""
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    for index in indices:
        node = placeholders[index]
        node.type = torch.Tensor
        with module.graph.inserting_after(placeholders[-1]):
            element = module.graph.call_method("item", (node,))
        node.replace_all_uses_with(
            element, delete_user_cb=lambda user, own=element: user is not own
        )
    module.graph.lint()  # type: ignore[no-untyped-call]
    module.recompile()


def fix_elements(module: torch.fx.GraphModule) -> None:
    """Has calls that make tensors of numbers take the numbers' values: PyTorch keeps 32 bits of a
    `torch.SymInt` there. The values are among what is assumed then."""
    for node in module.graph.nodes:
        name = node.target if node.op == "call_method" else _MAKERS.get(node.target)
        is_maker = node.op == "call_function" or name == "new_tensor"
        if name is not None and is_maker and node.all_input_nodes:
            node.args = (name, *node.args)
            node.op, node.target = "call_function", _made_of_values
    module.graph.lint()  # type: ignore[no-untyped-call]
    module.recompile()


_MAKERS: dict[Any, str] = {
    getattr(torch, name): name for name in ("tensor", "as_tensor", "asarray", "sparse_coo_tensor")
}


def _made_of_values(name: str, *args: Any, **kwargs: Any) -> Any:
    maker = getattr(torch, name) if hasattr(torch, name) else torch.Tensor.new_tensor
    return maker(*map(_value, args), **{name: _value(arg) for name, arg in kwargs.items()})


def _value(argument: Any) -> Any:
    if isinstance(argument, torch.SymInt):
        return int(argument)
    if isinstance(argument, torch.SymFloat):
        return float(argument)
    if isinstance(argument, torch.SymBool):
        return bool(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)(map(_value, argument))
    return argument


def _with_elements(
    run: Callable[..., Any], indices: Sequence[int], computed: Computed
) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        given = [*inputs, *computed.of(inputs)]
        for index in indices:
            given[index] = _element(given[index])
        return run(*given)

    return call


def fake_inputs(
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
