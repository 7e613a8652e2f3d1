"""Recurrent layers, which hold weak references to their weights, at sizes that vary."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda layer: layer.__name__)
@pytest.mark.parametrize("training", [False, True])
def test_sizes_vary(layer: Any, training: bool) -> None:
    torch.manual_seed(0)
    module = layer(4, 8, num_layers=2, batch_first=True).train(training)
    compiled = stator.compile(module)
    for batch, length in [(2, 3), (3, 5), (4, 7), (5, 9), (6, 4), (2, 11), (7, 7), (9, 2)]:
        x = torch.randn(batch, length, 4)
        for found, expected in zip(flat(compiled(x)), flat(module(x)), strict=True):
            assert torch.equal(found, expected)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.native) == (2, 0, 0), stats.reason


def flat(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [leaf for item in value for leaf in flat(item)]


def test_weights_are_replaced() -> None:
    module = nn.LSTM(4, 8)
    compiled = stator.compile(module)
    x = torch.randn(3, 2, 4)
    for _ in range(2):
        assert torch.equal(compiled(x)[0], module(x)[0])
    module.weight_ih_l0 = nn.Parameter(torch.randn(32, 4))
    for _ in range(2):
        assert torch.equal(compiled(x)[0], module(x)[0])
    weights = {name: torch.randn_like(weight) for name, weight in module.named_parameters()}
    called = stator.compile(lambda x: torch.func.functional_call(module, weights, (x,))[0])
    for _ in range(3):
        assert torch.equal(called(x), torch.func.functional_call(module, weights, (x,))[0])
        assert torch.equal(compiled(x)[0], module(x)[0])


class Weight:
    def __init__(self, value: float) -> None:
        self.value = value


def test_references_in_a_list() -> None:
    kept = [Weight(2.0), Weight(3.0)]
    references = [weakref.ref(weight) for weight in kept]

    def total(x: Tensor) -> Tensor:
        for reference, weight in zip(references, kept, strict=True):
            x = x * 2 if reference() is weight else x + 1
        for _, reference in enumerate(references):
            x = x - (0 if reference() is None else 5)
        return x

    compiled = stator.compile(total)
    x = torch.ones(2)

    def check() -> None:
        for _ in range(3):
            assert torch.equal(compiled(x), total(x))

    check()
    kept[0] = Weight(2.0)
    check()
    references[1] = weakref.ref(kept[0])
    check()
    references[0] = weakref.ref(kept[0])
    check()
