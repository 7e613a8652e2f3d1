"""Objects that die while a call goes on: their finalizers run, and weak references to them are dead, from there on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ..worlds import World, agree


class Told:
    """Says when it dies."""

    def __init__(self, log: list[Any], n: Any) -> None:
        self.log, self.n = log, n

    def __del__(self) -> None:
        self.log.append(self.n)


class Plain:
    n = 2


def test_a_new_object_dies() -> None:
    def make() -> World:
        log: list[Any] = []

        def fn(x: Tensor) -> Tensor:
            told = Told(log, 1)
            y = x * told.n
            told = Told(log, 2)
            log.append("between")
            del told
            log.append("end")
            return y + len(log)

        return World(fn, state=log)

    agree(make, lambda world: world.state.clear(), replays=False)


def test_the_last_reference_from_outside_is_dropped() -> None:
    def make() -> World:
        log: list[Any] = []
        held = [Told(log, 0), Told(log, 1)]

        def fn(x: Tensor) -> Tensor:
            log.append("before")
            if held:
                held.pop()
            log.append("behind")
            return x * 2 + len(log)

        return World(fn, state=(log, held))

    def more(world: World) -> None:
        log, held = world.state
        held.append(Told(log, "more"))

    agree(make, more, lambda world: world.state[0].clear(), more, replays=False)


def test_an_attribute_is_overwritten() -> None:
    def make() -> World:
        log: list[Any] = []
        holder = Plain()
        holder.told = Told(log, 1)  # type: ignore[attr-defined]

        def fn(x: Tensor) -> Tensor:
            if holder.told is not None:  # type: ignore[attr-defined]
                x = x + holder.told.n  # type: ignore[attr-defined]
            holder.told = None  # type: ignore[attr-defined]
            log.append("behind")
            return x * len(log)

        return World(fn, state=(log, holder))

    def again(world: World) -> None:
        log, holder = world.state
        holder.told = Told(log, 5)

    agree(make, again, again, replays=False)


def test_an_object_that_lives_on_costs_nothing() -> None:
    def make() -> World:
        told = Told([], 3)
        return World(lambda x: x * told.n, state=lambda: told.n)

    agree(make)


def test_a_weak_reference_to_a_new_object() -> None:
    def make() -> World:
        def fn(x: Tensor) -> Tensor:
            plain = Plain()
            reference = weakref.ref(plain)
            x = x * (2 if reference() is plain else 3)
            del plain
            return x + (reference() is None)

        return World(fn)

    agree(make, replays=False)


def test_a_weak_reference_to_what_the_call_drops() -> None:
    def make() -> World:
        held = [Plain()]
        references = [weakref.ref(held[0])]

        def fn(x: Tensor) -> Tensor:
            held.clear()
            return x * (1 if references[0]() is None else 2)

        return World(fn, state=(held, references))

    def again(world: World) -> None:
        held, references = world.state
        held.append(Plain())
        references[0] = weakref.ref(held[0])

    agree(make, again, again, replays=False)


def test_a_generator_is_left() -> None:
    def make() -> World:
        log: list[str] = []

        def numbers() -> Iterator[int]:
            try:
                while True:
                    yield 1
            finally:
                log.append("left")

        def fn(x: Tensor) -> Tensor:
            for n in numbers():
                x = x + n
                break
            log.append("end")
            return x

        return World(fn, state=log)

    agree(make)


def test_a_new_object_in_a_cycle_is_collected() -> None:
    def make() -> World:
        log: list[Any] = []

        def fn(x: Tensor) -> Tensor:
            told: Any = Told(log, "collected")
            told.own = told
            y = x * 2
            del told
            return y + 1

        return World(fn, state=log)

    def collected(world: World) -> None:
        gc.collect()
        assert world.state == ["collected"] * 3
        world.state.clear()

    agree(make, collected, collected, collected, replays=False)


def test_a_new_object_that_is_left_is_made_again() -> None:
    def make() -> World:
        log: list[Any] = []

        def fn(x: Tensor) -> Any:
            told: Any = Told(log, x.dim())
            told.own = [x]
            return x * 2, told

        return World(fn, state=log)

    agree(make, lambda world: world.state.clear())
