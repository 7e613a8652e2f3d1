"""Replays and recordings wait for the device as often as plain Python does, and read back as much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

CALLS = 4

WAITS = {
    # What reads a tensor's data, on any device.
    *("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero"),
    # What waits for a CUDA device.
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy"),
    *("cuStreamSynchronize", "cuCtxSynchronize"),
}


def waits(body: Callable[[], Any], device: str) -> Counter[str]:
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        torch.cuda.synchronize()
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        body()
    found = {event.key: event.count for event in profiler.key_averages()}
    return Counter({name: count for name, count in found.items() if name in WAITS})


def straight(model: nn.Module, x: Tensor) -> Any:
    return model(x).relu().mean()


def item(model: nn.Module, x: Tensor) -> Any:
    loss = model(x).mean()
    return loss.item(), loss * 2


def branches(model: nn.Module, x: Tensor) -> Any:
    y = model(x)
    return y * 2 if y.sum() > 0 else y * 3


def loops(model: nn.Module, x: Tensor) -> Any:
    total = 0.0
    for row in x.split(1):
        total += model(row).sum().item()
    return total


def masks(model: nn.Module, x: Tensor) -> Any:
    y = model(x)
    return y[y > 0].sum(), y.tolist(), bool((y == y).all())


def trains(model: nn.Module, x: Tensor) -> Any:
    loss = model(x).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad  # type: ignore[operator]
            parameter.grad = None
    return loss.detach()


def draws(model: nn.Module, x: Tensor) -> Any:
    return nn.functional.dropout(model(x), 0.5) + torch.rand(2, device=x.device)


@pytest.mark.parametrize("fn", [straight, item, branches, loops, masks, trains, draws])
def test_waits(fn: Callable[..., Any], device: str) -> None:
    model = nn.Linear(4, 2).to(device)
    x = torch.arange(12.0).reshape(3, 4).to(device)
    fn(model, x)
    plain = waits(lambda: fn(model, x), device)
    compiled = api.compile(fn)
    for call in range(CALLS):
        found = waits(lambda: compiled(model, x), device)
        assert found <= plain, f"call {call}: {found - plain} beyond plain Python's"
    if fn in (straight, draws):
        # The profiler itself waits when it ends.
        assert plain <= waits(lambda: None, device)
        assert api.PLAIN or api.hits(compiled) == CALLS - 1
    else:
        others = plain - waits(lambda: None, device)
        assert others or fn is trains, "the test counts nothing"


def test_what_is_never_waited_for(cuda: str) -> None:
    """With `set_sync_debug_mode("error")` whatever waits raises."""
    model = nn.Linear(4, 2).to(cuda)
    x = torch.arange(12.0).reshape(3, 4).to(cuda)
    for fn in (straight, draws, trains):
        fn(model, x)
        compiled = api.compile(fn)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(CALLS):
                compiled(model, x)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_wait_that_raises(cuda: str) -> None:
    """The error of the debug mode is the program's, as plain Python gives it."""
    model = nn.Linear(4, 2).to(cuda)
    x = torch.arange(12.0).reshape(3, 4).to(cuda)
    compiled = api.compile(item)
    for mode in ("default", "default", "error", "error", "default"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            outcomes = []
            for fn in (item, compiled):
                try:
                    outcomes.append(fn(model, x)[0])
                except RuntimeError as error:
                    outcomes.append(str(error))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert outcomes[0] == outcomes[1]
        assert isinstance(outcomes[0], str) is (mode == "error")
