"""A signal that comes in the middle of a replay ends it before its next step, in a state that plain Python
passes through as well. Steps are counted, nothing is timed: a stage of the work sends the signal."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator
from stator import _testing

pytestmark = pytest.mark.skipif(api.PLAIN, reason="sends signals in replays")

LENGTH = 30


class World:
    def __init__(self) -> None:
        self.x, self.y = torch.zeros(3), torch.ones(3)
        self.count = 0
        self.log: list[Any] = []

    def state(self) -> tuple[Any, ...]:
        return (self.x.tolist(), self.y.tolist(), self.count, list(self.log))


def computes(world: World) -> Tensor:
    x = world.x
    for _ in range(LENGTH):
        x = (x + 1).relu()
    return x


def writes(world: World) -> Tensor:
    for _ in range(LENGTH // 2):
        world.x.add_(1)
        world.y.mul_(0.5)
    return world.x + world.y


def writes_without_gradients(world: World) -> Tensor:
    with torch.no_grad():
        for _ in range(LENGTH // 2):
            world.x.add_(1)
            world.y.mul_(0.5)
    return world.x + world.y


def writes_then_counts(world: World) -> Tensor:
    result = writes(world)
    world.count += 1
    world.log.append(world.count)
    return result


def counts_then_writes(world: World) -> Tensor:
    world.count += 1
    return writes(world)


def handles(world: World) -> Tensor:
    try:
        return writes(world)
    except KeyboardInterrupt:
        world.log.append("handled")
        raise
    finally:
        world.count += 1


def writes_behind_a_break(world: World) -> Tensor:
    world.log.append("called")
    print(end="")
    return writes(world)


PROGRAMS = [
    computes,
    writes,
    writes_without_gradients,
    writes_then_counts,
    counts_then_writes,
    handles,
    writes_behind_a_break,
]
GOES_ON = [counts_then_writes]
"""What is counted is noted when the graph has run: no state in between is plain Python's."""


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def states(program: Callable[[World], Any], calls: int) -> list[Any]:
    """The states that plain Python passes through in a call."""
    world, found = World(), []
    for _ in range(calls):
        program(world)

    def trace(frame: Any, event: str, arg: Any) -> Any:
        found.append(world.state())
        return trace if frame.f_code.co_filename == __file__ else None

    sys.settrace(trace)
    try:
        program(world)
    finally:
        sys.settrace(None)
    program(World())  # CPython 3.12 takes tracing's instructions out of a function at its next call
    return [*found, world.state()]


def after_an_interrupt(program: Callable[[World], Any], calls: int) -> list[Any]:
    """The states in which plain Python leaves a call that is interrupted at one of its lines."""
    found, line = [], 0
    while True:
        world = World()
        for _ in range(calls):
            program(world)
        left = [line]

        def trace(frame: Any, event: str, arg: Any, left: list[int] = left) -> Any:
            if frame.f_code.co_filename != __file__:
                return None
            if event == "line":
                if left[0] == 0:
                    left[0] = -1
                    raise KeyboardInterrupt
                left[0] -= 1
            return trace

        sys.settrace(trace)
        try:
            program(world)
        except KeyboardInterrupt:
            found.append(world.state())
        finally:
            sys.settrace(None)
            torch.set_grad_enabled(True)
        if left[0] >= 0:
            program(World())  # CPython 3.12 takes tracing's instructions out at the next call
            return [*found, world.state()]
        line += 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("replays", [0, 1, 3])
@pytest.mark.usefixtures("interrupts")
def test_an_interrupt(program: Callable[[World], Any], replays: int) -> None:
    expected = after_an_interrupt(program, 1 + replays)
    for number in [1, 2, 7, 16, LENGTH - 1]:
        fast, world = stator.compile(program), World()
        for _ in range(1 + replays):
            fast(world)
        caught = None
        with _testing.inject("operation", number, signal=signal.SIGINT) as passed:
            try:
                fast(world)
            except KeyboardInterrupt as error:
                caught = error
        if caught is None:
            # A recording: a number has changed that the first one took for constant.
            assert passed.times == 0 and replays == 0
            continue
        assert world.state() in expected, number
        if program not in GOES_ON:
            assert passed.times == number  # no step more than that during which it came
        assert torch.is_grad_enabled()
        frames = [entry.name for entry in traceback.extract_tb(caught.__traceback__)]
        assert frames[0] == "test_an_interrupt" and len(set(frames)) <= 3
        # Nothing of it is left.
        before = stator.stats(fast).hits
        plain, other = World(), World()
        assert repr(program(plain)) == repr(fast(other)) and plain.state() == other.state()
        assert stator.stats(fast).hits >= before


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("replays", [0, 1, 3])
def test_a_handler_that_returns(program: Callable[[World], Any], replays: int) -> None:
    """It runs at once where the replay can be taken back, else when it has ended."""
    seen: list[Any] = []
    world = World()

    def handler(*_: object) -> None:
        seen.append(world.state())

    expected, old = World(), signal.signal(signal.SIGUSR1, handler)
    try:
        for number in [1, 9, LENGTH - 1]:
            world, expected = World(), World()
            fast = stator.compile(program)
            passing = states(program, 1 + replays)
            for _ in range(1 + replays):
                fast(world), program(expected)
            seen.clear()
            with _testing.inject("operation", number, signal=signal.SIGUSR1) as passed:
                result = fast(world)
            assert repr(result) == repr(program(expected)) and world.state() == expected.state()
            assert len(seen) == (passed.times > 0) and all(state in passing for state in seen)
            assert passed.times or replays == 0
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_a_handler_that_changes_what_the_trace_has_read() -> None:
    """The call ends natively: it sees the change as plain Python does that is interrupted as it begins."""
    world = World()

    def program(x: Tensor) -> Tensor:
        for _ in range(LENGTH):
            x = x + 1
        return x * world.count

    def handler(*_: object) -> None:
        world.count = 5

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        world.count = 2
        fast = stator.compile(program)
        for _ in range(3):
            assert fast(torch.zeros(1)).item() == 2 * LENGTH
        with _testing.inject("operation", 4, signal=signal.SIGUSR1) as passed:
            assert fast(torch.zeros(1)).item() == 5 * LENGTH
        assert passed.times == 4
    finally:
        signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize("kind", [TimeoutError, SystemExit])
def test_a_handler_that_certainly_raises(kind: type[BaseException]) -> None:
    def handler(*_: object) -> None:
        raise kind("rang")

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        fast, world = stator.compile(writes), World()
        for _ in range(3):
            fast(world)
        before = world.x[0].item()
        with (
            _testing.inject("operation", 10, signal=signal.SIGUSR1) as passed,
            pytest.raises(kind, match="rang"),
        ):
            fast(world)
        assert passed.times == 10 and world.x[0].item() == before + 5
    finally:
        signal.signal(signal.SIGUSR1, old)
