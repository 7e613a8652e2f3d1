"""Inductor beside the program: real compilations, of small functions."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import stats

LONG = 300


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    yield


def compiled_in(call: Any, *args: Any) -> Any:
    call(*args)
    assert stats(call).tiers in (["waiting"], ["compiling"])
    assert stator.wait(call, timeout=LONG)
    found = call(*args)
    assert stats(call).tiers == ["compiled"], stats(call).tiers
    return found


def test_a_function_and_its_gradients() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(8, 4)

    def loss(x: Tensor) -> Tensor:
        return torch.tanh(x @ weight).square().mean()

    state = torch.get_rng_state()
    compiled = stator.compile(loss, backend="inductor")
    torch.testing.assert_close(compiled_in(compiled, x), loss(x))
    assert torch.equal(torch.get_rng_state(), state)
    assert weight.grad is None
    threads = threading.active_count()
    compiled(x).backward()
    found, weight.grad = weight.grad, None
    loss(x).backward()
    torch.testing.assert_close(found, weight.grad)
    assert threading.active_count() == threads


def test_sizes_as_symbols() -> None:
    def scaled(x: Tensor) -> Tensor:
        return (x * 2 + x.shape[0]).sum(0)

    compiled = stator.compile(scaled, backend="inductor", dynamic=True)
    compiled_in(compiled, torch.randn(5, 3))
    for size in (2, 7, 5):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x), scaled(x))
    assert (stats(compiled).traces, stats(compiled).tiers) == (1, ["compiled"])


def test_inputs_arent_kept() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * 3

    compiled = stator.compile(scaled, backend="inductor")
    x = torch.randn(3)
    known = weakref.ref(x)
    compiled(x)
    del x
    gc.collect()
    assert known() is None
    stator.reset()
