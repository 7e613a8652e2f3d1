"""Programs over sequences of unknown length: networks over their steps, losses of them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stator.programs import TensorProgram, TensorSpec

LABELS = torch.tensor([[1, 2, 1], [2, 1, 0]])


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("how", [{}, {"batch_first": True}, {"bidirectional": True}])
def test_steps_of_unknown_number_take_one_steps_time(kind: Any, how: dict[str, bool]) -> None:
    net = kind(3, 4, num_layers=2, **how)

    def fn(x: Any) -> Any:
        weights = {name: of.detach().requires_grad_() for name, of in net.named_parameters()}
        rows = x[None] if how.get("batch_first") else x[:, None]
        output, ends = torch.func.functional_call(net, weights, (rows,))
        ends = ends[0] if isinstance(ends, tuple) else ends
        loss = output.square().mean() + ends.sum()
        return output.detach(), loss.detach(), *torch.autograd.grad(loss, weights.values())

    begin = time.perf_counter()
    program = TensorProgram.trace(fn, (TensorSpec(torch.float32, (None, 3)),))
    assert time.perf_counter() - begin < 20
    for steps in (1, 4, 7):
        x = torch.randn(steps, 3)
        for found, expected in zip(program(x), fn(x), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_labels_of_sequences(reduction: str) -> None:
    """`ctc_loss`, whose lengths are data."""

    def fn(x: Any, lengths: Any) -> Any:
        x = x.detach().requires_grad_()
        loss = F.ctc_loss(
            x.log_softmax(-1), LABELS, lengths, torch.tensor([3, 2]), reduction=reduction
        )
        return loss.detach(), torch.autograd.grad(loss.sum(), x)[0]

    specs = TensorSpec(torch.float32, (None, 2, 5)), TensorSpec(torch.int64, (2,))
    program = TensorProgram.trace(fn, specs)
    assert program.outputs[0].shape == ((2,) if reduction == "none" else ())
    for steps in (6, 9):
        given = torch.randn(steps, 2, 5), torch.tensor([steps, steps - 1])
        for found, expected in zip(program(*given), fn(*given), strict=True):
            torch.testing.assert_close(found, expected)
