"""What a style of training steps is, and what many have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# A step, what it changes, and perhaps what is done between the calls (told the number of the call to come).
Style = tuple[Any, ...]
STYLES: dict[str, Callable[[], Style]] = {}


def style(make: Callable[[], Style]) -> Callable[[], Style]:
    STYLES[make.__name__] = make
    return make


def mlp(*between: nn.Module, out: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *between, nn.ReLU(), nn.Linear(8, out))


def batch(call: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(call)
    return torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)
