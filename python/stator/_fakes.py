"""Fake tensors, without threads of PyTorch's engine."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes


def fake_mode(**options: Any) -> FakeTensorMode:
    """A `FakeTensorMode` with these options.

    Where there is no accelerator it makes PyTorch believe in one, whose thread the engine would
    start at its first step backwards; then no forked child could go back (`DataLoader` and
    `multiprocessing` fork). An engine that has begun before starts none.
    """
    _begin_engine()
    return FakeTensorMode(**options)


@functools.cache
def _begin_engine() -> None:
    if torch.accelerator.is_available():
        return
    with (
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        torch.autograd.backward(torch.ones((), device="cpu", requires_grad=True))
