"""`copy.deepcopy` of what is from outside: what was copied is guarded, and the copy is the call's own."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import tracemalloc
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Steps, flip, right_after

X = torch.ones(3)


@dataclasses.dataclass
class Settings:
    """Copied with its list."""

    scale: int = 2
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1, 2])


class Linked:
    """Holds itself and a list twice."""

    def __init__(self) -> None:
        self.me = self
        self.left = self.right = [1]


@flip
def test_containers() -> Steps:
    config: dict[str, Any] = {"a": [1, 2], "b": {"c": (3, [4])}}

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(config)
        mine["a"].append(5)
        mine["b"]["c"][1].clear()
        return x * len(mine["a"]) * mine["b"]["c"][0], mine, config

    yield fn, (X,)
    config["b"]["c"][1].append(6)
    yield None
    config["b"]["c"][1].pop()
    yield None


@flip
def test_objects() -> Steps:
    settings = Settings()

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(settings)
        mine.sizes.append(3)
        mine.scale += 1
        return x * mine.scale * len(mine.sizes), mine, settings.sizes

    yield fn, (X,)
    settings.sizes[0] = 9
    yield None
    settings.sizes[0] = 1
    yield None


@flip
def test_as_dict() -> Steps:
    settings = Settings()
    yield (lambda x: (x + 1, dataclasses.asdict(settings))), (X,)
    settings.scale = 3
    yield None
    settings.scale = 2
    yield None


def test_sharing() -> None:
    linked = Linked()

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(linked)
        return x + 1, mine

    compiled = api.compile(fn)
    for _ in range(3):
        _, mine = compiled(X)
        assert mine is not linked and mine.me is mine
        assert mine.left is mine.right is not linked.left
    assert api.PLAIN or api.hits(compiled) == 2


@right_after
def test_the_class_learns_to_copy() -> Steps:
    settings = Settings()
    yield (lambda x: x * copy.deepcopy(settings).scale), (X,)
    Settings.__deepcopy__ = lambda self, memo: Settings(7)  # type: ignore[attr-defined]
    try:
        yield None
    finally:
        del Settings.__deepcopy__  # type: ignore[attr-defined]
    yield None
    Settings.__getstate__ = lambda self: {"scale": 8}  # type: ignore[attr-defined,method-assign,assignment]
    try:
        yield None
    finally:
        del Settings.__getstate__
    yield None
    copyreg.pickle(Settings, lambda self: (Settings, (9,)))
    try:
        yield None
    finally:
        del copyreg.dispatch_table[Settings]
    yield None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tensors(backend: str) -> None:
    def fn(x: Tensor) -> Any:
        y = copy.deepcopy(x)
        y.add_(1)
        return y * 2

    compiled = api.compile(fn, backend=backend)
    for step in range(4):
        x = torch.ones(3) * step
        assert torch.equal(compiled(x), fn(x))
        assert torch.equal(x, torch.ones(3) * step)


@right_after
def test_a_tensor_with_attributes() -> Steps:
    t = torch.ones(3)
    yield (lambda x: (x * copy.deepcopy(t), getattr(copy.deepcopy(t), "tag", None))), (X,)
    t.tag = [1]  # type: ignore[attr-defined]
    yield None


class Mapped:
    """Reads attributes by names that its class maps to others, as transformers' configurations do."""

    names = {"width": "d_model"}

    def __init__(self) -> None:
        self.d_model = 8
        self.labels = {0: "zero", 1: "one"}
        self.same = self.labels
        self.inner: Any = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(type(self).names.get(name, name), value)

    def __getattribute__(self, name: str) -> Any:
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


