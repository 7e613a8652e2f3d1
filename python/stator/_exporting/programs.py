"""A recorded call as a `torch.export.ExportedProgram`.

A module is made that has the state of the one exported and runs the graph; `torch.export` traces
that into operators of ATen, with signature, verifier and ranges of its own. So whatever
`torch.export` knows to be wrong with a program is found by it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.export
import torch.fx
from torch.fx import traceback as fx_traceback
from torch.utils import _pytree as pytree

from stator._collection import without_collection
from stator._exporting.recording import (
    Argument,
    Constant,
    Output,
    Recorded,
    Size,
    State,
    Value,
    copied,
    frames_of,
    names_of,
    record,
)
from stator._suggest import describe
from stator.errors import ExportError, NotCompilableError, OptionError

__all__ = ["exported"]


def exported(
    target: Any, args: Sequence[Any], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """The work of `stator.export`."""
    if not callable(target):
        raise NotCompilableError(f"stator.export takes a callable, not {describe(target)}.")
    if not isinstance(args, tuple | list):
        raise OptionError(f"stator.export takes a tuple of arguments, not {describe(args)}.")
    target = getattr(target, "_orig_mod", target)
    args = tuple(args)
    module = _module_of(target)
    if hasattr(dynamic_shapes, "dynamic_shapes"):
        # A `torch.export.ShapesCollection` knows tensors by identity.
        dynamic_shapes = dynamic_shapes.dynamic_shapes(target, args, kwargs)
    recorded = record(target, module, args, kwargs, dynamic_shapes)
    holder = _holder(target, module, recorded)
    # What is one tensor twice here may be two in a call of the program.
    example, named = copied(args, kwargs)
    try:
        # Whatever this thread does is taken for the function's: a generator that was left within
        # `torch.no_grad()` switches gradients when it's collected.
        with without_collection():
            return torch.export.export(holder, example, named, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise _explained(error, holder.interpreter, recorded) from error


def _module_of(target: Any) -> torch.nn.Module | None:
    """The module whose state is the program's."""
    owner = getattr(target, "__self__", target)
    return owner if isinstance(owner, torch.nn.Module) else None


class _Interpreter(torch.fx.Interpreter):
    """Runs the graph, and knows where it is."""

    at: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        self.at = n
        return super().run_node(n)


class _Holder(torch.nn.Module):
    """Has the state of the module that is exported, and runs the graph of its call.

    Each program has a subclass, whose `forward` has the signature of the function.
    """

    interpreter: _Interpreter


def _holder(target: Any, module: torch.nn.Module | None, recorded: Recorded) -> _Holder:
    inputs = list(recorded.inputs)
    graph = recorded.graph
    root = type(target if module is None else module)
    _name_modules(graph, root)
    is_called = isinstance(target, torch.nn.Module)

    def forward(self: _Holder, *args: Any, **kwargs: Any) -> Any:
        return _run(self, recorded, inputs, leaves, args, kwargs, target)

    own = inspect.signature(target.forward if is_called else target)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    named = [
        each.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if each.kind is inspect.Parameter.POSITIONAL_ONLY
        else each
        for each in own.parameters.values()
    ]
    forward.__signature__ = inspect.Signature([itself, *named])  # type: ignore[attr-defined]
    kind: type[_Holder] = type(root.__name__, (_Holder,), {"forward": forward})
    holder = kind()
    if module is not None:
        holder.training = module.training
        holder._parameters = dict(module._parameters)
        holder._buffers = dict(module._buffers)
        holder._modules = dict(module._modules)
        holder._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    holder.__dict__["interpreter"] = _Interpreter(graph)
    inputs[:] = [_kept(holder, value) for value in inputs]
    kept = {
        id(old.value): new
        for old, new in zip(recorded.inputs, inputs, strict=True)
        if isinstance(old, Constant)
    }
    leaves = [
        kept[id(leaf.value)] if isinstance(leaf, Constant) and leaf.source else leaf
        for leaf in recorded.leaves
    ]
    return holder


