"""Instances of subclasses of `list`: read, made, returned, written; with methods of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe

X = torch.arange(3.0)


class Plain(list):  # type: ignore[type-arg]
    pass


class Named(list):  # type: ignore[type-arg]
    def __init__(self, items: Any, name: str = "n") -> None:
        super().__init__(items)
        self.name = name

    def first(self) -> Any:
        return self[0]

    def total(self) -> Any:
        return sum(self)


class Shifted(list):  # type: ignore[type-arg]
    """Answers everything by itself."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) * 10

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            yield item * 100

    def __len__(self) -> int:
        return super().__len__() + 1

    def __contains__(self, item: Any) -> bool:
        return item == 77

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: Any) -> bool:
        return other == 5

    def __hash__(self) -> int:
        return 3

    def append(self, item: Any) -> None:
        super().append(item * 2)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value * 3)

    def __repr__(self) -> str:
        return "Shifted"


def reads(x: Tensor, items: Any) -> Any:
    return x * items[0] + items[-1], len(items), 2 in items, bool(items), items == [1, 2], items[1:]


def loops(x: Tensor, items: Any) -> Any:
    total = x
    for item in items:
        total = total + item
    first, *rest = items
    return total, [*items, 3], sum(items), first, rest, list(items), sorted(items), max(items)


def builds(x: Tensor, items: Any) -> Any:
    made = Named([x, x + 1], name="q")
    made.append(x * 2)
    made.extend(items)
    made[0] = x - 1
    del made[1]
    made.extra = len(made)  # type: ignore[attr-defined]
    return made, made.first(), made.name, type(made), made + [1], made * 2, made[::2]


def passes(x: Tensor, items: Any) -> Any:
    tensors = Plain([x, x + 1])
    return torch.stack(tensors), torch.cat(Plain([x, *tensors])), isinstance(items, list), items


def texts(x: Tensor, items: Any) -> Any:
    return f"{items}", repr(items), str(items), x + 1


def calls(x: Tensor, items: Any) -> Any:
    def three(a: Any, b: Any, c: Any = 0) -> Any:
        return x * a + b + c

    return three(*items), [i * 2 for i in items], {i: x for i in items}, tuple(items), set(items)


def changes_own(x: Tensor, items: Any) -> Any:
    made = type(items)(items)
    made.append(4)
    made[0] = 9
    made.insert(0, 1)
    made += [5]
    return made, made.pop(), made.index(4) if 4 in list.__iter__(made) else None, x + len(made)


def copies(x: Tensor, items: Any) -> Any:
    return copy.copy(items), items.copy(), x + 1


FUNCTIONS = [reads, loops, builds, passes, texts, calls, changes_own, copies]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("make", [Plain, Named, Shifted], ids=lambda cls: cls.__name__)
def test_like_plain_python(fn: Callable[..., Any], make: Any) -> None:
    probe = Probe(fn)
    items = make([1, 2])
    for _ in range(3):
        probe.right(X, items)
    probe.right(X, make([1, 2]))
    probe.right(X, make([3, 2]))
    items.append(7)
    probe.right(X, items)
    probe.right(X, [1, 2])
    probe.right(X, items)
    if not api.PLAIN:
        assert api.native(probe.compiled) == 0 or make is Shifted, api.reason(probe.compiled)


def test_graph() -> None:
    for fn in (reads, loops, builds, passes, calls):
        for make in (Plain, Named):
            probe = Probe(fn)
            probe.right(X, make([1, 2]))
            probe.steady(X, make([1, 2]))
            if not api.PLAIN:
                assert api.breaks(probe.compiled) == 0, api.reason(probe.compiled)
            probe.retraced(X, make([1, 3]))


@pytest.mark.parametrize("base", [list, tuple, dict])
def test_a_method_that_comes_later(base: Any) -> None:
    class Own(base):  # type: ignore[misc]
        pass

    items = Own({0: 1, 1: 2} if base is dict else [1, 2])

    def fn(x: Tensor) -> Any:
        return [x * i for i in items], len(items), items[0], 1 in items, bool(items), f"{items}"

    probe = Probe(fn)
    probe.right(X)
    probe.steady(X)
    for name, method in (
        ("__len__", lambda self: 5),
        ("__getitem__", lambda self, i: 40),
        ("__iter__", lambda self: iter((8, 9))),
        ("__contains__", lambda self, item: False),
        ("__bool__", lambda self: False),
        ("__repr__", lambda self: "own"),
    ):
        setattr(Own, name, method)
        probe.changed(X)
        probe.right(X)
        delattr(Own, name)
        probe.changed(X)


@pytest.mark.parametrize("make", [Plain, Shifted])
def test_writes_to_one_from_outside(make: Any) -> None:
    def play(wrap: Callable[[Any], Any]) -> list[str]:
        items = make([1, 2])

        def fn(x: Tensor) -> Tensor:
            items.append(3)
            items[0] = 5
            y = x * len(items)
            items.extend([1])
            return y + list.__len__(items)

        fn, seen = wrap(fn), []
        for _ in range(4):
            seen += [str(fn(X)), str(list(list.__iter__(items)))]
        return seen

    assert play(api.compile) == play(lambda fn: fn)


def test_attributes_and_identity() -> None:
    items = Named([1, 2], name="first")

    def fn(x: Tensor, other: Any) -> Any:
        return x * len(items.name), items is other, other.total()

    probe = Probe(fn)
    probe.right(X, items)
    probe.steady(X, items)
    probe.changed(X, Named([1, 2], name="first"))
    items.name = "another"
    probe.changed(X, items)
    items[1] = 6
    probe.changed(X, items)


def test_a_break_while_one_is_alive(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: Tensor, items: Any) -> Any:
        made = Named([x, x + 1], name="q")
        print("here", len(items))
        made.append(x * items[0])
        return made, made.name, items

    compiled = api.compile(fn)
    for step in range(4):
        expected = fn(X + step, Plain([1, 2]))
        found = compiled(X + step, Plain([1, 2]))
        assert str(found) == str(expected) and type(found[0]) is Named
    if not api.PLAIN:
        assert api.native(compiled) == 0
