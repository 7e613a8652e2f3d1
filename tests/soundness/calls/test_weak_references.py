"""Weak references that a trace makes: to what is outside, to what the trace has made, and to what dies."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support.describe import describe, first_difference
from torch import Tensor, nn

import stator


class Node:
    """Something that can be referred to weakly."""

    def __init__(self, name: int) -> None:
        self.name = name


HELD = {"node": Node(1)}
NET = nn.Linear(2, 2)


def to_the_outside(x: Tensor) -> Any:
    reference = weakref.ref(HELD["node"])
    return x * reference().name, reference


def to_its_own(x: Tensor) -> Any:
    node = Node(x.dim())
    reference, same = weakref.ref(node), weakref.ref(node)
    return x + reference().name, reference, node, reference is same


def to_what_dies(x: Tensor) -> Any:
    node = Node(3)
    reference = weakref.ref(node)
    before = reference() is node
    del node
    return x + before, reference()


def in_a_closure(x: Tensor) -> Any:
    node = Node(x.dim())
    reference = weakref.ref(node)

    def name() -> Any:
        found = reference()
        return found and found.name

    first = name()
    del node
    return x + first, name()


def to_what_is_dropped(x: Tensor) -> Any:
    reference = weakref.ref(HELD["node"])
    HELD["node"] = Node(7)
    return x + 1, reference


def removed_hook(x: Tensor) -> Any:
    handle = NET.register_forward_hook(lambda module, given, result: result * 2)
    y = NET(x)
    handle.remove()
    return y, NET(x), len(NET._forward_hooks)


def behind_a_decision(x: Tensor) -> Any:
    node = Node(2)
    reference = weakref.ref(node)
    if x.sum() > 5:
        return x * reference().name, reference, node
    return x - reference().name, node


def to_the_dead(x: Tensor) -> Any:
    node = Node(1)
    return x, weakref.ref(node)


def dead_behind_a_decision(x: Tensor) -> Any:
    reference = weakref.ref(Node(2))
    if x.sum() > 5:
        return x * 2, reference(), reference
    return x, reference


CASES = [
    to_the_outside,
    to_its_own,
    to_what_dies,
    in_a_closure,
    to_what_is_dropped,
    removed_hook,
    behind_a_decision,
    to_the_dead,
    dead_behind_a_decision,
]


def _observed(fn: Callable[..., Any], i: int) -> list[str]:
    if i == 3:
        HELD["node"] = Node(20)
    lines = describe(fn(torch.full((2,), float(i))))
    return lines + describe(HELD)


@pytest.mark.parametrize("fn", CASES, ids=[fn.__name__ for fn in CASES])
def test_weak_reference(fn: Callable[..., Any]) -> None:
    compiled = stator.compile(fn)
    HELD["node"] = Node(1)
    plain = [_observed(fn, i) for i in range(5)]
    HELD["node"] = Node(1)
    with stator.config.patch(skip_unprofitable=False):
        found = [_observed(compiled, i) for i in range(5)]
    for expected, lines in zip(plain, found, strict=True):
        difference = first_difference(expected, lines)
        assert difference is None, difference
    assert stator.stats(compiled).breaks == 0


def test_what_is_known_by_references_alone() -> None:
    class Kept:
        def __init__(self, net: nn.Module) -> None:
            self.references = [weakref.ref(parameter) for parameter in net.parameters()]

    net = nn.Linear(2, 2)
    kept = Kept(net)

    def alive(x: Tensor) -> Any:
        found = [reference() for reference in kept.references]
        return [x if it is None else it.detach() * x.sum() for it in found]

    compiled = stator.compile(alive)

    def compare(value: float) -> None:
        x = torch.full((2,), value)
        assert first_difference(describe(alive(x)), describe(compiled(x))) is None

    with stator.config.patch(skip_unprofitable=False):
        compare(1.0)
        with torch.no_grad():
            net.weight.add_(1)
        compare(2.0)
        assert (stator.stats(compiled).breaks, stator.stats(compiled).hits) == (0, 1)
        net.bias = nn.Parameter(torch.ones(2))
        gc.collect()
        compare(3.0)
        compare(4.0)
        kept.references[1] = weakref.ref(net.bias)
        compare(5.0)
        del net
        gc.collect()
        assert kept.references[0]() is None
        compare(6.0)


def test_what_the_trace_cannot_follow_breaks() -> None:
    def equal(x: Tensor) -> Any:
        # Its referent's own `__eq__` would decide.
        return x + 1, weakref.ref(HELD["node"]) == weakref.ref(HELD["node"])

    def of_a_tensor(x: Tensor) -> Any:
        y = x + 1
        reference = weakref.ref(y)
        return y, reference() is y

    def of_a_number(x: Tensor) -> Any:
        try:
            return weakref.ref(x.dim())
        except TypeError as error:
            return x, str(error)

    for fn in (equal, of_a_tensor, of_a_number):
        compiled = stator.compile(fn)
        with stator.config.patch(skip_unprofitable=False):
            for i in range(3):
                x = torch.full((2,), float(i))
                assert first_difference(describe(fn(x)), describe(compiled(x))) is None


def test_a_reference_that_is_dropped_does_not_call_back() -> None:
    """An entry that kept a called reference would have it call back when its object dies later."""
    log: list[Any] = []
    kept: dict[int, Node] = {}

    def program(x: Tensor, n: int) -> Any:
        node = Node(n)
        reference = weakref.ref(node, lambda _: log.append(n))
        kept[n] = node
        del node
        return x + n, reference() is None

    found = []
    for fn in (program, stator.compile(program)):
        log.clear()
        with stator.config.patch(skip_unprofitable=False):
            for i in range(6):
                y, is_dead = fn(torch.ones(2), i % 2)
                assert (y.tolist(), is_dead) == ([1 + i % 2] * 2, False)
                if i == 3:
                    kept.clear()
        kept.clear()
        found.append(list(log))
    assert found[0] == found[1]


def test_another_reference_to_the_same_object() -> None:
    """What a reference refers to is guarded, the reference itself isn't."""
    held = {"node": Node(1)}
    held_weakly = {"reference": weakref.ref(held["node"], lambda _: None)}

    def program(x: Tensor) -> Any:
        node = held_weakly["reference"]()
        return x * node.name if node else x - 1

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for i in range(9):
            if i == 2:
                held_weakly["reference"] = weakref.ref(held["node"], lambda _: None)
            if i == 4:
                held["node"].name = 5
            if i == 6:
                held["node"] = Node(7)
            if i == 7:
                held_weakly["reference"] = weakref.ref(held["node"])
            x = torch.full((2,), float(i))
            assert torch.equal(compiled(x), program(x)), i
            if i == 3:
                assert (stator.stats(compiled).traces, stator.stats(compiled).hits) == (1, 3)
