"""Class patterns: the class's `__match_args__` and the attributes that a pattern reads are guarded."""

from __future__ import annotations

import enum
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..objects import X
from ..probe import Probe, Steps, flip, right_after


@dataclass
class Linear:
    size: int
    bias: bool = True


@dataclass
class Activation:
    kind: str


Point = namedtuple("Point", "x y")


class Slotted:
    __slots__ = ("a",)
    __match_args__ = ("a",)


class Level(enum.Enum):
    LOW = 1


@flip
def test_an_attribute_of_an_object_from_outside() -> Steps:
    layer = Linear(2)

    def fn(x: Tensor) -> Tensor:
        match layer:
            case Linear(size, bias=True):
                return x * size
            case Linear(size=size):
                return x - size

    yield fn, (X,)
    layer.bias = False
    yield None
    layer.bias = True
    yield None


@flip
def test_an_attribute_of_the_class_of_a_new_object() -> Steps:
    class Known:
        k = 2

    def fn(x: Tensor) -> Tensor:
        match Known():
            case Known(k=2):
                return x
            case Known():
                return -x

    yield fn, (X,)
    Known.k = 3
    yield None
    Known.k = 2
    yield None


@flip
def test_match_args_of_the_class() -> Steps:
    class Pair:
        __match_args__ = ("a",)

        def __init__(self) -> None:
            self.a, self.b = 2, 3

    pair = Pair()

    def fn(x: Tensor) -> Tensor:
        match pair:
            case Pair(found):
                return x * found
        return x

    yield fn, (X,)
    Pair.__match_args__ = ("b",)
    yield None
    Pair.__match_args__ = ("a",)
    yield None


@flip
def test_a_slot() -> Steps:
    slotted = Slotted()
    slotted.a = 4

    def fn(x: Tensor) -> Tensor:
        match slotted:
            case Slotted(4):
                return x
            case Slotted(found):
                return x * found
            case Slotted():
                return -x
        return x + 1

    yield fn, (X,)
    del slotted.a
    yield None
    slotted.a = 4
    yield None


@flip
def test_an_attribute_that_is_missing() -> Steps:
    layer = Linear(2)

    def fn(x: Tensor) -> Tensor:
        match layer:
            case Linear(extra=factor):
                return x * factor
        return x

    yield fn, (X,)
    layer.extra = 5  # type: ignore[attr-defined]
    yield None
    del layer.extra  # type: ignore[attr-defined]
    yield None


@flip
def test_the_class_of_the_subject() -> Steps:
    held: list[Any] = [Linear(2)]

    def fn(x: Tensor) -> Any:
        match held[0]:
            case Linear(size):
                return x * size
            case Activation("relu"):
                return torch.relu(x) + 1
            case Point(x=a, y=0 | 2):
                return x + a
            case str(name):
                return name, x
            case [a, *_]:
                return a, x

    yield fn, (X,)
    held[0] = Point(7, 2)
    yield None
    held[0] = Linear(2)
    yield None


def _kinds(x: Tensor) -> Any:
    out: list[Any] = []
    subjects = [1, "s", [1, 2], (3,), {"k": 1}, None, Point(1, 2), Linear(4), 2.5, True, {1}]
    for subject in subjects:
        match subject:
            case bool(value):
                out.append(("bool", value))
            case int(value) | float(value):
                out.append(value)
            case str() as text:
                out.append(text)
            case Point(x, y=y) if y:
                out.append((x, y))
            case list([first, *_]):
                out.append(first)
            case tuple(items):
                out.append(items)
            case dict(table):
                out.append(len(table))
            case Linear(size=4, bias=bias):
                out.append(bias)
            case set():
                out.append("set")
            case _:
                out.append("none")
    return out, x


def _of_tensors(x: Tensor) -> Any:
    match x:
        case torch.Tensor(shape=(n,), dtype=torch.float32) if n > 1:
            return x * n
        case torch.Tensor():
            return x


@pytest.mark.parametrize("fn", [_kinds, _of_tensors])
def test_patterns_are_one_trace(fn: Any) -> None:
    api.reset()
    probe = Probe(fn)
    for _ in range(3):
        probe.right(X)
    if not api.PLAIN:
        stats = stator.stats(probe.compiled)
        assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0)
    probe.right(torch.ones(1))
    probe.right(torch.ones(4))


class Computed:
    __match_args__ = ("value",)
    factor = 1

    def __init__(self, value: int) -> None:
        self._value = value

    @property
    def value(self) -> int:
        return self._value * Computed.factor


