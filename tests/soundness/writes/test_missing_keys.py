"""Missing keys of a `defaultdict` from outside, and tensors as keys: as an optimizer's state begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import nn


class Meter:
    def __init__(self) -> None:
        self.seen: list[float] = []


class Own(defaultdict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        self[key] = value = [str(key)]
        return value


def raising() -> Any:
    raise ArithmeticError("no default")


def printing() -> Any:
    print("made", end=" ")
    return []


def breaking() -> Any:
    return [id(object()) > 0]


class Bench:
    """What a function of the corpus is given: things from outside."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.p, self.q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))
        self.t = torch.ones(2)
        self.lists: defaultdict[Any, Any] = defaultdict(list)
        self.counts: defaultdict[Any, Any] = defaultdict(int)
        self.meters: defaultdict[Any, Any] = defaultdict(Meter)
        self.nested: defaultdict[Any, Any] = defaultdict(lambda: defaultdict(dict))
        self.own: Any = Own(list)
        self.plain: dict[Any, Any] = {}
        self.none: defaultdict[Any, Any] = defaultdict(None)

    def look(self) -> Any:
        def shown(it: Any) -> Any:
            names = {id(self.p): "p", id(self.q): "q", id(self.t): "t"}
            if id(it) in names:
                return names[id(it)]
            if isinstance(it, torch.Tensor):
                return it.tolist()
            if isinstance(it, Meter):
                return "meter", shown(it.seen)
            if isinstance(it, dict):
                return type(it).__name__, [(shown(k), shown(v)) for k, v in it.items()]
            return [shown(v) for v in it] if isinstance(it, (list, tuple)) else it

        return [shown(it) for name, it in vars(self).items() if name not in "pqt"]


def state(b: Bench, x: Any) -> Any:
    for p in (b.p, b.q):
        kept = b.lists[p]
        if len(kept) == 0:
            kept.append(torch.zeros_like(p))
        kept[0].add_(x)
    return b.lists[b.q][0] + 1


def counts(b: Bench, x: Any) -> Any:
    b.counts["a"] += 1
    b.counts[3] += 2
    b.counts[b.p] += 1
    return x + b.counts["a"]


def meters(b: Bench, x: Any) -> Any:
    b.meters["loss"].seen.append(x.sum().item())
    b.meters["other"].seen.append(1.0)
    return x * 2


def nested(b: Bench, x: Any) -> Any:
    b.nested["a"]["b"]["c"] = x + 1
    b.nested["a"]["d"]
    return x * 2


def own(b: Bench, x: Any) -> Any:
    b.own["key"].append(1)
    return x * 2


def tensors(b: Bench, x: Any) -> Any:
    b.plain[b.p] = x + 1
    b.plain[b.q] = b.p
    b.plain[b.p] = x + 2
    return x * 2


def deleted(b: Bench, x: Any) -> Any:
    b.plain[b.p] = x
    b.plain["a"] = 1
    del b.plain[b.p]
    b.plain[b.q] = 2
    b.plain[b.p] = 3
    return x * len(b.plain)


def listed(b: Bench, x: Any) -> Any:
    b.lists[b.p]
    names = [it is b.p for it in b.lists]
    popped = b.lists.pop(b.p)
    return x * 2, names, popped, b.p in b.lists, b.lists.get(b.q)


def set_default(b: Bench, x: Any) -> Any:
    b.plain.setdefault(b.p, []).append(len(b.plain))
    b.plain.setdefault(b.q, x * 3)
    return x * 2


def no_factory(b: Bench, x: Any) -> Any:
    try:
        b.none["missing"]
    except KeyError as error:
        return x * 2, str(error)
    return x * 3


def decided(b: Bench, x: Any) -> Any:
    b.lists[b.p].append(1)
    b.plain[b.q] = x
    if x.sum() > 0:
        b.lists["positive"].append(x * 2)
        return x + 1
    b.lists[b.q].append(3)
    return x - 1


def plain_key(b: Bench, x: Any) -> Any:
    b.plain[b.t] = x + 1
    b.counts[b.t] += 1
    return x * 2


def same(b: Bench, x: Any) -> Any:
    b.lists["a"].append(1)
    b.counts["a"] = 5
    return x * len(b.lists["a"])


FUNCTIONS = [
    state,
    counts,
    meters,
    nested,
    own,
    tensors,
    deleted,
    listed,
    set_default,
    no_factory,
    decided,
    plain_key,
    same,
]


def cleared(b: Bench) -> None:
    for it in vars(b).values():
        if isinstance(it, dict):
            it.clear()


CHANGES: dict[str, Callable[[Bench], Any]] = {
    "nothing": lambda b: None,
    "cleared": cleared,
    "another factory": lambda b: (
        cleared(b),
        setattr(b.lists, "default_factory", lambda: [7]),
        setattr(b.counts, "default_factory", float),
    ),
    "no factory": lambda b: (
        cleared(b),
        setattr(b.lists, "default_factory", None),
        setattr(b.none, "default_factory", int),
    ),
    "a factory that raises": lambda b: (
        cleared(b),
        setattr(b.lists, "default_factory", raising),
        setattr(b.counts, "default_factory", raising),
    ),
    "a factory that prints": lambda b: (
        cleared(b),
        setattr(b.lists, "default_factory", printing),
    ),
    "a factory that breaks": lambda b: (
        cleared(b),
        setattr(b.lists, "default_factory", breaking),
    ),
    "other keys": lambda b: (
        cleared(b),
        b.plain.update({"z": 1, b.q: 2}),
        b.lists.update({b.q: [torch.ones(2)]}),
    ),
    "another parameter": lambda b: (
        cleared(b),
        setattr(b, "p", nn.Parameter(torch.full((2,), 3.0))),
    ),
    "one parameter": lambda b: (cleared(b), setattr(b, "q", b.p)),
    "one dictionary": lambda b: (cleared(b), setattr(b, "counts", b.lists)),
    "another tensor": lambda b: (cleared(b), setattr(b, "t", torch.zeros(2))),
}


def play(function: Any, change: str, wrap: Callable[[Any], Any]) -> list[Any]:
    bench, results = Bench(), []
    called = wrap(function)
    for call in range(7):
        if call in (2, 3, 5):
            CHANGES[change](bench)
        x = torch.full((2,), float(call if call != 4 else -4))
        try:
            result = called(bench, x)
        except Exception as error:
            result = type(error).__name__, str(error)
        bench.result = result  # type: ignore[attr-defined]
        results.append(repr(bench.look()))
        del bench.result  # type: ignore[attr-defined]
    return results


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("change", CHANGES)
def test_missing_keys_are_plain_ones(function: Any, change: str) -> None:
    expected = play(function, change, lambda it: it)
    assert play(function, change, lambda it: api.compile(it, backend="eager")) == expected


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("function", [state, counts, meters, nested, tensors, set_default])
def test_first_writes_are_replayed(function: Any) -> None:
    """What a trace put into empty dictionaries is put there by a replay, if they are empty again."""
    bench = Bench()
    compiled = api.compile(function, backend="eager")
    for call in range(4):
        compiled(bench, torch.full((2,), float(call)))
        cleared(bench)
    assert (api.traces(compiled), api.breaks(compiled), api.hits(compiled)) == (1, 0, 3), (
        api.reason(compiled)
    )
