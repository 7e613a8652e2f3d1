"""Attributes that stand in the object itself, whose dictionary may not count that they are written.

From CPython 3.13 on a write to an attribute leaves the version of the instance's dictionary as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from differential.support import api

from ..objects import X
from ..probe import Probe


class Settings:
    """Two attributes, and a method that an attribute may hide."""

    def __init__(self) -> None:
        self.scale = 1
        self.shift = 2

    def bias(self) -> int:
        return 3


class Outer:
    def __init__(self) -> None:
        self.inner = Settings()


def through_the_type(owner: Any, name: str, value: object) -> None:
    object.__setattr__(owner, name, value)


def through_the_dictionary(owner: Any, name: str, value: object) -> None:
    owner.__dict__[name] = value


def after_others(owner: Any, name: str, value: object) -> None:
    """Behind it the attributes have a table of their own: the object has no room for so many."""
    for index in range(40):
        setattr(owner, f"other_{index}", index)
    setattr(owner, name, value)


def gone_and_back(owner: Any, name: str, value: object) -> None:
    delattr(owner, name)
    setattr(owner, name, value)


def with_another_dictionary(owner: Any, name: str, value: object) -> None:
    owner.__dict__ = {**owner.__dict__, name: value}


WRITES = [
    setattr,
    through_the_type,
    through_the_dictionary,
    after_others,
    gone_and_back,
    with_another_dictionary,
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_made", [False, True])
def test_each_way_to_write(write: Callable[[Any, str, object], None], is_made: bool) -> None:
    api.reset()
    owner = Settings()
    if is_made:
        assert owner.__dict__
    probe = Probe(lambda x: x * owner.scale + owner.shift)
    probe.right(X)
    probe.steady(X)
    for value in (5, 7.5, 1):
        write(owner, "scale", value)
        probe.changed(X)
        probe.right(X)
        write(owner, "shift", -value)
        probe.changed(X)
        probe.right(X)


@pytest.mark.parametrize("write", WRITES)
def test_the_first_entry_holds_again(write: Callable[[Any, str, object], None]) -> None:
    api.reset()
    owner = Settings()
    probe = Probe(lambda x: x + 1 if owner.scale == "plus" else x - 1)
    write(owner, "scale", "plus")
    probe.right(X)
    probe.steady(X)
    write(owner, "scale", "minus")
    probe.retraced(X)
    write(owner, "scale", "plus")
    probe.steady(X)


def test_an_attribute_that_comes_and_goes() -> None:
    api.reset()
    owner = Settings()
    probe = Probe(lambda x: x * getattr(owner, "extra", 2) + hasattr(owner, "shift"))
    probe.right(X)
    for _ in range(3):
        owner.extra = 4  # type: ignore[attr-defined]
        probe.changed(X)
        del owner.shift
        probe.changed(X)
        del owner.extra  # type: ignore[attr-defined]
        probe.changed(X)
        owner.shift = 0
        probe.changed(X)


def test_a_method_that_is_hidden() -> None:
    api.reset()
    outer = Outer()
    probe = Probe(lambda x, outer: x + outer.inner.bias())
    probe.right(X, outer)
    probe.steady(X, outer)
    outer.inner.bias = lambda: 30  # type: ignore[method-assign]
    probe.changed(X, outer)
    del outer.inner.bias
    probe.changed(X, outer)
    outer.inner = Settings()
    outer.inner.__dict__["bias"] = lambda: 40
    probe.changed(X, outer)


def test_keys_and_their_number() -> None:
    api.reset()
    owner = Settings()
    probe = Probe(lambda x: x * len(owner.__dict__) + list(owner.__dict__).index("shift"))
    probe.right(X)
    owner.third = 1  # type: ignore[attr-defined]
    probe.changed(X)
    del owner.scale
    probe.changed(X)
    owner.scale = 1
    probe.changed(X)


@pytest.mark.parametrize("seed", range(20))
def test_random_writes(seed: int) -> None:
    api.reset()
    chance = random.Random(seed)
    outer = Outer()

    def read(x: Any, outer: Any) -> Any:
        inner = outer.inner
        x = x * getattr(inner, "scale", 10) + getattr(inner, "shift", 20)
        return x + getattr(inner, "extra", 30) + len(inner.__dict__) * 100

    probe = Probe(read, recompile_limit=10_000)
    probe.right(X, outer)
    for _ in range(60):
        name = chance.choice(["scale", "shift", "extra"])
        match chance.randrange(7):
            case 0:
                outer.inner = Settings()
            case 1:
                outer.inner.__dict__.pop(name, None)
            case 2 if hasattr(outer.inner, name):
                delattr(outer.inner, name)
            case 3:
                outer.inner.__dict__.update({name: chance.randrange(4)})
            case _:
                chance.choice(WRITES[:3])(outer.inner, name, chance.randrange(4))
        probe.right(X, outer)
