"""Copies between devices, with pinned memory and without waiting; on the CPU alone, what pinning raises there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from .compare import World, differs, same


def x_of() -> Tensor:
    return torch.arange(12.0).reshape(3, 4)


def pins(x: Tensor, device: str) -> Any:
    y = (x + 1).pin_memory()
    return y.to(device, non_blocking=True) * 2, y.is_pinned()


def pins_and_handles(x: Tensor, device: str) -> Any:
    try:
        x = (x * 2).pin_memory()
    except RuntimeError as error:
        return x + 1, type(error).__name__
    return x.to(device, non_blocking=True)


def made_pinned(x: Tensor, device: str) -> Any:
    y = torch.empty(3, 4, pin_memory=True)
    y.copy_(x)
    return y.to(device, non_blocking=True) + 1


def asks(x: Tensor, device: str) -> Any:
    return x * 2 if x.is_pinned() else x * 3


def without_waiting(x: Tensor, device: str) -> Any:
    y = x.to(device, non_blocking=True) * 2
    z = torch.zeros_like(y)
    z.copy_(x, non_blocking=True)
    back = y.cpu()
    return y + z, back + 1, back.device, z.device


def casts(x: Tensor, device: str) -> Any:
    y = x.to(device, torch.float64, non_blocking=True, copy=True)
    z = x.to(device=device, dtype=torch.float32)
    return y * 2, z + 1, z is x, y.dtype


@pytest.mark.parametrize("fn", [pins, pins_and_handles, made_pinned, asks, without_waiting, casts])
def test_copies(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [x_of(), device]}

    def moves(world: World) -> None:
        world["args"][0] = x_of().to(device)

    def grows(world: World) -> None:
        world["args"][0] = torch.cat([x_of(), x_of()])[:3]

    same(make, grows, moves, replays=None)


def test_a_pinned_argument(cuda: str) -> None:
    """Whether memory is pinned is no metadata: it is asked for again at each call."""

    def make() -> World:
        return {"fn": asks, "args": [x_of(), cuda]}

    def pin(world: World) -> None:
        world["args"][0] = world["args"][0].pin_memory()

    differs(make, pin)
    same(make, pin, replays=None)


def test_back_without_waiting(cuda: str) -> None:
    """The host reads a copy that it hasn't waited for only behind `synchronize`."""

    def fn(x: Tensor, host: Tensor) -> Any:
        y = x * 2
        host.copy_(y, non_blocking=True)
        torch.cuda.synchronize()
        return host + 1, host.sum().item()

    def make() -> World:
        return {"fn": fn, "args": [x_of().to(cuda), torch.empty(3, 4, pin_memory=True)]}

    same(make, replays=None)


def test_batches(device: str) -> None:
    """A loader's batches, pinned where that is possible: one program for all."""

    def fn(x: Tensor, target: Tensor) -> Any:
        x, target = x.to(device, non_blocking=True), target.to(device, non_blocking=True)
        return (x.sum(1) - target).pow(2).mean()

    data = TensorDataset(torch.arange(32.0).reshape(8, 4), torch.arange(8.0))

    def load() -> Iterator[list[Tensor]]:
        return iter(DataLoader(data, batch_size=2, pin_memory=device == "cuda"))

    def make() -> World:
        batches = load()
        return {"fn": fn, "args": next(batches), "batches": Batches(batches)}

    def following(world: World) -> None:
        world["args"] = next(world["batches"].left)

    differs(make, following)
    same(make, following, following)


class Batches:
    """Holds an iterator, of which nothing is shown."""

    __slots__ = ("__weakref__", "_left")

    def __init__(self, left: Iterator[list[Tensor]]) -> None:
        BATCHES[id(self)] = left

    @property
    def left(self) -> Iterator[list[Tensor]]:
        return BATCHES[id(self)]


BATCHES: dict[int, Iterator[list[Tensor]]] = {}
