"""C code calls special methods of what a generator gives it: no instruction has asked for them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, filterfalse, groupby
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn


class Part:
    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __bool__(self) -> bool:
        return len(self.numbers) > 1

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return self.numbers[0]

    def __lt__(self, other: Part) -> bool:
        return self.numbers < other.numbers


class Filled(OrderedDict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)


def louder(self: OrderedDict[str, Any], key: str, value: Any) -> None:
    OrderedDict.__setitem__(self, key.upper(), value)


class Assigned(OrderedDict[str, Any]):
    __setitem__ = louder


class Unnamed(OrderedDict[str, Any]):
    __setitem__ = lambda self, key, value: OrderedDict.__setitem__(self, key + "!", value)  # noqa: E731


class Plain(OrderedDict[str, Any]):
    pass


class Derived(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key + "?", value)


FILLED: list[Any] = [Filled, Assigned, Unnamed, Plain, Derived]


def filled(kind: Any) -> Callable[[Tensor, World], Any]:
    def fill(x: Tensor, _: World) -> Any:
        one, two = kind([("a", x), ("b", 2)]), kind(a=1)
        one["c"] = x + 1
        two.update(d=x)
        return list(one.items()), list(two.items())

    return fill


class World:
    def __init__(self) -> None:
        self.parts = [Part(3, 1), Part(2), Part(3, 1)]
        self.net = nn.Sequential(
            nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Sequential(nn.Tanh())
        )

    def each(self) -> Iterator[Part]:
        yield from self.parts


PROGRAMS: dict[str, Callable[[Tensor, World], Any]] = {
    "chained": lambda x, w: [x * n for n in chain.from_iterable(w.each())],
    "chained, as a tuple": lambda x, w: (x, tuple(chain.from_iterable(w.each()))),
    "modules": lambda x, w: [
        type(it).__name__ for it in tuple(chain.from_iterable(w.net.children()))
    ],
    "filtered": lambda x, w: [x * it.numbers[0] for it in filter(None, w.each())],
    "refused": lambda x, w: [x * len(it) for it in filterfalse(None, w.each())],
    "any": lambda x, w: (x, any(w.each()), all(w.each())),
    "lengths": lambda x, w: (x, list(map(len, w.each())), max(w.each(), key=len).numbers),
    "sorted": lambda x, w: (x, [it.numbers for it in sorted(w.each())]),
    "least": lambda x, w: (x, min(w.each()).numbers),
    "set": lambda x, w: (x, len(set(w.each()))),
    "grouped": lambda x, w: (x, [len(list(them)) for _, them in groupby(w.each())]),
    "within": lambda x, w: (x, w.parts[1] in w.each()),
    # Called by C code, without a single variable.
    "factory": lambda x, w: (x, [made for made in (defaultdict(lambda: 3)[it] for it in w.each())]),
    "endless": lambda x, w: (x, next(iter(lambda: 5, 3))),
    **{f"filled {kind.__name__}": filled(kind) for kind in FILLED},
}


def replace(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(Part, "__iter__", lambda self: iter([7, *self.numbers]))
    monkeypatch.setattr(Part, "__bool__", lambda self: self.numbers[0] == 2)
    monkeypatch.setattr(Part, "__len__", lambda self: 10 - len(self.numbers))
    monkeypatch.setattr(Part, "__hash__", lambda self: 5)
    monkeypatch.setattr(Part, "__eq__", lambda self, other: True)
    monkeypatch.setattr(Part, "__lt__", lambda self, other: self.numbers > other.numbers)
    for kind in FILLED:
        own = OrderedDict if issubclass(kind, OrderedDict) else dict

        def store(self: Any, key: str, value: Any, own: Any = own) -> None:
            own.__setitem__(self, f"{key}{len(self)}", value)

        monkeypatch.setattr(kind, "__setitem__", store, raising=False)


def add(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    world.parts.append(Part(5, 6, 7))
    world.net.append(nn.Sequential(nn.Linear(3, 3)))


def change(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    world.parts[1].numbers.append(4)
    world.net[1][0] = nn.GELU()


def derive(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    class Further(Part):
        def __iter__(self) -> Iterator[int]:
            return iter([0])

        def __len__(self) -> int:
            return 0

    world.parts[0] = Further(4)


@pytest.mark.parametrize("changes", [replace, add, change, derive])
@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_ones(name: str, changes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api.reset()
    fn, world, x = PROGRAMS[name], World(), torch.arange(3.0)
    compiled = api.compile(fn)
    for _ in range(3):
        assert str(compiled(x, world)) == str(fn(x, world))
    with monkeypatch.context() as patch:
        changes(patch, world)
        for _ in range(3):
            assert str(compiled(x, world)) == str(fn(x, world))
    assert str(compiled(x, world)) == str(fn(x, world))


IN_THE_TRACE = ["chained", "chained, as a tuple", "modules", "filtered"]


@pytest.mark.parametrize("name", [*IN_THE_TRACE, *(it for it in PROGRAMS if "filled" in it)])
def test_in_the_trace(name: str) -> None:
    api.reset()
    compiled, world = api.compile(PROGRAMS[name]), World()
    for _ in range(3):
        compiled(torch.arange(3.0), world)
    assert api.PLAIN or (api.breaks(compiled), api.hits(compiled)) == (0, 2), api.reason(compiled)
