"""Which steps copy what they write before they begin: none whose operations leave by exits, or raise nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn, optim

import stator

SCHEDULERS: dict[str, Any] = {
    "cosine": lambda it: optim.lr_scheduler.CosineAnnealingLR(it, 1000),
    "restarts": lambda it: optim.lr_scheduler.CosineAnnealingWarmRestarts(it, 1000),
    "exponential": lambda it: optim.lr_scheduler.ExponentialLR(it, 0.99),
    "polynomial": lambda it: optim.lr_scheduler.PolynomialLR(it, 1000, power=0.9),
    "one cycle": lambda it: optim.lr_scheduler.OneCycleLR(it, 0.1, total_steps=1000),
    "the program's own": lambda it: optim.lr_scheduler.LambdaLR(
        it, lambda epoch: 0.5 * (1 + math.cos(epoch / 100)) * 0.99**epoch
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedules(kind: str) -> None:
    def training() -> tuple[Any, nn.Module]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = SCHEDULERS[kind](optimizer)

        def step(x: torch.Tensor, y: torch.Tensor) -> float:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss.item()

        return step, model

    (plain, expected), (step, model) = training(), training()
    compiled = stator.compile(step)
    x, y = torch.randn(16, 4), torch.randint(2, (16,))
    for _ in range(12):
        assert compiled(x, y) == plain(x, y)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loss = compiled(x, y)
    assert loss == plain(x, y)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert "aten::clone" not in {event.name for event in profile.events()}
    assert stator.stats(compiled).hits > 5
