"""Graphs for other backends whose inputs were found below objects of one name."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


class Holder:
    """Holds a tensor and a number."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.tensor = torch.full((2,), value)


def of_weak_references() -> tuple[Callable[[Tensor], Any], list[Any]]:
    holders = [Holder(2.0), Holder(3.0)]
    references = [weakref.ref(holder) for holder in holders]

    def program(x: Tensor) -> Tensor:
        for reference in references:
            x = x + reference().tensor * 2  # type: ignore[union-attr]
        return x

    return program, holders


def of_a_weak_set() -> tuple[Callable[[Tensor], Any], list[Any]]:
    holders = [Holder(2.0), Holder(3.0)]
    known = weakref.WeakSet(holders)

    def program(x: Tensor) -> Tensor:
        return x * sum(holder.value for holder in known) + 1 - x

    return program, holders


def of_functions() -> tuple[Callable[[Tensor], Any], list[Any]]:
    def scaled_by(holder: Holder) -> Callable[[Tensor], Tensor]:
        scale = holder.tensor
        return lambda x: x * scale

    holders = [Holder(2.0), Holder(3.0)]
    names = {scaled_by(holder): at for at, holder in enumerate(holders)}

    def program(x: Tensor) -> Tensor:
        for function in names:
            x = function(x) + 1
        return x

    return program, holders


@pytest.mark.parametrize("make", [of_weak_references, of_a_weak_set, of_functions])
def test_inputs_are_told_apart(
    make: Callable[[], tuple[Callable[[Tensor], Any], list[Any]]],
) -> None:
    given: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        given.append([node.name for node in graph.graph.nodes if node.op == "placeholder"])
        return graph.forward

    program, holders = make()
    compiled = stator.compile(program, backend=backend)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for call in range(6):
            x = torch.full((2,), float(call))
            holders[call % 2].value = call * 1.5
            holders[call % 2].tensor.add_(call)
            assert torch.equal(compiled(x), program(x))
    assert given
    assert all(len(set(names)) == len(names) > 1 for names in given)
