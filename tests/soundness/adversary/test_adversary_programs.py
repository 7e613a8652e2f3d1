"""Addresses that come back, copies, matching, modules: reads that many parts of a trace share."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import itertools
import operator
import types
from typing import Any

import torch
from differential.support import api
from torch import Tensor

from ..objects import Node, X
from ..probe import Steps, right_after


@right_after
def test_address_reuse() -> Steps:
    """Temporaries die and their addresses come back as other objects."""

    def fn(x: Tensor) -> Tensor:
        total = x
        for i in range(30):
            total = total + (x * i).sum() * 0.1
            node = Node(i)
            values = [node.n, i]
            total = total * (values[0] + 1) * 0.1
            del node, values
        return total

    yield fn, (X,)
    gc.collect()
    yield None


@right_after
def test_address_of_a_temporary_list_becomes_an_outside_one() -> Steps:
    def make(n: int) -> list[int]:
        return [n, n + 1]

    store = {"a": [1], "b": [2, 3]}

    def fn(x: Tensor) -> Tensor:
        for _ in range(5):
            temporary = make(1)
            x = x * temporary[0]
            del temporary
        return x * len(store["a"]) + len(store["b"])

    yield fn, (X,)
    store["a"].append(4)
    yield None
    store["b"] = [1]
    yield None


@right_after
def test_copies() -> Steps:
    node = Node(3)
    values = {"a": [1, 2], "b": (3,)}

    def fn(x: Tensor) -> Tensor:
        other = copy.copy(node)
        return x * other.n + sum(copy.copy(values)["a"])

    yield fn, (X,)
    node.n = 5
    yield None
    values["a"].append(9)  # type: ignore[attr-defined]
    yield None


@right_after
def test_deep_copies() -> Steps:
    node = Node(3)
    values = {"a": [1, 2], "n": node}
    yield (lambda x: x * sum(copy.deepcopy(values)["a"]) + copy.deepcopy(values)["n"].n), (X,)  # type: ignore[attr-defined,arg-type]
    node.n = 5
    yield None
    values["a"].append(9)  # type: ignore[attr-defined]
    yield None


@right_after
def test_reduce_and_itertools() -> Steps:
    values = [1, 2, 3]

    def fn(x: Tensor) -> Tensor:
        total = functools.reduce(operator.add, values)
        chained = list(itertools.chain(values, (4,)))
        grouped = [len(list(g)) for _, g in itertools.groupby(values, key=lambda v: v > 1)]
        return x * total + sum(chained) + grouped[0]

    yield fn, (X,)
    values.append(7)
    yield None
    values[0] = 7
    yield None


@right_after
def test_match_statement() -> Steps:
    def fn(x: Tensor, v: Any) -> Tensor:
        match v:
            case {"a": n}:
                return x * n
            case [first, *_]:
                return x * first
            case Node(n=k):
                return x * k
            case _:
                return -x

    table = {"a": 2}
    yield fn, (X, table)
    table["a"] = 3
    yield None
    yield X, [4, 5]
    node = Node(6)
    yield X, node
    node.n = 7
    yield X, node
    yield X, 1


@right_after
def test_module_attribute_appears() -> Steps:
    module = types.ModuleType("made")
    module.n = 1  # type: ignore[attr-defined]
    yield (lambda x: x * getattr(module, "m", module.n)), (X,)
    module.m = 4  # type: ignore[attr-defined]
    yield None


@right_after
def test_loaded_module_is_replaced() -> Steps:
    import sys

    one, two = types.ModuleType("made_up"), types.ModuleType("made_up")
    one.n, two.n = 1, 2  # type: ignore[attr-defined]
    sys.modules["made_up"] = one

    def fn(x: Tensor) -> Tensor:
        import made_up  # type: ignore[import-not-found]

        return x * made_up.n

    yield fn, (X,)
    sys.modules["made_up"] = two
    yield None


@right_after
def test_named_tuple_and_dataclass() -> Steps:
    import dataclasses

    Pair = collections.namedtuple("Pair", "a b")

    @dataclasses.dataclass
    class Config:
        n: int = 1
        values: list[int] = dataclasses.field(default_factory=lambda: [1])

    config = Config()
    yield (
        (lambda x, p: x * p.a + config.n + len(config.values) + (config == Config())),
        (X, Pair(1, 2)),
    )
    yield X, Pair(2, 2)
    config.n = 5
    yield None
    config.values.append(3)
    yield None


def test_is_compiling_is_what_plain_python_says() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * (2 if torch.compiler.is_compiling() else 3)

    compiled = api.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)
