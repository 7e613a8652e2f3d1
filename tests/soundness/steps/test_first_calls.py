"""The first training step of a process: what PyTorch makes once doesn't break it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from differential.support import api

PROGRAM = """
import torch
from torch import nn
import stator

net = nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def step(x):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


function = torch.optim.Optimizer.zero_grad.__wrapped__
assert not hasattr(function, "__dynamo_disable")
with stator.config.patch(skip_unprofitable=False):
    compiled = stator.compile(step, backend="eager")
    losses = [compiled(torch.ones(4, 3)).item() for _ in range(5)]
assert losses == sorted(losses, reverse=True) and len(set(losses)) == 5
assert hasattr(function, "__dynamo_disable")
stats = stator.stats(compiled)
print(stats.breaks, stats.traces, stats.hits)
"""


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_a_step_that_forgets_gradients_behind_its_loss() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    breaks, traces, hits = map(int, done.stdout.split())
    assert breaks == 0 and traces <= 2 and hits >= 3
