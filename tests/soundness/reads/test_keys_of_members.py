"""Members of enumerations as keys. A dictionary finds those of texts and integers by what they equal, whatever key it holds."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from ..worlds import World, agree


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shade(enum.Enum):
    DARK = "dark"

    def __eq__(self, other: object) -> bool:
        return other == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class Plain(enum.Enum):
    ONE = 1


class Name(str):
    pass


TRAIN = Name("train")


def read_by_member(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d[Mode.TRAIN], x * d[Level.LOW]


def read_by_value(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d["train"], x * d[1]


def read_by_a_text_of_its_own(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d[TRAIN]


def read_by_own_equality(x: Tensor, d: dict[Any, Any]) -> Any:
    return x * d.get(Shade.DARK, 2), Shade.DARK in d


def asked(x: Tensor, d: dict[Any, Any]) -> Any:
    return Mode.EVAL in d, d.get(Level.HIGH, 3.0), d.get("eval"), 2 in d, d.get(Plain.ONE)


def written_by_value(x: Tensor, d: dict[Any, Any]) -> Any:
    before = d[Mode.TRAIN]
    d["train"] = before + 1
    d[1] = x.sum().item()
    return d[Mode.TRAIN], before, d[Level.LOW]


def written_by_member(x: Tensor, d: dict[Any, Any]) -> Any:
    before = d["train"]
    d[Mode.TRAIN] = x * 2
    d[Level.LOW] = 0.5
    return d["train"] + 1, before, d[1]


def only_written(x: Tensor, d: dict[Any, Any]) -> Any:
    d["train"] = x * 2
    return d[Mode.TRAIN] + 1, len(d)


def counted(x: Tensor, d: dict[Any, Any]) -> Any:
    d[Mode.TRAIN] += 1
    d[Level.LOW] += x.sum().item()
    return d[Mode.TRAIN], d[Level.LOW]


def taken_out(x: Tensor, d: dict[Any, Any]) -> Any:
    gone = d.pop(Mode.EVAL, None)
    d.setdefault("eval", x.sum().item())
    return gone, d[Mode.EVAL], list(d)


FUNCTIONS = [
    read_by_member,
    read_by_value,
    read_by_a_text_of_its_own,
    read_by_own_equality,
    asked,
    written_by_value,
    written_by_member,
    only_written,
    counted,
    taken_out,
]


def of_values() -> dict[Any, Any]:
    return {"train": 1.5, "eval": 2.5, "dark": 0.5, 1: 0.5, 2: 1.5}


def of_members() -> dict[Any, Any]:
    return {Mode.TRAIN: 1.5, Mode.EVAL: 2.5, Level.LOW: 0.5, Plain.ONE: 4.0}


def of_both() -> dict[Any, Any]:
    return collections.OrderedDict({"train": 1.5, Mode.EVAL: 2.5, 1: 0.5, Level.HIGH: 1.5})


def _others(world: World) -> None:
    for number, key in enumerate(list(world.args[0])):
        world.args[0][key] = number + 0.25


def _without(world: World) -> None:
    world.args[0].pop("eval", None)
    world.args[0].pop("dark", None)
    world.args[0].pop(2, None)


def _anew(world: World) -> None:
    found = {"train": 7.0, 1: 8.0, Mode.EVAL: 9.0, "dark": 3.0}
    world.args[0].clear()
    world.args[0].update(found)


@pytest.mark.parametrize("step", [_others, _without, _anew])
@pytest.mark.parametrize("make", [of_values, of_members, of_both])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_found_by_what_they_equal(
    fn: Callable[..., Any], make: Callable[[], dict[Any, Any]], step: Callable[[World], None]
) -> None:
    agree(lambda: World(fn, (make(),)), step, replays=False)


@pytest.mark.parametrize("make", [of_values, of_members])
def test_each_call_finds_what_is_there(make: Callable[[], dict[Any, Any]]) -> None:
    def changed(world: World) -> None:
        world.args[0][Mode.TRAIN] = world.args[0]["train"] + 1.0
        world.args[0][Level.LOW] += 1.0

    agree(lambda: World(read_by_member, (make(),)), *[changed] * 6, replays=False, again=1)
    agree(lambda: World(read_by_value, (make(),)), *[changed] * 6, replays=False, again=1)
    x = torch.ones(2)
    assert torch.equal(read_by_member(x, make())[0], x * 1.5)


def _left_as_they_were(world: World) -> None:
    world.args[0]["other"] = 1.0


@pytest.mark.parametrize("make", [of_values, of_members, of_both])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_no_break(fn: Callable[..., Any], make: Callable[[], dict[Any, Any]]) -> None:
    if fn in (read_by_a_text_of_its_own, read_by_own_equality):
        pytest.skip("of a class with an equality of its own, or none that is known by identity")
    # What a call takes out, the next one doesn't find; what isn't there raises.
    with stator.config.patch(skip_unprofitable=False):
        compiled = agree(lambda: World(fn, (make(),)), _left_as_they_were, replays=False)
    assert compiled.stats.breaks == 0, compiled.stats.reason


Classes = dict[str, Any]


def classes() -> Classes:
    """Classes of a world's own, which may be changed."""

    class Phase(str, enum.Enum):
        FIT = "fit"
        TEST = "test"

    class Kind(enum.StrEnum):
        SMALL = enum.auto()
        LARGE = enum.auto()

    class Stage(enum.IntEnum):
        EARLY = 1
        LATE = 2

    class Flags(enum.IntFlag):
        A = 1
        B = 2

    class Role(enum.Enum):
        TEACHER = 1
        STUDENT = 2

    return {"phase": Phase, "kind": Kind, "stage": Stage, "flags": Flags, "role": Role}


