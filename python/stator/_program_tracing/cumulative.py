"""Batch normalisation with `momentum=None`, in tensor programs.

Running statistics are the mean of all batches then. PyTorch reads how many there were into Python;
a program computes with that as a tensor.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import batchnorm

__all__ = ["SUBSTITUTES"]


def _forward(self: Any, input: Any) -> Any:
    counts = self.training and self.track_running_stats and self.num_batches_tracked is not None
    if self.momentum is not None or not counts:
        return _ORIGINAL(self, input)
    self._check_input_dim(input)
    self.num_batches_tracked.add_(1)
    # This batch's own.
    mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
    found = torch.nn.functional.batch_norm(
        input, mean, variance, self.weight, self.bias, True, 1.0, self.eps
    )
    with torch.no_grad():
        share = 1.0 / self.num_batches_tracked
        self.running_mean.mul_(1 - share).add_(mean * share)
        self.running_var.mul_(1 - share).add_(variance * share)
    return found


_FORWARD = batchnorm._BatchNorm.forward

# A function of its own, which isn't substituted.
_ORIGINAL = types.FunctionType(
    _FORWARD.__code__, _FORWARD.__globals__, "forward", None, _FORWARD.__closure__
)

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [(_FORWARD, _forward)]
