"""Instance dictionaries that the program holds: one object with what the instance shows."""

from __future__ import annotations

import torch
from torch import Tensor

import stator

from ..objects import Node, X
from ..probe import Steps, right_after


def test_made_with_their_instance() -> None:
    def make(x: Tensor) -> tuple[Node, dict[str, object]]:
        node = Node(1)
        node.value = x + 1
        return node, node.__dict__

    def make_first(x: Tensor) -> tuple[dict[str, object], Node]:
        node = Node(1)
        node.value = x + 1
        return node.__dict__, node

    for function in (make, make_first):
        compiled = stator.compile(function)
        for _ in range(3):
            left, right = compiled(X)
            dict_, node = (left, right) if isinstance(left, dict) else (right, left)
            assert node.__dict__ is dict_
            assert torch.equal(dict_["value"], X + 1)
        assert compiled.stats.hits == 2


def test_written_behind_a_break() -> None:
    @stator.compile
    def compiled(x: Tensor) -> Tensor:
        node = Node(1)
        members = node.__dict__
        stator.graph_break()
        members["value"] = x + 1
        return node.value

    for _ in range(3):
        assert torch.equal(compiled(X), X + 1)
    assert compiled.stats.native == 0


@right_after
def test_beside_their_instance() -> Steps:
    node = Node(1)
    node.value = X
    yield (lambda x, d, n: d["value"] + n.value * 2), (X, node.__dict__, node)
    yield X, {"value": X * 10}, node
    yield X, node.__dict__, node
