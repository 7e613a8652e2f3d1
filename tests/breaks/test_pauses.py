"""A recording that comes to nothing doesn't speak for all calls that follow."""

from __future__ import annotations

import itertools
import logging
import sys
import warnings

import pytest
import torch
from torch import Tensor, nn

import stator


def odd_or_not(x: Tensor, odd: bool) -> Tensor:
    """Nothing that has a `compress` on its stack can be resumed."""
    y = x * 2
    for k in itertools.compress([0, 1, 1], [1, 1, 1]) if odd else range(3):
        sys.stdout.write("")
        y = y + k
    return y


def test_an_odd_first_call_is_forgotten() -> None:
    compiled, x = stator.compile(odd_or_not), torch.randn(3)
    assert torch.equal(compiled(x, True), odd_or_not(x, True))
    assert stator.stats(compiled).native == 1
    for _ in range(3):
        assert torch.equal(compiled(x, False), odd_or_not(x, False))
    assert stator.stats(compiled).native == 1
    assert stator.stats(compiled).hits > 0


def test_entries_serve_behind_an_odd_call() -> None:
    compiled, x = stator.compile(odd_or_not), torch.randn(3)
    compiled(x, False)
    for _ in range(20):
        assert torch.equal(compiled(x, True), odd_or_not(x, True))
    before = stator.stats(compiled)
    assert before.native == 20
    assert torch.equal(compiled(x, False), odd_or_not(x, False))
    after = stator.stats(compiled)
    assert (after.native, after.hits) == (before.native, before.hits + 1)


def test_few_of_many_odd_calls_are_recorded(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(graph_breaks=True)
    caplog.set_level(logging.INFO, "stator")
    compiled, x = stator.compile(lambda x: odd_or_not(x, True)), torch.randn(3)
    for _ in range(500):
        compiled(x)
    assert stator.stats(compiled).native == 500
    # 1, 2, 4, 8, ..., 256
    assert sum(text.startswith("runs natively") for text in caplog.messages) == 9


def test_lazy_modules_are_traced_once_they_are_there() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    compiled = stator.compile(model)
    for _ in range(4):
        x = torch.randn(2, 5)
        found = compiled(x)
        assert torch.equal(found, model(x))
    assert type(model[0]) is nn.Linear
    assert stator.stats(compiled).native == 0
    assert stator.stats(compiled).hits == 2
