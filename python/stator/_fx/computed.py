"""Floats that a graph computes of numbers alone.

PyTorch's compilers take a float for a symbol, and what is computed of it for an expression, which
they put in another order: `a + b + 0.5` is added from another end, `a - (b - (b - a))` is nothing.
That holds for numbers with any number of digits. So such floats are computed here, as Python does,
and are given to the compilers' code as its inputs are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from stator._fx.assumptions import Tree

# What is put in another order, and what an assumption can speak of.
_OPERATORS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.neg: "-",
}  # fmt: skip


class _At(NamedTuple):
    """The number at this place: of the inputs, then of what was computed."""

    place: int


class Computed:
    """The floats that a graph computes of numbers in its inputs, and uses for something else: they
    become inputs behind the others.

    values: what they are for these inputs.
    are_assumed: assumptions may speak of them, so they are computed by what these can say.
    """

    def __init__(self, graph: torch.fx.Graph, inputs: Sequence[Any], *, are_assumed: bool) -> None:
        self._steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        numbers = list(inputs)
        trees: list[Tree] = [("input", place) for place in range(len(inputs))]
        places: dict[Node, int] = {}
        for place, node in enumerate(graph.find_nodes(op="placeholder")):
            if type(inputs[place]) in (int, float):
                places[node] = place
        given = len(places)
        for node in graph.nodes:
            if not _computes(node, places, are_assumed):
                continue
            args = tuple(_At(places[arg]) if isinstance(arg, Node) else arg for arg in node.args)
            places[node] = len(numbers)
            numbers.append(node.target(*_numbers(args, numbers)))
            trees.append((_OPERATORS.get(node.target, ""), *_numbers(args, trees)))
            self._steps.append((node.target, args))
        computed = list(places.items())[given:]
        ends = [
            (node, place)
            for node, place in computed
            if type(numbers[place]) is float and any(user not in places for user in node.users)
        ]
        self._places = [place for _, place in ends]
        self._trees = [*trees[: len(inputs)], *(trees[place] for place in self._places)]
        self.values = [numbers[place] for place in self._places]
        for node, _ in ends:
            last = graph.find_nodes(op="placeholder")[-1]
            with graph.inserting_after(last):
                found = graph.placeholder(f"computed_{node.name}")
            node.replace_all_uses_with(found, delete_user_cb=lambda user: user not in places)
        for node, _ in reversed(computed):
            if not node.users:
                graph.erase_node(node)

    def of(self, inputs: Sequence[Any]) -> list[float]:
        """What they are for other inputs."""
        numbers = list(inputs)
        for function, args in self._steps:
            numbers.append(function(*_numbers(args, numbers)))
        return [numbers[place] for place in self._places]

    def of_inputs(self, tree: Tree) -> Tree:
        """An assumption on inputs and on these as one on the inputs alone."""
        if not isinstance(tree, tuple):
            return tree
        if tree[0] == "input":
            return self._trees[tree[1]]
        return (tree[0], *map(self.of_inputs, tree[1:]))


def is_of_numbers(function: Any) -> bool:
    """Whether a function computes a number, given numbers alone."""
    return getattr(function, "__module__", None) in ("_operator", "math", "builtins")


def _computes(node: Node, places: dict[Node, int], are_assumed: bool) -> bool:
    if node.op != "call_function" or node.kwargs:
        return False
    if not (node.target in _OPERATORS if are_assumed else is_of_numbers(node.target)):
        return False
    nodes = [arg for arg in node.args if isinstance(arg, Node)]
    others = [arg for arg in node.args if not isinstance(arg, Node)]
    return (
        len(nodes) > 0
        and all(arg in places for arg in nodes)
        and all(type(arg) in (int, float) for arg in others)
    )


def _numbers(args: Sequence[Any], numbers: Sequence[Any]) -> Iterator[Any]:
    return (numbers[arg.place] if isinstance(arg, _At) else arg for arg in args)
