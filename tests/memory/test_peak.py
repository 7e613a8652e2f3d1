"""Intermediates die in a recorded call as they do in an eager one.

PyTorch's profiler reports every allocation and release of the CPU allocator with its size, in
order. It needs no mode and no hook in Python, so it doesn't disturb recording, and its sum is
exact where resident-set sizes of the process would drown a few activations in noise.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

LAYERS = 200
ALLOWED = 1.1


class Mlp(nn.Module):
    """Layers with their activations, each result used once."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + 1
        return x


def peak_bytes(fn: Callable[..., Any], *args: Any) -> int:
    """The largest sum of live bytes that were allocated during `fn(*args)`."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        result = fn(*args)
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    live = peak = 0
    for event in events:
        live += event.nbytes()
        peak = max(peak, live)
    del result
    return peak


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Mlp()


def test_the_measurement_sees_what_is_kept(net: nn.Module) -> None:
    """Otherwise the tests below would prove nothing."""
    kept: list[Tensor] = []

    def keeping(x: Tensor) -> Tensor:
        for layer in net.layers:  # type: ignore[union-attr]
            x = torch.relu(layer(x)) + 1
            kept.append(x)
        return x

    x = torch.randn(128, 64)
    with torch.no_grad():
        assert peak_bytes(keeping, x) > 20 * peak_bytes(net, x)


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "with gradients"])
def test_recorded_call(net: nn.Module, grad: bool) -> None:
    x = torch.randn(128, 64)
    with torch.set_grad_enabled(grad):
        net(x)
        eager = peak_bytes(net, x)
        compiled = api.compile(net)
        recorded = peak_bytes(compiled, x)
        replayed = peak_bytes(compiled, x)
    if not api.PLAIN:
        assert (api.traces(compiled), api.hits(compiled), api.native(compiled)) == (1, 1, 0)
    assert recorded <= ALLOWED * eager, f"recorded {recorded:,} bytes, eager {eager:,}"
    assert replayed <= ALLOWED * eager, f"replayed {replayed:,} bytes, eager {eager:,}"


def test_views_and_containers_do_not_keep(net: nn.Module) -> None:
    def fn(x: Tensor) -> Tensor:
        for i in range(100):
            pair: dict[str, Any] = {"a": x * 2, "b": [x + 1]}
            x = (pair["a"] - pair["b"][0]).view(-1)[: x.numel()].view(x.shape) + i
        return x

    x = torch.randn(128, 64)
    eager = peak_bytes(fn, x)
    compiled = api.compile(fn)
    assert peak_bytes(compiled, x) <= ALLOWED * eager
    assert peak_bytes(compiled, x) <= ALLOWED * eager


def test_nothing_stays_after_the_call(net: nn.Module) -> None:
    """Allocated minus released is the result alone."""
    compiled = api.compile(net)
    x = torch.randn(128, 64)
    for _ in range(2):
        result = None
        with (
            torch.no_grad(),
            profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof,
        ):
            result = compiled(x)
        events = prof.profiler.kineto_results.events()
        left = sum(e.nbytes() for e in events if e.name() == "[memory]")
        assert left == result.nbytes