class Falling:
    """Has a `__getattr__` that knows no more."""

    def __init__(self) -> None:
        self.value = [1, 2]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Its own `__setattr__` raises; a copy is made without it."""

    sizes: tuple[list[int], int] = ([1], 2)


@right_after
def test_classes_that_read_attributes_in_python() -> Steps:
    config, falling, frozen = Mapped(), Falling(), Frozen()
    config.inner = [Mapped(), falling]

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(config)
        mine.labels[2] = "two"
        mine.width += 1
        mine.inner[0].d_model *= 2
        other = copy.deepcopy(frozen)
        copies = (
            mine.labels is mine.same,
            mine.inner[1].value is falling.value,
            other.sizes[0] is frozen.sizes[0],
        )
        values = (
            mine.d_model,
            config.width,
            mine.inner[0].width,
            dict(mine.labels),
            mine.inner[1].value,
        )
        return x * mine.width, copies, values, copy.deepcopy(falling).value, other.sizes

    yield fn, (X,)
    config.d_model = 9
    yield None
    config.inner[0].labels[5] = "five"
    yield None
    config.same = dict(config.labels)
    yield None
    falling.value.append(3)
    yield None
    Mapped.names = {"width": "d_model", "other": "d_model"}
    yield None
    frozen.sizes[0].append(7)
    yield None


@right_after
def test_attributes_that_a_class_makes_up() -> Steps:
    config = Mapped()
    yield (lambda x: x * copy.deepcopy(config).width), (X,)
    plain = Mapped.__getattribute__

    def makes_up(self: Mapped, name: str) -> Any:
        if name == "__deepcopy__":
            return lambda memo: memo.setdefault("seen", Frozen()) and Mapped()
        return plain(self, name)

    Mapped.__getattribute__ = makes_up  # type: ignore[method-assign]
    config.d_model = 11
    try:
        yield None
    finally:
        Mapped.__getattribute__ = plain  # type: ignore[method-assign]
    yield None
    Mapped.__getattribute__ = lambda self, name: (  # type: ignore[method-assign]
        (lambda: {"d_model": 3}) if name == "__getstate__" else plain(self, name)
    )
    try:
        yield None
    finally:
        Mapped.__getattribute__ = plain  # type: ignore[method-assign]
    yield None


def test_what_reads_do_is_done_once() -> None:
    class Counted(Mapped):
        asked: list[str] = []

        def __getattribute__(self, name: str) -> Any:
            Counted.asked.append(name)
            return super().__getattribute__(name)

    config = Counted()

    def fn(x: Tensor) -> Any:
        return x * copy.deepcopy(config).d_model

    compiled = api.compile(fn)
    Counted.asked.clear()
    fn(X)
    plain = list(Counted.asked)
    for _ in range(3):
        Counted.asked.clear()
        assert torch.equal(compiled(X), X * 8)
        assert Counted.asked == plain


def test_the_memo_stays_where_it_is() -> None:
    seen: list[Any] = []

    class Asks:
        def __init__(self) -> None:
            self.config = Mapped()

        def __deepcopy__(self, memo: dict[int, Any]) -> Asks:
            seen.append(sorted(key - id(self) for key in memo if key != id(memo)))
            other = Asks()
            memo[id(self)] = other
            other.config = copy.deepcopy(self.config, memo)
            return other

    asks = Asks()
    both = [asks, asks]

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(both)
        return x * mine[0].config.width, mine[0] is mine[1], mine[0].config is asks.config

    compiled = api.compile(fn)
    for _ in range(4):
        asks = both[0] = both[1] = Asks()
        result, shared, kept = compiled(X)
        assert torch.equal(result, X * 8) and shared and not kept
    assert len(seen) == 4


@flip
def test_objects_that_become_one() -> Steps:
    parts: list[list[int]] = [[1], [1]]

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(parts)
        mine[0].append(2)
        return x * len(mine[1]), mine

    yield fn, (X,)
    parts[1] = parts[0]
    yield None
    parts[1] = [1]
    yield None


class Wide:
    """Holds much of which little is read."""

    def __init__(self, parts: int) -> None:
        self.scale = 2
        for number in range(parts):
            setattr(self, f"part_{number}", {"number": number, "sizes": [number, number + 1]})


class WideMapped(Wide, Mapped):
    """As `Wide`, with attributes that are read in Python."""


@pytest.mark.parametrize("kind", [Wide, WideMapped])
def test_replays_build_of_a_copy_what_is_left_of_it(kind: type[Wide]) -> None:
    """Counted in bytes."""
    config = kind(1000)

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(config)
        mine.part_7["sizes"].append(mine.scale)  # type: ignore[attr-defined]
        return x * mine.scale, mine.part_7  # type: ignore[attr-defined]

    def most(call: Any) -> int:
        tracemalloc.start()
        try:
            call(X)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    compiled = api.compile(fn)
    compiled(X), compiled(X)
    assert api.PLAIN or most(compiled) * 10 < most(fn)
    for number in range(3):
        # Of what is left, what nobody has read is a copy of what it is now.
        config.part_7["number"] = number  # type: ignore[attr-defined]
        result, part = compiled(X)
        assert torch.equal(result, X * 2) and part == {"number": number, "sizes": [7, 8, 2]}
        assert part is not config.part_7 and config.part_7["sizes"] == [7, 8]  # type: ignore[attr-defined]


@right_after
def test_a_copier_in_the_table_of_the_module() -> Steps:
    settings = Settings()
    yield (lambda x: x * copy.deepcopy(settings).scale), (X,)
    table: dict[type, Any] = copy._deepcopy_dispatch  # type: ignore[attr-defined]
    table[Settings] = lambda value, memo: Settings(12)
    try:
        yield None
    finally:
        del table[Settings]
    yield None


@right_after
def test_unions_of_classes() -> Steps:
    import typing

    values: list[Any] = [3]

    def fn(x: Tensor) -> Any:
        union = typing.get_args(int | None)
        return (
            x * (2 if isinstance(values[0], int | None) else 3),
            union,
            issubclass(type(values[0]), int | str),
        )

    yield fn, (X,)
    values[0] = "text"
    yield None
    values[0] = None
    yield None