def _kept(holder: _Holder, value: Value) -> Value:
    """Tensors from outside are kept by the holder, under names made from where they were."""
    if not isinstance(value, Constant) or not isinstance(value.value, torch.Tensor):
        return value
    path = _PART.sub("", value.source) or value.source
    base = re.sub(r"\W+", "_", path).strip("_") or "constant"
    name, count = base, 0
    while hasattr(holder, name):
        count += 1
        name = f"{base}_{count}"
    if isinstance(value.value, torch.nn.Parameter):
        holder.register_parameter(name, value.value)
    elif "._buffers[" in value.source:
        holder.register_buffer(name, value.value)
    else:
        setattr(holder, name, value.value)
    return State(name)


_PART = re.compile(r"^L\['self'\]\.?")


def _name_modules(graph: torch.fx.GraphModule, root: type) -> None:
    """Names modules as `torch.export` does: relative to the root, which is called nothing."""
    kind = f"{root.__module__}.{root.__qualname__}"
    for node in graph.graph.nodes:
        stack = {"": ("", kind)}
        for key, (path, each) in node.meta.get("nn_module_stack", {}).items():
            name = f"{each.__module__}.{each.__qualname__}"
            stack[_PART.sub("", key)] = (_PART.sub("", path), name)
        node.meta["nn_module_stack"] = stack


def _run(
    holder: _Holder,
    recorded: Recorded,
    inputs: Sequence[Value],
    results: Sequence[Value],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Any,
) -> Any:
    """What the function does, by its graph."""
    given = pytree.tree_leaves((args, {name: kwargs[name] for name in recorded.keywords}))
    if recorded.facts:
        names = {"L": names_of(target, args, kwargs, holder), **_FUNCTIONS}
        for fact in recorded.facts:
            # It was printed by Stator: comparisons of sizes, nothing else.
            torch._check(eval(fact, {"__builtins__": {}}, names), lambda fact=fact: fact)  # type: ignore[no-untyped-call]
    # What was read of a buffer that is replaced stays what it was.
    before = {name: _state(holder, name).clone() for name in recorded.assigned}

    def found(value: Value, outputs: Sequence[Any] = ()) -> Any:
        match value:
            case Argument(index):
                return given[index]
            case State(name):
                return before[name] if name in before else _state(holder, name)
            case Constant(constant):
                return constant
            case Size(index, dim):
                return found(inputs[index]).shape[dim]
            case Output(index):
                return outputs[index]

    with fx_traceback.preserve_node_meta():
        outputs = holder.interpreter.run(*map(found, inputs))
    holder.interpreter.at = None
    for name, index in recorded.assigned.items():
        _state(holder, name).copy_(outputs[index].detach())
    leaves = [found(value, outputs) for value in results]
    return pytree.tree_unflatten(leaves, recorded.structure)


def _state(holder: _Holder, name: str) -> Any:
    """A parameter, buffer or kept constant."""
    path, _, last = name.rpartition(".")
    return getattr(holder.get_submodule(path), last)


_OF_MATH = ("log", "log2", "log10", "exp", "sin", "cos", "tanh", "sqrt")

_FUNCTIONS = {
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "Mod": lambda a, b: a % b,
    "Abs": abs,
    "float": torch.sym_float,
    "trunc": torch.sym_int,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    **{name: getattr(torch, f"_sym_{name}", getattr(math, name)) for name in _OF_MATH},
}
"""What is called in facts."""


def _explained(error: Exception, interpreter: _Interpreter, recorded: Recorded) -> ExportError:
    """What torch.export has against a program, with the line of the user's that it met."""
    text = str(error).strip()
    for end in ("\n\nWhile executing", "\n\nThe error above occurred when calling"):
        text = text.split(end)[0]
    why = "torch.export refuses its graph"
    if interpreter.at is not None:
        hint = (
            "The operation can't be exported: use another one, or leave it out of what you export."
        )
        return ExportError(f"{type(error).__name__}: {text}", hint, frames_of(interpreter.at), why)
    hint = "Change dynamic_shapes, or let the function not depend on these sizes."
    return ExportError(f"{type(error).__name__}: {text}", hint, recorded.places, why)
