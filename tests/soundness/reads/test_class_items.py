"""Subscription of classes: metaclasses' own, `__class_getitem__`, and generic aliases."""

from __future__ import annotations

import enum
from typing import Any, Generic, TypeVar

import torch
from differential.support import api
from torch import Tensor

from ..probe import Steps, flip, right_after

X = torch.ones(3)
T = TypeVar("T")


class Colour(enum.Enum):
    """Members by name."""

    RED = 2
    GREEN = 3


class Box(Generic[T]):
    """A generic class."""

    def __init__(self, value: Any) -> None:
        self.value = value


@flip
def test_member_by_name() -> Steps:
    names = ["RED"]
    yield (lambda x: x * Colour[names[0]].value), (X,)
    names[0] = "GREEN"
    yield None
    names[0] = "RED"
    yield None


@flip
def test_own_metaclass() -> Steps:
    class Meta(type):
        def __getitem__(cls, key: int) -> int:
            return key * 2

    class A(metaclass=Meta):
        pass

    before = Meta.__getitem__
    yield (lambda x: x * A[3]), (X,)
    Meta.__getitem__ = lambda cls, key: key * 5  # type: ignore[method-assign]
    yield None
    Meta.__getitem__ = before  # type: ignore[method-assign]
    yield None


@flip
def test_own_class_getitem() -> Steps:
    class A:
        factor = 2

        def __class_getitem__(cls, key: int) -> int:
            return key * cls.factor

    yield (lambda x: x * A[3]), (X,)
    A.factor = 4
    yield None
    A.factor = 2
    yield None


def test_generic_alias() -> None:
    def fn(x: Tensor) -> Any:
        box = Box[int](x + 1)
        return box.value, box

    compiled = api.compile(fn)
    for _ in range(4):
        value, box = compiled(X)
        assert torch.equal(value, X + 1) and box.value is value
        assert box.__orig_class__ is Box[int]


@right_after
def test_builtin_alias() -> Steps:
    def fn(x: Tensor) -> Any:
        made = list[int]([1, 2])
        made.append(3)
        return x * len(made), list[int] == list[int], dict[str, int]

    yield fn, (X,)
