"""Outside instances of classes on top of `OrderedDict`, whose own methods run while the call is recorded and not again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from differential.support.describe import describe
from torch import Tensor


class Recent(OrderedDict[str, Any]):
    """It keeps what was used last."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        self.move_to_end(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > 2:
            self.popitem(last=False)


class Counted(OrderedDict[str, Any]):
    sets = 0

    def __setitem__(self, key: str, value: Any) -> None:
        self.sets += 1
        super().__setitem__(key + "!", value)

    def __delitem__(self, key: str) -> None:
        self.sets -= 10
        super().__delitem__(key)

    def __contains__(self, key: object) -> bool:
        self.sets += 100
        return super().__contains__(key)


class Moving(OrderedDict[str, Any]):
    def move_to_end(self, key: str, last: bool = True) -> None:
        super().move_to_end(key, not last)


class Plain(OrderedDict[str, Any]):
    pass


class Unordered(OrderedDict[str, Any]):
    __setitem__ = dict.__setitem__


CLASSES: list[Any] = [Recent, Counted, Moving, Plain, OrderedDict]


def stored(x: Tensor, held: Any, key: str) -> Any:
    if key not in list(held):
        held[key] = x * len(key)
    return x.sum()


def stored_twice(x: Tensor, held: Any, key: str) -> Any:
    held[key] = x
    held["a"] = x + 1
    return list(held)


def deleted(x: Tensor, held: Any, key: str) -> Any:
    held[key] = x
    first = next(iter(held))
    del held[first]
    held["z"] = x
    return first


def moved(x: Tensor, held: Any, key: str) -> Any:
    held[key] = x
    held.move_to_end(next(iter(held)))
    held.move_to_end(next(iter(held)), last=False)
    return list(held)


def popped(x: Tensor, held: Any, key: str) -> Any:
    held[key], held["b"] = x, x + 2
    last, first = held.popitem(), held.popitem(last=False)
    held["c"] = x
    return last, first, held.pop("c!" if "c!" in list(held) else "c"), held.pop("none", 3)


def cleared(x: Tensor, held: Any, key: str) -> Any:
    held.clear()
    held[key] = x
    return len(held)


def updated(x: Tensor, held: Any, key: str) -> Any:
    held.update({key: x, "u": x + 1}, v=2)
    held.setdefault("w", x)
    held |= {"o": 1}
    return list(held)


def raised(x: Tensor, held: Any, key: str) -> Any:
    held[key] = x
    try:
        del held["nothing"]
    except KeyError as error:
        return str(error)


PROGRAMS: list[Callable[..., Any]] = [
    stored,
    stored_twice,
    deleted,
    moved,
    popped,
    cleared,
    updated,
    raised,
]


def states(run: Callable[..., Any], kind: Any, patch: pytest.MonkeyPatch) -> list[Any]:
    found = []
    held = kind([("a", 1), ("bb", 2)])
    for i, key in enumerate(["a", "bb", "a", "a", "ccc", "a", "bb", "a", "a", "a"]):
        if i == 7 and kind is not OrderedDict:
            patch.setattr(
                kind,
                "__setitem__",
                lambda self, key, value: OrderedDict.__setitem__(self, key * 2, value),
                raising=False,
            )
        result = run(torch.ones(2) * i, held, key)
        inside = [list(held.items()), list(dict.items(held)), getattr(held, "sets", None)]
        found.append(describe((result, inside)))
    return found


@pytest.mark.parametrize("kind", [*CLASSES, Unordered], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_writes(fn: Callable[..., Any], kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(x: Tensor, held: Any, key: str) -> Any:
        return fn(x, held, key)

    def run(called: Callable[..., Any]) -> list[Any]:
        with monkeypatch.context() as patch:
            try:
                return states(called, kind, patch)
            except (KeyError, StopIteration) as error:
                return [repr(error)]

    compiled = api.compile(fn)
    assert run(compiled) == run(plain)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_in_the_trace(kind: Any) -> None:
    compiled, held = api.compile(stored_twice), kind([("a", 1), ("bb", 2)])
    for _ in range(6):
        compiled(torch.ones(2), held, "a")
    assert api.PLAIN or (api.breaks(compiled) == 0 and api.hits(compiled) >= 1), api.reason(
        compiled
    )
