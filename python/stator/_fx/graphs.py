"""Recorded graphs as `torch.fx.GraphModule`s, for backends that want one.

The native side describes a graph as rows (`crates/tracer/src/replay/export.rs`); here they become
`torch.fx` nodes of the same names. `torch.fx` keeps them, as they are unique and none of its own.
Where the program has added builtins of such names, it gives others, and nothing depends on that.
Only code that has a use for `torch` imports this module.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx
from torch.fx.node import map_aggregate

from stator._fx import _call
from stator.errors import InternalError

Call: TypeAlias = tuple[str, type | None, int]
"""A call of a module: where the module is found, its class, which of its calls it is."""

Row: TypeAlias = tuple[str, str, Any, tuple[Any, ...], dict[str, Any], str | None, tuple[Call, ...]]
"""Opcode, name, target, args, kwargs, stack trace, the calls of modules it was recorded in."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """Stands for another node in the arguments of a row."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """What a backend has made of a graph with symbols: what runs it, the backend's name, and which
    conditions on the numbers in the inputs have to hold (`stator._fx.assumptions`)."""

    run: Callable[..., Any]
    backend: str
    assumptions: Sequence[Any]
    examples: Sequence[Any] | None = None
    """What the assumptions hold for, if that isn't the call that gets the code: numbers, tensors
    without data."""


def graph_module(description: Sequence[Row], example_inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """The described graph. `example_inputs` belong to its placeholders, in order."""
    builder = _Builder(list(example_inputs))
    for row in description:
        builder.add(*row)
    if builder.examples:
        raise InternalError(f"{len(builder.examples)} inputs more than the graph has placeholders")
    builder.graph.lint()  # type: ignore[no-untyped-call]
    return torch.fx.GraphModule(builder.root, builder.graph)


def is_symbolic(description: Sequence[Row]) -> bool:
    """Whether an input of the graph is a number, or has a symbolic size."""
    return any(args for op, _, _, args, *_ in description if op == "placeholder")


_LITERALS = (
    str, bytes, int, float, complex, enum.Enum, range, type(None), type(Ellipsis),
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
    torch.SymInt, torch.SymFloat, torch.SymBool, torch._ops.OpOverload,
)  # fmt: skip
"""Types whose `repr` the code that `torch.fx` generates can hold. Other objects (generators,
tensors, functions) become attributes of the module."""


def _is_plain_keyword(name: str) -> bool:
    """Whether source code can name an argument so: `f(**{"class": x})` names one as it can't."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _kind(example: Any) -> type:
    if isinstance(example, (int, torch.SymInt)):
        return torch.SymInt
    return torch.SymFloat if isinstance(example, (float, torch.SymFloat)) else torch.Tensor


_PART = re.compile(r"\._(?:modules|parameters|buffers)\[(['\"])([^'\"\]]+)\1\]")


def _module_stack(calls: Sequence[Call]) -> dict[str, tuple[str, type]]:
    """The modules around a node, outermost first, as TorchDynamo has it: without the one that was
    compiled, whose call nobody else has made."""
    stack = {}
    for source, kind, number in calls:
        if kind is not None and source != _COMPILED:
            path = _PART.sub(r".\2", source)
            stack[f"{source}@{number}" if number else source] = (path, kind)
    return stack


_COMPILED = "L['self']"
"""Where `torch.nn.Module.__call__` finds the module that was compiled."""


def _source_function(target: Any, calls: Sequence[Call]) -> Any:
    """What was called: a module of PyTorch's, if one called it."""
    kind = calls[-1][1] if calls else None
    if kind is None or kind.__module__.startswith("torch.nn.modules.container"):
        return target
    return kind if kind.__module__.startswith(("torch.nn.modules", "torch.ao.")) else target


class _Builder:
    def __init__(self, examples: list[Any]) -> None:
        self.graph = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.examples = examples
        self._nodes: dict[str, torch.fx.Node] = {}
        self._attributes: dict[int, str] = {}

    def add(
        self,
        op: str,
        name: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: str | None,
        calls: tuple[Call, ...],
    ) -> None:
        if op == "placeholder":
            self._add_placeholder(name, args)
            return
        if not all(map(_is_plain_keyword, kwargs)):
            target, args, kwargs = _call, (target, args, kwargs), {}
            op = "call_function"
        args, kwargs = map_aggregate((args, kwargs), self._argument)
        node = self.graph.create_node(op, target, args, kwargs, name=name)
        if trace is not None:
            node.meta["stack_trace"] = trace
        if stack := _module_stack(calls):
            node.meta["nn_module_stack"] = stack
        if op != "output":
            node.meta["source_fn_stack"] = [(name, _source_function(target, calls))]
        self._nodes[name] = node

    def _add_placeholder(self, name: str, sizes: tuple[Any, ...]) -> None:
        if not self.examples:
            raise InternalError(f"no input is left for the graph's placeholder {name}")
        example = self.examples.pop(0)
        kind = _kind(example)
        node = self.graph.create_node("placeholder", name, (), {}, name=name, type_expr=kind)
        node.meta["example_value"] = example
        if sizes:
            # The names of what varies.
            node.meta["symbolic_sizes"] = sizes
        self._nodes[name] = node

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Reference):
            return self._nodes[argument.name]
        return argument if isinstance(argument, _LITERALS) else self._attribute(argument)

    def _attribute(self, value: object) -> torch.fx.Node:
        """A node that reads `value` from the module."""
        target = self._attributes.setdefault(id(value), f"_constant_{len(self._attributes)}")
        setattr(self.root, target, value)
        return self.graph.create_node("get_attr", target, (), {})


def without_report(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What a backend has returned. A graph module becomes its hooks and its code alone: called as
    itself, it writes to the standard error stream where its code raises, also what the program
    handles."""
    if not isinstance(compiled, torch.fx.GraphModule):
        return compiled
    wrapped = getattr(type(compiled), "_wrapped_call", None)
    has_own_call = getattr(wrapped, "cls_call", None) is not None
    return compiled if has_own_call else functools.partial(torch.nn.Module.__call__, compiled)
