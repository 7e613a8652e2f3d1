"""Streams and events: what the program selects, waits for and records, and what is selected around the call.

`torch.cpu` has functions of the same names: they run dry on those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .compare import CALLS, World, differs, same

LONG = 20_000_000
"""Cycles that a kernel sleeps for: whoever doesn't wait for it sees what was there before."""


def library(device: str) -> Any:
    return getattr(torch, device)


def sleep(device: str) -> None:
    if device == "cuda":
        torch.cuda._sleep(LONG)


def inside(x: Tensor, device: str, stream: Any) -> Any:
    """Work on another stream, which is waited for on both sides."""
    lib = library(device)
    y = x * 2
    if device == "cuda":
        stream.wait_stream(lib.current_stream())
    with lib.stream(stream):
        sleep(device)
        z = y + 1
        z = z * z
    if device == "cuda":
        lib.current_stream().wait_stream(stream)
    return z - y


def made_here(x: Tensor, device: str, stream: Any) -> Any:
    lib = library(device)
    own = lib.Stream()
    y = x + 1
    lib.synchronize()
    with lib.stream(own):
        sleep(device)
        z = y * 3
    lib.synchronize()
    return z, y


def outlives(x: Tensor, device: str, stream: Any) -> Any:
    """The side stream still reads `y` when later lines ask for memory of its size: it must live until the end."""
    lib = library(device)
    y = x * 2
    if device == "cuda":
        stream.wait_stream(lib.current_stream())
    with lib.stream(stream):
        sleep(device)
        z = y + 1
    others = [x * factor for factor in (5, 6, 7, 8)]
    if device == "cuda":
        lib.current_stream().wait_stream(stream)
    return z + others[0] + others[1] + others[2] + others[3]


@pytest.mark.parametrize("fn", [inside, made_here, outlives])
def test_in_the_program(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        x = torch.arange(4096.0).to(device)
        return {"fn": fn, "args": [x, device, library(device).Stream()]}

    def other(world: World) -> None:
        world["args"][2] = library(device).Stream()

    same(make, other, replays=None)


def straight(x: Tensor) -> Any:
    y = x * 2
    return y + 1, torch.zeros(3, device=x.device) + y[:3]


def test_around_the_call(device: str) -> None:
    """A replay's operations run on the stream that is selected then, not on the recorded one."""
    lib = library(device)
    streams = [lib.Stream() for _ in range(3)]

    def make() -> World:
        return {"fn": straight, "args": [torch.arange(4096.0).to(device)]}

    same(
        make,
        lambda world: lib.stream(streams[0]),
        lambda world: lib.stream(streams[1]),
        lambda world: lib.stream(None),
        lambda world: lib.stream(streams[2]),
    )


def test_replays_are_on_the_selected_stream(cuda: str) -> None:
    """Without a wait the other stream sees the old data; an event recorded there says whether it is done."""
    from differential.support import api

    compiled = api.compile(straight)
    x = torch.arange(4096.0, device=cuda)
    side = torch.cuda.Stream()
    for call in range(CALLS):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG * 5)
            result, _ = compiled(x)
        done, main = side.record_event(), torch.cuda.current_stream().record_event()
        main.synchronize()
        # The first call records, for as long as that takes.
        assert call == 0 or not done.query(), "a replay hasn't waited for its stream"
        done.synchronize()
        assert torch.equal(result, x * 2 + 1)


def events(x: Tensor, event: torch.cuda.Event) -> Any:
    y = x * 2
    event.record()
    z = y + 1
    event.synchronize()
    return z, event.query()


def event_between_streams(x: Tensor, event: torch.cuda.Event) -> Any:
    side = torch.cuda.Stream()
    torch.cuda._sleep(LONG)
    y = x * 2
    event.record()
    side.wait_event(event)
    with torch.cuda.stream(side):
        z = y + 1
        z.record_stream(torch.cuda.current_stream())
        second = side.record_event()
    second.wait()
    return z * 2


@pytest.mark.parametrize("fn", [events, event_between_streams])
def test_events(fn: Callable[..., Any], cuda: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [torch.arange(4096.0, device=cuda), torch.cuda.Event()]}

    same(make, replays=None)


def asks(x: Tensor, device: str) -> Any:
    stream = library(device).current_stream()
    is_default = device == "cpu" or stream == torch.cuda.default_stream()
    return x * 2 if is_default else x * 3


def test_asks_for_the_stream(device: str) -> None:
    def make() -> World:
        return {"fn": asks, "args": [torch.ones(3, device=device), device]}

    side = library(device).Stream()
    if device == "cuda":
        differs(make, lambda world: torch.cuda.stream(side))
    same(make, lambda world: library(device).stream(side), lambda world: None, replays=None)


def test_of_two_devices(two_devices: int) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        with torch.cuda.device(1):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(LONG)
                z = y * 2
            torch.cuda.current_stream().wait_stream(side)
        return x + 1, z + 1, z.to(x.device) + x

    def make() -> World:
        torch.cuda.set_device(0)
        return {"fn": fn, "args": [torch.ones(9, device="cuda:0"), torch.ones(9, device="cuda:1")]}

    same(make, lambda world: torch.cuda.set_device(1), replays=None)
