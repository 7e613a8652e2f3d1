"""Libraries that Inductor makes of graphs, in the program: what is known of one, what calls it.

A library takes tensors. An integer among the graph's inputs is the size of a tensor without
elements there, which the graph asks for it. What Inductor assumes of sizes goes with the library,
as guards of the code (`stator._fx.assumptions`). Nothing here imports PyTorch's compilers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from stator._fx.assumptions import Tree, assumption
from stator._fx.graphs import Code

__all__ = ["Look", "Made", "code_of", "look", "tensor_of"]

Look: TypeAlias = "torch.Tensor | int"
"""What an input is like: a tensor without data, or an integer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A library, and what has to be known to call it."""

    libraries: list[str]
    """The one."""
    assumptions: list[str]
    """As PyTorch prints them."""
    written: list[int]
    """Inputs whose versions count what the graph writes."""


def look(value: Any) -> Look:
    """What is kept of an input."""
    if not isinstance(value, torch.Tensor):
        assert isinstance(value, int)
        return value
    return value.detach().to("meta").requires_grad_(value.requires_grad)


def code_of(made: Made, library: Any, looks: Sequence[Look]) -> Callable[..., Any] | Code:
    """What calls a library that is loaded."""
    numbers = [index for index, value in enumerate(looks) if not isinstance(value, torch.Tensor)]
    written = made.written

    def run(*inputs: Any) -> list[torch.Tensor]:
        given = list(inputs)
        for index in numbers:
            given[index] = tensor_of(given[index])
        if written:
            # The library writes to memory. First, as it may fail in the middle of that.
            torch.autograd.graph.increment_version(
                [given[index] for index in written if not given[index].is_inference()]
            )
        outputs: list[torch.Tensor] = library.run(given)
        return outputs

    trees = [_of_numbers(assumption(guard), numbers) for guard in made.assumptions]
    if not trees:
        return run
    return Code(run, "inductor", trees, looks)


def _of_numbers(tree: Tree, numbers: Sequence[int]) -> Tree:
    """An assumption of the inputs: the sizes of some of the library's tensors are numbers there."""
    if not isinstance(tree, tuple):
        return tree
    if tree[0] == "size" and tree[1] in numbers:
        return ("input", tree[1])
    return (tree[0], *(_of_numbers(part, numbers) for part in tree[1:]))


def tensor_of(value: Any) -> torch.Tensor:
    """A tensor as the library takes it."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.empty((value, 0), dtype=torch.float32, device="cpu")