class Dynamic:
    def __getattr__(self, name: str) -> int:
        return len(name)


@right_after
def test_a_property() -> Steps:
    def fn(x: Tensor) -> Tensor:
        match Computed(3):
            case Computed(3):
                return x
            case Computed(found):
                return x * found
        return -x

    yield fn, (X,)
    Computed.factor = 2
    yield None
    Computed.factor = 1
    yield None


def _by_getattr(x: Tensor) -> Any:
    match Dynamic():
        case Dynamic(abc=3):
            return x


def _too_many(x: Tensor) -> Any:
    match Linear(x.shape[0]):
        case Linear(_, _, _):  # type: ignore[misc]
            return x


def _twice(x: Tensor) -> Any:
    match Linear(5):
        case Linear(_, size=_):  # type: ignore[misc]
            return x


def _of_a_member(x: Tensor) -> Any:
    match Level.LOW:
        case Level(name="LOW"):
            return x + 1


def _of_a_number(x: Tensor) -> Any:
    match 5:
        case int(real=5):
            return x + 1


@pytest.mark.parametrize("fn", [_by_getattr, _too_many, _twice, _of_a_member, _of_a_number])
def test_what_runs_code_or_raises(fn: Any) -> None:
    api.reset()
    probe = Probe(fn)
    for _ in range(3):
        probe.right(X)


class Table(dict[str, Any]):
    pass


def mapping(held: Any) -> Any:
    def fn(x: Tensor) -> Any:
        match held:
            case {"a": v, **others}:
                return x * v + len(others)
            case {"b": v}:
                return x - v
        return x

    return fn


@flip
def test_a_get_of_the_class() -> Steps:
    yield mapping(Table(a=2.0, b=3)), (X,)
    Table.get = lambda self, key, default=None: 9.0  # type: ignore[assignment, misc]
    yield None
    del Table.get
    yield None


@flip
def test_a_get_of_the_instance() -> Steps:
    table: Any = Table(b=3)
    yield mapping(table), (X,)
    table.get = lambda key, default=None: 9.0
    yield None
    del table.get
    yield None


@flip
def test_a_get_of_an_ordered_dict() -> Steps:
    table: Any = OrderedDict(a=2.0)
    yield mapping(table), (X,)
    table.get = lambda key, default=None: default
    yield None
    del table.get
    yield None


@flip
def test_a_class_that_finds_its_get_otherwise() -> Steps:
    class Other(dict[str, Any]):
        pass

    def found(self: Any, name: str) -> Any:
        return (lambda key, default: 4.0) if name == "get" else dict.__getattribute__(self, name)

    yield mapping(Other(a=2.0)), (X,)
    Other.__getattribute__ = found  # type: ignore[method-assign, assignment]
    yield None
    del Other.__getattribute__
    yield None


@flip
def test_what_a_table_holds() -> Steps:
    table = Table(a=2.0)
    yield mapping(table), (X,)
    table["c"] = 1
    yield None
    del table["c"]
    yield None


@pytest.mark.parametrize("changes", ["deleted", "class", "set"])
def test_modules_of_pytorch(changes: str) -> None:
    class Own(torch.nn.Linear):
        pass

    def matched(x: Tensor, net: Any) -> Any:
        found = []
        for layer in net:
            match layer:
                case torch.nn.Linear(weight=weight, bias=None):
                    found.append(weight.sum())
                case Own(extra=extra):
                    found.append(extra)
                case torch.nn.Linear(weight=weight, bias=bias, in_features=size):
                    found.append(weight.sum() + bias.sum() * size)
                case torch.nn.LayerNorm(eps=eps, normalized_shape=shape):
                    found.append((eps, shape))
                case torch.nn.Module(training=training):
                    found.append(training)
        return x + 1, found

    def net() -> Any:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(3, 2), torch.nn.LayerNorm(3), torch.nn.ReLU(), Own(2, 2)]
        return torch.nn.Sequential(*layers, torch.nn.Linear(3, 3, bias=False))

    plain, traced = net(), net()
    compiled = api.compile(matched)
    for step in range(8):
        for layers in (plain, traced):
            if step == 3 and changes == "deleted":
                del layers[0].bias
            elif step == 3 and changes == "set":
                layers[1].eps = 0.5
                layers[3].extra = torch.ones(1)
            elif step == 3:
                Own.extra = 3
            elif step == 5:
                layers.eval()
        assert str(compiled(X, traced)) == str(matched(X, plain))
    if not api.PLAIN and changes == "set":
        # What is nowhere is for `__getattr__` to say.
        assert api.breaks(compiled) <= 3
