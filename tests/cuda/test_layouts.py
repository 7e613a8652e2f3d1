"""Memory formats: `channels_last` of tensors and modules, changed between calls and in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .compare import SEED, World, differs, same


def images(device: str) -> Tensor:
    return (torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8) / 99).to(device)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        y = self.norm(self.conv(x)).relu()
        return self.head(self.pool(y).flatten(1)), y.stride(), y


def converts(x: Tensor) -> Any:
    y = x.to(memory_format=torch.channels_last)
    z = torch.empty_like(y, memory_format=torch.preserve_format).fill_(1)
    return y * 2 + z, y.contiguous(), y.is_contiguous(memory_format=torch.channels_last), y is x


def branches(x: Tensor) -> Any:
    if x.is_contiguous(memory_format=torch.channels_last):
        return x * 2, x.stride()
    return x * 3, x.stride()


def to_channels_last(world: World) -> None:
    world["args"][0] = world["args"][0].to(memory_format=torch.channels_last)


def to_contiguous(world: World) -> None:
    world["args"][0] = world["args"][0].contiguous()


@pytest.mark.parametrize("fn", [converts, branches])
def test_an_argument(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [images(device)]}

    differs(make, to_channels_last)
    same(make, to_channels_last, to_contiguous)


def test_a_module(device: str) -> None:
    def make() -> World:
        torch.manual_seed(SEED)
        model = Net().to(device).eval()
        return {"fn": lambda x: model(x), "args": [images(device)], "model": model}

    def module_too(world: World) -> None:
        world["model"].to(memory_format=torch.channels_last)

    differs(make, to_channels_last)
    same(make, to_channels_last, module_too, to_contiguous)
