"""`ctc_loss`, whose backward pass needs memory for the longest target."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

from .results import same


def losses(x: Tensor, targets: Tensor, lengths: Tensor, reduction: str = "mean") -> Tensor:
    logp = x.log_softmax(-1)
    frames = torch.full((x.shape[1],), x.shape[0])
    return F.ctc_loss(logp, targets, frames, lengths, reduction=reduction, zero_infinity=True) * 2


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_and_gradients(reduction: str) -> None:
    compiled = stator.compile(losses)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(6):
            torch.manual_seed(call)
            given = torch.randn(12, 2 + call // 4, 5)
            targets = torch.randint(1, 5, (given.shape[1], 4))
            lengths = torch.randint(1, 5, (given.shape[1],))
            found = []
            for function in (losses, compiled):
                x = given.clone().requires_grad_()
                loss = function(x, targets, lengths, reduction)
                loss.sum().backward()
                found.append((loss, x.grad))
            assert same(found[0], found[1]), call
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks) == (2, 0), stats.reason


def test_lengths_that_it_refuses() -> None:
    def program(x: Tensor, targets: Tensor, lengths: Tensor) -> Any:
        try:
            return losses(x, targets, lengths)
        except (RuntimeError, ValueError) as error:
            return str(error)

    compiled = stator.compile(program)
    x, targets = torch.randn(12, 2, 5), torch.randint(1, 5, (2, 4))
    with stator.config.patch(skip_unprofitable=False):
        for lengths in ([2, 3], [4, 1], [-1, 2], [4, 4], [2, -5], [1, 1]):
            given = torch.tensor(lengths)
            assert same(program(x, targets, given), compiled(x, targets, given)), lengths
