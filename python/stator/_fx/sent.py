"""A graph as bytes that another process of the same program makes a graph of.

`torch.fx` writes a graph as code and traces that again, which fails where an operation takes only
numbers (`torch.zeros(n)`). Here its nodes are written as they are, and what they call by name.
"""

from __future__ import annotations

import io
import pickle
import pkgutil
import types
from typing import Any

import torch
import torch.fx
from torch.fx.node import _get_qualified_name, map_aggregate, map_arg

from stator._fx.graphs import Reference

__all__ = ["pack", "unpack"]

_CALLABLES = (
    types.BuiltinFunctionType,
    types.FunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)


def pack(module: torch.fx.GraphModule) -> bytes:
    """Raises an error of some kind if something in the graph can't be written."""

    def refer(node: torch.fx.Node) -> Any:
        return Reference(node.name)

    def written(argument: Any) -> Any:
        return map_arg(argument, refer)

    nodes = [
        (node.op, node.name, node.target, written(node.args), written(node.kwargs), node.type)
        for node in module.graph.nodes
    ]
    names = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    attributes = {name: getattr(module, name) for name in names}
    for value in attributes.values():
        # A copy of a generator, say, isn't the program's.
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise pickle.PicklingError(f"it uses a {type(value).__name__} of this process")
    file = io.BytesIO()
    _Writer(file).dump((nodes, attributes))
    return file.getvalue()


def unpack(packed: bytes) -> torch.fx.GraphModule:
    """The graph."""
    rows, attributes = _Reader(io.BytesIO(packed)).load()
    graph, root = torch.fx.Graph(), torch.nn.Module()
    for name, value in attributes.items():
        setattr(root, name, value)
    nodes: dict[str, torch.fx.Node] = {}

    def read(argument: Any) -> Any:
        return nodes[argument.name] if isinstance(argument, Reference) else argument

    for op, name, target, args, kwargs, kind in rows:
        args, kwargs = map_aggregate(args, read), map_aggregate(kwargs, read)
        nodes[name] = graph.create_node(op, target, args, kwargs, name=name, type_expr=kind)
    return torch.fx.GraphModule(root, graph)


class _Writer(pickle.Pickler):
    """Writes functions by names under which the other process finds the same ones."""

    def persistent_id(self, value: Any) -> str | None:
        if not isinstance(value, _CALLABLES):
            return None
        name = _get_qualified_name(value)
        if "." not in name:
            name = f"builtins.{name}"
        if pkgutil.resolve_name(name) is not value:
            raise pickle.PicklingError(f"{value!r} isn't found as {name}")
        return name


class _Reader(pickle.Unpickler):
    def persistent_load(self, name: Any) -> Any:
        return pkgutil.resolve_name(name)
