"""Instance dictionaries that the program holds: one object with what the instance shows."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
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


@pytest.mark.parametrize("make", [lambda: functools.partial(max, 1), lambda: ValueError(1)])
def test_a_read_makes_no_dictionary(make: Callable[[], Any]) -> None:
    """A partial or an exception says when it's pickled whether it has one."""

    def program(x: torch.Tensor, given: Any) -> Any:
        return x + getattr(given, "factor", 2), hasattr(given, "other"), type(given).__name__

    plain, ours = make(), make()
    compiled = api.compile(program)
    x = torch.ones(2)
    for at in range(8):
        assert str(compiled(x, ours)) == str(program(x, plain)), at
        assert ours.__reduce__() == plain.__reduce__() or at > 3
        assert pickle.dumps(ours) == pickle.dumps(plain)
        if at == 3:
            plain.factor = ours.factor = 5
        if at == 5:
            del plain.factor, ours.factor
    if not api.PLAIN:
        assert compiled.stats.hits >= 3
