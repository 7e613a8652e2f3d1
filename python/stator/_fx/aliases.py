"""Results of a graph that are views of its inputs: a library would give copies of them.

So they are no results of the library: its process says which they are (`take_views`), and the
program makes them of the inputs, by the graph's own operations, behind the library (`with_views`).
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from stator._fakes import fake_mode
from stator._fx.graphs import Code
from stator._fx.libraries import Look, NothingToCompileError, allocated

__all__ = ["take_views", "with_views", "without_results"]


def take_views(module: torch.fx.GraphModule, looks: Sequence[Look]) -> list[int]:
    """Takes the results that are inputs or views of inputs out of a graph. Returns which. Raises
    NothingToCompileError where nothing but these is made."""
    watched = _Watched(module)
    with fake_mode(allow_non_fake_inputs=True) as mode:
        try:
            watched.run(
                *(
                    mode.from_tensor(allocated(value)) if isinstance(value, torch.Tensor) else value
                    for value in looks
                )
            )
        except Exception:
            # Whoever compiles it will say what there is to say.
            return []
    results = _results(module.graph)
    views = [
        index
        for index, node in enumerate(results)
        if isinstance(node, Node) and node in watched.of_inputs and watched.is_free(node)
    ]
    if watched.makes_views_alone():
        raise NothingToCompileError("it makes nothing but views of its inputs")
    if watched.switches or len(views) == len(results):
        return []
    _leave_out(module.graph, views)
    module.recompile()
    return views


def without_results(module: torch.fx.GraphModule, indices: Sequence[int]) -> torch.fx.GraphModule:
    """The graph without some of its results."""
    if not indices:
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    _leave_out(graph, indices)
    return torch.fx.GraphModule(module, graph)


def _leave_out(graph: torch.fx.Graph, indices: Sequence[int]) -> None:
    kept = [node for index, node in enumerate(_results(graph)) if index not in indices]
    graph.output_node().args = (tuple(kept),)


def with_views(
    made: Callable[..., Any] | Code, module: torch.fx.GraphModule, views: Sequence[int]
) -> Callable[..., Any] | Code:
    """The code of a graph without these results, with them. `module`: the whole graph."""
    if not views:
        return made
    run = made.run if isinstance(made, Code) else made
    make = _alone(module, views)

    def call(*inputs: Any) -> list[Any]:
        outputs = list(run(*inputs))
        for index, value in zip(views, make(*inputs), strict=True):
            outputs.insert(index, value)
        return outputs

    return dataclasses.replace(made, run=call) if isinstance(made, Code) else call


def _alone(module: torch.fx.GraphModule, indices: Sequence[int]) -> Callable[..., Any]:
    """What gives some results of a graph, and does nothing else."""
    results = [_results(module.graph)[index] for index in indices]
    needed = {node for result in results for node in _ancestors(result)}
    graph = torch.fx.Graph()
    made: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder" or node in needed:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in results))
    forward: Callable[..., Any] = torch.fx.GraphModule(module, graph).forward
    return forward


def _results(graph: torch.fx.Graph) -> list[Any]:
    given: Any = graph.output_node().args[0]
    return list(given)


def _ancestors(node: Node) -> set[Node]:
    """A node, and all that it is computed from."""
    found, left = {node}, [node]
    while left:
        for before in left.pop().all_input_nodes:
            if before not in found:
                found.add(before)
                left.append(before)
    return found


class _Watched(torch.fx.Interpreter):
    """Runs a graph, and takes note of what its nodes do."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.of_inputs: set[Node] = set()
        """Those that give inputs, or what shares their memory."""
        self.switches = False
        """Whether one does neither give anything nor write to a tensor: it may switch a mode."""
        self._memory: set[int] = set()
        self._may_run_again: set[Node] = set()

    def is_free(self, node: Node) -> bool:
        """Whether a node and all before it only make views and numbers, so that they may run once
        more."""
        return self._may_run_again.issuperset(_ancestors(node))

    def makes_views_alone(self) -> bool:
        """Whether no node does anything else than to make views and numbers."""
        own = [node for node in self.graph.nodes if node.op not in ("placeholder", "output")]
        return self._may_run_again.issuperset(own)

    def run_node(self, n: Node) -> Any:
        taken = [self.env[node] for node in n.all_input_nodes]
        tensors = [value for value in taken if isinstance(value, torch.Tensor)]
        before = [value._version for value in tensors]
        found = super().run_node(n)
        writes = [value._version for value in tensors] != before
        given = list(found) if isinstance(found, tuple | list) else [found]
        if n.op == "placeholder":
            self._memory.update(map(_memory, _tensors(given)))
        are_views = all(_memory(value) in self._memory for value in _tensors(given))
        if isinstance(found, torch.Tensor) and are_views:
            self.of_inputs.add(n)
        if all(isinstance(value, torch.Tensor | int | float) for value in given):
            if are_views and not writes and n.op != "get_attr":
                self._may_run_again.add(n)
        elif n.op != "output" and n.target is not operator.setitem:
            self.switches = True
        return found


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _memory(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)
