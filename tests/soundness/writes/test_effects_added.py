"""Containers that are only added to need no guard on their contents, until somebody looks."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..worlds import World, agree, guard_lines

# Containers that are only added to


class Logs:
    """What functions add to without looking."""

    def __init__(self) -> None:
        self.log: list[Any] = [1]
        self.log2: list[Any] = [1]
        self.names: set[Any] = {"a"}
        self.queue: collections.deque[Any] = collections.deque([1, 2], maxlen=3)
        self.many: dict[str, list[Any]] = {"k": []}
        self.last: Any = None


def append_attribute(x: Tensor, s: Logs) -> Tensor:
    s.log.append(x.shape[0])
    s.log.append(x * 2)
    return x + 1


def append_in_a_loop(x: Tensor, s: Logs) -> Tensor:
    for i in range(3):
        s.log.append([i, x])
    return x + 1


def append_to_an_alias(x: Tensor, s: Logs) -> Tensor:
    log = s.log
    s.many["k"].append(log)
    s.many["k"].extend((x, x))
    return x + 1


def append_what_was_read(x: Tensor, s: Logs) -> Tensor:
    s.many["k"].append(s.last)
    s.last = x
    return x + 1


def extend_by_a_generator(x: Tensor, s: Logs) -> Tensor:
    s.log.extend(x * i for i in range(2))
    return x + 1


def add_names(x: Tensor, s: Logs) -> Tensor:
    s.names.add("b")
    s.names.discard("a")
    s.names.update(["c", 3], {"d"})
    return x + 1


def fill_queue(x: Tensor, s: Logs) -> Tensor:
    s.queue.append(x)
    s.queue.appendleft(3)
    s.queue.extend([4, x])
    s.queue.extendleft((5,))
    return x + 1


BLIND = [
    append_attribute,
    append_in_a_loop,
    append_to_an_alias,
    append_what_was_read,
    extend_by_a_generator,
    add_names,
    fill_queue,
]


def _shrink(world: World) -> None:
    s = world.args[0]
    s.log[:] = [torch.zeros(2), "other"]
    s.names.clear()
    s.names |= {"z", (1, 2)}
    s.queue.clear()
    s.many["k"].clear()


@pytest.mark.parametrize("fn", BLIND, ids=lambda fn: fn.__name__)
def test_added_without_looking(fn: Callable[..., Any]) -> None:
    compiled = agree(lambda: World(fn, (Logs(),)), _shrink)
    # What the containers hold makes no difference; what `append_what_was_read` reads does.
    if not api.PLAIN:
        traces = {append_what_was_read: 2, append_to_an_alias: 3}
        assert compiled.stats.traces <= traces.get(fn, 1), guard_lines(compiled)


def look_behind(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    return x * len(s.log)


def look_before(x: Tensor, s: Logs) -> Tensor:
    n = len(s.log)
    s.log.append(5)
    return x * n


def look_through_the_dictionary(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    held = [value for value in vars(s).values() if type(value) is list]
    return x * len(held[0])


def look_in_an_argument(x: Tensor, s: Logs) -> Tensor:
    s.log.append(len(s.log))
    return x * s.log[-1]


def look_by_unpacking(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    first, *rest = s.log
    return x * first + len(rest)


def look_by_matching(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    match s.log:
        case [_, _]:
            return x * 2
        case [_, _, _]:
            return x * 3
    return x


def look_by_comparing(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    return x * (2 if (s.log, 1) == ([1, 5], 1) else 3)


def look_at_another(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    return x * len(s.log2)


def add_in_turn(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    s.log2.append(6)
    s.log.append(7)
    return x + 1


def give_it_back(x: Tensor, s: Logs) -> Any:
    s.log.append(x)
    return s.log, [s.log]


def extend_by_itself(x: Tensor, s: Logs) -> Any:
    s.log.append(6)
    s.log.extend(s.log)
    return x + 1


def look_at_names(x: Tensor, s: Logs) -> Tensor:
    s.names.add("b")
    return x * len(s.names) + ("a" in s.names)


def change_names(x: Tensor, s: Logs) -> Any:
    s.names |= {"b", "q"}
    s.names -= {"a"}
    s.names ^= {"q", "r"}
    if "r" in s.names:
        s.names.remove("r")
    s.names &= {"b", "a", "z"}
    return x * len(s.names), list(s.names)


def take_of_queue(x: Tensor, s: Logs) -> Any:
    s.queue.append(6)
    first = s.queue.popleft()
    last = s.queue.pop()
    s.queue += [7, 8]
    s.queue.rotate(1)
    s.queue.reverse()
    s.queue[0] = 9
    del s.queue[1]
    return x * len(s.queue), first, last, s.queue.maxlen, list(s.queue), 9 in s.queue


def tensors_in_queue(x: Tensor, s: Logs) -> Any:
    s.queue.append(x * 2)
    s.queue.append(x * 3)
    return s.queue[-1] + s.queue[-2]


LOOKING = [
    look_behind,
    look_before,
    look_through_the_dictionary,
    look_in_an_argument,
    look_by_unpacking,
    look_by_matching,
    look_by_comparing,
    look_at_another,
    add_in_turn,
    give_it_back,
    extend_by_itself,
    look_at_names,
    change_names,
    take_of_queue,
    tensors_in_queue,
]


def _again(world: World) -> None:
    s = world.args[0]
    s.log[:] = [1]
    s.names.clear()
    s.names.add("a")
    s.queue.clear()
    s.queue.extend([1, 2])


def _longer(world: World) -> None:
    s = world.args[0]
    s.log[:] = [2, 3]
    s.names.clear()
    s.names.update(["b", "y"])
    s.queue.clear()
    s.queue.extend([3])


def _unbounded(world: World) -> None:
    _again(world)
    world.args[0].queue = collections.deque([1, 2])


def _same_logs(world: World) -> None:
    _again(world)
    world.args[0].log2 = world.args[0].log


@pytest.mark.parametrize("fn", LOOKING, ids=lambda fn: fn.__name__)
def test_added_and_looked_at(fn: Callable[..., Any]) -> None:
    steps = (_again, _longer, _again, _unbounded, _same_logs, _again, _again)
    compiled = agree(lambda: World(fn, (Logs(),)), *steps, replays=False, again=1)
    if not api.PLAIN:
        assert compiled.stats.native == 0, compiled.stats.reason
        assert compiled.stats.hits >= 1


def test_arguments_that_are_only_added_to() -> None:
    def fn(x: Tensor, log: list[Any], seen: set[Any]) -> Tensor:
        log.append(x)
        seen.add("s")
        log.append(2)
        return x + 1

    def alias(world: World) -> None:
        world.args = ([], {"t"})

    compiled = agree(lambda: World(fn, ([1], set())), alias)
    if not api.PLAIN:
        assert compiled.stats.traces == 1


def test_an_argument_that_is_also_returned() -> None:
    def fn(x: Tensor, log: list[Any]) -> Any:
        log.append(x)
        return log[0]

    agree(lambda: World(fn, ([torch.ones(2)],)), replays=False)
