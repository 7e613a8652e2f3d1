"""An allocator's error in a replay, behind writes that nothing has saved: results, tracebacks and states are
plain Python's."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional as F

import stator

HUGE = 2**50


class World:
    def __init__(self, size: int = 3) -> None:
        self.x, self.y = torch.zeros(size), torch.ones(2, 2)
        self.count = 0
        self.log: list[Any] = []

    def state(self) -> tuple[Any, ...]:
        return (self.x[:3].tolist(), self.x.shape, self.y.tolist(), self.count, list(self.log))


def inner(world: World, part: Tensor) -> Tensor:
    world.x.add_(1)
    return part + 1  # as large as the argument says


def alone(world: World, part: Tensor) -> Tensor:
    world.x.mul_(2)
    return inner(world, part)


def in_a_function_of_torchs(world: World, part: Tensor) -> Tensor:
    world.x.add_(1)
    return F.softsign(part)


def writes_attributes_later(world: World, part: Tensor) -> Tensor:
    result = alone(world, part)
    world.count += 1
    return result


def closing_over(step: float) -> Callable[[World, Tensor], Tensor]:
    def in_a_closure(world: World, part: Tensor) -> Tensor:
        world.x.add_(step)
        return part + step

    return in_a_closure


def in_a_mode(world: World, part: Tensor) -> Tensor:
    with torch.no_grad():
        return alone(world, part)


def behind_a_break(world: World, part: Tensor) -> Tensor:
    print(end="")
    return alone(world, part)


def handled(world: World, part: Tensor) -> Any:
    world.log.append("begun")
    try:
        return alone(world, part)
    except RuntimeError as error:
        world.log.append(str(error)[:20])
        world.count += 1
        return None
    finally:
        world.log.append("left")


def left_with(world: World, part: Tensor) -> Any:
    world.x.unsqueeze_(0)
    try:
        return alone(world, part)
    finally:
        world.x.squeeze_(0)
        world.count += 1


PROGRAMS = [
    alone,
    in_a_function_of_torchs,
    writes_attributes_later,
    closing_over(1.0),
    in_a_mode,
    behind_a_break,
    handled,
    left_with,
]


def outcome(call: Callable[..., Any], world: World, part: Tensor) -> Any:
    try:
        result = call(world, part)
        return result.tolist() if result is not None else None
    except RuntimeError as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        places = [(frame.filename, frame.lineno, frame.name, frame.line) for frame in frames]
        variables = [sorted(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__)]
        assert len(variables) == len(frames) + 1  # readers of variables find a frame
        return type(error), str(error), getattr(error, "__notes__", []), places


def run(call: Callable[..., Any], size: int) -> list[Any]:
    world, found = World(size), []
    for length in (3, 4, 5, HUGE, 6, HUGE, 4):
        found.append(outcome(call, world, torch.ones(1).expand(length)))
        found.append((world.state(), torch.is_grad_enabled()))
    return found


@pytest.mark.parametrize("size", [3, 3 << 20, 20 << 20], ids=["small", "large", "very-large"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_behind_writes(program: Callable[..., Any], size: int) -> None:
    fast = api.compile(program, dynamic=True)
    assert run(fast, size) == run(program, size)
    assert api.PLAIN or api.hits(fast) >= 1 or program is handled or program is left_with


@pytest.mark.parametrize("program", [alone, handled], ids=lambda program: program.__name__)
def test_fullgraph(program: Callable[..., Any]) -> None:
    fast = api.compile(program, dynamic=True, fullgraph=True)
    assert run(fast, 2 << 20) == run(program, 2 << 20)


@pytest.mark.skipif(api.PLAIN, reason="asks for fullgraph")
def test_fullgraph_behind_what_cannot_be_put_back() -> None:
    """Where the index is out of range, a replay leaves by an exit: so it's no break."""

    def program(x: Tensor, index: Tensor) -> Tensor:
        x.detach_()
        return x[index]

    leaving = stator.compile(program, fullgraph=True)
    for at in (1, 1, 7):
        kept = [torch.ones(3, requires_grad=True) for _ in range(2)]
        for call, x in zip((leaving, program), kept, strict=True):
            if at < 3:
                assert call(x, torch.tensor([at])) == 1
            else:
                with pytest.raises(IndexError, match="out of bounds"):
                    call(x, torch.tensor([at]))
            assert not x.requires_grad
    # Nothing can raise here.
    fine = stator.compile(lambda x: x.detach_() + 1, fullgraph=True)
    for _ in range(2):
        assert fine(torch.ones(3, requires_grad=True)).tolist() == [2, 2, 2]