def pair(of: Classes, name: str) -> tuple[Any, Any]:
    first, second = of[name]
    return first, second


def counts(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    first, second = pair(of, name)
    d[first] += 1
    return x * d[first], d[second]


def appends(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    first, _ = pair(of, name)
    total = x.sum()
    d.setdefault("losses", collections.defaultdict(list))[first].append(total.item())
    return total, list(d["losses"])


def asks(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    first, second = pair(of, name)
    return x * (2 if first in d else 3), d.get(second), d.get(first.value), first.value in d


def makes(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    """Dictionaries of its own."""
    first, second = pair(of, name)
    table = {first: x * 2, second: x * 3}
    seen = collections.Counter([first, second, first])
    return table[first] + table[second], table.get(first.value), seen, first.value in table


def replaces(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    """Which of the keys that are equal is there afterwards depends on which one was first."""
    first, second = pair(of, name)
    d.pop(first, None)
    d[first.value] = x.sum().item()
    d.pop(second.value, None)
    d[second] = x * 2
    return [(type(key).__name__, key) for key in d]


def adds_anew(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    first, second = pair(of, name)
    had = first.value in d, second.value in d
    d.clear()
    d[first] = x.sum().item()
    d[second.value] = x + 1
    return had, [(type(key).__name__, key) for key in d]


def goes_over(x: Tensor, of: Classes, name: str, d: dict[Any, Any]) -> Any:
    first, _ = pair(of, name)
    for key, value in d.items():
        x = x + value if key is first else x * 2
    return x


def own_equality(world: World) -> None:
    of, name = world.args[0], world.args[1]
    type.__setattr__(of[name], "__eq__", lambda self, other: False)
    type.__setattr__(of[name], "__hash__", lambda self: 7)


def own_hash(world: World) -> None:
    of, name = world.args[0], world.args[1]
    type.__setattr__(of[name], "__hash__", lambda self: 12345)


def other_entries(world: World) -> None:
    of, name, d = world.args
    d.clear()
    d.update({member: 0.5 + at for at, member in enumerate(of[name])})


def by_values(world: World) -> None:
    of, name, d = world.args
    d.clear()
    d.update({member.value: 2.5 + at for at, member in enumerate(of[name])})


@pytest.mark.parametrize("step", [own_equality, own_hash, other_entries, by_values])
@pytest.mark.parametrize("keys", ["members", "values"])
@pytest.mark.parametrize("name", ["phase", "kind", "stage", "flags", "role"])
@pytest.mark.parametrize(
    "fn", [counts, appends, asks, makes, replaces, adds_anew, goes_over], ids=lambda fn: fn.__name__
)
def test_members(
    fn: Callable[..., Any], name: str, keys: str, step: Callable[[World], None]
) -> None:
    """Equal and replayed, also after the class or the dictionary has changed."""

    def make() -> World:
        of = classes()
        members = list(of[name])
        found = members if keys == "members" else [member.value for member in members]
        d: dict[Any, Any] = {key: 1.5 + at for at, key in enumerate(found)}
        return World(fn, (of, name, d))

    with stator.config.patch(skip_unprofitable=False):
        agree(make, step, replays=False, again=3)


@pytest.mark.parametrize("name", ["phase", "kind", "stage", "flags", "role"])
@pytest.mark.parametrize("fn", [counts, asks, makes, replaces, adds_anew, goes_over])
def test_members_break_nothing(fn: Callable[..., Any], name: str) -> None:
    def make() -> World:
        of = classes()
        return World(fn, (of, name, {member: 1.5 for member in of[name]}))

    with stator.config.patch(skip_unprofitable=False):
        compiled = agree(make, replays=False, again=6)
    assert compiled.stats.breaks == 0 and compiled.stats.hits > 0, compiled.stats.reason


def test_a_hook_finds_new_entries_under_their_own_keys() -> None:
    """What the trace has stored is written before the hook runs."""

    def make() -> World:
        weight = torch.ones(3, requires_grad=True)
        table: dict[Any, Any] = {}
        seen: list[Any] = []
        weight.register_hook(lambda grad: seen.append([type(key).__name__ for key in table]))

        def fn(x: Tensor, table: dict[Any, Any]) -> Any:
            table.clear()
            table[Mode.TRAIN] = x * 2
            weight.grad = None
            (weight * x).sum().backward()
            return list(table)

        return World(fn, (table,), state=seen)

    agree(make, replays=False)
