"""`id()`, `hash()` and the orders that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from ..objects import Equal, Node, X
from ..probe import Probe, Steps, right_after


@right_after
def test_id_of_functions_and_classes() -> Steps:
    def one() -> None: ...

    def two() -> None: ...

    known = {id(one): 2, id(Node): 3}
    yield (lambda x, f: x * known.get(id(f), 7) + known.get(id(Node), 0)), (X, one)
    yield X, two
    yield X, one


@right_after
def test_hash_of_values() -> Steps:
    yield (lambda x, v: x * (hash(v) % 97)), (X, "text")
    yield X, "other"
    yield X, ("a", 1)
    yield X, 1.5
    yield X, None


@right_after
def test_hash_of_nan() -> Steps:
    seen = hash(float("nan"))
    yield (lambda x, v: x * (hash(v) == seen) + hash(v) % 7), (X, float("nan"))
    for _ in range(4):
        yield X, float("nan")


@right_after
def test_hash_of_instances() -> Steps:
    item = Equal(3)
    yield (lambda x, o: x * hash(o)), (X, item)
    item.n = 4
    yield None
    Equal2 = type("Equal2", (), {"__hash__": lambda self: 11})
    yield X, Equal2()
    Equal2.__hash__ = lambda self: 12  # type: ignore[method-assign]
    yield X, Equal2()


@right_after
def test_id_of_a_per_call_function() -> Steps:
    def make(n: int) -> Any:
        return lambda x: x * n

    keep = [make(1), make(1)]
    wanted = id(keep[0])
    yield (lambda x, f: f(x) if id(f) == wanted else -x), (X, keep[0])
    yield X, keep[1]


@right_after
def test_unhashable() -> Steps:
    def fn(x: Tensor, v: Any) -> Tensor:
        try:
            hash(v)
        except TypeError:
            return -x
        return x

    yield fn, (X, [1])
    yield X, 1


@right_after
def test_order_of_a_set_of_objects() -> Steps:
    class Named:
        def __init__(self, n: int) -> None:
            self.n = n

    def fn(x: Tensor) -> Tensor:
        found = {Named(i) for i in range(20)}
        return x * len(found)

    yield fn, (X,)


def test_order_of_a_set_of_fresh_objects_is_not_replayed() -> None:
    nodes = [Node(i) for i in range(30)]

    def fn(x: Tensor, nodes: list[Node]) -> Tensor:
        for node in set(nodes):
            x = x * 1.5 + node.n
        return x

    probe = Probe(fn)
    for _ in range(4):
        probe.right(X, [Node(i) for i in range(30)])
        probe.right(X, nodes)


ORDERED: dict[str, Callable[[Any], Any]] = {
    "list": lambda nodes: list(set(nodes)),
    "tuple": lambda nodes: tuple(frozenset(nodes)),
    "star": lambda nodes: [*set(nodes)],
    "unpacking": lambda nodes: (lambda first, *rest: [first])(*set(nodes)),
    "map": lambda nodes: list(map(lambda node: node, set(nodes))),
    "extend": lambda nodes: [].extend(set(nodes)) or sorted(set(nodes), key=lambda node: 0),
    "pop": lambda nodes: [set(nodes).pop()],
    "next": lambda nodes: [next(iter(set(nodes)))],
    "enumerate": lambda nodes: [node for _, node in enumerate(set(nodes))],
    "comprehension": lambda nodes: [node for node in {node for node in nodes}],
    "dict": lambda nodes: list(dict.fromkeys(set(nodes))),
    "operator": lambda nodes: list(set(nodes) | {1}),
    "zip": lambda nodes: [node for node, _ in zip(set(nodes), range(9))],
    "max": lambda nodes: [max(set(nodes), key=lambda node: 0)],
}


@pytest.mark.parametrize("name", ORDERED)
def test_orders_of_objects_are_not_replayed(name: str) -> None:
    order = ORDERED[name]

    def fn(x: Tensor, nodes: list[Any]) -> Tensor:
        for node in order(nodes):
            x = x * 1.5 + (node if isinstance(node, int) else node.n)
        return x

    probe = Probe(fn)
    keep = []
    for _ in range(6):
        nodes = [Node(i) for i in range(9)]
        keep.append([object() for _ in range(len(keep) * 3 + 1)])
        probe.right(X, nodes)
