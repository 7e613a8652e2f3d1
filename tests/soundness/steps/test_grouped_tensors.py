"""PyTorch groups tensors in C code: the lists that it makes may stand where other lists of the trace have stood."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn, optim

import stator

MODEL = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def run(optimizer: type[optim.Optimizer], clips: bool, compiles: bool) -> tuple[list[Any], Any]:
    model = copy.deepcopy(MODEL)
    steps = optimizer(model.parameters(), lr=0.01, foreach=True)  # type: ignore[call-arg]

    def step(x: Tensor) -> tuple[Tensor, Any]:
        steps.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        gradients = [it.grad for it in model.parameters() if it.grad is not None]
        norm = nn.utils.get_total_norm(gradients, foreach=True).item()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=True)
        steps.step()
        return loss.detach(), norm

    called = api.compile(step) if compiles else step
    with stator.config.patch(skip_unprofitable=False):
        seen = [called(torch.full((3, 4), 0.5 * number)) for number in range(6)]
    return [*seen, [it.detach() for it in model.parameters()]], called


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("optimizer", [optim.Adam, optim.AdamW, optim.RMSprop, optim.SGD])
def test_groups_behind_groups(optimizer: type[optim.Optimizer], clips: bool) -> None:
    expected, _ = run(optimizer, clips, compiles=False)
    found, compiled = run(optimizer, clips, compiles=True)
    for (loss, norm), (own, other) in zip(expected[:-1], found[:-1], strict=True):
        assert torch.equal(loss, own) and norm == other
    assert all(map(torch.equal, expected[-1], found[-1]))
    if not api.PLAIN:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.native) == (0, 0), stats.reason
