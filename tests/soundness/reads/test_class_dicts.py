"""`vars(cls)` and `cls.__dict__`: what a class has of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import pytest
import torch
from torch import Tensor

import stator

X = torch.arange(3.0)


class Base:
    scale: Any = 2
    keys = ("a",)

    def method(self) -> int:
        return 1


class Derived(Base):
    keys = ("b", "c")
    own = 4


class Meta(type):
    def __getattr__(cls, name: str) -> int:
        return 7


class Watched(metaclass=Meta):
    own = 5


def lineage(x: Tensor, d: Derived) -> Any:
    found = [k for c in reversed(type(d).__mro__) for k in vars(c).get("keys", ())]
    return found, x * len(found)


def contained(x: Tensor, d: Derived) -> Any:
    return "own" in vars(Derived), "scale" in Derived.__dict__, "scale" in vars(Base), x + 1


def taken(x: Tensor, d: Derived) -> Any:
    return x * vars(Base)["scale"], Derived.__dict__.get("own", 9), vars(Base)["method"](d)


def lacking(x: Tensor, d: Derived) -> Any:
    try:
        return x * vars(Derived)["scale"]
    except KeyError as error:
        return str(error), x


def named(x: Tensor, d: Derived) -> Any:
    names = [name for name in vars(Derived) if not name.startswith("__")]
    values = {k: v for k, v in Derived.__dict__.items() if not k.startswith("__")}
    return names, values, x * len(names)


def of_metaclass(x: Tensor, d: Derived) -> Any:
    return x * vars(Watched)["own"], "other" in vars(Watched), Watched.other


def written(x: Tensor, d: Derived) -> Any:
    before = vars(Base)["scale"]
    Base.scale = before + 1
    after = vars(Base)["scale"]
    Base.scale = before
    return before, after, x * after


def shown_before_a_write(x: Tensor, d: Derived) -> Any:
    shown = vars(Base)
    before = shown["scale"]
    Base.scale = 11
    after = shown["scale"]
    Base.scale = before
    return x * after, before


def handed_out(x: Tensor, d: Derived) -> Any:
    return vars(Base), x + 1


def made(x: Tensor, d: Derived) -> Any:
    class Local:
        own = 3

    return x * vars(Local)["own"], "other" in Local.__dict__


PROGRAMS = [
    lineage,
    contained,
    taken,
    lacking,
    named,
    of_metaclass,
    written,
    shown_before_a_write,
    handed_out,
    made,
]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    Base.scale, Base.keys, Derived.keys, Derived.own = 2, ("a",), ("b", "c"), 4
    for name in ("scale", "more"):
        if name in vars(Derived):
            delattr(Derived, name)


def play(call: Callable[[Tensor, Derived], Any]) -> list[str]:
    played, d = [], Derived()

    def step() -> None:
        played.extend(repr(call(X, d)) for _ in range(4))

    step()
    Base.scale, Derived.keys = 3, ("d",)
    step()
    Derived.scale = torch.tensor(5.0)
    step()
    del Derived.scale
    Base.keys = ()
    step()
    Derived.more = "more"  # type: ignore[attr-defined]
    Derived.own = 6
    step()
    del Derived.more  # type: ignore[attr-defined]
    Base.scale, Base.keys, Derived.keys, Derived.own = 2, ("a",), ("b", "c"), 4
    step()
    return played


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("pays", [True, False])
def test_a_class_shows_what_it_has(program: Callable[..., Any], pays: bool) -> None:
    compiled = stator.compile(program, recompile_limit=99)
    expected = play(program)
    with stator.config.patch(skip_unprofitable=pays):
        assert play(compiled) == expected


@pytest.mark.parametrize("program", [lineage, contained, taken, lacking, named, of_metaclass])
def test_it_breaks_no_graph(program: Callable[..., Any]) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            compiled(X, Derived())
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks) == (1, 0), stats.reason


dict_of = type.__dict__["__dict__"].__get__
lineage_of = type.__dict__["__mro__"].__get__


class Slotted:
    __slots__ = ("held",)


def by_descriptors(x: Tensor, d: Derived) -> Any:
    slotted = Slotted()
    slotted.held = 3
    field = Slotted.__dict__["held"]
    own = dict_of(Annotated), type.__dict__["__dict__"].__get__(Annotated, type)
    fields = field.__get__(slotted), field.__get__(slotted, Slotted)
    return lineage_of(Derived), fields, x * own[0]["first"] * own[1]["first"]


def refused_by_descriptors(x: Tensor, d: Derived) -> Any:
    field = Slotted.__dict__["held"]
    wrong = []
    for owner in (d, 3, Slotted()):
        try:
            field.__get__(owner)
        except (TypeError, AttributeError) as error:
            wrong.append(str(error))
    return x * len(wrong), field.__get__(None, Slotted), wrong


def test_descriptors_called() -> None:
    compiled = stator.compile(by_descriptors)
    first = Annotated.first
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            if call == 4:
                Annotated.first = 7
            assert repr(compiled(X, Derived())) == repr(by_descriptors(X, Derived()))
    Annotated.first = first
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
    compiled = stator.compile(refused_by_descriptors)
    for _ in range(3):
        assert repr(compiled(X, Derived())) == repr(refused_by_descriptors(X, Derived()))


@runtime_checkable
class Scaled(Protocol):
    def method(self) -> int: ...


def annotated(x: Tensor, d: Derived) -> Any:
    kinds = (
        isinstance(d, Scaled),
        isinstance(x, Scaled),
        isinstance(Annotated(), Scaled),
        issubclass(Derived, Scaled),
    )
    hints = dict(Annotated.__annotations__), list(Base.__annotations__), len(Bare.__annotations__)
    return kinds, hints, getattr(int, "__annotations__", "none"), x * len(Annotated.__annotations__)


class Annotated:
    first: int = 1
    second: str


class Bare: ...


def test_annotations() -> None:
    compiled = stator.compile(annotated)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            if call == 3:
                Annotated.__annotations__["third"] = float
            if call == 6:
                Annotated.__annotations__ = {"other": int}
            assert repr(compiled(X, Derived())) == repr(annotated(X, Derived()))
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason


def module_above() -> Any:
    name: Callable[..., Any] = sys._getframemodulename  # type: ignore[attr-defined]
    return name(0), name(1), name(2)


def modules_of_frames(x: Tensor) -> Any:
    return x * 2, module_above()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="3.12 has sys._getframemodulename")
def test_modules_of_frames() -> None:
    def outermost(x: Tensor) -> Any:
        return modules_of_frames(x)

    compiled = stator.compile(outermost)
    own = modules_of_frames.__module__
    with stator.config.patch(skip_unprofitable=False):
        for call in range(6):
            modules_of_frames.__module__ = own if call < 3 else "elsewhere"
            assert repr(compiled(X)) == repr(outermost(X))
        assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
        modules_of_frames.__module__ = own
        # The frame above the compiled function's isn't the trace's.
        compiled = stator.compile(modules_of_frames)
        for _ in range(3):
            assert repr(compiled(X)) == repr(modules_of_frames(X))
        assert stator.stats(compiled).breaks > 0
