"""Objects that C code compares by identity: which outside objects are the same is guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from ..probe import Probe

X = torch.ones(2)


class Thing:
    """Hashed by its address."""


def _counted(things: list[Any]) -> int:
    seen = set()
    for thing in things:
        if thing in seen:
            continue
        seen.add(thing)
    return len(seen)


def _updated(a: Any, b: Any) -> int:
    d = {a: 1}
    d.update({b: 2})
    d.setdefault(a, 3)
    return len(d)


ASK: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda a, b: len({a, b}),
    "in a set": lambda a, b: b in {a},
    "set of a list": lambda a, b: len(set([a, b])),
    "frozenset": lambda a, b: len(frozenset((a, b))),
    "dict": lambda a, b: len({a: 1, b: 2}),
    "in a dict": lambda a, b: b in {a: 1},
    "get": lambda a, b: {a: 1}.get(b, 2),
    "dict of pairs": lambda a, b: len(dict([(a, 1), (b, 2)])),
    "fromkeys": lambda a, b: len(dict.fromkeys([a, b])),
    "update": _updated,
    "set comprehension": lambda a, b: len({thing for thing in (a, b)}),
    "dict comprehension": lambda a, b: len({thing: 1 for thing in (a, b)}),
    "star": lambda a, b: len({*[a], *[b]}),
    "tuples": lambda a, b: len({(a, 1), (b, 1)}),
    "loop": lambda a, b: _counted([a, b]),
    "set arithmetic": lambda a, b: len({a} | {b}) - len({a} & {b}),
    "store": lambda a, b: [d := {}, d.__setitem__(a, 1), d.__setitem__(b, 2), len(d)][-1],
}
LISTS: dict[str, Callable[[Any, Any], Any]] = {
    "in a list": lambda a, b: b in [a],
    "in a tuple": lambda a, b: b in (a,),
    "count": lambda a, b: [a, a].count(b),
    "equal lists": lambda a, b: [a] == [b],
    "equal tuples": lambda a, b: (1, a) == (1, b),
    "equal dicts": lambda a, b: {1: a} == {1: b},
}


def _check(ask: Callable[[Any, Any], Any], make: Callable[[], Any], first_same: bool) -> None:
    probe = Probe(lambda x, a, b: x * (ask(a, b) + 1))
    for same in (first_same, first_same, not first_same, not first_same, first_same):
        a = make()
        probe.right(X, a, a if same else make())
    assert api.PLAIN or (api.native(probe.compiled), api.breaks(probe.compiled)) == (0, 0)
    assert api.PLAIN or api.traces(probe.compiled) == 2


@pytest.mark.parametrize("first_same", [False, True], ids=["apart", "same"])
@pytest.mark.parametrize("name", [*ASK, *LISTS])
def test_objects(name: str, first_same: bool) -> None:
    _check({**ASK, **LISTS}[name], Thing, first_same)


@pytest.mark.parametrize("first_same", [False, True], ids=["apart", "same"])
@pytest.mark.parametrize("name", ASK)
def test_tensors(name: str, first_same: bool) -> None:
    _check(ASK[name], lambda: torch.ones(2), first_same)


def test_tensors_made_by_the_call() -> None:
    def fn(x: Tensor) -> Any:
        a, b = x + 1, x + 2
        names = {a: "a", b: "b"}
        return names, {a, b, a} == {b, a}, names[a], [names[t] for t in names]

    compiled = api.compile(fn)
    for _ in range(3):
        names, *rest = compiled(X)
        assert [(t.tolist(), name) for t, name in names.items()] == [
            ([2, 2], "a"),
            ([3, 3], "b"),
        ]
        assert rest == [True, "a", ["a", "b"]]
    assert api.PLAIN or api.native(compiled) == 0


@pytest.mark.parametrize(
    "ask",
    [
        hash,
        Tensor.__hash__,
        lambda t: t.__hash__(),
        lambda t: list(map(hash, [t])),
        lambda t: list(map(Tensor.__hash__, [t])),
        lambda t: {hash(t): 1},
    ],
)
def test_hashes_as_values(ask: Callable[[Tensor], Any]) -> None:
    compiled = api.compile(lambda x: (x + 1, ask(x)))
    for _ in range(3):
        x = torch.ones(2)
        assert compiled(x)[1] == ask(x)


class Tied(nn.Module):
    """Two layers that may share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        total = sum(p.sum() for p in self.parameters())
        return x * total * len(list(self.modules())) * len(dict(self.named_buffers()))


def test_parameters() -> None:
    model = Tied()
    compiled = api.compile(model.forward)

    def check() -> None:
        for _ in range(3):
            assert torch.equal(compiled(X), model.forward(X))

    check()
    assert api.PLAIN or (api.traces(compiled), api.native(compiled)) == (1, 0)
    weight = model.b.weight
    model.b.weight = model.a.weight
    check()
    model.b.weight = weight
    check()
    model.b = model.a
    check()
