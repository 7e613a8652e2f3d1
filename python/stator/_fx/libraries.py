"""Libraries that Inductor makes of graphs, in the program: what is known of one, what calls it.

A library takes and gives tensors. An integer among the graph's inputs or results is the size of a
tensor without elements there, a float among its inputs a tensor's only element. What Inductor
assumes of sizes goes with the library, as guards of the code (`stator._fx.assumptions`). Nothing
here imports PyTorch's compilers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx

from stator._fx.assumptions import Tree, assumption
from stator._fx.graphs import Code
from stator.errors import BackendError

__all__ = [
    "A_FLOAT",
    "HopelessError",
    "Libraries",
    "Look",
    "Made",
    "NothingToCompileError",
    "all_sizes",
    "allocated",
    "ask_for_sizes",
    "code_of",
    "look",
    "seen_of",
    "tensor_of",
]

Look: TypeAlias = "torch.Tensor | int | float"
"""What an input is like: a tensor without data, or an integer; of a float nothing but that."""

A_FLOAT = 0.5
"""What stands for any float."""


class HopelessError(BackendError):
    """Inductor can't compile a graph, neither ahead of time nor in a call that waits for it."""


class NothingToCompileError(BackendError):
    """What a graph does takes no kernels: its replay is all there is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A library, and what has to be known to call it."""

    libraries: list[str]
    """The one."""
    assumptions: list[str]
    """As PyTorch prints them."""
    written: list[int]
    """Inputs whose versions count what the graph writes."""
    numbers: list[int]
    """Results that are integers."""
    views: Sequence[int] = ()
    """Results of the graph that are none of the library's (`stator._fx.aliases`)."""


class Libraries(list[Any]):
    """Libraries that are loaded. Code of equal graphs shares them: they keep nothing of a call."""

    def __init__(self, made: Any, loaded: Sequence[Any]) -> None:
        super().__init__(loaded)
        self.made = made
        """What has to be known to call them."""


Seen: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], torch.dtype, bool] | int | float"
"""What is known of an input: a tensor's sizes, strides, dtype, whether it asks for gradients."""


def seen_of(value: Any) -> Seen:
    """What is kept of an input. A call takes it, so nothing is made."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    assert isinstance(value, int | float)
    return A_FLOAT if isinstance(value, float) else value


def look(seen: Seen) -> Look:
    """What such an input is like."""
    if not isinstance(seen, tuple):
        return seen
    sizes, strides, dtype, wants = seen
    made = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
    return made.requires_grad_(wants)


def allocated(value: Look) -> Any:
    """Such an input, whatever its data."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")


def all_sizes(inputs: Sequence[Any]) -> list[tuple[str | None, ...]]:
    """Names for all sizes of these tensors that may vary; 0 and 1 are constants for PyTorch."""
    return [
        tuple(f"t{index}.size({at})" if size > 1 else None for at, size in enumerate(tensor.shape))
        for index, tensor in enumerate(inputs)
    ]


def code_of(
    made: Made, libraries: Sequence[Any], looks: Sequence[Look]
) -> Callable[..., Any] | Code:
    """What calls a library that is loaded."""
    numbers = [index for index, value in enumerate(looks) if not isinstance(value, torch.Tensor)]
    written, results = made.written, made.numbers

    def run(*inputs: Any) -> list[Any]:
        given = list(inputs)
        for index in numbers:
            given[index] = tensor_of(given[index])
        if written:
            # The library writes to memory. First, as it may fail in the middle of that.
            torch.autograd.graph.increment_version(
                [given[index] for index in written if not given[index].is_inference()]
            )
        outputs: list[Any] = libraries[0].run(given)
        for index in results:
            outputs[index] = outputs[index].shape[0]
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
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64, device="cpu")
    return torch.empty((value, 0), dtype=torch.float32, device="cpu")


def ask_for_sizes(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Has a graph ask tensors for the numbers that they stand for."""
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    for node, value in zip(placeholders, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            continue
        node.type = torch.Tensor
        with module.graph.inserting_after(placeholders[-1]):
            if isinstance(value, float):
                number = module.graph.call_method("item", (node,))
            else:
                number = module.graph.call_function(torch.ops.aten.sym_size.int, (node, 0))
        node.replace_all_uses_with(number, delete_user_cb=lambda user, own=number: user is not own)
    module.graph.lint()  # type: ignore[no-untyped-call]
    module.recompile()
