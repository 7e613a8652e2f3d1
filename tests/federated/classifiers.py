"""Small models and clients for tests of learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import learning


def classifier(module: nn.Module, inputs: int) -> learning.Model:
    """A model of rows of so many numbers, which each have a label."""
    return learning.Model(
        module,
        F.cross_entropy,
        inputs=fl.TensorType(np.float32, [None, inputs]),
        labels=fl.TensorType(np.int64, [None]),
    )


def drawn_clients(sizes: tuple[int, ...], seed: int) -> list[Any]:
    """Clients with so many rows of four numbers, and one of three labels for each."""
    drawn = np.random.default_rng(seed)
    return [
        {
            "inputs": drawn.normal(size=(size, 4)).astype(np.float32),
            "labels": drawn.integers(0, 3, size),
        }
        for size in sizes
    ]
